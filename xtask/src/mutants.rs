//! Shows that the tests can fail: breaks the code on purpose, one mutant at a time, and each time the tests
//! must fail.
//!
//! It works on a copy under `target/mutants`, so a run that is interrupted leaves the sources unchanged. A
//! normal test run checks that every mutant applies to the code and compiles, and plays a few of them,
//! different ones each day.

mod keeping;
mod noticing;
mod table;
mod workbench;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use self::noticing::{RACES, SIMULATION};
use self::table::{MUTATIONS, Mutation};
use self::workbench::Workbench;
use crate::failure::Failure;

/// Which mutants are played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mutants {
    /// Those whose description, or the names of whose tests, contain these words: all, if there are none.
    About(String),
    /// Only a few; the others are only checked to apply and compile.
    Today,
}

/// The result of the tests for a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// They failed.
    Caught,
    /// They did not end, which counts as noticed.
    Hung,
    /// They passed.
    Survived,
    /// The mutant does not apply or does not compile, so it says nothing about the tests.
    Unfit(String),
}

/// The time limit of the tests, and the number of seeds of the simulation.
#[derive(Clone, Copy)]
struct Effort {
    patience: Duration,
    seeds: u32,
}

const WHOLE: Effort = Effort { patience: Duration::from_secs(600), seeds: 2_000 };
/// The limits for each mutant that a normal run plays.
const QUICK: Effort = Effort { patience: Duration::from_secs(120), seeds: 1_000 };
/// The number of mutants in a normal run whose tests are built and run quickly: the first costs a full build,
/// the others only the changed crates.
const PLAYED: usize = 2;

/// Plays mutants, and fails if one survives.
pub(crate) fn run(which: &Mutants) -> Result<(), Failure> {
    match which {
        Mutants::About(words) => run_about(words),
        Mutants::Today => run_today(),
    }
}

fn run_about(about: &str) -> Result<(), Failure> {
    let is_about =
        |entry: &&Mutation| entry.breaks.contains(about) || entry.tests.join(" ").contains(about);
    let chosen: Vec<_> = MUTATIONS.iter().filter(is_about).collect();
    if chosen.is_empty() {
        return Err(Failure::new(format!("no entry is about {about:?}"))
            .next("see `breaks` and `tests` in xtask/src/mutants/table.rs"));
    }
    let bench = Workbench::new()?;
    let mut sets: Vec<_> = chosen.iter().map(|mutation| mutation.tests).collect();
    sets.sort();
    sets.dedup();
    for tests in sets {
        let first = "the tests must build and pass before they can prove anything";
        bench.build(tests).map_err(|failure| failure.during("without a mutation").next(first))?;
        if bench.test(tests, WHOLE)? != Verdict::Survived {
            return Err(Failure::new("the tests fail without a mutation, so they prove nothing")
                .next(format!("cargo test {}", tests.join(" "))));
        }
    }
    play(&bench, &chosen, WHOLE)
}

fn run_today() -> Result<(), Failure> {
    let bench = Workbench::new()?;
    let rotten = bench.compile_all(&MUTATIONS)?;
    if !rotten.is_empty() {
        return Err(Failure::new(format!(
            "entries that do not fit the code:\n{}",
            rotten.join("\n")
        ))
        .next("make the entries in xtask/src/mutants/table.rs fit"));
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    play(&bench, &of_the_day(since.as_secs() / 86_400), QUICK)
}

/// Some of the mutants whose tests are built and run quickly, and one of the others, whose tests cost about a
/// minute. The day selects them. Neighbours in the table often have the same tests, so the others are selected
/// in steps that reach each of them.
fn of_the_day(day: u64) -> Vec<&'static Mutation> {
    let is_quick = |mutation: &&Mutation| [SIMULATION, RACES].contains(&mutation.tests);
    let (quick, others): (Vec<_>, Vec<_>) = MUTATIONS.iter().partition(is_quick);
    let first = day as usize * PLAYED;
    let mut chosen: Vec<_> = (first..first + PLAYED).map(|at| quick[at % quick.len()]).collect();
    chosen.push(others[day as usize * step(others.len()) % others.len()]);
    chosen
}

/// About a third of their number, without a common divisor.
fn step(count: usize) -> usize {
    let divides_both =
        |step: usize| (2..=step).any(|by| step.is_multiple_of(by) && count.is_multiple_of(by));
    (count / 3 + 1..count).find(|step| !divides_both(*step)).unwrap_or(1)
}

/// Plays all of them, even if one fails.
fn play(bench: &Workbench, chosen: &[&Mutation], effort: Effort) -> Result<(), Failure> {
    let mut survivors = 0;
    let mut unfit = 0;
    for mutation in chosen {
        let verdict = bench.try_out(mutation, effort)?;
        let shown = match &verdict {
            Verdict::Caught => "caught",
            Verdict::Hung => "hung",
            Verdict::Survived => "SURVIVED",
            Verdict::Unfit(_) => "UNFIT",
        };
        println!("      {shown:<9} {} ({})", mutation.breaks, mutation.file);
        match verdict {
            Verdict::Survived => survivors += 1,
            Verdict::Unfit(why) => {
                println!("{why}");
                unfit += 1;
            }
            Verdict::Caught | Verdict::Hung => {}
        }
    }
    match (survivors, unfit) {
        (0, 0) => Ok(()),
        _ => Err(Failure::new(format!(
            "of {} mutations {survivors} survived, and {unfit} do not fit the code",
            chosen.len()
        ))
        .next(
            "write a test that fails for each that survived, or show that it breaks nothing; \
               make the others in xtask/src/mutants/table.rs fit",
        )),
    }
}

/// The source with the mutation applied.
fn mutated(mutation: &Mutation, source: &str) -> Result<String, Failure> {
    let Mutation { breaks, file, find, replace, .. } = mutation;
    match source.matches(find).count() {
        1 => Ok(source.replacen(find, replace, 1)),
        count => Err(Failure::new(format!(
            "the entry {breaks:?}: {find:?} occurs {count} times in {file}"
        ))
        .next(
            "make the entry in xtask/src/mutants/table.rs fit the code: it must occur exactly once",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn every_entry_fits_the_code() {
        for mutation in MUTATIONS.iter() {
            let source = workspace::read(&workspace::root(), mutation.file).unwrap();
            let broken = mutated(mutation, &source).unwrap_or_else(|failure| panic!("{failure}"));
            assert_ne!(broken, source, "{}", mutation.breaks);
            assert!(
                mutation.file.starts_with("crates/tenure/"),
                "{} is not checked",
                mutation.file
            );
        }
    }

    #[test]
    fn every_entry_names_a_test_program() {
        let is_manifest = |path: &str| path.ends_with("/Cargo.toml");
        let manifests = workspace::sources(&workspace::root(), is_manifest).unwrap();
        for Mutation { breaks, tests, .. } in MUTATIONS.iter() {
            let named = |name: &str| format!("[[test]]\nname = \"{name}\"\n");
            let is_there = |name: &str| manifests.iter().any(|it| it.text.contains(&named(name)));
            match tests {
                ["--lib", ..] => {}
                ["--test", program, ..] => assert!(is_there(program), "{breaks}: {program}"),
                other => panic!("{breaks}: {other:?}"),
            }
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

    #[test]
    fn every_entry_has_its_day() {
        let words = |day| of_the_day(day).into_iter().map(|entry| entry.breaks);
        let mut played: Vec<_> = (20_000..20_100).flat_map(words).collect();
        played.sort_unstable();
        played.dedup();
        assert_eq!(played.len(), MUTATIONS.len());
        for count in 1..100 {
            let mut reached: Vec<_> = (0..count).map(|day| day * step(count) % count).collect();
            reached.sort_unstable();
            assert_eq!(reached, Vec::from_iter(0..count), "{count}");
        }
    }
}
