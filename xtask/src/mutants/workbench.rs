//! The copy of the workspace to which mutants are applied.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::table::Mutation;
use super::{Effort, Verdict, mutated};
use crate::failure::Failure;
use crate::workspace;

/// The folder of the files below the root of the copy. Both workspaces share a target folder, so that only the
/// crates themselves are built again. Cargo identifies a crate by its path relative to the root: with the same
/// path, the mutated crate would count as fresh in the real workspace.
const TREE: &str = "broken";
/// The settings that all members are built with, so that their dependencies are already built.
const ALL: [&str; 3] = ["--workspace", "--all-features", "--locked"];

pub(super) struct Workbench {
    root: PathBuf,
}

impl Workbench {
    /// Makes the copy, or updates it where the sources have changed.
    pub(super) fn new() -> Result<Workbench, Failure> {
        let bench = Workbench { root: workspace::scratch().join("mutants") };
        let (from, paths) = (workspace::root(), workspace::paths(&workspace::root())?);
        let tree = bench.root.join(TREE);
        fs::create_dir_all(&tree).map_err(|error| cannot_write(&tree, &error))?;
        for old in workspace::paths(&tree)?.iter().filter(|old| !paths.contains(old)) {
            let old = tree.join(old);
            fs::remove_file(&old).map_err(|error| cannot_write(&old, &error))?;
        }
        for path in &paths {
            let cannot = |error| Failure::new(format!("cannot read {path}: {error}"));
            let content = fs::read(from.join(path)).map_err(cannot)?;
            match path.as_str() {
                "Cargo.toml" => {
                    let moved = moved(&String::from_utf8_lossy(&content));
                    bench.write(path, moved.as_bytes())?;
                }
                "Cargo.lock" => bench.write(path, &content)?,
                path => bench.write(&in_tree(path), &content)?,
            }
        }
        Ok(bench)
    }

    /// Writes a file, but leaves an identical one alone: cargo rebuilds files that are newer.
    fn write(&self, path: &str, content: &[u8]) -> Result<(), Failure> {
        let to = self.root.join(path);
        if fs::read(&to).is_ok_and(|old| old == content) {
            return Ok(());
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
        }
        fs::write(&to, content).map_err(|error| cannot_write(&to, &error))
    }

    pub(super) fn try_out(&self, mutation: &Mutation, effort: Effort) -> Result<Verdict, Failure> {
        let path = in_tree(mutation.file);
        let whole = workspace::read(&self.root, &path)?;
        let broken = match mutated(mutation, &whole) {
            Ok(broken) => broken,
            Err(why) => return Ok(Verdict::Unfit(why.to_string())),
        };
        self.write(&path, broken.as_bytes())?;
        // A mutant that does not compile would look like one that was noticed.
        let verdict = match self.build(mutation.tests) {
            Ok(()) => self.test(mutation.tests, effort),
            Err(why) => Ok(Verdict::Unfit(why.to_string())),
        };
        self.write(&path, whole.as_bytes())?;
        verdict
    }

    /// Which mutants do not apply or do not compile, and why. All are tried together, which costs hardly more
    /// than one; only if that fails is each tried alone.
    pub(super) fn compile_all(&self, all: &[Mutation]) -> Result<Vec<String>, Failure> {
        if self.compile(all)?.is_ok() {
            return Ok(Vec::new());
        }
        let mut rotten = Vec::new();
        for mutation in all {
            if let Err(why) = self.compile(std::slice::from_ref(mutation))? {
                rotten.push(format!("{:?}:\n{why}", mutation.breaks));
            }
        }
        Ok(rotten)
    }

    /// Compiles these mutants together; the error says what is wrong with them.
    fn compile(&self, mutations: &[Mutation]) -> Result<Result<(), String>, Failure> {
        let mut whole = BTreeMap::new();
        for mutation in mutations {
            let path = in_tree(mutation.file);
            let source = workspace::read(&self.root, &path)?;
            whole.insert(path, source);
        }
        let mut broken = whole.clone();
        for mutation in mutations {
            if let Some(source) = broken.get_mut(&in_tree(mutation.file)) {
                match mutated(mutation, source) {
                    Ok(mutated) => *source = mutated,
                    Err(why) => return Ok(Err(why.to_string())),
                }
            }
        }
        broken.iter().try_for_each(|(path, source)| self.write(path, source.as_bytes()))?;
        let mut check = workspace::cargo(["check", "--quiet"]);
        self.prepare(check.args(ALL).args(["--test", "api"]));
        let output = check.output().map_err(|error| workspace::cannot_run("cargo check", &error));
        whole.iter().try_for_each(|(path, source)| self.write(path, source.as_bytes()))?;
        let output = output?;
        match output.status.success() {
            true => Ok(Ok(())),
            false => Ok(Err(String::from_utf8_lossy(&output.stderr).into_owned())),
        }
    }

    pub(super) fn build(&self, tests: &[&str]) -> Result<(), Failure> {
        let mut build = workspace::cargo(["test", "--no-run", "--quiet"]);
        self.prepare(build.args(ALL).args(tests));
        let output = build.output().map_err(|e| workspace::cannot_run("cargo test", &e))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Failure::new(format!("`{}` does not build:\n{said}", workspace::show(&build))))
    }

    pub(super) fn test(&self, tests: &[&str], effort: Effort) -> Result<Verdict, Failure> {
        let mut cargo = workspace::cargo(["test", "--quiet"]);
        cargo.args(ALL).args(tests);
        let mut limited = workspace::limited(&cargo, effort.patience);
        self.prepare(limited.env("TENURE_SEEDS", effort.seeds.to_string()));
        let status = limited.stdout(Stdio::null()).stderr(Stdio::null()).status();
        let status =
            status.map_err(|error| workspace::cannot_run(&workspace::show(&limited), &error))?;
        Ok(match status.code() {
            Some(0) => Verdict::Survived,
            Some(code) if workspace::TIMED_OUT.contains(&code) => Verdict::Hung,
            _ => Verdict::Caught,
        })
    }

    /// In the copy, with the target folder of the workspace.
    fn prepare(&self, command: &mut Command) {
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", workspace::scratch());
        // These files are not in the copy.
        command.env("TENURE_SERVERS", workspace::scratch().join("servers"));
        // The environment must not change which seeds are tried.
        command.env_remove("TENURE_FIRST_SEED").env_remove("TENURE_SLOW");
    }
}

fn in_tree(path: &str) -> String {
    format!("{TREE}/{path}")
}

/// The manifest of the workspace, with its members one folder deeper.
fn moved(manifest: &str) -> String {
    let members = ["\"crates/", "\"bench\"", "\"xtask\"", "\"fuzz\""];
    let moved = members.iter().fold(manifest.to_owned(), |text, member| {
        text.replace(member, &format!("\"{TREE}/{}", &member[1..]))
    });
    // A build for a single short run takes a third of the time with these settings.
    format!("{moved}\n[profile.dev.package.tenure]\nopt-level = 0\ndebug = false\n")
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_member_of_the_copy_is_where_it_is_in_the_workspace() {
        let manifest = workspace::read(&workspace::root(), "Cargo.toml").unwrap();
        let moved = moved(&manifest);
        let list = moved.lines().find(|line| line.starts_with("members")).unwrap();
        for member in list.split('"').skip(1).step_by(2) {
            assert!(member.starts_with("broken/"), "{member}");
        }
        let mut headings: Vec<_> = moved.lines().filter(|line| line.starts_with('[')).collect();
        let count = headings.len();
        headings.sort_unstable();
        headings.dedup();
        assert_eq!(headings.len(), count, "a heading occurs twice");
        for line in moved.lines().filter(|line| line.contains("path = ")) {
            assert!(line.contains("path = \"broken/"), "{line}");
        }
    }
}
