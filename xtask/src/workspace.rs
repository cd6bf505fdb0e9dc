//! The workspace: its root, its files, and how programs are run in it.

use std::ffi::OsString;
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::failure::Failure;

/// A file with its path from the root, with `/` between the parts.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The path from the root.
    pub(crate) path: String,
    /// The contents.
    pub(crate) text: String,
}

/// The folder with the workspace's `Cargo.toml`.
pub(crate) fn root() -> PathBuf {
    // Cargo passes the path of this crate at run time. The path at build time may be that of another checkout
    // that shares the target folder.
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
    PathBuf::from(here).join("..").components().collect()
}

/// The folder for files that can be made again.
pub(crate) fn scratch() -> PathBuf {
    root().join("target")
}

/// The paths of all files from the root, sorted, without build output and hidden files.
///
/// It walks the tree instead of asking git, so that it also works in an unpacked archive, and sees files that
/// were not added yet.
pub(crate) fn paths(root: &Path) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let at = root.join(&folder);
        let cannot = |error| Failure::new(format!("cannot list {}: {error}", at.display()));
        for entry in fs::read_dir(&at).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            let kind = entry.file_type().map_err(cannot)?;
            let hidden = name.starts_with('.') && name != ".cargo";
            let is_ours = name != "target" && name != "node_modules";
            if kind.is_dir() && !hidden && is_ours {
                folders.push(path);
            } else if kind.is_file() && !hidden {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Reads the files below the root whose path `wanted` accepts.
pub(crate) fn sources(root: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<Source>, Failure> {
    let wanted = paths(root)?.into_iter().filter(|path| wanted(path));
    wanted.map(|path| read(root, &path).map(|text| Source { path, text })).collect()
}

/// Reads one file.
pub(crate) fn read(root: &Path, path: &str) -> Result<String, Failure> {
    fs::read_to_string(root.join(path))
        .map_err(|error| Failure::new(format!("cannot read {path}: {error}")))
}

/// Cargo itself, to be run at the root.
pub(crate) fn cargo<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    if !std::io::stderr().is_terminal() {
        // Nobody watches the build: a line per crate would only hide what matters.
        command.env("CARGO_TERM_QUIET", "true");
    }
    command
}

/// The exit status of a program that `limited` has ended, gently or by force.
pub(crate) const TIMED_OUT: [i32; 2] = [124, 137];

/// The same program at the root. It and all that it starts are ended when `limit` is over or this process is
/// gone.
pub(crate) fn limited(command: &Command, limit: Duration) -> Command {
    // `timeout` ends the whole process group. The group is no longer ours, so Ctrl-C would not reach it.
    let mut limited = Command::new("setpriv");
    limited.args(["--pdeathsig", "TERM", "timeout", "--kill-after=5"]);
    limited.arg(limit.as_secs().to_string());
    limited.arg(command.get_program()).args(command.get_args());
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited.current_dir(root()).stdin(Stdio::null());
    limited
}

/// Runs a program to its end; its output goes to our output.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let shown = show(command);
    let status = command.status().map_err(|error| cannot_run(&shown, &error))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new(format!("`{shown}` ended with {status}")))
    }
}

/// Runs a program to its end, and returns its output.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let shown = show(command);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| cannot_run(&shown, &error))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(Failure::new(format!("`{shown}` ended with {}", output.status)))
    }
}

/// The failure of a program that could not be started.
pub(crate) fn cannot_run(shown: &str, error: &std::io::Error) -> Failure {
    Failure::new(format!("`{shown}` could not be started: {error}"))
}

/// The command as one would type it.
pub(crate) fn show(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_stem().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
