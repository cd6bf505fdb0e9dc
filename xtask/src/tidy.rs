//! The rules that the compiler does not check.
//!
//! The order below says which module may import which. The files under `tidy/` read the sources and find
//! violations of this order and of the smaller rules. All sources are parsed, so text in strings and comments
//! never counts.

mod docs;
mod imports;
mod pages;
mod shape;
mod test_files;

use std::fmt;

use crate::failure::Failure;
use crate::syntax;
use crate::workspace::{self, Source};

/// The sources of the library, to which the import rules and the rules about docs apply.
const LIBRARY: &str = "crates/tenure/src/";

/// The layers of a folder of the library, from the lowest to the highest. A module may import the modules
/// before it in its folder, with everything below them, and nothing beside or after it. A folder without a list
/// is treated as one module. `lib.rs` and files that only open a folder declare and re-export, and import
/// nothing.
struct Folder {
    name: &'static str,
    layers: &'static [&'static [&'static str]],
}

const FOLDERS: &[Folder] = &[
    Folder {
        name: "",
        layers: &[
            &["system"],
            &["model"],
            &["ledger"],
            &["world"],
            &["engine"],
            &["observe"],
            // The core uses engines only through the trait, and engines never see who waits or holds.
            &["core", "engines"],
            &["api"],
            &["guards"],
            &["pages"],
        ],
    },
    Folder {
        name: "model",
        layers: &[
            &["error", "finding", "moment", "profile"],
            &["name"],
            &["claim"],
            &["view"],
            &["options"],
            &["request"],
        ],
    },
    Folder {
        name: "core",
        layers: &[
            &["claim_state", "handover", "local_line", "trace_source"],
            &["live_claim"],
            &["claim_table", "outage", "request_builder"],
            &["handle"],
            &["reach"],
            &["guard", "watchdog"],
            &["acquire"],
        ],
    },
    Folder {
        name: "api",
        layers: &[
            &["hold", "setters"],
            &["primitives"],
            &["tenure"],
            &["detached", "examine", "telemetry"],
            &["blocking"],
        ],
    },
    Folder { name: "guards", layers: &[&["problem"], &["fencing", "idempotency"]] },
];

/// A violation of a rule, and its place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The path from the root.
    file: String,
    /// The line, from 1.
    line: usize,
    /// What is wrong, and which rule it violates.
    says: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.says)
    }
}

/// Checks every rule on every file, and prints the violations.
pub(crate) fn run() -> Result<(), Failure> {
    let paths = workspace::paths(&workspace::root())?;
    let sources = workspace::sources(&workspace::root(), shape::is_source)?;
    let mut findings = check(&sources)?;
    findings.extend(paths.iter().filter_map(|path| shape::check_name(path)));
    findings.extend(test_files::check_programs(&sources));
    let scenarios = workspace::read(&workspace::root(), test_files::SCENARIOS)?;
    findings.extend(test_files::check_scenarios(&sources, &scenarios));
    let pages = workspace::sources(&workspace::root(), |path| path.ends_with(".md"))?;
    findings.extend(pages::check(&paths, &pages));
    findings.sort();
    if findings.is_empty() {
        return Ok(());
    }
    findings.iter().for_each(|finding| println!("{finding}"));
    let what = match findings.len() {
        1 => "a rule is broken".to_owned(),
        many => format!("rules are broken in {many} places"),
    };
    Err(Failure::new(what).next("fix what is listed above; the rules are in xtask/src/tidy.rs"))
}

fn check(sources: &[Source]) -> Result<Vec<Finding>, Failure> {
    let library_root = sources.iter().find(|source| source.path == format!("{LIBRARY}lib.rs"));
    let library_root = library_root.ok_or_else(|| Failure::new("the library has no lib.rs"))?;
    let root = imports::Root::new(&syntax::parse(&library_root.path, &library_root.text)?);
    let mut findings = Vec::new();
    for source in sources {
        findings.extend(shape::check_text(source));
        if !source.path.ends_with(".rs") {
            continue;
        }
        let file = syntax::parse(&source.path, &source.text)?;
        let in_tests = syntax::is_test_file(&source.path);
        findings.extend(shape::check_syntax(&source.path, &file, in_tests));
        if source.path.starts_with(LIBRARY) && !in_tests {
            findings.extend(imports::check(&source.path, &file, &root, FOLDERS));
            findings.extend(docs::check(&source.path, &file));
        }
    }
    Ok(findings)
}
