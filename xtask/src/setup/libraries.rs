//! Packages of other languages: libraries that talk to Ethereum nodes and a second node, so that every run
//! tests the relay with them; and the tools that check the clients and the dashboard.
//!
//! Each has a list of packages with their hashes, and is installed again when that list changes. The libraries
//! are beside the servers, where `crates/tenure-testkit/src/servers/libraries.rs` looks for them. JavaScript
//! imports packages from a folder above the importing file, so those of the clients are beside their lists.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::servers;
use crate::failure::Failure;
use crate::workspace;

/// The packages of one language.
struct Language {
    /// Their folder, below that of the servers.
    folder: &'static str,
    /// The path of the list.
    lists: &'static str,
    /// The file that names the packages; it is copied there, so that a change is noticed.
    list: &'static str,
    /// Further files that the installation needs.
    more: &'static [&'static str],
    install: fn(&Path) -> Result<(), Failure>,
    /// The advice if they cannot be installed.
    next: &'static str,
}

const LANGUAGES: &[Language] = &[
    Language {
        folder: "javascript",
        lists: RELAY,
        list: "package-lock.json",
        more: &["package.json", "none/package.json"],
        install: with_npm,
        next: NPM,
    },
    Language {
        folder: "python",
        lists: RELAY,
        list: "requirements.txt",
        more: &[],
        install: with_pip,
        next: PIP,
    },
    Language {
        folder: TOOLS,
        lists: "clients/python/tools",
        list: "requirements.txt",
        more: &[],
        install: with_pip,
        next: PIP,
    },
];

const RELAY: &str = "crates/tenure-relay/tests/libraries";
const PIP: &str = "install Python 3.11 to 3.14 with pip, and see that it can reach its index";
const NPM: &str = "install Node.js 18 or later with npm, and see that it can reach its registry";
/// The folder of mypy, hatchling and schemathesis, below that of the servers.
pub(crate) const TOOLS: &str = "tools";

/// Folders with a `package-lock.json` whose packages are installed beside it.
const BESIDE: &[&str] = &["clients/node", "crates/tenure-server/ui-tests"];

/// Installs packages that are missing or differ from the list; concurrently, because most of the time is
/// waiting.
pub(super) fn run() -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let mut running: Vec<_> =
            LANGUAGES.iter().map(|language| scope.spawn(|| bring_up_to_date(language))).collect();
        running.extend(BESIDE.iter().map(|folder| scope.spawn(|| install_beside(folder))));
        let crashed = |_| Err(Failure::new("the installation panicked"));
        running.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(crashed))
    })
}

fn bring_up_to_date(language: &Language) -> Result<(), Failure> {
    let lists = workspace::root().join(language.lists);
    let folder = servers::folder().join(language.folder);
    let listed = read(&lists.join(language.list))?;
    if fs::read(folder.join(language.list)).is_ok_and(|installed| installed == listed) {
        return Ok(());
    }
    println!("      installing the packages of {}", language.folder);
    install(language, &lists, &folder).map_err(|failure| failure.next(language.next))
}

/// `npm` empties the folder first, and the copy of the list is written last: a folder that has one is complete.
fn install_beside(folder: &str) -> Result<(), Failure> {
    let folder = workspace::root().join(folder);
    let copy = folder.join("node_modules/installed-packages.json");
    let listed = read(&folder.join("package-lock.json"))?;
    if fs::read(&copy).is_ok_and(|installed| installed == listed) {
        return Ok(());
    }
    println!("      installing the packages of {}", folder.display());
    with_npm(&folder).map_err(|failure| failure.next(NPM))?;
    fs::write(&copy, listed)
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", copy.display())))
}

/// Beside its final place, so that it moves there in one step and is never incomplete.
fn install(language: &Language, lists: &Path, folder: &Path) -> Result<(), Failure> {
    let mut scratch = folder.as_os_str().to_owned();
    scratch.push(format!(".part-{}", std::process::id()));
    let scratch = PathBuf::from(scratch);
    let cannot = |what: &str, error: std::io::Error| {
        Failure::new(format!("cannot {what} {}: {error}", folder.display()))
    };
    fs::create_dir_all(&scratch).map_err(|error| cannot("make", error))?;
    let installed = (|| {
        for file in language.more.iter().chain([&language.list]) {
            let (text, copy) = (read(&lists.join(file))?, scratch.join(file));
            fs::create_dir_all(copy.parent().unwrap_or(&scratch))
                .and_then(|()| fs::write(&copy, text))
                .map_err(|error| cannot("write", error))?;
        }
        (language.install)(&scratch)?;
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(|error| cannot("remove", error))?;
        }
        fs::rename(&scratch, folder).map_err(|error| cannot("write", error))
    })();
    let _ = fs::remove_dir_all(&scratch);
    installed
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| Failure::new(format!("cannot read {}: {error}", file.display())))
}

/// No code of the packages is run.
fn with_npm(folder: &Path) -> Result<(), Failure> {
    let mut npm = Command::new("npm");
    npm.args(["ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"]);
    workspace::run(npm.current_dir(folder).stdout(Stdio::null()))
}

fn with_pip(folder: &Path) -> Result<(), Failure> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
    pip.args(["--no-deps", "--no-compile", "--only-binary=:all:", "--require-hashes"]);
    pip.args(["--no-warn-conflicts", "--root-user-action=ignore"]);
    pip.arg("--target").arg(folder).arg("--requirement").arg(folder.join("requirements.txt"));
    workspace::run(pip.stdout(Stdio::null()))
}
