//! The rules that no compiler checks.
//!
//! Who may import whom is the table below; the files under `tidy/` read the sources and find what
//! breaks it, and what breaks the smaller rules. Everything is parsed, so that text in strings and
//! comments never counts.

mod docs;
mod imports;
mod shape;
mod test_files;

use std::fmt;

use crate::failure::Failure;
use crate::syntax;
use crate::workspace::{self, Source};

/// The sources of the library, which the import rules and the rules about docs are for.
const LIBRARY: &str = "crates/tenure/src/";

/// The words as plain data. Everyone may import them, and they import only each other.
const WORDS: &[&str] = &["claim", "error", "moment", "name"];

/// One row of the table: a module with its folder, and whom it may import.
struct Rule {
    module: &'static str,
    may_import: &'static [&'static [&'static str]],
    because: &'static str,
}

/// Who may import whom in the library. A module may always import itself and its folder; a module
/// that has no row may not exist. `lib.rs` only declares and re-exports, and is not looked at.
const RULES: &[Rule] = &[
    // The words.
    Rule { module: "error", may_import: &[WORDS], because: "words import only words" },
    Rule { module: "moment", may_import: &[WORDS], because: "words import only words" },
    Rule { module: "name", may_import: &[WORDS], because: "words import only words" },
    Rule { module: "claim", may_import: &[WORDS], because: "words import only words" },
    Rule { module: "finding", may_import: &[], because: "plain data" },
    // The rule.
    Rule { module: "ledger", may_import: &[WORDS], because: "the ledger imports only words" },
    // The seam between core and engines.
    Rule { module: "system", may_import: &[], because: "below everything else" },
    Rule {
        module: "clock",
        may_import: &[WORDS, &["system"]],
        because: "the seam to the world knows nothing of locks",
    },
    Rule {
        module: "engine",
        may_import: &[WORDS, &["clock", "finding", "turn"]],
        because: "the trait knows the words, the world and where turns go",
    },
    Rule {
        module: "turn",
        may_import: &[WORDS, &["clock", "engine", "observe", "stake", "system"]],
        because: "the slots know the stakes in them, not who asks or holds",
    },
    Rule {
        module: "engines",
        may_import: &[WORDS, &["clock", "engine", "ledger", "observe", "system", "turn"]],
        because: "engines see the trait, the words and the ledger, never who waits, holds or renews",
    },
    // The core.
    Rule {
        module: "ask",
        may_import: &[WORDS, &["engine", "options", "stake"]],
        because: "what is asked for is plain data, written where its stake keeps it",
    },
    Rule {
        module: "stake",
        may_import: &[WORDS, &["ask", "local", "observe", "options"]],
        because: "a stake does no IO: it is told, and carries what ends with its hold",
    },
    Rule {
        module: "local",
        may_import: &[WORDS, &["clock", "system"]],
        because: "the process's own line knows nothing of engines and of time that runs out",
    },
    Rule {
        module: "outage",
        may_import: &[
            WORDS,
            &["client", "clock", "engine", "hold", "observe", "options", "stake", "turn"],
        ],
        because: "it says whether the engine is there and who goes on, and leaves the asking to others",
    },
    Rule {
        module: "observe",
        may_import: &[WORDS, &["ask", "clock", "options", "stake", "system"]],
        because: "it says what happened and decides nothing",
    },
    Rule {
        module: "options",
        may_import: &[WORDS, &["engine"]],
        because: "options are plain data, checked against the engine's profile",
    },
    Rule {
        module: "hold",
        may_import: &[WORDS, &["client", "observe", "options", "stake"]],
        because: "the guard knows its stake, and engines only through the core",
    },
    Rule {
        module: "acquire",
        may_import: &[
            WORDS,
            &["ask", "client", "engine", "hold", "local", "observe", "options", "outage", "stake"],
        ],
        because: "the waiting loop sees engines only through the trait",
    },
    Rule {
        module: "examine",
        may_import: &[WORDS, &["client", "finding"]],
        because: "it asks the engine through the core, and measures",
    },
    Rule {
        module: "telemetry",
        may_import: &[WORDS, &["client", "observe", "options"]],
        because: "it passes on what a program wants told, and what it asks",
    },
    Rule {
        module: "detached",
        may_import: &[WORDS, &["ask", "client", "hold", "options", "stake"]],
        because: "it passes a hold on, and sees engines only through the core",
    },
    Rule {
        module: "watchdog",
        may_import: &[
            WORDS,
            &[
                "client", "clock", "engine", "observe", "options", "outage", "stake", "system",
                "turn",
            ],
        ],
        because: "the watchdog carries what stakes decide, and sees engines only through the trait",
    },
    Rule {
        module: "primitives",
        may_import: &[
            WORDS,
            &["acquire", "ask", "client", "engine", "hold", "observe", "options", "stake"],
        ],
        because: "primitives are thin: a weight and a capacity for an ask, and what they add",
    },
    Rule {
        module: "blocking",
        may_import: &[
            WORDS,
            &["client", "detached", "engine", "finding", "hold", "options", "primitives", "stake"],
        ],
        because: "it waits for what the rest does, and does nothing itself",
    },
    // Beside the locks.
    Rule {
        module: "fencing",
        may_import: &[WORDS, &["observe", "problem"]],
        because: "what is written to knows the number and nothing of who holds",
    },
    Rule { module: "problem", may_import: &[], because: "a text with a status" },
    Rule {
        module: "idempotency",
        may_import: &[WORDS, &["client", "observe", "primitives", "problem"]],
        because: "it is a once for requests, and uses what everyone can",
    },
    Rule { module: "pages", may_import: &[], because: "the examples of the docs" },
    // Both.
    Rule {
        module: "client",
        may_import: &[
            WORDS,
            &["ask", "clock", "engine", "engines", "local", "observe", "options", "outage"],
            &["primitives", "stake", "system", "telemetry", "turn", "watchdog"],
        ],
        because: "it puts the core and an engine together, and leaves the rest to them",
    },
];

/// Something that breaks a rule, and where.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The path from the root.
    file: String,
    /// The line, from 1.
    line: usize,
    /// What is wrong, and which rule says so.
    says: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.says)
    }
}

/// Checks every rule on every file, and prints what breaks one.
pub(crate) fn run() -> Result<(), Failure> {
    let paths = workspace::paths(&workspace::root())?;
    let sources = workspace::sources(&workspace::root(), shape::is_source)?;
    let mut findings = check(&sources)?;
    findings.extend(paths.iter().filter_map(|path| shape::check_name(path)));
    findings.extend(test_files::check_programs(&sources));
    let scenarios = workspace::read(&workspace::root(), test_files::SCENARIOS)?;
    findings.extend(test_files::check_scenarios(&sources, &scenarios));
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
            findings.extend(imports::check(&source.path, &file, &root, RULES));
            findings.extend(docs::check(&source.path, &file));
        }
    }
    Ok(findings)
}
