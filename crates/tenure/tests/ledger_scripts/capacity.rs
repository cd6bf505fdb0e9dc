//! How much capacity there is, and who decides that.

use super::language::check;

#[test]
fn a_claim_with_another_capacity_is_in_conflict_while_the_name_is_used() {
    check(
        "a claims 1 of 2; b claims 1 of 3; c tries 1 of 1; a leaves; b claims",
        "a: holds 2 for 30s
         b: conflict with 2
         c: conflict with 2
         a: released
         b: holds 4 for 30s
         = b holds 4 for 30s",
    );
}

#[test]
fn a_conflict_moves_the_line_all_the_same() {
    check(
        "a claims for 5s; b claims; 5s pass; c claims 1 of 2",
        "a: holds 2 for 5s
         b: waits with 3, 0 ahead
         c: conflict with 1; b hears granted 4 for at first 2s
         = b holds 4 for at first 2s",
    );
}

#[test]
fn a_weight_above_the_capacity_is_refused() {
    check(
        "a claims 3 of 2; b claims 1 of 1",
        "a: conflict with 2
         b: holds 2 for 30s
         = b holds 2 for 30s",
    );
}

#[test]
fn more_units_let_several_in_at_once() {
    check(
        "a claims; b claims; c claims; d claims; resize 3",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         d: waits with 5, 2 ahead
         resize: done; b hears granted 6 for at first 2s; c hears granted 7 for at first 2s
         = a holds 2 for 30s, b holds 6 for at first 2s, c holds 7 for at first 2s, d waits; \
         remembers for 86400s",
    );
}

#[test]
fn fewer_units_than_held_take_nothing_away_and_give_nothing() {
    check(
        "a claims 1 of 3; b claims 1 of 3; c claims 1 of 3; d claims 1 of 3; resize 1
         a leaves; b leaves; c leaves",
        "a: holds 2 for 30s
         b: holds 4 for 30s
         c: holds 6 for 30s
         d: waits with 7, 0 ahead
         resize: done
         a: released
         b: released
         c: released; d hears granted 8 for at first 2s
         = d holds 8 for at first 2s; remembers for 86400s",
    );
}

#[test]
fn a_head_that_can_never_fit_again_is_ended_with_a_conflict() {
    check(
        "a claims 3 of 5; b claims 4 of 5; c claims 2 of 5; resize 3; a leaves",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         resize: done; b hears ended, the capacity was changed to 3
         a: released; c hears granted 5 for at first 2s
         = c x2 holds 5 for at first 2s; remembers for 86400s",
    );
}

#[test]
fn a_claim_set_aside_that_can_never_fit_again_is_ended_too() {
    check(
        "a claims 5 of 5; b claims 4 of 5; b is deaf; a leaves; resize 3; c claims 3 of 5",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         a: released; b misses granted 4 for at first 2s
         resize: done; b misses ended, the capacity was changed to 3
         c: holds 6 for 30s
         = c x3 holds 6 for 30s; remembers for 86400s",
    );
}

#[test]
fn a_resized_capacity_overrides_that_of_claims_for_a_day() {
    check(
        "resize 2; a claims 1 of 1; b claims 1 of 1; c tries 3 of 5; a leaves; b leaves; show
         86399s pass; d claims 1 of 1; e claims 2 of 5; d leaves; e leaves; show
         1s pass; f claims 1 of 1; g tries 1 of 1; h tries 1 of 2",
        "resize: done
         a: holds 2 for 30s
         b: holds 4 for 30s
         c: conflict with 2
         a: released
         b: released
         = nobody; remembers for 86400s
         d: holds 6 for 30s
         e: waits with 7, 0 ahead
         d: released; e hears granted 8 for at first 2s
         e: released
         = nobody; remembers for 1s
         f: holds 10 for 30s
         g: busy
         h: conflict with 1
         = f holds 10 for 30s",
    );
}

#[test]
fn a_resized_capacity_applies_for_as_long_as_the_name_is_used() {
    // Otherwise every claim with the old capacity would suddenly be refused, until the last of those who hold and
    // wait has left.
    check(
        "a claims 1 of 2 for 48h; resize 3; 25h pass; b claims 1 of 2; c claims 2 of 2
         a leaves; b leaves; c leaves; d claims 1 of 2; e tries 1 of 3",
        "a: holds 2 for 172800s
         resize: done
         b: holds 4 for 30s
         c: waits with 5, 0 ahead
         a: released; c hears granted 6 for at first 2s
         b: released
         c: released
         d: holds 8 for 30s
         e: conflict with 2
         = d holds 8 for 30s",
    );
}

#[test]
fn a_full_line_refuses_newcomers_but_not_tries_that_fit() {
    check(
        "a claims 1 of 2 room 0; b claims 1 of 2 room 0; c claims 1 of 2 room 0
         d claims 1 of 2 room 1; e claims 1 of 2 room 1",
        "a: holds 2 for 30s
         b: holds 4 for 30s
         c: full
         d: waits with 5, 0 ahead
         e: full
         = a holds 2 for 30s, b holds 4 for 30s, d waits",
    );
}

#[test]
fn a_claim_that_returns_by_ticket_is_not_refused_by_a_full_line() {
    check(
        "a claims for 600s; b claims room 1; 60s pass; c claims room 1; d claims room 1; b claims ticket 3",
        "a: holds 2 for 600s
         b: waits with 3, 0 ahead
         c: waits with 4, 0 ahead
         d: full
         b: waits with 3, 0 ahead
         = a holds 2 for 540s, b waits, c waits",
    );
}

#[test]
fn a_line_that_empties_in_this_very_step_is_not_full() {
    check(
        "a claims for 5s; b claims room 1; 5s pass; c claims room 1",
        "a: holds 2 for 5s
         b: waits with 3, 0 ahead
         c: waits with 5, 0 ahead; b hears granted 4 for at first 2s
         = b holds 4 for at first 2s, c waits",
    );
}

#[test]
fn a_fixed_capacity_is_not_changed_and_a_changed_one_is_not_taken_for_it() {
    check(
        "a claims fixed; resize 3; a leaves; resize 3; b claims fixed; c claims",
        "a: holds 2 for 30s
         resize: refused
         a: released
         resize: done
         b: conflict with 3
         c: holds 4 for 30s
         = c holds 4 for 30s; remembers for 86400s",
    );
}
