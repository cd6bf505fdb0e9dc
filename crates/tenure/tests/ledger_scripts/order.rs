//! Who comes next.

use super::language::{Script, check};

#[test]
fn the_next_in_line_is_served_in_the_step_that_frees() {
    check(
        "a claims; b claims; c claims; a leaves; b leaves; c leaves",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         a: released; b hears granted 5 for at first 2s
         b: released; c hears granted 6 for at first 2s
         c: released
         = nobody",
    );
}

#[test]
fn a_claim_that_quits_is_skipped() {
    check(
        "a claims; b claims; c claims; b leaves; a leaves",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         b: quit
         a: released; c hears granted 5 for at first 2s
         = c holds 5 for at first 2s",
    );
}

#[test]
fn a_try_never_passes_waiters() {
    check(
        "a claims 2 of 3; b claims 2 of 3; c tries 1 of 3; b leaves; c tries",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: busy
         b: quit
         c: holds 5 for 30s
         = a x2 holds 2 for 30s, c holds 5 for 30s",
    );
}

#[test]
fn a_try_on_what_is_held_is_busy_and_leaves_nothing() {
    check(
        "a claims; b tries; a leaves",
        "a: holds 2 for 30s
         b: busy
         a: released
         = nobody",
    );
}

#[test]
fn a_try_moves_the_line_before_it_is_refused() {
    check(
        "a claims for 5s; b claims; 5s pass; c tries",
        "a: holds 2 for 5s
         b: waits with 3, 0 ahead
         c: busy; b hears granted 4 for at first 2s
         = b holds 4 for at first 2s",
    );
}

#[test]
fn a_try_gets_what_the_claims_before_it_leave() {
    check(
        "a claims 3 of 3 for 5s; b claims 2 of 3; 5s pass; c tries 1 of 3",
        "a: holds 2 for 5s
         b: waits with 3, 0 ahead
         c: holds 6 for 30s; b hears granted 4 for at first 2s
         = b x2 holds 4 for at first 2s, c holds 6 for 30s",
    );
}

#[test]
fn a_heavy_head_keeps_the_light_ones_behind_it() {
    check(
        "a claims 2 of 3; b claims 3 of 3; c claims 1 of 3; d claims 1 of 3; a leaves; b leaves",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         d: waits with 5, 2 ahead
         a: released; b hears granted 6 for at first 2s
         b: released; c hears granted 7 for at first 2s; d hears granted 8 for at first 2s
         = c holds 7 for at first 2s, d holds 8 for at first 2s",
    );
}

#[test]
fn a_big_claim_is_not_starved_by_small_ones_that_keep_coming() {
    check(
        "a claims 1 of 2; b claims 1 of 2; big claims 2 of 2
         a leaves; c claims 1 of 2; b leaves; d claims 1 of 2; big leaves",
        "a: holds 2 for 30s
         b: holds 4 for 30s
         big: waits with 5, 0 ahead
         a: released
         c: waits with 6, 1 ahead
         b: released; big hears granted 7 for at first 2s
         d: waits with 8, 1 ahead
         big: released; c hears granted 9 for at first 2s; d hears granted 10 for at first 2s
         = c holds 9 for at first 2s, d holds 10 for at first 2s",
    );
}

#[test]
fn readers_and_writers_go_in_the_order_they_came() {
    check(
        "r1 claims 1 of 1048576; r2 claims 1 of 1048576
         w claims 1048576 of 1048576; r3 claims 1 of 1048576
         r1 leaves; r2 leaves; w leaves",
        "r1: holds 2 for 30s
         r2: holds 4 for 30s
         w: waits with 5, 0 ahead
         r3: waits with 6, 1 ahead
         r1: released
         r2: released; w hears granted 7 for at first 2s
         w: released; r3 hears granted 8 for at first 2s
         = r3 holds 8 for at first 2s",
    );
}

#[test]
fn readers_behind_a_writer_come_in_together() {
    check(
        "w claims 1048576 of 1048576; r1 claims 1 of 1048576; r2 claims 1 of 1048576
         v claims 1048576 of 1048576; r3 claims 1 of 1048576; w leaves",
        "w: holds 2 for 30s
         r1: waits with 3, 0 ahead
         r2: waits with 4, 1 ahead
         v: waits with 5, 2 ahead
         r3: waits with 6, 3 ahead
         w: released; r1 hears granted 7 for at first 2s; r2 hears granted 8 for at first 2s
         = r1 holds 7 for at first 2s, r2 holds 8 for at first 2s, v x1048576 waits, r3 waits",
    );
}

#[test]
fn an_older_ticket_stands_before_claims_that_came_since() {
    // What an engine that forgot its line hears from the claims that stood in it.
    check(
        "a claims seen 90; b claims; c claims; old claims ticket 40; older keeps ticket 30; a leaves",
        "a: holds 92 for 30s
         b: waits with 93, 0 ahead
         c: waits with 94, 1 ahead
         old: waits with 40, 0 ahead
         older: waits with 30, 0 ahead
         a: released; older hears granted 95 for at first 2s
         = older holds 95 for at first 2s, old waits, b waits, c waits",
    );
}

#[test]
fn an_older_ticket_that_fits_passes_a_younger_one_that_does_not() {
    check(
        "a claims 2 of 3 seen 90; b claims 2 of 3; old claims 1 of 3 ticket 40",
        "a: holds 92 for 30s
         b: waits with 93, 0 ahead
         old: holds 94 for 30s
         = a x2 holds 92 for 30s, old holds 94 for 30s, b x2 waits",
    );
}

#[test]
fn a_returning_claim_that_is_refused_moves_the_line_all_the_same() {
    check(
        "a claims for 5s seen 90; b claims; 5s pass; old claims 1 of 2 ticket 40",
        "a: holds 92 for 5s
         b: waits with 93, 0 ahead
         old: conflict with 1; b hears granted 94 for at first 2s
         = b holds 94 for at first 2s",
    );
}

#[test]
fn a_returning_claim_is_served_before_those_that_came_since() {
    check(
        "a claims for 5s seen 90; b claims; 5s pass; old claims ticket 40",
        "a: holds 92 for 5s
         b: waits with 93, 0 ahead
         old: holds 94 for 30s
         = old holds 94 for 30s, b waits",
    );
}

#[test]
fn numbers_continue_above_what_a_claim_has_seen() {
    check(
        "a claims seen 1000; a leaves; b claims seen 7; b leaves; c tries seen 2000",
        "a: holds 1002 for 30s
         a: released
         b: holds 1004 for 30s
         b: released
         c: holds 2002 for 30s
         = c holds 2002 for 30s",
    );
}

#[test]
fn numbers_continue_above_a_ticket_that_comes_back() {
    // Otherwise a newcomer would be given the number of a place that is taken.
    check(
        "a claims; old claims ticket 4; b claims; c claims; a leaves",
        "a: holds 2 for 30s
         old: waits with 4, 0 ahead
         b: waits with 5, 1 ahead
         c: waits with 6, 2 ahead
         a: released; old hears granted 7 for at first 2s
         = old holds 7 for at first 2s, b waits, c waits",
    );
}

/// Without it the next would look only when the first hold would have ended.
#[test]
fn the_next_in_line_hears_when_a_pushed_turn_runs_out() {
    let mut script = Script::default();
    script.hints = true;
    script.check(
        "a claims; b claims; c claims; d claims; a leaves",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         d: waits with 5, 2 ahead
         a: released; b hears granted 6 for at first 2s; c hears look in 2s
         = b holds 6 for at first 2s, c waits, d waits",
    );
}

#[test]
fn a_row_of_waiters_that_do_not_react_costs_a_first_life_each() {
    let mut script = Script::default();
    script.hints = true;
    script.check(
        "a@1 claims; b@2 claims; c@3 claims; d@4 claims; 1s pass; a leaves; 2100ms pass; d keeps; 2s pass; d claims",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         d: waits with 5, 2 ahead
         a: released; b hears granted 6 for at first 2s; c hears look in 2s; d hears look in 2.025s
         d: waits with 5, 0 ahead; c hears granted 7 for at first 2s; d hears look in 2s
         d: holds 8 for 30s
         = d holds 8 for 30s",
    );
}

/// Any of them may be the first to react. A process looks for all of its claims.
#[test]
fn the_first_eight_and_the_last_hear_when_a_pushed_turn_runs_out() {
    let mut script = Script::default();
    script.hints = true;
    let others = "fghijklmn".chars().map(|who| format!("; {who}@{} claims", who as u32));
    let others: String = others.collect();
    let waits = (5..=15).map(|ticket| {
        let who = ('a'..).nth(ticket - 2).unwrap();
        format!("{who}: waits with {ticket}, {} ahead\n", ticket - 3)
    });
    let waits: String = waits.collect();
    let said = "a: released; b hears granted 16 for at first 2s; c hears look in 2s; \
                f hears look in 2.025s; g hears look in 2.05s; h hears look in 2.075s; \
                i hears look in 2.1s; j hears look in 2.125s; n hears look in 2.15s";
    script.check(
        &format!(
            "a@1 claims; b@2 claims; c@3 claims; d@3 claims; e@2 claims{others}; 1s pass; a leaves"
        ),
        &format!(
            "a: holds 2 for 30s
             b: waits with 3, 0 ahead
             c: waits with 4, 1 ahead
             {waits}{said}
             = b holds 16 for at first 2s, c waits, d waits, e waits, f waits, g waits, h waits, \
             i waits, j waits, k waits, l waits, m waits, n waits"
        ),
    );
}

/// On a busy name the others are told once a second, not with every turn.
#[test]
fn only_the_next_hears_of_a_turn_after_a_brief_hold() {
    let mut script = Script::default();
    script.hints = true;
    script.check(
        "a@1 claims; b@2 claims; c@3 claims; d@4 claims; e@5 claims; 900ms pass; a leaves; 200ms pass; b leaves",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         d: waits with 5, 2 ahead
         e: waits with 6, 3 ahead
         a: released; b hears granted 7 for at first 2s; c hears look in 2s
         b: released; c hears granted 8 for at first 2s; d hears look in 2s; e hears look in 2.025s
         = c holds 8 for at first 2s, d waits, e waits",
    );
}
