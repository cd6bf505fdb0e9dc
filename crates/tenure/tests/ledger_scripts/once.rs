//! Work that is done once.

use super::language::check;

#[test]
fn what_is_done_is_replayed_for_as_long_as_it_is_kept() {
    check(
        "a claims once 60s; 10s pass; a leaves done ok; b claims once 60s; 59s pass; c tries once 60s; show
         1s pass; d claims once 60s",
        "a: holds 2 for 30s
         a: released
         b: settled ok
         c: settled ok
         = nobody; remembers for 1s
         d: holds 4 for 30s
         = d holds 4 for 30s; remembers for 60s",
    );
}

#[test]
fn work_that_takes_longer_than_it_is_kept_still_leaves_its_outcome() {
    check(
        "a claims once 3s; 5s pass; a leaves done ok; b claims once 3s",
        "a: holds 2 for 30s
         a: released
         b: settled ok
         = nobody; remembers for 3s",
    );
}

#[test]
fn waiters_get_the_outcome() {
    check(
        "a claims once 60s; b claims once 60s; c claims once 60s; c is deaf; a leaves done ok; c keeps",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         a: released; b hears settled ok; c misses settled ok
         c: settled ok
         = nobody; remembers for 60s",
    );
}

#[test]
fn work_that_did_not_happen_is_run_by_the_next_one() {
    check(
        "a claims once 60s; b claims once 60s; a leaves undone; b leaves undone; show; c claims once 60s",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         a: released; b hears granted 4 for at first 2s
         b: released
         = nobody
         c: holds 6 for 30s
         = c holds 6 for 30s; remembers for 60s",
    );
}

#[test]
fn a_once_that_was_never_settled_is_refused() {
    check(
        "a claims once 60s for 5s; b claims once 60s; 5s pass; look; b claims; c tries once 60s",
        "a: holds 2 for 5s
         b: waits with 3, 0 ahead
         look: done; b hears look again
         b: unsettled
         c: unsettled
         = nobody; remembers for 55s",
    );
}

#[test]
fn a_holder_that_leaves_without_a_word_leaves_it_unsettled() {
    check(
        "a claims once 60s; b claims once 60s; a leaves; b claims",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         a: released; b hears look again
         b: unsettled
         = nobody; remembers for 60s",
    );
}

#[test]
fn a_broken_holder_leaves_it_unsettled() {
    check(
        "a claims once 60s; b claims once 60s; break a; b claims",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         break: done; a hears ended, broken by ops: stuck; b hears look again
         b: unsettled
         = nobody; remembers for 60s",
    );
}

#[test]
fn a_once_that_was_never_settled_is_run_again_by_claims_that_say_so() {
    check(
        "a claims once 60s for 5s; b claims once 60s; c claims once 60s rerun; 5s pass; look; b claims
         c renews; c leaves done ok; b claims",
        "a: holds 2 for 5s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         look: done; b hears look again; c hears granted 5 for at first 2s
         b: waits with 6, 0 ahead
         c: holds 5 for 30s
         c: released; b hears settled ok
         b: settled ok
         = nobody; remembers for 60s",
    );
}

#[test]
fn a_settle_counts_after_the_ttl_if_nobody_has_started_again() {
    check(
        "a claims once 60s for 5s; 6s pass; a leaves done late; b claims once 60s",
        "a: holds 2 for 5s
         a: gone, expired
         b: settled late
         = nobody; remembers for 60s",
    );
}

#[test]
fn a_settle_after_another_has_started_does_not_count() {
    check(
        "a claims once 60s for 5s; 6s pass; b claims once 60s rerun; a leaves done late
         c claims once 60s; b leaves done ok; d claims once 60s",
        "a: holds 2 for 5s
         b: holds 4 for 30s
         a: gone, expired
         c: waits with 5, 0 ahead
         b: released; c hears settled ok
         d: settled ok
         = nobody; remembers for 60s",
    );
}

#[test]
fn the_first_outcome_stays() {
    check(
        "a claims once 60s; a leaves done ok; a leaves done other; a leaves undone; b claims once 60s",
        "a: holds 2 for 30s
         a: released
         a: gone, expired
         a: gone, expired
         b: settled ok
         = nobody; remembers for 60s",
    );
}

#[test]
fn a_turn_that_was_not_heard_has_started_nothing() {
    check(
        "a claims once 60s; b claims once 60s; b is deaf; a leaves undone; show; c claims once 60s",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         a: released; b misses granted 4 for at first 2s
         = b is aside
         c: holds 6 for 30s
         = c holds 6 for 30s, b is aside; remembers for 60s",
    );
}

#[test]
fn a_turn_that_was_not_heard_does_not_void_a_late_settle() {
    check(
        "a claims once 60s for 5s; b claims once 60s rerun; b is deaf; 5s pass; look
         a leaves done late; b claims",
        "a: holds 2 for 5s
         b: waits with 3, 0 ahead
         look: done; b misses granted 4 for at first 2s
         a: gone, expired
         b: settled late
         = nobody; remembers for 60s",
    );
}

#[test]
fn a_claim_that_asks_again_while_it_runs_finds_its_grant() {
    check(
        "a claims once 60s; 1s pass; a claims; a leaves done ok; a claims",
        "a: holds 2 for 30s
         a: holds 2 for 29s
         a: released
         a: settled ok
         = nobody; remembers for 60s",
    );
}

#[test]
fn other_content_under_the_same_name_is_refused_running_done_or_unsettled() {
    check(
        "a claims once 60s content 1 for 5s; b claims once 60s content 2 rerun; c claims once 60s content 1 rerun
         5s pass; look; b claims once 60s content 2 rerun; c leaves done ok; b claims once 60s content 2
         d claims once 60s; e claims once 60s content 1",
        "a: holds 2 for 5s
         b: other content
         c: waits with 3, 0 ahead
         look: done; c hears granted 4 for at first 2s
         b: other content
         c: released
         b: other content
         d: settled ok
         e: settled ok
         = nobody; remembers for 60s",
    );
}

#[test]
fn a_waiter_whose_content_differs_from_what_was_run_before_its_turn_is_told_so() {
    check(
        "a claims once 60s; b claims once 60s content 1; c claims once 60s content 2; a leaves undone
         b leaves done ok; c claims once 60s content 2",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         a: released; b hears granted 5 for at first 2s
         b: released; c hears look again
         c: other content
         = nobody; remembers for 60s",
    );
}

#[test]
fn a_once_that_never_began_leaves_no_doubt() {
    check(
        "a claims once 60s; a leaves unbegun; b claims once 60s; b leaves; c claims once 60s
         d claims once 60s rerun; d leaves unbegun; c claims once 60s",
        "a: holds 2 for 30s
         a: released
         b: holds 4 for 30s
         b: released
         c: unsettled
         d: holds 6 for 30s
         d: released
         c: unsettled
         = nobody; remembers for 60s",
    );
}

#[test]
fn an_older_doubt_is_not_undone_by_a_later_run() {
    check(
        "a claims once 60s; a leaves; b claims once 60s rerun; b leaves undone; c claims once 60s
         d claims once 60s rerun; d leaves done ok; c claims once 60s",
        "a: holds 2 for 30s
         a: released
         b: holds 4 for 30s
         b: released
         c: unsettled
         d: holds 6 for 30s
         d: released
         c: settled ok
         = nobody; remembers for 60s",
    );
}

#[test]
fn a_turn_that_nobody_took_has_begun_nothing() {
    check(
        "a claims once 60s; b claims once 60s; c claims once 60s; a leaves undone; 2s pass; look
         show; c renews; d claims once 60s; c leaves; d claims",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         a: released; b hears granted 5 for at first 2s
         look: done; c hears granted 6 for at first 2s
         = c holds 6 for at first 2s
         c: holds 6 for 30s
         d: waits with 7, 0 ahead
         c: released; d hears look again
         d: unsettled
         = nobody; remembers for 60s",
    );
}

#[test]
fn a_turn_is_taken_by_asking_again_and_not_by_keeping_the_place() {
    check(
        "a claims once 60s; b claims once 60s; a leaves undone; b keeps; show; b claims; show; b leaves
         c claims once 60s",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         a: released; b hears granted 4 for at first 2s
         b: holds 4 for at first 2s
         = b holds 4 for at first 2s
         b: holds 4 for at first 2s
         = b holds 4 for at first 2s; remembers for 60s
         b: released
         c: unsettled
         = nobody; remembers for 60s",
    );
}

#[test]
fn a_late_settle_counts_until_the_turn_of_the_next_one_is_taken() {
    check(
        "a claims once 60s for 5s; b claims once 60s rerun; 5s pass; look; a leaves done late
         b renews; b claims",
        "a: holds 2 for 5s
         b: waits with 3, 0 ahead
         look: done; b hears granted 4 for at first 2s
         a: gone, expired
         b: gone, expired
         b: settled late
         = nobody; remembers for 60s",
    );
}

#[test]
fn a_forgotten_record_does_not_come_back_with_a_turn() {
    check(
        "a claims once 3s for 10s; b claims once 3s; 5s pass; a leaves; b renews; b leaves undone
         c claims once 3s",
        "a: holds 2 for 10s
         b: waits with 3, 0 ahead
         a: released; b hears granted 4 for at first 2s
         b: holds 4 for 30s
         b: released
         c: holds 6 for 30s
         = c holds 6 for 30s; remembers for 3s",
    );
}
