//! How long things last.

use super::language::check;

#[test]
fn a_pushed_turn_lasts_a_first_life_and_its_renewal_the_full_ttl() {
    check(
        "a claims; b claims; a leaves; 1s pass; b renews; 29s pass; b renews",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         a: released; b hears granted 4 for at first 2s
         b: holds 4 for 30s
         b: holds 4 for 30s
         = b holds 4 for 30s",
    );
}

#[test]
fn a_first_life_is_never_longer_than_the_ttl() {
    check(
        "a claims; b claims for 1s; c claims for 2s; a leaves; b leaves",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         a: released; b hears granted 5 for 1s
         b: released; c hears granted 6 for 2s
         = c holds 6 for 2s",
    );
}

#[test]
fn a_turn_that_nobody_takes_goes_to_the_next() {
    check(
        "a claims; b claims; c claims; a leaves; 2s pass; look; b renews",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         a: released; b hears granted 5 for at first 2s
         look: done; c hears granted 6 for at first 2s
         b: gone, expired
         = c holds 6 for at first 2s",
    );
}

#[test]
fn a_claim_that_missed_its_turn_comes_back_before_the_others() {
    check(
        "a claims; b claims; c claims; d claims; a leaves; 2s pass; look; b claims ticket 3; c leaves",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         d: waits with 5, 2 ahead
         a: released; b hears granted 6 for at first 2s
         look: done; c hears granted 7 for at first 2s
         b: waits with 3, 0 ahead
         c: released; b hears granted 8 for at first 2s
         = b holds 8 for at first 2s, d waits",
    );
}

#[test]
fn a_claim_that_asks_gets_the_full_ttl_and_one_that_keeps_its_place_a_first_life() {
    check(
        "a claims for 5s; b claims; 5s pass; b claims; b leaves; c keeps; c leaves
         d claims for 5s; e claims; 5s pass; e keeps",
        "a: holds 2 for 5s
         b: waits with 3, 0 ahead
         b: holds 4 for 30s
         b: released
         c: holds 6 for at first 2s
         c: released
         d: holds 8 for 5s
         e: waits with 9, 0 ahead
         e: holds 10 for at first 2s
         = e holds 10 for at first 2s",
    );
}

#[test]
fn finding_a_grant_does_not_prolong_it() {
    check(
        "a claims for 5s; 3s pass; a claims; 1s pass; a keeps; 1s pass; b tries",
        "a: holds 2 for 5s
         a: holds 2 for 2s
         a: holds 2 for 1s
         b: holds 4 for 30s
         = b holds 4 for 30s",
    );
}

#[test]
fn finding_a_first_life_does_not_prolong_it_either() {
    check(
        "a claims; b claims; a leaves; 1s pass; b claims; 1s pass; look",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         a: released; b hears granted 4 for at first 2s
         b: holds 4 for at first 1s
         look: done
         = nobody",
    );
}

#[test]
fn a_renewal_never_shortens() {
    check(
        "a claims for 5s; a renews for 30s; 1s pass; a renews for 5s; 25s pass; a renews for 5s",
        "a: holds 2 for 5s
         a: holds 2 for 30s
         a: holds 2 for 29s
         a: holds 2 for 5s
         = a holds 2 for 5s",
    );
}

#[test]
fn a_renewal_never_creates() {
    check(
        "a renews fence 1; b claims for 5s; 5s pass; b renews",
        "a: gone, expired
         b: holds 2 for 5s
         b: gone, expired
         = nobody",
    );
}

#[test]
fn a_renewal_with_the_fence_of_another_is_refused() {
    check(
        "a claims for 5s; b claims; b renews fence 2; 1s pass; a renews fence 3; 4s pass; look",
        "a: holds 2 for 5s
         b: waits with 3, 0 ahead
         b: gone, expired
         a: gone, expired
         look: done; b hears granted 4 for at first 2s
         = b holds 4 for at first 2s",
    );
}

#[test]
fn a_late_renewal_moves_the_line() {
    check(
        "a claims for 5s; b claims; 5s pass; a renews",
        "a: holds 2 for 5s
         b: waits with 3, 0 ahead
         a: gone, expired; b hears granted 4 for at first 2s
         = b holds 4 for at first 2s",
    );
}

#[test]
fn a_hold_ends_at_its_moment_and_not_before() {
    check(
        "a claims for 5s; 4999ms pass; b tries; 1ms pass; b tries",
        "a: holds 2 for 5s
         b: busy
         b: holds 4 for 30s
         = b holds 4 for 30s",
    );
}

#[test]
fn a_place_ends_after_a_minute_without_contact() {
    check(
        "a claims for 600s; b claims; c claims; 59s pass; c keeps; 1s pass; look; a leaves; 60s pass; look",
        "a: holds 2 for 600s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         c: waits with 4, 1 ahead
         look: done
         a: released; c hears granted 5 for at first 2s
         look: done
         = nobody",
    );
}

#[test]
fn a_place_that_ended_is_found_again_by_its_ticket() {
    check(
        "a claims for 600s; b claims; 60s pass; c claims; b keeps ticket 3",
        "a: holds 2 for 600s
         b: waits with 3, 0 ahead
         c: waits with 4, 0 ahead
         b: waits with 3, 0 ahead
         = a holds 2 for 540s, b waits, c waits",
    );
}

#[test]
fn renewing_for_no_time_only_asks() {
    check(
        "a claims for 5s; b claims; 1s pass; a renews for 0s; a leaves; 1s pass; b renews for 0s
         1s pass; b renews for 0s",
        "a: holds 2 for 5s
         b: waits with 3, 0 ahead
         a: holds 2 for 4s
         a: released; b hears granted 4 for at first 2s
         b: holds 4 for at first 1s
         b: gone, expired
         = nobody",
    );
}
