//! Runs every check that a change needs, in one command.
//!
//! The steps run one by one, and the first failure ends the run, because later steps would only fail for the
//! same reason.

mod clients;
mod programs;

use std::time::Instant;

use crate::failure::Failure;
use crate::mutants::Mutants;
use crate::{api, chart, mutants, setup, tidy, workspace};

/// One step: its name, what to do when it fails, and how it runs.
struct Step {
    name: &'static str,
    next: &'static str,
    run: fn() -> Result<(), Failure>,
}

/// The steps that every change needs.
fn steps(all: bool) -> Vec<Step> {
    let mut steps = vec![
        Step { name: "set-up", next: "install what is missing", run: setup::run },
        Step { name: "format", next: "run `cargo fmt --all`", run: format },
        Step { name: "clippy", next: "fix the first warning above, and run again", run: clippy },
        Step {
            name: "no features",
            next: "fix the first warning above, and run again",
            run: no_features,
        },
        Step { name: "tidy", next: "fix what is listed above", run: tidy::run },
        Step { name: "api", next: "see the difference above", run: api::check },
        Step { name: "chart", next: "draw it anew, and look at it", run: chart::check },
        Step { name: "tests", next: "run one alone: `cargo test -p CRATE NAME`", run: tests },
        Step { name: "clients", next: "run the command alone, in its folder", run: clients::run },
        Step { name: "docs", next: "fix the first warning above, and run again", run: docs },
        Step {
            name: "mutants",
            next: "write a test that fails for what survived",
            run: || mutants::run(&Mutants::Today),
        },
    ];
    if all {
        // Slow tests are the same tests with more iterations, so they replace the fast ones.
        let next = "run one alone: `TENURE_SLOW=1 cargo test -p CRATE NAME`";
        let slow = Step { name: "tests, with the slow ones", next, run: slow_tests };
        steps.retain(|step| step.name != "tests" && step.name != "mutants");
        steps.push(slow);
        let next = "fix the first warning above, and run again";
        steps.push(Step { name: "features", next, run: features });
        let next = "write a test that fails for what survived";
        steps.push(Step {
            name: "mutants",
            next,
            run: || mutants::run(&Mutants::About(String::new())),
        });
    }
    steps
}

/// Runs the steps, or `only` one of them; with `all`, the slow ones, too.
pub(crate) fn run(all: bool, only: &str) -> Result<(), Failure> {
    let began = Instant::now();
    let mut steps = steps(all);
    if !only.is_empty() {
        let names: Vec<_> = steps.iter().map(|step| step.name).collect();
        steps.retain(|step| step.name == only);
        if steps.is_empty() {
            let known = names.join(", ");
            return Err(
                Failure::new(format!("there is no step {only:?}")).next(format!("one of: {known}"))
            );
        }
    }
    for (index, step) in steps.iter().enumerate() {
        println!("[{}/{}] {}", index + 1, steps.len(), step.name);
        let began = Instant::now();
        (step.run)().map_err(|failure| failure.during(step.name).next(step.next))?;
        println!("      ok in {:.1} s", began.elapsed().as_secs_f64());
    }
    println!("all {} steps passed in {:.1} s", steps.len(), began.elapsed().as_secs_f64());
    Ok(())
}

fn format() -> Result<(), Failure> {
    workspace::run(&mut workspace::cargo(["fmt", "--all", "--check"]))
}

fn clippy() -> Result<(), Failure> {
    let mut clippy = workspace::cargo(["clippy", "--workspace", "--all-targets", "--all-features"]);
    workspace::run(clippy.args(["--locked", "--", "-D", "warnings"]))
}

/// Checks that the packages build without any features; all other steps use all features.
fn no_features() -> Result<(), Failure> {
    PACKAGES.iter().try_for_each(|package| clippy_with(package, ""))?;
    let tree = ["tree", "--locked", "--no-default-features", "-p", "tenure"];
    let tree =
        workspace::output(workspace::cargo(tree).args(["-e", "normal", "--prefix", "none"]))?;
    match heavy_crates(&tree).as_slice() {
        [] => Ok(()),
        found => {
            let found = found.join(", ");
            Err(Failure::new(format!("a program that uses memory: alone compiles {found}")))
        }
    }
}

/// The crates that engines and the lock server depend on.
const HEAVY: [&str; 9] = [
    "axum",
    "hyper",
    "libsqlite3-sys",
    "redis",
    "ring",
    "rusqlite",
    "rustls",
    "sha1",
    "tokio-postgres",
];

/// The crates in `tree` that belong to engines which a program can leave out.
fn heavy_crates(tree: &str) -> Vec<&str> {
    let crates = tree.lines().filter_map(|line| line.split_whitespace().next());
    let is_heavy = |name: &&str| HEAVY.contains(name);
    crates.filter(is_heavy).collect()
}

/// Checks that the packages build with each of their features alone.
fn features() -> Result<(), Failure> {
    for package in PACKAGES {
        let manifest =
            workspace::read(&workspace::root(), &format!("crates/{package}/Cargo.toml"))?;
        feature_names(&manifest).try_for_each(|feature| clippy_with(package, feature))?;
    }
    // Only a build that lacks an engine can test the message about it.
    let test =
        ["test", "--locked", "--no-default-features", "-p", "tenure", "--lib", "tenure::open"];
    workspace::run(&mut workspace::cargo(test))?;
    let test = ["test", "--locked", "--no-default-features", "-p", "tenure-cli", "args::"];
    workspace::run(&mut workspace::cargo(test))
}

const PACKAGES: [&str; 5] =
    ["tenure", "tenure-http", "tenure-server", "tenure-relay", "tenure-cli"];

fn clippy_with(package: &str, feature: &str) -> Result<(), Failure> {
    let args = ["clippy", "--quiet", "--locked", "--no-default-features", "-p", package];
    let with = ["--features", feature, "--", "-D", "warnings"];
    workspace::run(workspace::cargo(args).args(with))
}

/// The features in a manifest.
fn feature_names(manifest: &str) -> impl Iterator<Item = &str> {
    let lines = manifest.lines().skip_while(|line| *line != "[features]").skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| line.split_once('=')).map(|(name, _)| name.trim())
}

fn tests() -> Result<(), Failure> {
    programs::run(&[])
}

fn slow_tests() -> Result<(), Failure> {
    programs::run(&[("TENURE_SLOW", "1")])
}

fn docs() -> Result<(), Failure> {
    let mut doc =
        workspace::cargo(["doc", "--workspace", "--all-features", "--no-deps", "--locked"]);
    workspace::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_engines_are_found_in_a_tree() {
        let tree = "tenure v0.1.0 (/x)\nring v0.17.14\ntracing v0.1.44\nring v0.17.14 (*)\n";
        assert_eq!(heavy_crates(tree), ["ring", "ring"]);
        let of_engines = "tokio-postgres v0.7.15\nhyper v1.12.0\naxum v0.8.9\n";
        assert_eq!(heavy_crates(of_engines), ["tokio-postgres", "hyper", "axum"]);
        assert!(heavy_crates("rustix v1.1.6\nsha2 v0.11.1\n").is_empty());
    }

    #[test]
    fn features_are_found_in_the_manifest() {
        let manifest =
            "[package]\nname = 1\n[features]\n# why\na = []\nb-c = []\n\n[lints]\ne = 1\n";
        assert_eq!(feature_names(manifest).collect::<Vec<_>>(), ["a", "b-c"]);
    }
}
