//! How much one step does, what it tells waiting claims, and what stays behind.

use std::time::Duration;

use tenure::engine::Moment;
use tenure::ledger::MOVES;

use super::language::{Script, check};

const CROWD: u32 = MOVES + 88;

#[test]
fn a_step_admits_up_to_its_bound_and_the_next_one_continues() {
    let mut script = Script::default();
    script.run("w claims 1048576 of 1048576");
    crowd(&mut script, "claims 1 of 1048576");
    assert_eq!(heard(&mut script, "w leaves"), (MOVES as usize, true));
    assert_eq!(heard(&mut script, "look"), (88, false));
    assert_eq!(script.line().holders().len(), CROWD as usize);
}

#[test]
fn a_step_sets_aside_up_to_its_bound_and_the_next_one_continues() {
    let mut script = Script::default();
    script.run("a claims");
    crowd(&mut script, "claims");
    script.run("last claims");
    (0..CROWD).for_each(|n| script.run(&format!("w{n} is deaf")));
    assert_eq!(heard(&mut script, "a leaves"), (MOVES as usize, true));
    assert_eq!(script.line().holders().len(), 0);
    assert_eq!(heard(&mut script, "look"), (89, false));
    assert_eq!(script.line().holders().len(), 1);
}

#[test]
fn a_step_ends_claims_up_to_its_bound_and_the_next_one_continues() {
    let mut script = Script::default();
    crowd(&mut script, "claims 1 of 1048576 for 5s");
    script.run("w claims 1048576 of 1048576; 5s pass");
    assert_eq!(heard(&mut script, "look"), (0, true));
    assert_eq!(script.line().holders().len(), 88);
    assert_eq!(heard(&mut script, "look"), (1, false));
    assert_eq!(script.line().holders().len(), 1);
}

#[test]
fn a_step_tells_the_outcome_up_to_its_bound_and_the_next_one_continues() {
    let mut script = Script::default();
    script.run("a claims once 60s");
    crowd(&mut script, "claims once 60s");
    assert_eq!(heard(&mut script, "a leaves done ok"), (MOVES as usize, true));
    assert_eq!(heard(&mut script, "look"), (88, false));
    assert!(script.line().is_unused());
}

#[test]
fn a_step_refuses_what_can_never_fit_up_to_its_bound_and_the_next_one_continues() {
    let mut script = Script::default();
    script.run("a claims 5 of 5");
    crowd(&mut script, "claims 4 of 5");
    script.run("last claims 3 of 5");
    assert_eq!(heard(&mut script, "resize 3"), (MOVES as usize, true));
    assert_eq!(heard(&mut script, "look"), (88, false));
    assert_eq!(heard(&mut script, "a leaves"), (1, false));
    script.check("", "= last x3 holds 604 for at first 2s; remembers for 86400s");
}

#[test]
fn a_step_with_a_move_to_spare_has_no_more() {
    let mut script = Script::default();
    script.run("a claims 1048576 of 1048576");
    (1..MOVES).for_each(|n| script.run(&format!("w{n} claims 1 of 1048576")));
    assert_eq!(heard(&mut script, "a leaves"), (MOVES as usize - 1, false));
}

#[test]
fn every_holder_is_found_however_many_came_and_went_before() {
    for (most, least) in (1..24).flat_map(|most| (0..=most).map(move |least| (most, least))) {
        let mut script = Script::default();
        (0..most).for_each(|n| script.run(&format!("r{n} claims 1 of 99")));
        (least..most).for_each(|n| script.run(&format!("r{n} leaves")));
        script.run("new claims 1 of 99; new claims");
        script.take_report();
        (0..least).for_each(|n| script.run(&format!("r{n} leaves")));
        script.run("new leaves");
        let report = script.take_report();
        assert!(report.iter().all(|line| line.ends_with("released")), "{most} {least} {report:?}");
        assert!(script.line().is_unused());
    }
}

#[test]
fn an_idle_line_is_as_good_as_new() {
    let mut script = Script::default();
    script.run("a claims 1 of 2; b claims 2 of 2; c claims 1 of 2; a leaves; b leaves; c leaves");
    assert!(script.line().is_unused());
    assert_eq!(script.line().remembers_until(), Moment::ORIGIN);
    assert_eq!(script.line().first_to_end(), None);
}

#[test]
fn a_used_line_is_not_idle_while_someone_holds_waits_or_is_set_aside() {
    let mut script = Script::default();
    for step in ["a claims", "b claims", "b is deaf; a leaves"] {
        script.run(step);
        assert!(!script.line().is_unused(), "{step}");
    }
    script.run("b leaves");
    assert!(script.line().is_unused());
}

#[test]
fn a_waiter_hears_which_fences_are_too_old_and_when_to_look() {
    let mut script = Script::default();
    script.run("a claims 1 of 2 for 9s; b claims 1 of 2 for 5s; 1s pass");
    let (floor, next_end) = script.waiting("c claims 2 of 2");
    assert_eq!((floor, next_end), (5, Duration::from_secs(4)));
    // Two numbers have been given since, one of them as a fence that c never heard of.
    script.run("b leaves; d claims 1 of 2; e tries 1 of 2");
    let (floor, next_end) = script.waiting("c claims");
    assert_eq!((floor, next_end), (6, Duration::from_secs(8)));
}

fn crowd(script: &mut Script, says: &str) {
    (0..CROWD).for_each(|n| script.run(&format!("w{n} {says}")));
    script.take_report();
}

/// How many words a step said, and whether there was more.
fn heard(script: &mut Script, step: &str) -> (usize, bool) {
    script.run(step);
    let report = script.take_report().concat();
    (report.matches("hears").count() + report.matches("misses").count(), report.contains("; more"))
}

#[test]
fn numbers_end_below_two_to_the_53_and_are_never_rounded() {
    check(
        "a claims seen 9007199254740990; a claims ticket 9007199254740990; b claims; b leaves
         c claims seen 9007199254740988; d claims; c renews; c leaves; d claims",
        "a: no numbers left
         a: no numbers left
         b: holds 2 for 30s
         b: released
         c: holds 9007199254740990 for 30s
         d: no numbers left
         c: holds 9007199254740990 for 30s
         c: released
         d: no numbers left
         = nobody",
    );
}
