//! The ways in which the code is broken on purpose, each of which a test must notice.

/// One way to break the code.
pub(super) struct Mutation {
    /// What it breaks, in the words of the invariants.
    pub(super) breaks: &'static str,
    /// The file, from the root.
    pub(super) file: &'static str,
    /// A piece of text that occurs exactly once in it.
    pub(super) find: &'static str,
    /// What stands there instead.
    pub(super) replace: &'static str,
    /// Which tests must fail, as arguments of `cargo test --workspace`.
    pub(super) tests: &'static [&'static str],
}

/// The simulation notices most things.
pub(super) const SIMULATION: &[&str] = &["--test", "simulation"];
/// The conformance suite notices what is a promise about one call.
const CONFORMANCE: &[&str] = &["--test", "conformance", "memory::memory_conforms_on_virtual_time"];
/// What happens between two steps.
pub(super) const RACES: &[&str] = &["--test", "api", "races::"];
/// One claim as its own process sees it.
const CLAIM_STATES: &[&str] = &["--lib", "claim_state::"];
/// Whoever listens.
const LISTENERS: &[&str] = &["--test", "listeners", "a_listener_that_blocks"];
/// When the watchdog looks at what.
const TIMERS: &[&str] = &["--lib", "claim_table::"];
/// Pushes of a Redis, without one.
const PUSHES: &[&str] = &["--lib", "redis::turns::"];
/// Several runtimes that share a connection.
const RUNTIMES: &[&str] = &["--test", "engines", "runtimes::"];
/// Outages on virtual time.
const OUTAGES: &[&str] = &["--test", "outage", "seeds"];
/// This process's own line.
const OWN_LINE: &[&str] =
    &["--test", "api", "--", "no_business_of_the_engine", "nobody_takes_passes_on"];

/// The scripts against the ledger, step by step, on a real server.
const SCRIPTS: &[&str] =
    &["--test", "engines", "redis_ledger::every_script_goes_as_the_ledger_says"];

/// Ways to break the core and the engines, each of which a test must notice.
pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        breaks: "whoever would go on alone does not stand in this process's own line",
        file: "crates/tenure/src/core/acquire/first_attempt.rs",
        find: "if live.outage() == OnOutage::Local {",
        replace: "if live.outage() == OnOutage::Closed {",
        tests: OUTAGES,
    },
    Mutation {
        breaks: "whoever goes on alone leaves its place in this process's own line",
        file: "crates/tenure/src/core/acquire/fall_back.rs",
        find: "live.keep_local_place(place);",
        replace: "drop(place);",
        tests: OUTAGES,
    },
    Mutation {
        breaks: "a hold without the engine has a higher fence than those that the engine gives",
        file: "crates/tenure/src/core/acquire/fall_back.rs",
        find: "request.claim.seen = core.outage.fence_without(&live.claim.name);",
        replace: "request.claim.seen = crate::model::claim::Fence::new(core.table.seen().get() + 1);",
        tests: OUTAGES,
    },
    Mutation {
        breaks: "an engine that is back stays out of reach",
        file: "crates/tenure/src/core/reach.rs",
        find: "let over = known.down.remove(&shard).is_some() && known.down.is_empty();",
        replace: "let over = shard == u32::MAX && known.down.is_empty();",
        tests: OUTAGES,
    },
    Mutation {
        breaks: "a claim that was never sent is left on the engine",
        file: "crates/tenure/src/core/claim_state.rs",
        find: "self.unsent = true;",
        replace: "",
        tests: OWN_LINE,
    },
    Mutation {
        breaks: "a turn of this process's own line that nobody takes stops the line",
        file: "crates/tenure/src/core/local_line.rs",
        find: "line.set_aside(now);",
        replace: "",
        tests: OWN_LINE,
    },
    Mutation {
        breaks: "the watchdog renews nothing, so that holds and places run out",
        file: "crates/tenure/src/core/watchdog.rs",
        find: "self.renew(batch, now);",
        replace: "let _ = (batch, now);",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "the thread that renews waits for whoever listens",
        file: "crates/tenure/src/observe/queue.rs",
        find: "self.unsaid.load(SeqCst) > 0 || OWN.with_borrow(Option::is_some)",
        replace: "self.unsaid.load(SeqCst) > 0 && OWN.with_borrow(Option::is_some)",
        tests: LISTENERS,
    },
    Mutation {
        breaks: "each look of the watchdog is at all that there is",
        file: "crates/tenure/src/core/claim_table/shard.rs",
        find: "&& first.key().0 <= now",
        replace: "&& (first.key().0 <= now || first.key().0 > now)",
        tests: TIMERS,
    },
    Mutation {
        breaks: "whoever comes to the front of a line in this process does not look",
        file: "crates/tenure/src/core/claim_table/shard.rs",
        find: "&& front.timer.due() != Moment::FAR",
        replace: "&& front.timer.due() == Moment::ORIGIN",
        tests: TIMERS,
    },
    Mutation {
        breaks: "a turn that overtakes the answer *waiting* is dropped",
        file: "crates/tenure/src/engines/redis/places.rs",
        find: "table.early.push_back(early);",
        replace: "drop(early);",
        tests: PUSHES,
    },
    Mutation {
        breaks: "a turn from before its claim was sent is believed",
        file: "crates/tenure/src/engines/redis/places.rs",
        find: "early.heard >= base",
        replace: "early.heard >= Moment::ORIGIN",
        tests: PUSHES,
    },
    Mutation {
        breaks: "a connection whose runtime does not run is read by nobody",
        file: "crates/tenure/src/engines/redis/connection/takeover.rs",
        find: "if count > MOST_MISSED {",
        replace: "if count > 1000 * MOST_MISSED {",
        tests: RUNTIMES,
    },
    Mutation {
        breaks: "a dropped hold is not released",
        file: "crates/tenure/src/core/guard.rs",
        find: "core.leave(&self.live, self.given);",
        replace: "let _ = core;",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "a turn is believed however old it is",
        file: "crates/tenure/src/core/acquire.rs",
        find: "if now <= grant.start_by {",
        replace: "if now <= grant.start_by || grant.first_life {",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "a turn from before the last contact is believed",
        file: "crates/tenure/src/core/claim_state/phase.rs",
        find: "if grant.fence <= floor)",
        replace: "if grant.fence < crate::Fence::default() && grant.fence <= floor)",
        tests: RACES,
    },
    Mutation {
        breaks: "an end that comes before its grant is forgotten",
        file: "crates/tenure/src/core/claim_state.rs",
        find: "if let Some(ended) = ended {\n            self.lose(ended, None, &mut effects);",
        replace: "if let Some(_ended) = ended {\n            let _ = &mut effects;",
        tests: RACES,
    },
    Mutation {
        breaks: "a hold is live after its deadline",
        file: "crates/tenure/src/core/claim_state.rs",
        find: "Phase::Held(held) if now >= held.good_until => Some(Ended::Expired),",
        replace: "Phase::Held(held) if now >= held.good_until + request.claim.ttl => Some(Ended::Expired),",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "the local deadline is later than the engine's",
        file: "crates/tenure/src/model/moment.rs",
        find: "remaining - remaining / 100 - allowance",
        replace: "remaining + remaining / 50 + allowance",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "nobody who waits looks again",
        file: "crates/tenure/src/core/claim_state/phase.rs",
        find: "if !self.in_flight =>",
        replace: "if self.in_flight && !self.in_flight =>",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "an answer that is heard late undoes when to look",
        file: "crates/tenure/src/core/claim_state/phase.rs",
        find: "place.look_again = place.look_again.min(self.hint);",
        replace: "",
        tests: CLAIM_STATES,
    },
    Mutation {
        breaks: "whoever is told is not woken",
        file: "crates/tenure/src/core/claim_table.rs",
        find: "if let Some(waker) = waker {\n            system::wake(waker);",
        replace: "if let Some(waker) = waker {\n            drop(waker);",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "whoever waits is not known",
        file: "crates/tenure/src/core/live_claim.rs",
        find: "let before = shared.waker.replace(cx.waker().clone());",
        replace: "let before = { let _ = &cx; shared.waker.take() };",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "an ask that is dropped stays in line",
        file: "crates/tenure/src/core/claim_state/leaving.rs",
        find: "Phase::Asking(_) => Leaving::new(None),",
        replace: "Phase::Asking(_) => return effects,",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "a newcomer passes the line",
        file: "crates/tenure/src/ledger.rs",
        find: "let comes_next = fits && self.storage.head()?.is_none();",
        replace: "let comes_next = fits;",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "the first in line is granted although it does not fit",
        file: "crates/tenure/src/ledger.rs",
        find: "if head.weight > capacity.saturating_sub(held) {",
        replace: "if head.weight > capacity {",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "a hold outlives max_hold",
        file: "crates/tenure/src/core/claim_state.rs",
        find: "request.terms.max_hold.map_or(Moment::FAR, |max_hold| since + max_hold)",
        replace: "{ let _ = since; Moment::FAR }",
        tests: CONFORMANCE,
    },
    Mutation {
        breaks: "a wait is never over",
        file: "crates/tenure/src/core/acquire.rs",
        find: "LoopEvent::Claim(ClaimEvent::Rung) if now >= self.deadline() => {",
        replace: "LoopEvent::Claim(ClaimEvent::Rung) if now > Moment::FAR => {",
        tests: CONFORMANCE,
    },
    Mutation {
        breaks: "a turn that is not renewed ends with its first life",
        file: "crates/tenure/src/core/claim_state/phase.rs",
        find: "terms.renew || self.first_life || self.is_kept()",
        replace: "terms.renew || self.is_kept()",
        tests: CONFORMANCE,
    },
    Mutation {
        breaks: "a turn that comes late ends a hold that was detached",
        file: "crates/tenure/src/core/claim_state.rs",
        find: "(Phase::Held(_), _) | (Phase::Detached(_), Turn::Granted(_)) => true,",
        replace: "(Phase::Held(_), _) => true,",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "a hold is detached in its first life",
        file: "crates/tenure/src/api/detached.rs",
        find: "self.renew_for(live.claim.ttl).await?;",
        replace: "",
        tests: CONFORMANCE,
    },
    Mutation {
        breaks: "hold_for is forgotten",
        file: "crates/tenure/src/core/claim_state/leaving.rs",
        find: "held.leave_at = since + request.terms.hold_for;\n                return effects;",
        replace: "Leaving::new(Some(held.good_until))",
        tests: CONFORMANCE,
    },
    Mutation {
        breaks: "a script grants to the first in line although it does not fit",
        file: "crates/tenure/src/engines/redis/lua/line/admission.lua",
        find: "elseif e.weight > cap - held then",
        replace: "elseif e.weight > cap + held then",
        tests: SCRIPTS,
    },
    Mutation {
        breaks: "a script lets anyone end a hold",
        file: "crates/tenure/src/engines/redis/lua/leave_alone.lua",
        find: "if plain:sub(1, 16) ~= ARGV[3] then return { 'X' } end",
        replace: "",
        tests: SCRIPTS,
    },
    Mutation {
        breaks: "a server that has forgotten a script is not told it again",
        file: "crates/tenure/src/engines/redis/steps.rs",
        find: "Ok(self.send_on(connection, request, SendOptions { with_text: true, ..options }))",
        replace: "Ok(self.send_on(connection, request, SendOptions { with_text: false, ..options }))",
        tests: &["--test", "engines", "redis_faults::states::s66_"],
    },
    Mutation {
        breaks: "nobody looks again when the connection that brings turns was lost",
        file: "crates/tenure/src/engines/redis/connection.rs",
        find: "self.shared.waiting.look_again_in(0);",
        replace: "",
        tests: &["--test", "engines", "redis_faults::waiting::s19_"],
    },
    Mutation {
        breaks: "after a turn that nobody takes only the next in line looks, and the last",
        file: "crates/tenure/src/ledger/notices.rs",
        find: "if !known && (place < LOOKERS || place == last) {",
        replace: "if !known && place == last {",
        tests: SIMULATION,
    },
    Mutation {
        breaks: "a script tells only the next in line when to look",
        file: "crates/tenure/src/engines/redis/lua/line/admission.lua",
        find: "if (at <= 8 or at == #line) and not told[to]",
        replace: "if at == 1 and not told[to]",
        tests: SCRIPTS,
    },
    Mutation {
        breaks: "one that is told to look does not, because another of its process stands before it",
        file: "crates/tenure/src/core/claim_state/phase.rs",
        find: "let look = if foremost { place.look_again } else { *hint };",
        replace: "let look = if foremost { place.look_again } else { *contact_at };",
        tests: CLAIM_STATES,
    },
    Mutation {
        breaks: "a renewal counts at a server that is not the primary any more",
        file: "crates/tenure/src/engines/redis/claims.rs",
        find: "Some((connection, reply)) => self.doubt(&connection, reply).await,",
        replace: "Some(_) => None,",
        tests: &["--test", "engines", "s84_a_holder_that_cannot_hear_the_sentinels"],
    },
    Mutation {
        breaks: "nobody hears from the sentinels that another server takes over",
        file: "crates/tenure/src/engines/redis/connection/task.rs",
        find: "let watch = greeting.primary.and_then(|primary| self.watch(primary));",
        replace: "let watch: Option<Watch> = None;",
        tests: &["--test", "engines", "failovers::sentinels_planned"],
    },
    Mutation {
        breaks: "the claims of a process that was killed stay in a file",
        file: "crates/tenure/src/engines/file/transaction.rs",
        find: "rows.remove(&id)?;",
        replace: "",
        tests: &["--test", "engines", "s111_the_next_is_served_at_once"],
    },
    Mutation {
        breaks: "what is known of a once is not on the disk before anyone acts on it",
        file: "crates/tenure/src/engines/file/store.rs",
        find: "self.journal.sync_data().map_err(|error| unsynced(&error))?;",
        replace: "",
        tests: &["--test", "command", "run::power_cut"],
    },
];
