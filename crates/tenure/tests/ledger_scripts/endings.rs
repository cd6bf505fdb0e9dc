//! Leaving, leaving in doubt, and being broken.

use super::language::check;

#[test]
fn leaving_twice_changes_nothing_for_the_next_one() {
    check(
        "a claims; b claims; a leaves; a leaves; a leaves in doubt",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         a: released; b hears granted 4 for at first 2s
         a: gone, expired
         a: gone, expired
         = b holds 4 for at first 2s; remembers for 60s",
    );
}

#[test]
fn leaving_after_the_end_changes_nothing_for_the_next_one() {
    check(
        "a claims for 5s; b claims; 5s pass; a leaves; a leaves",
        "a: holds 2 for 5s
         b: waits with 3, 0 ahead
         a: gone, expired; b hears granted 4 for at first 2s
         a: gone, expired
         = b holds 4 for at first 2s",
    );
}

#[test]
fn a_claim_that_never_arrived_may_leave() {
    check(
        "a leaves",
        "a: gone, expired
         = nobody",
    );
}

#[test]
fn a_late_duplicate_of_a_claim_that_left_in_doubt_does_nothing_for_a_minute() {
    check(
        "a claims; a leaves in doubt; a claims; 59s pass; a keeps; b claims; b leaves; a tries; show
         1s pass; a claims",
        "a: holds 2 for 30s
         a: released
         a: left
         a: left
         b: holds 4 for 30s
         b: released
         a: left
         = nobody; remembers for 1s
         a: holds 6 for 30s
         = a holds 6 for 30s",
    );
}

#[test]
fn a_leave_that_comes_before_its_claim_keeps_it_out() {
    check(
        "a leaves in doubt; a claims",
        "a: gone, expired
         a: left
         = nobody; remembers for 60s",
    );
}

#[test]
fn a_claim_that_left_in_doubt_has_lost_its_place() {
    check(
        "a claims; b claims; c claims; b leaves in doubt; b claims ticket 3; a leaves",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         b: quit
         b: left
         a: released; c hears granted 5 for at first 2s
         = c holds 5 for at first 2s; remembers for 60s",
    );
}

#[test]
fn a_hold_is_broken_by_its_fence_and_the_next_one_served() {
    check(
        "a claims; b claims; break fence 2; a renews; a leaves; b renews",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         break: done; a hears ended, broken by ops: stuck; b hears granted 4 for at first 2s
         a: gone, broken by ops: stuck
         a: gone, broken by ops: stuck
         b: holds 4 for 30s
         = b holds 4 for 30s; remembers for 30s",
    );
}

#[test]
fn a_fence_that_has_moved_on_breaks_nothing() {
    check(
        "a claims; b claims; break fence 1; break fence 3; a leaves; break fence 2; break fence 0",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         break: moved on
         break: moved on
         a: released; b hears granted 4 for at first 2s
         break: moved on
         break: moved on
         = b holds 4 for at first 2s",
    );
}

#[test]
fn breaking_what_has_ended_moves_the_line() {
    check(
        "a claims for 5s; b claims; 5s pass; break a",
        "a: holds 2 for 5s
         b: waits with 3, 0 ahead
         break: moved on; b hears granted 4 for at first 2s
         = b holds 4 for at first 2s",
    );
}

#[test]
fn one_of_several_holders_is_broken_and_the_others_stay() {
    check(
        "a claims 1 of 2; b claims 1 of 2; c claims 1 of 2; break a; b renews",
        "a: holds 2 for 30s
         b: holds 4 for 30s
         c: waits with 5, 0 ahead
         break: done; a hears ended, broken by ops: stuck; c hears granted 6 for at first 2s
         b: holds 4 for 30s
         = b holds 4 for 30s, c holds 6 for at first 2s; remembers for 30s",
    );
}

#[test]
fn a_break_is_remembered_for_as_long_as_the_hold_would_have_lasted() {
    check(
        "a claims for 5s; a renews for 60s; break a; 59s pass; a renews; show; 1s pass; a renews",
        "a: holds 2 for 5s
         a: holds 2 for 60s
         break: done; a hears ended, broken by ops: stuck
         a: gone, broken by ops: stuck
         = nobody; remembers for 1s
         a: gone, expired
         = nobody",
    );
}

#[test]
fn a_broken_claim_that_left_in_doubt_stays_out() {
    check(
        "a claims; break a; a leaves in doubt; a claims; 59s pass; a claims",
        "a: holds 2 for 30s
         break: done; a hears ended, broken by ops: stuck
         a: gone, broken by ops: stuck
         a: left
         a: left
         = nobody; remembers for 1s",
    );
}

#[test]
fn an_idle_name_remembers_nothing() {
    check(
        "a claims; b claims; a leaves; b leaves; c tries for 5s; 5s pass; look",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         a: released; b hears granted 4 for at first 2s
         b: released
         c: holds 6 for 5s
         look: done
         = nobody",
    );
}
