//! Finds tests that would never run, and scenarios without a description.

use std::collections::BTreeSet;

use super::Finding;
use crate::workspace::Source;

/// The page with the scenarios that tests are named after.
pub(crate) const SCENARIOS: &str = "docs/scenarios.md";

/// Crates list their test programs, so a file beside them is only built if one of the programs has it as a
/// module.
pub(crate) fn check_programs(sources: &[Source]) -> Vec<Finding> {
    let folder = |source: &Source| {
        let (folder, _) = source.path.rsplit_once('/')?;
        (folder.starts_with("crates/") && folder.ends_with("/tests") && !folder.contains("/src/"))
            .then(|| folder.to_owned())
    };
    let tests: Vec<_> = sources.iter().filter_map(|it| Some((folder(it)?, it))).collect();
    let forgotten = |(folder, source): &&(String, &Source)| {
        let name = source.path.rsplit('/').next().and_then(|file| file.strip_suffix(".rs"));
        let Some(name) = name else { return false };
        let manifest = folder.replace("/tests", "/Cargo.toml");
        let is_program = sources.iter().any(|it| {
            it.path == manifest && it.text.contains(&format!("[[test]]\nname = \"{name}\""))
        });
        let line = format!("mod {name};");
        let is_module = tests
            .iter()
            .any(|(beside, it)| beside == folder && it.text.lines().any(|text| text == line));
        !is_program && !is_module
    };
    let says = "no test program has this file: add a `mod` line to the one it belongs to";
    let finding = |(_, source): &(String, &Source)| Finding {
        file: source.path.clone(),
        line: 1,
        says: says.to_owned(),
    };
    tests.iter().filter(forgotten).map(finding).collect()
}

/// A test that is called `s28_…` plays scenario 28, which has a row.
pub(crate) fn check_scenarios(sources: &[Source], scenarios: &str) -> Vec<Finding> {
    let rows = scenarios.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next());
    let rows: BTreeSet<&str> = rows.collect();
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.path.ends_with(".rs")) {
        for (index, line) in source.text.lines().enumerate() {
            let name = line.trim_start().trim_start_matches("async ").strip_prefix("fn s");
            let number = name.and_then(|name| name.split_once('_')).map(|(number, _)| number);
            let Some(number) = number.filter(|number| number.parse::<u32>().is_ok()) else {
                continue;
            };
            if !rows.contains(number) {
                let says = format!("scenario {number} has no row in {SCENARIOS}");
                findings.push(Finding { file: source.path.clone(), line: index + 1, says });
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_test_file_that_no_program_has_is_found() {
        let sources = [
            source("crates/a/Cargo.toml", "[[test]]\nname = \"api\"\n"),
            source("crates/a/tests/api.rs", "mod one;\n"),
            source("crates/a/tests/one.rs", ""),
            source("crates/a/tests/two.rs", ""),
            source("crates/a/tests/one/part.rs", ""),
            source("crates/a/src/tests/three.rs", ""),
        ];
        let found = check_programs(&sources);
        assert_eq!(found.iter().map(|it| &*it.file).collect::<Vec<_>>(), ["crates/a/tests/two.rs"]);
    }

    #[test]
    fn a_scenario_without_a_row_is_found() {
        let text = "fn s1_it_works() {}\nasync fn s22_it_waits() {}\nfn sum_of() {}\n";
        let found = check_scenarios(&[source("x.rs", text)], "| 1 | a | b |\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].says.contains("22") && found[0].line == 2, "{found:?}");
    }
}
