//! Parses the arguments into a validated command in one step.

use std::time::Duration;

use crate::mutants::Mutants;
use crate::torture::Torture;

/// The text for help, and for an unknown command.
pub(crate) const HELP: &str = "\
usage: cargo xtask <command>

  set-up           install what the tests need, and nothing else
  test [--all] [STEP]
                   run everything that a change needs, or one step of it (`cargo xtask test clippy`);
                   --all adds the slow tests and all mutants
  tidy             check imports, lengths of files and functions, docs, pages and links
  api [--write]    compare the public API with docs/api.txt, or write that file again
  chart [--write]  compare the pictures in the docs with the code that draws them, or draw them again
  mutants [--some | WORDS]
                   break the code on purpose and check that the tests notice: every mutant of the
                   table, those that `test` plays today, or those whose description contains WORDS
  torture [--minutes N] [--first-seed N]
                   run processes and faults on real servers, then the simulation with a million
                   seeds, or with new ones for N minutes";

/// A command with its options.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Print the help.
    Help,
    /// Install and check what the tests need.
    SetUp,
    /// Everything that a change needs.
    Test {
        /// Include the slow tests.
        all: bool,
        /// The only step to run; empty for all of them.
        only: String,
    },
    /// The rules that the compiler does not check.
    Tidy,
    /// The public API against its snapshot.
    Api {
        /// Replace the snapshot.
        write: bool,
    },
    /// Compare the picture of the worker's states with its table.
    Chart {
        /// Replace the picture.
        write: bool,
    },
    /// Break the code on purpose, to show that the tests can fail.
    Mutants(Mutants),
    /// Run processes under faults and the simulation for a long time.
    Torture(Torture),
}

/// Parses the arguments after the program's name; the error is one line for the user.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Command, String> {
    let args: Vec<String> = args.into_iter().collect();
    let Some((command, rest)) = args.split_first() else {
        return Err("no command was given".to_owned());
    };
    match command.as_str() {
        "help" | "--help" | "-h" => Ok(Command::Help),
        "set-up" => no_options(rest).map(|()| Command::SetUp),
        "test" => test(rest),
        "tidy" => no_options(rest).map(|()| Command::Tidy),
        "api" => Ok(Command::Api { write: flag(rest, "--write")? }),
        "chart" => Ok(Command::Chart { write: flag(rest, "--write")? }),
        "mutants" => Ok(Command::Mutants(mutants(rest)?)),
        "torture" => torture(rest).map(Command::Torture),
        unknown => Err(format!("there is no command {unknown:?}")),
    }
}

fn no_options(rest: &[String]) -> Result<(), String> {
    match rest.first() {
        None => Ok(()),
        Some(unknown) => Err(format!("there is no option {unknown:?} here")),
    }
}

fn flag(rest: &[String], known: &str) -> Result<bool, String> {
    match rest.split_first() {
        Some((first, rest)) if first == known => no_options(rest).map(|()| true),
        _ => no_options(rest).map(|()| false),
    }
}

fn test(rest: &[String]) -> Result<Command, String> {
    let (options, words): (Vec<_>, Vec<_>) =
        rest.iter().cloned().partition(|word| word.starts_with('-'));
    Ok(Command::Test { all: flag(&options, "--all")?, only: words.join(" ") })
}

fn mutants(rest: &[String]) -> Result<Mutants, String> {
    match rest.split_first() {
        Some((first, rest)) if first == "--some" => no_options(rest).map(|()| Mutants::Today),
        Some((option, _)) if option.starts_with('-') => no_options(rest).map(|()| Mutants::Today),
        _ => Ok(Mutants::About(rest.join(" "))),
    }
}

fn torture(rest: &[String]) -> Result<Torture, String> {
    let mut torture = Torture::default();
    let mut rest = rest.iter();
    while let Some(option) = rest.next() {
        let value = rest.next().ok_or_else(|| format!("{option} needs a number after it"))?;
        let number: u64 =
            value.parse().map_err(|_| format!("{option} needs a number, not {value:?}"))?;
        match option.as_str() {
            "--minutes" if number > 0 => {
                torture.at_least = Some(Duration::from_secs(number.saturating_mul(60)));
            }
            "--minutes" => return Err("--minutes needs at least 1".to_owned()),
            "--first-seed" => torture.first_seed = Some(number),
            unknown => return Err(format!("there is no option {unknown:?} here")),
        }
    }
    Ok(torture)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn each_command_is_read_with_its_options() {
        let test = |all, only: &str| Ok(Command::Test { all, only: only.to_owned() });
        assert_eq!(read("test"), test(false, ""));
        assert_eq!(read("test --all"), test(true, ""));
        assert_eq!(read("test no features"), test(false, "no features"));
        assert_eq!(read("api --write"), Ok(Command::Api { write: true }));
        assert_eq!(read("chart"), Ok(Command::Chart { write: false }));
        let about = |words: &str| Ok(Command::Mutants(Mutants::About(words.to_owned())));
        assert_eq!(read("mutants"), about(""));
        assert_eq!(read("mutants a turn"), about("a turn"));
        assert_eq!(read("mutants --some"), Ok(Command::Mutants(Mutants::Today)));
        let torture = Torture { at_least: Some(Duration::from_secs(120)), first_seed: Some(7) };
        assert_eq!(read("torture --first-seed 7 --minutes 2"), Ok(Command::Torture(torture)));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, says) in [
            ("", "no command"),
            ("tests", "no command \"tests\""),
            ("test --al", "no option \"--al\""),
            ("test --all --all", "no option \"--all\""),
            ("tidy --fix", "no option"),
            ("mutants --all", "no option"),
            ("torture --minutes", "needs a number"),
            ("torture --minutes soon", "needs a number, not \"soon\""),
            ("torture --minutes 0", "at least 1"),
            ("torture --seeds 3", "no option"),
        ] {
            let problem = read(line).unwrap_err();
            assert!(problem.contains(says), "{line}: {problem}");
        }
    }
}
