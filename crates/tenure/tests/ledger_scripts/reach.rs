//! Claims that cannot be reached, and how they come back.

use super::language::{Script, check};

#[test]
fn a_claim_that_does_not_hear_its_turn_is_set_aside_and_the_next_one_gets_it() {
    check(
        "a claims; b claims; c claims; d claims; b is deaf; c is deaf; a leaves",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         d: waits with 5, 2 ahead
         a: released; b misses granted 6 for at first 2s; c misses granted 7 for at first 2s; \
         d hears granted 8 for at first 2s
         = d holds 8 for at first 2s, b is aside, c is aside",
    );
}

#[test]
fn a_claim_set_aside_comes_back_by_ticket_but_not_beside_a_holder() {
    check(
        "a claims; b claims; c claims; b is deaf; a leaves; d claims; b claims; b hears; c leaves",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         a: released; b misses granted 5 for at first 2s; c hears granted 6 for at first 2s
         d: waits with 7, 0 ahead
         b: waits with 3, 0 ahead
         c: released; b hears granted 8 for at first 2s
         = b holds 8 for at first 2s, d waits",
    );
}

#[test]
fn a_claim_set_aside_takes_what_is_free_when_it_asks() {
    check(
        "a claims; b claims; b is deaf; a leaves; b claims",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         a: released; b misses granted 4 for at first 2s
         b: holds 5 for 30s
         = b holds 5 for 30s",
    );
}

#[test]
fn keeping_its_place_brings_a_claim_back() {
    check(
        "a claims; b claims; b is deaf; a leaves; c claims; b keeps; c leaves; b hears; look",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         a: released; b misses granted 4 for at first 2s
         c: holds 6 for 30s
         b: waits with 3, 0 ahead
         c: released; b misses granted 7 for at first 2s
         look: done
         = b is aside",
    );
}

#[test]
fn claims_set_aside_do_not_make_a_try_wait() {
    check(
        "a claims; b claims; b is deaf; a leaves; c tries",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         a: released; b misses granted 4 for at first 2s
         c: holds 6 for 30s
         = c holds 6 for 30s, b is aside",
    );
}

#[test]
fn a_try_that_finds_the_line_out_of_reach_gets_it() {
    check(
        "a claims for 5s; b claims; b is deaf; 5s pass; c tries",
        "a: holds 2 for 5s
         b: waits with 3, 0 ahead
         c: holds 6 for 30s; b misses granted 4 for at first 2s
         = c holds 6 for 30s, b is aside",
    );
}

#[test]
fn a_claim_set_aside_ends_after_a_minute_without_contact() {
    check(
        "a claims; b claims; b is deaf; a leaves; 60s pass; look",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         a: released; b misses granted 4 for at first 2s
         look: done
         = nobody",
    );
}

#[test]
fn a_hold_that_runs_out_sets_the_other_places_of_its_process_aside() {
    check(
        "a@1 claims for 5s; b@1 claims; c@2 claims; d@1 claims; 5s pass; look; c leaves; look
         b claims; c claims; b leaves",
        "a: holds 2 for 5s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         d: waits with 5, 2 ahead
         look: done; c hears granted 6 for at first 2s
         c: released
         look: done
         b: holds 7 for 30s
         c: waits with 8, 1 ahead
         b: released; d hears granted 9 for at first 2s
         = d holds 9 for at first 2s, c waits",
    );
}

#[test]
fn a_turn_that_nobody_takes_sets_the_other_places_of_its_process_aside() {
    check(
        "a claims; b@1 claims; c@1 claims; d@2 claims; a leaves; 2s pass; look",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         d: waits with 5, 2 ahead
         a: released; b hears granted 6 for at first 2s
         look: done; d hears granted 7 for at first 2s
         = d holds 7 for at first 2s, c is aside",
    );
}

#[test]
fn a_place_that_runs_out_says_nothing_of_its_process() {
    check(
        "a claims for 600s; b@1 claims; c@1 claims; 30s pass; c keeps; 30s pass; look",
        "a: holds 2 for 600s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         c: waits with 4, 1 ahead
         look: done
         = a holds 2 for 540s, c waits",
    );
}

#[test]
fn claims_of_no_process_stand_for_themselves() {
    check(
        "a claims for 5s; b claims; c claims; 5s pass; look",
        "a: holds 2 for 5s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         look: done; b hears granted 5 for at first 2s
         = b holds 5 for at first 2s, c waits",
    );
}

#[test]
fn a_renewal_brings_the_places_of_its_process_back() {
    check(
        "a@1 claims 1 of 2 for 5s; b@1 claims 1 of 2; c@1 claims 1 of 2; 5s pass; look; b renews",
        "a: holds 2 for 5s
         b: holds 4 for 30s
         c: waits with 5, 0 ahead
         look: done
         b: holds 4 for 30s; c hears granted 6 for at first 2s
         = b holds 4 for 30s, c holds 6 for at first 2s",
    );
}

#[test]
fn a_newcomer_of_a_process_does_not_pass_the_places_it_brings_back() {
    check(
        "a@1 claims for 5s; b@1 claims; 5s pass; look; show; c@1 claims",
        "a: holds 2 for 5s
         b: waits with 3, 0 ahead
         look: done
         = b is aside
         c: waits with 5, 0 ahead; b hears granted 4 for at first 2s
         = b holds 4 for at first 2s, c waits",
    );
}

#[test]
fn any_claim_of_a_process_is_contact_even_one_that_is_refused_or_holds() {
    check(
        "a@1 claims 1 of 2 for 5s; b@2 claims 1 of 2; c@1 claims 1 of 2; 5s pass; look
         d@1 claims 1 of 9; c leaves; show
         e@1 claims 1 of 2 for 2s; f@1 claims 1 of 2; f leaves; g@1 claims 1 of 2",
        "a: holds 2 for 5s
         b: holds 4 for 30s
         c: waits with 5, 0 ahead
         look: done
         d: conflict with 2; c hears granted 6 for at first 2s
         c: released
         = b holds 4 for 25s
         e: holds 8 for 2s
         f: waits with 9, 0 ahead
         f: quit
         g: waits with 10, 0 ahead
         = b holds 4 for 25s, e holds 8 for 2s, g waits",
    );
}

#[test]
fn only_checking_a_hold_does_not_bring_back_its_process() {
    check(
        "a@1 claims 1 of 2 for 9s; b@1 claims 1 of 2 for 5s; c@1 claims 1 of 2; 5s pass; look
         a renews for 0s; show; a renews for 9s",
        "a: holds 2 for 9s
         b: holds 4 for 5s
         c: waits with 5, 0 ahead
         look: done
         a: holds 2 for 4s
         = a holds 2 for 4s, c is aside
         a: holds 2 for 9s; c hears granted 6 for at first 2s
         = a holds 2 for 9s, c holds 6 for at first 2s",
    );
}

#[test]
fn a_claim_that_is_gone_and_does_not_fit_holds_up_nobody() {
    let readers = "a@1 claims 1 of 9; b@2 claims 9 of 9; c@3 claims 1 of 9";
    check(
        &format!("{readers}; b is deaf; d@4 tries 1 of 9; b hears; b@2 keeps"),
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         d: holds 7 for 30s; b misses are you there?; c hears granted 5 for at first 2s
         b: waits with 3, 0 ahead
         = a holds 2 for 30s, c holds 5 for at first 2s, d holds 7 for 30s, b x9 waits",
    );
    let mut script = Script::default();
    script.hints = true;
    script.check(
        &format!("{readers}; d@4 tries 1 of 9; a renews; c keeps; a leaves"),
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead; b hears are you there?
         d: busy; b hears are you there?
         a: holds 2 for 30s
         c: waits with 4, 1 ahead; b hears are you there?
         a: released; b hears granted 5 for at first 2s; c hears look in 2s
         = b x9 holds 5 for at first 2s, c waits",
    );
}

#[test]
fn a_hold_that_a_server_lets_run_out_says_nothing_of_its_other_clients() {
    check(
        "a@1 claims behalf for 5s; b@1 claims behalf; c@1 claims; 5s pass; look",
        "a: holds 2 for 5s
         b: waits with 3, 0 ahead
         c: waits with 4, 1 ahead
         look: done; b hears granted 5 for at first 2s
         = b holds 5 for at first 2s, c waits",
    );
}

#[test]
fn a_renewal_through_another_server_does_not_bring_back_the_places_of_the_first() {
    check(
        "a@1 claims behalf 1 of 2; b@1 claims 1 of 2 for 5s; c@1 claims 1 of 2; 5s pass; look; a renews",
        "a: holds 2 for 30s
         b: holds 4 for 5s
         c: waits with 5, 0 ahead
         look: done
         a: holds 2 for 30s
         = a holds 2 for 30s, c is aside",
    );
}

#[test]
fn a_turn_is_given_back_only_if_nobody_has_taken_it_up() {
    check(
        "a claims; b@1 claims behalf; a leaves; b@1 leaves turn 4",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         a: released; b hears granted 4 for at first 2s
         b: released
         = nobody",
    );
    // It was taken up, and confirmed: the push was late.
    check(
        "a claims; b@1 claims behalf; a leaves; b renews fence 4; b@1 leaves turn 4",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         a: released; b hears granted 4 for at first 2s
         b: holds 4 for 30s
         b: gone, expired
         = b holds 4 for 30s",
    );
    // Its client has heard of it from another server.
    check(
        "a claims; b@1 claims behalf; a leaves; b@2 keeps; b@1 leaves turn 4",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         a: released; b hears granted 4 for at first 2s
         b: holds 4 for at first 2s
         b: gone, expired
         = b holds 4 for at first 2s",
    );
}

#[test]
fn a_server_gives_up_a_place_only_if_its_client_has_not_gone_to_another() {
    check(
        "a claims; b@1 claims behalf; b@2 claims; b@1 leaves if waiting; b@2 leaves if waiting",
        "a: holds 2 for 30s
         b: waits with 3, 0 ahead
         b: waits with 3, 0 ahead
         b: gone, expired
         b: quit
         = a holds 2 for 30s",
    );
    check(
        "a@1 claims behalf; a@1 leaves if waiting",
        "a: holds 2 for 30s
         a: gone, expired
         = a holds 2 for 30s",
    );
}
