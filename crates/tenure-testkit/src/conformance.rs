//! The conformance suite, which every engine must pass.
//!
//! ```no_run
//! # async fn example(engine: std::sync::Arc<dyn tenure::engine::Engine>) {
//! use std::sync::Arc;
//! use tenure_testkit::conformance;
//! use tenure_testkit::runtime::RealRuntime;
//!
//! conformance::check(Arc::new(RealRuntime::here()), move || engine.clone()).await;
//! # }
//! ```
//!
//! Each case states a fact about an engine in its name. Cases that the engine's profile does not promise are
//! skipped, and reported as such. The cases of a mutex run again on every primitive that can stand in for one:
//! see [`Exclusive`].

mod elections;
mod exclusive;
mod locks;
mod onces;
mod sharing;
mod steps;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tenure::engine::{Engine, Order, Profile};
use tenure::{Hold, Options, Result, Tenure, View};

use crate::runtime::Runtime;
use crate::sim::{OUTSIDE, Sim};

pub use exclusive::Exclusive;

/// A case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The fact that it states.
    pub name: &'static str,
    needs: fn(&Profile) -> bool,
    run: fn(Kit) -> Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Whether it is about a mutex, and so about every primitive that can stand in for one.
    exclusive: bool,
}

macro_rules! cases {
    ($($module:ident::$case:ident, exclusive: $exclusive:expr, needs: $needs:expr;)*) => {
        /// All cases.
        pub const CASES: &[Case] = &[$(Case {
            name: stringify!($case),
            needs: $needs,
            run: |kit| Box::pin($module::$case(kit)),
            exclusive: $exclusive,
        }),*];
    };
}

cases! {
    locks::one_holds_at_a_time, exclusive: true, needs: |_| true;
    locks::first_come_first_served, exclusive: true, needs: |p| p.order == Order::Arrival;
    locks::a_try_neither_waits_nor_barges, exclusive: true, needs: |_| true;
    locks::a_wait_that_is_over_leaves_the_line, exclusive: true, needs: |_| true;
    locks::an_unrenewed_hold_ends_with_its_ttl, exclusive: true, needs: |_| true;
    locks::renewal_outlives_the_ttl, exclusive: true, needs: |_| true;
    locks::an_extension_counts_from_now, exclusive: true, needs: |_| true;
    locks::fences_rise, exclusive: true, needs: |_| true;
    locks::an_ask_dropped_at_any_point_leaves_nothing, exclusive: true, needs: |_| true;
    locks::a_dropped_hold_is_handed_over, exclusive: true, needs: |_| true;
    locks::a_turn_comes_by_push, exclusive: true, needs: |p| p.push;
    locks::a_turn_that_nobody_takes_passes_on, exclusive: true, needs: |p| p.push;
    locks::a_turn_becomes_a_full_hold, exclusive: true, needs: |_| true;
    locks::max_hold_is_the_end, exclusive: true, needs: |_| true;
    locks::hold_for_keeps_the_name, exclusive: true, needs: |_| true;
    locks::a_broken_hold_is_lost_and_handed_over, exclusive: true, needs: |_| true;
    locks::a_detached_hold_goes_on_elsewhere, exclusive: true, needs: |_| true;
    locks::a_detached_hold_ends_with_its_ttl, exclusive: true, needs: |_| true;
    locks::inspection_shows_who_holds_and_who_waits, exclusive: true, needs: |_| true;
    locks::a_full_line_refuses, exclusive: true, needs: |_| true;
    locks::an_unused_name_leaves_nothing, exclusive: true, needs: |_| true;
    locks::an_examination_changes_nothing, exclusive: false, needs: |_| true;
    locks::all_are_served_although_every_push_is_lost, exclusive: true, needs: |_| true;
    locks::lost_answers_change_nothing, exclusive: true, needs: |_| true;
    steps::a_claim_is_found_and_not_prolonged, exclusive: false, needs: |_| true;
    steps::a_waiting_claim_keeps_its_ticket, exclusive: false, needs: |p| p.order == Order::Arrival;
    steps::renewing_never_creates, exclusive: false, needs: |_| true;
    steps::renewing_never_shortens, exclusive: false, needs: |_| true;
    steps::renewing_for_no_time_only_asks, exclusive: false, needs: |_| true;
    steps::renewing_needs_the_fence, exclusive: false, needs: |_| true;
    steps::leaving_twice_changes_nothing, exclusive: false, needs: |_| true;
    steps::a_turn_is_given_back_only_while_it_is_held, exclusive: false, needs: |_| true;
    steps::a_claim_that_left_in_doubt_stays_left, exclusive: false, needs: |_| true;
    steps::a_pushed_turn_has_a_first_life, exclusive: false, needs: |p| p.push;
    steps::a_ticket_brings_back_the_place, exclusive: false, needs: |p| p.order == Order::Arrival;
    steps::fences_go_on_above_what_was_seen, exclusive: false, needs: |_| true;
    steps::a_fence_that_nobody_can_have_seen_is_refused, exclusive: false, needs: |_| true;
    steps::a_once_has_not_begun_before_its_turn_is_taken, exclusive: false, needs: |p| p.push;
    steps::a_broken_hold_says_so_when_renewed, exclusive: false, needs: |_| true;
    sharing::weights_add_up_to_the_capacity, exclusive: false, needs: |p| p.sharing;
    sharing::a_big_ask_is_not_passed_by_small_ones, exclusive: false, needs: |p| p.sharing;
    sharing::another_capacity_is_a_conflict, exclusive: false, needs: |p| p.sharing;
    sharing::a_resize_serves_or_ends_those_who_wait, exclusive: false, needs: |p| p.sharing;
    sharing::readers_share_and_a_writer_comes_in_its_turn, exclusive: false, needs: |p| p.sharing;
    sharing::all_is_all_or_nothing, exclusive: false, needs: |_| true;
    onces::a_once_is_run_by_one_and_replayed_to_all, exclusive: false, needs: |_| true;
    onces::those_who_wait_for_a_once_get_its_outcome_by_push, exclusive: false, needs: |p| p.push;
    onces::who_does_not_wait_for_a_once_hears_that_it_is_in_progress, exclusive: false, needs: |_| true;
    onces::what_did_not_happen_is_run_by_the_next, exclusive: false, needs: |_| true;
    onces::what_was_never_settled_is_refused_or_run_again, exclusive: false, needs: |_| true;
    onces::a_slow_holder_of_a_once_resolves_its_own_doubt, exclusive: false, needs: |_| true;
    onces::whoever_began_again_is_not_settled_by_the_one_before, exclusive: false, needs: |_| true;
    onces::a_once_with_other_content_is_refused, exclusive: false, needs: |_| true;
    onces::a_once_is_remembered_for_as_long_as_it_is_kept, exclusive: false, needs: |_| true;
    onces::a_turn_that_nobody_took_leaves_no_doubt, exclusive: false, needs: |_| true;
    onces::an_older_doubt_is_not_undone, exclusive: false, needs: |_| true;
    onces::what_a_once_left_does_not_wait_for_hold_for, exclusive: false, needs: |_| true;
    onces::what_is_remembered_of_a_once_is_shown, exclusive: false, needs: |_| true;
    onces::a_once_that_is_forgotten_is_run_by_the_next, exclusive: false, needs: |_| true;
    onces::what_has_changed_since_it_was_seen_is_not_forgotten, exclusive: false, needs: |_| true;
    elections::everyone_sees_who_leads, exclusive: false, needs: |_| true;
    elections::leaders_follow_each_other_and_terms_rise, exclusive: false, needs: |_| true;
    elections::a_leader_that_is_not_heard_of_any_more_is_followed, exclusive: false, needs: |_| true;
    elections::a_term_that_is_broken_is_lost_and_followed, exclusive: false, needs: |_| true;
    elections::a_lock_an_election_and_a_once_of_one_name_are_three_things, exclusive: false, needs: |_| true;
}

/// Runs every case that the engine promises, concurrently, and panics with those that failed.
///
/// `connect` makes another client of the same engine; for engines in this process, it returns the same engine.
pub async fn check(
    runtime: Arc<dyn Runtime>,
    connect: impl Fn() -> Arc<dyn Engine> + Send + Sync + 'static,
) {
    check_as("", runtime, connect).await;
}

/// The same with at most this many cases at a time, for engines whose clients need many resources.
pub async fn check_some_at_a_time(
    most: usize,
    runtime: Arc<dyn Runtime>,
    connect: impl Fn() -> Arc<dyn Engine> + Send + Sync + 'static,
) {
    check_within("", most, runtime, connect).await;
}

/// The same with names that begin with `prefix`, for several processes on the same engine. Cases begin one
/// after the other: limits of a second must not expire because thousands of clients connect at once.
pub async fn check_as(
    prefix: &str,
    runtime: Arc<dyn Runtime>,
    connect: impl Fn() -> Arc<dyn Engine> + Send + Sync + 'static,
) {
    check_within(prefix, usize::MAX, runtime, connect).await;
}

async fn check_within(
    prefix: &str,
    most: usize,
    runtime: Arc<dyn Runtime>,
    connect: impl Fn() -> Arc<dyn Engine> + Send + Sync + 'static,
) {
    let connect: Connect = Arc::new(connect);
    let mut running = VecDeque::new();
    let profile = connect().profile().clone();
    let on_threads = all_cases(&profile).filter(|case| case.exclusive && !case.is_about_futures());
    let on_threads = on_threads.map(|case| (case, Exclusive::Blocking));
    for (case, how) in all_runs(&profile).into_iter().chain(on_threads) {
        let mut kit = Kit::new(runtime.clone(), connect.clone(), case, how);
        if !prefix.is_empty() {
            kit.prefix.insert_str(0, prefix);
            runtime.sleep(Duration::from_millis(20)).await;
        }
        let label = kit.prefix.clone();
        // A case that panics drops its promise; the panic has the reason.
        running.push_back((label, runtime.spawn((case.run)(kit))));
        if running.len() >= most
            && let Some((_label, case)) = running.pop_front()
        {
            case.await;
        }
    }
    for (_label, case) in running {
        case.await;
    }
}

/// Runs the cases one after the other on virtual time, and returns the first `most` that failed, each with its
/// reason.
pub fn check_on_virtual_time(
    most: usize,
    engine: impl Fn(&Sim) -> Arc<dyn Engine>,
) -> Vec<(String, String)> {
    let profile = engine(&Sim::new(0)).profile().clone();
    let mut failed = Vec::new();
    for (case, how) in all_runs(&profile) {
        if failed.len() == most {
            break;
        }
        let sim = Sim::new(7);
        let engine = engine(&sim);
        let kit = Kit::new(sim.process(OUTSIDE), Arc::new(move || engine.clone()), case, how);
        let label = kit.prefix.clone();
        let run =
            std::panic::AssertUnwindSafe(|| sim.run(Duration::from_secs(600), (case.run)(kit)));
        match std::panic::catch_unwind(run) {
            Ok(Ok(())) => {}
            Ok(Err(stuck)) => failed.push((label, format!("{stuck:?}"))),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                failed.push((label, text.unwrap_or("panicked").to_owned()));
            }
        }
    }
    failed
}

fn all_cases(profile: &Profile) -> impl Iterator<Item = &'static Case> {
    CASES.iter().filter(|case| (case.needs)(profile))
}

impl Case {
    /// A waiting thread cannot be dropped, and is never left unpolled.
    fn is_about_futures(&self) -> bool {
        ["an_ask_dropped_at_any_point_leaves_nothing", "a_turn_that_nobody_takes_passes_on"]
            .contains(&self.name)
    }
}

/// Each case with each way to run it.
fn all_runs(profile: &Profile) -> Vec<(&'static Case, Exclusive)> {
    let mut runs = Vec::new();
    for case in all_cases(profile) {
        let ways: &[Exclusive] = match (case.exclusive, profile.sharing) {
            (true, true) => &Exclusive::ALL,
            (true, false) => &[Exclusive::Mutex, Exclusive::AllOfOne],
            (false, _) => &[Exclusive::Mutex],
        };
        runs.extend(ways.iter().map(|way| (case, *way)));
    }
    runs
}

type Connect = Arc<dyn Fn() -> Arc<dyn Engine> + Send + Sync>;

/// The environment of a case: clients of the engine, its own names, time and tasks.
#[derive(Clone)]
struct Kit {
    runtime: Arc<dyn Runtime>,
    connect: Connect,
    how: Exclusive,
    prefix: String,
}

const SECOND: Duration = Duration::from_secs(1);
/// Long enough on a busy machine for anything that should happen at once.
const SOON: Duration = Duration::from_secs(10);

impl Kit {
    fn new(runtime: Arc<dyn Runtime>, connect: Connect, case: &Case, how: Exclusive) -> Kit {
        let prefix = match case.exclusive {
            true => format!("{}/{how:?}", case.name),
            false => case.name.to_owned(),
        };
        Kit { runtime, connect, how, prefix }
    }

    fn client(&self) -> Tenure {
        Tenure::in_world((self.connect)(), self.runtime.world())
    }

    fn name(&self, suffix: &str) -> String {
        format!("{}:{suffix}", self.prefix)
    }

    async fn sleep(&self, span: Duration) {
        self.runtime.sleep(span).await;
    }

    /// The value of something that must happen soon.
    async fn soon<T>(&self, what: &str, future: impl Future<Output = T>) -> T {
        let done = self.runtime.within(SOON, future).await;
        done.unwrap_or_else(|| panic!("{}: not soon: {what}", self.prefix))
    }

    async fn view(&self, client: &Tenure, name: &str) -> Option<View> {
        client.inspect(name).await.expect("inspect").map(|mut view| {
            view.holders.retain(|holder| holder.details.owner != exclusive::FILLER);
            view
        })
    }

    /// Waits until this many claims are in line.
    async fn line_of(&self, client: &Tenure, name: &str, count: usize) {
        let grown = async {
            while self.view(client, name).await.map_or(0, |view| view.waiters.len()) != count {
                self.sleep(Duration::from_millis(2)).await;
            }
        };
        self.soon("the line has its length", grown).await;
    }

    /// Waits until nobody holds the name or waits for it.
    async fn unused(&self, client: &Tenure, name: &str) {
        let empty = async {
            while let Some(view) = self.view(client, name).await
                && (!view.holders.is_empty() || !view.waiters.is_empty())
            {
                self.sleep(Duration::from_millis(2)).await;
            }
        };
        self.soon("the name is unused", empty).await;
    }
}

/// Options of a hold with a ttl of `seconds`, renewed.
fn lasting(client: &Tenure, seconds: u64) -> Options {
    let mut options = client.defaults();
    options.ttl = SECOND * seconds as u32;
    options
}

/// The same, but not renewed.
fn unrenewed(client: &Tenure, seconds: u64) -> Options {
    let mut options = lasting(client, seconds);
    options.renew = false;
    options
}

fn held(result: Result<Hold>) -> Hold {
    result.expect("the ask is granted")
}
