//! Proof that the tests can fail: the code is broken on purpose, one way at a time, and each time
//! the tests must notice.
//!
//! It works on a copy under `target/mutants`, so that a run that is stopped half-way leaves the
//! sources as they were.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::workspace;

/// One way to break the code.
struct Mutation {
    /// What it breaks, in the words of the invariants.
    breaks: &'static str,
    /// The file, from the root.
    file: &'static str,
    /// A piece of text that occurs exactly once in it.
    find: &'static str,
    /// What stands there instead.
    replace: &'static str,
    /// Which tests must fail, as arguments of `cargo test`.
    tests: &'static [&'static str],
}

/// The simulation notices most things.
const SIMULATION: &[&str] = &["-p", "tenure-testkit", "--test", "simulation"];
/// The conformance suite notices what is a promise about one call.
const CONFORMANCE: &[&str] = &["-p", "tenure-testkit", "--test", "memory", "virtual"];

/// What happens between two steps.
const RACES: &[&str] = &["-p", "tenure", "--test", "races"];

/// One claim as its own process sees it.
const STAKES: &[&str] = &["-p", "tenure", "--lib", "stake"];

/// Outages on virtual time.
const OUTAGES: &[&str] = &["-p", "tenure-testkit", "--test", "outage", "seeds"];

/// This process's own line.
const OWN_LINE: &[&str] = &["-p", "tenure", "--test", "outage"];

/// Ways to break the core, each of which a test must notice.
const MUTATIONS: &[Mutation] = &[
    Mutation {
        breaks: "whoever would go on alone does not stand in this process's own line",
        file: "crates/tenure/src/acquire/begun.rs",
        find: "if stake.outage() == OnOutage::Local {",
        replace: "if stake.outage() == OnOutage::Closed {",
        tests: OUTAGES,
    },
    Mutation {
        breaks: "whoever goes on alone leaves its place in this process's own line",
        file: "crates/tenure/src/outage.rs",
        find: "stake.accompany(place);",
        replace: "drop(place);",
        tests: OUTAGES,
    },
    Mutation {
        breaks: "an engine that is back stays out of reach",
        file: "crates/tenure/src/outage.rs",
        find: "let over = down.shards.remove(&shard).is_some() && down.shards.is_empty();",
        replace: "let over = shard == u32::MAX && down.shards.is_empty();",
        tests: OUTAGES,
    },
    Mutation {
        breaks: "a claim that was never sent is left on the engine",
        file: "crates/tenure/src/stake/companion.rs",
        find: "self.state().unsent = true;",
        replace: "",
        tests: OWN_LINE,
    },
    Mutation {
        breaks: "a turn of this process's own line that nobody takes stops the line",
        file: "crates/tenure/src/local.rs",
        find: "line.set_aside(now);",
        replace: "",
        tests: OWN_LINE,
    },
    Mutation {
        breaks: "the watchdog renews nothing, so that holds and places run out",
        file: "crates/tenure/src/watchdog.rs",
        find: "self.renew(batch, now);",
        replace: "let _ = (batch, now);",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "a dropped hold is not released",
        file: "crates/tenure/src/hold.rs",
        find: "core.leave(&self.stake, self.given);",
        replace: "let _ = core;",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "a turn is believed however old it is",
        file: "crates/tenure/src/acquire.rs",
        find: "if now <= grant.start_by {",
        replace: "if now <= grant.start_by || grant.first_life {",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "a turn from before the last contact is believed",
        file: "crates/tenure/src/stake/phase.rs",
        find: "if grant.fence <= floor)",
        replace: "if grant.fence < Fence::default() && grant.fence <= floor)",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "an end that comes before its grant is forgotten",
        file: "crates/tenure/src/stake.rs",
        find: "if let Some(ended) = ended {\n            state.lose(ended, None, todo);",
        replace: "if let Some(_ended) = ended {\n            let _ = &todo;",
        tests: RACES,
    },
    Mutation {
        breaks: "a hold is live after its deadline",
        file: "crates/tenure/src/stake.rs",
        find: "Phase::Held(held) if now >= held.good_until => Some(Ended::Expired),",
        replace: "Phase::Held(held) if now >= held.good_until + self.claim.ttl => Some(Ended::Expired),",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "the local deadline is later than the engine's",
        file: "crates/tenure/src/moment.rs",
        find: "remaining - remaining / 100 - allowance",
        replace: "remaining + remaining / 50 + allowance",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "nobody who waits looks again",
        file: "crates/tenure/src/stake/phase.rs",
        find: "if !self.in_flight =>",
        replace: "if self.in_flight && !self.in_flight =>",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "an answer that is heard late undoes when to look",
        file: "crates/tenure/src/stake/phase.rs",
        find: "place.look_again = place.look_again.min(self.hint);",
        replace: "",
        tests: STAKES,
    },
    Mutation {
        breaks: "whoever is told is not woken",
        file: "crates/tenure/src/turn.rs",
        find: "if let Some(waker) = todo.wake.take() {\n            waker.wake();",
        replace: "if let Some(waker) = todo.wake.take() {\n            drop(waker);",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "whoever waits is not known",
        file: "crates/tenure/src/stake.rs",
        find: "let before = state.waker.replace(cx.waker().clone());",
        replace: "let before = { let _ = cx; state.waker.take() };",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "an ask that is dropped stays in line",
        file: "crates/tenure/src/stake.rs",
        find: "Phase::Asking(_) => Stake::leaving(None),",
        replace: "Phase::Asking(_) => return None,",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "a newcomer passes the line",
        file: "crates/tenure/src/ledger.rs",
        find: "let comes_next = fits && self.shelf.head()?.is_none();",
        replace: "let comes_next = fits;",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "the first in line is granted although it does not fit",
        file: "crates/tenure/src/ledger.rs",
        find: "if head.weight > capacity.saturating_sub(held) {",
        replace: "if head.weight > capacity {",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "a hold outlives max_hold",
        file: "crates/tenure/src/stake.rs",
        find: "self.terms.max_hold.map_or(Moment::FAR, |max_hold| since + max_hold)",
        replace: "{ let _ = since; Moment::FAR }",
        tests: CONFORMANCE,
    },
    Mutation {
        breaks: "a wait is never over",
        file: "crates/tenure/src/acquire.rs",
        find: "Heard::Event(Event::Rung) if now >= self.deadline() => {",
        replace: "Heard::Event(Event::Rung) if now > Moment::FAR => {",
        tests: CONFORMANCE,
    },
    Mutation {
        breaks: "a turn that is not renewed ends with its first life",
        file: "crates/tenure/src/stake/phase.rs",
        find: "terms.renew || self.first_life || self.is_kept()",
        replace: "terms.renew || self.is_kept()",
        tests: CONFORMANCE,
    },
    Mutation {
        breaks: "a turn that comes late ends a hold that was detached",
        file: "crates/tenure/src/stake.rs",
        find: "(Phase::Held(_), _) | (Phase::Detached(_), Turn::Granted(_)) => true,",
        replace: "(Phase::Held(_), _) => true,",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "a hold is detached in its first life",
        file: "crates/tenure/src/detached.rs",
        find: "self.renew_for(stake.claim.ttl).await?;",
        replace: "",
        tests: CONFORMANCE,
    },
    Mutation {
        breaks: "hold_for is forgotten",
        file: "crates/tenure/src/stake.rs",
        find: "held.leave_at = since + self.terms.hold_for;\n                return (None, None);",
        replace: "Stake::leaving(Some(held.good_until))",
        tests: CONFORMANCE,
    },
];

/// How many seeds the simulation tries for each mutation.
const SEEDS: &str = "2000";
/// How many seconds the tests have; a mutation may make them wait for ever.
const PATIENCE: &str = "600";
/// What `timeout` ends with when the time is over, gently or by force.
const TIMED_OUT: [i32; 2] = [124, 137];

/// How the tests took a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// They failed.
    Caught,
    /// They did not end, which would be noticed too.
    Hung,
    /// They passed.
    Survived,
}

/// Tries each mutation, and demands that none survives.
pub(crate) fn run() -> Result<(), Failure> {
    let bench = Workbench::new()?;
    for tests in test_sets() {
        let built = bench.build(tests).map_err(|failure| failure.during("without a mutation"));
        built.map_err(|failure| {
            failure.next("the tests must build and pass before they can prove anything")
        })?;
        if bench.test(tests)? != Verdict::Survived {
            return Err(Failure::new("the tests fail without a mutation, so they prove nothing")
                .next(format!("cargo test {}", tests.join(" "))));
        }
    }
    let mut survivors = 0;
    for mutation in MUTATIONS {
        let verdict = bench.try_out(mutation)?;
        survivors += u32::from(verdict == Verdict::Survived);
        let shown = match verdict {
            Verdict::Caught => "caught",
            Verdict::Hung => "hung",
            Verdict::Survived => "SURVIVED",
        };
        println!("      {shown:<9} {} ({})", mutation.breaks, mutation.file);
    }
    match survivors {
        0 => Ok(()),
        many => Err(Failure::new(format!("{many} of {} mutations survived", MUTATIONS.len()))
            .next("write a test that fails for each, or show that it breaks nothing")),
    }
}

/// The different sets of tests that the table names.
fn test_sets() -> Vec<&'static [&'static str]> {
    let mut sets: Vec<_> = MUTATIONS.iter().map(|mutation| mutation.tests).collect();
    sets.sort();
    sets.dedup();
    sets
}

/// The source with the mutation in it.
fn mutated(mutation: &Mutation, source: &str) -> Result<String, Failure> {
    let Mutation { breaks, file, find, replace, .. } = mutation;
    match source.matches(find).count() {
        1 => Ok(source.replacen(find, replace, 1)),
        count => Err(Failure::new(format!(
            "the entry {breaks:?}: {find:?} occurs {count} times in {file}"
        ))
        .next("make the entry in xtask/src/mutants.rs fit the code: it must occur exactly once")),
    }
}

/// The copy of the workspace that is broken and mended.
struct Workbench {
    root: PathBuf,
    target: PathBuf,
}

impl Workbench {
    fn new() -> Result<Workbench, Failure> {
        let folder = workspace::scratch().join("mutants");
        let bench = Workbench { root: folder.join("sources"), target: folder.join("target") };
        let (from, paths) = (workspace::root(), workspace::paths(&workspace::root())?);
        fs::create_dir_all(&bench.root).map_err(|error| cannot_write(&bench.root, &error))?;
        for old in workspace::paths(&bench.root)?.iter().filter(|old| !paths.contains(old)) {
            let old = bench.root.join(old);
            fs::remove_file(&old).map_err(|error| cannot_write(&old, &error))?;
        }
        for path in &paths {
            let cannot = |error| Failure::new(format!("cannot read {path}: {error}"));
            bench.write(path, &fs::read(from.join(path)).map_err(cannot)?)?;
        }
        Ok(bench)
    }

    /// Writes a file, but leaves one that is the same alone: cargo builds again what is newer.
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

    fn try_out(&self, mutation: &Mutation) -> Result<Verdict, Failure> {
        let whole = workspace::read(&self.root, mutation.file)?;
        self.write(mutation.file, mutated(mutation, &whole)?.as_bytes())?;
        let verdict = self.build(mutation.tests).and_then(|()| self.test(mutation.tests));
        self.write(mutation.file, whole.as_bytes())?;
        verdict.map_err(|failure| {
            let entry = format!("the entry {:?}", mutation.breaks);
            failure.during(&entry).next("make the entry in xtask/src/mutants.rs compile")
        })
    }

    /// Builds the tests. A mutation that does not compile would look like one that was caught.
    fn build(&self, tests: &[&str]) -> Result<(), Failure> {
        let mut build = workspace::cargo(["test", "--no-run", "--quiet", "--locked"]);
        self.prepare(build.args(tests));
        let output = build.output().map_err(|e| workspace::cannot_run("cargo test", &e))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Failure::new(format!("`{}` does not build:\n{said}", workspace::show(&build))))
    }

    fn test(&self, tests: &[&str]) -> Result<Verdict, Failure> {
        let cargo = workspace::cargo(["test", "--quiet", "--locked"]);
        // `timeout` ends the whole group, so that no test goes on without anyone waiting for it.
        let mut limited = Command::new("timeout");
        limited.args(["--kill-after=5", PATIENCE]).arg(cargo.get_program());
        limited.args(cargo.get_args()).args(tests).env("TENURE_SEEDS", SEEDS);
        self.prepare(&mut limited);
        let status = limited.stdout(Stdio::null()).stderr(Stdio::null()).status();
        let status = status.map_err(|error| workspace::cannot_run("timeout", &error))?;
        Ok(match status.code() {
            Some(0) => Verdict::Survived,
            Some(code) if TIMED_OUT.contains(&code) => Verdict::Hung,
            _ => Verdict::Caught,
        })
    }

    /// In the copy, with a target folder of its own that all mutations share.
    fn prepare(&self, command: &mut Command) {
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        // Which seeds are tried must not depend on who runs it.
        command.env_remove("TENURE_FIRST_SEED").env_remove("TENURE_SLOW");
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_fits_the_code() {
        for mutation in MUTATIONS {
            let source = workspace::read(&workspace::root(), mutation.file).unwrap();
            let broken = mutated(mutation, &source).unwrap_or_else(|failure| panic!("{failure}"));
            assert_ne!(broken, source, "{}", mutation.breaks);
        }
    }

    #[test]
    fn an_entry_that_does_not_fit_is_named() {
        let find = "a";
        let entry = Mutation { breaks: "order", file: "x.rs", find, replace: "b", tests: &[] };
        assert_eq!(mutated(&entry, "cat").unwrap(), "cbt");
        for (source, times) in [("", 0), ("banana", 3)] {
            let failure = mutated(&entry, source).unwrap_err().to_string();
            assert!(failure.contains("\"order\""), "{failure}");
            assert!(failure.contains(&format!("{times} times in x.rs")), "{failure}");
        }
    }
}
