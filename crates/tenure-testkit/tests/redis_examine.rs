//! Servers that are fit for locks, and servers that are not: each finding is provoked on a real one.

use crate::redis_site;
mod rights;
mod settings;
mod topologies;

use tenure::{Finding, Mark, Tenure};

use redis_site::*;

/// The findings about the server of the URL.
async fn examined(url: &str) -> Vec<Finding> {
    within(secs(60), Tenure::examine_at(url)).await.expect("a server that can be reached")
}

/// The findings with that name; there must be at least one.
#[track_caller]
fn about<'a>(findings: &'a [Finding], check: &str) -> Vec<&'a Finding> {
    let found: Vec<_> = findings.iter().filter(|finding| finding.check == check).collect();
    assert!(!found.is_empty(), "nothing is said about {check}: {findings:#?}");
    found
}

/// The finding of that name, which must be the only one.
#[track_caller]
fn one<'a>(findings: &'a [Finding], check: &str) -> &'a Finding {
    match about(findings, check)[..] {
        [one] => one,
        _ => panic!("more than one about {check}: {findings:#?}"),
    }
}

#[track_caller]
fn says(finding: &Finding, mark: Mark, words: &[&str]) {
    assert_eq!(finding.mark, mark, "{finding:#?}");
    let text = format!("{finding} {:?} {:?}", finding.why, finding.fix);
    words.iter().for_each(|word| assert!(text.contains(word), "{word:?} in {finding:#?}"));
    assert!(mark == Mark::Good || finding.fix.is_some(), "what to do? {finding:#?}");
}

/// Checks that only the named findings are not good. How fast an answer comes depends on the machine.
#[track_caller]
fn only(findings: &[Finding], checks: &[&str]) {
    let bad = findings.iter().filter(|finding| finding.mark != Mark::Good);
    let bad: Vec<_> = bad.map(|finding| finding.check).filter(|it| *it != "latency").collect();
    assert_eq!(bad, checks, "{findings:#?}");
}
