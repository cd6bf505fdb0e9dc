//! Scenarios that are the same for all engines: written once, and played on each engine.

mod asking;
mod holding;
mod stopped;

use tenure_testkit::servers::Redis;

use crate::file_site::FileSite;
use crate::fixtures::Site;
use crate::postgres_site::PostgresSite;

macro_rules! on_each_engine {
    ($($file:ident: $($scenario:ident)*;)*) => {
        on_each_engine!(@engine file, FileSite, $($file: $($scenario)*;)*);
        on_each_engine!(@engine postgres, PostgresSite, $($file: $($scenario)*;)*);
        on_each_engine!(@engine redis, Redis, $($file: $($scenario)*;)*);
    };
    (@engine $engine:ident, $site:ty, $($file:ident: $($scenario:ident)*;)*) => {
        mod $engine {
            use super::*;
            $($(
                #[tokio::test(flavor = "multi_thread")]
                async fn $scenario() {
                    let site = <$site as Site>::new();
                    super::$file::$scenario(&site).await;
                    site.is_sound();
                }
            )*)*
        }
    };
}

on_each_engine! {
    asking:
        s14_a_dropped_waiter_leaves_the_line
        s15_a_turn_that_nobody_takes_is_passed_on_at_once
        s21_an_id_that_has_left_never_holds_again
        s22_no_task_holds_twice_and_several_names_never_lock_up
        s35_a_full_line_says_so_at_once_and_takes_others_when_it_has_drained
        s38_an_ask_that_can_never_be_served_is_refused_and_stops_nobody
        s42_a_turn_that_someone_else_finds_is_pushed_to_its_owner;
    holding:
        s48_a_late_release_is_told_so_and_does_not_touch_the_next_owner
        s50_a_broken_hold_hears_of_it_by_push_and_the_line_moves
        s51_a_hold_ends_at_its_longest_although_its_process_lives;
    stopped:
        s4_a_holder_that_was_stopped_finds_its_hold_lost_before_anything_else
        s28_the_turn_of_a_stopped_waiter_passes_on_and_it_comes_back_to_the_line
        s28_stopped_waiters_in_a_row_cost_a_first_life_each
        s29_a_stopped_waiter_that_wakes_up_late_holds_only_what_the_engine_says;
}
