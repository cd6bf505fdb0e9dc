//! `tenure demo`: which proofs to play, and how.

use clap::Command;

use super::define::{option, word};
use super::given::Given;
use crate::failure::{Failure, USAGE};
use crate::output::quoted;

/// Which proofs to play, and how.
#[derive(Debug)]
pub(crate) struct Demo {
    /// The proofs, in order.
    pub(crate) proofs: Vec<Proof>,
    /// How often each process of the race takes a number.
    pub(crate) count: u32,
}

/// The proofs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Proof {
    /// Two processes count in one file; none of their updates is lost.
    Race,
    /// Two book the same table at the same time, and one gets it.
    Booking,
    /// A holder that comes back too late can do no harm.
    Stolen,
    /// A holder is killed, and the next one continues.
    Crash,
    /// Twenty want to enter, and five are inside at a time.
    Slots,
    /// One sender's transactions stay in order across instances.
    Order,
    /// A worker ends, and the next one takes over.
    Handover,
    /// Every instance has a cron job, and only the leader runs it.
    Leader,
    /// Several processes receive the same webhook, and it is processed once.
    Webhook,
    /// One sender's transactions stay in order behind three relays.
    #[cfg(feature = "relay")]
    Relay,
}

/// The proofs in the order in which they are played, with a description.
const PROOFS: &[(&str, Proof, &str)] = &[
    ("race", Proof::Race, "two processes increment a counter in one file; no update is lost"),
    ("booking", Proof::Booking, "two customers book the same table at once; one gets it"),
    ("stolen", Proof::Stolen, "a holder is paused and comes back too late; its write is refused"),
    ("crash", Proof::Crash, "a holder is killed; the next one takes over"),
    ("slots", Proof::Slots, "twenty tasks compete for five slots; never more than five are inside"),
    ("order", Proof::Order, "one sender's transactions stay in order across instances"),
    ("handover", Proof::Handover, "a worker shuts down; the next one takes over"),
    ("leader", Proof::Leader, "a cron job is installed on every instance; only the leader runs it"),
    (
        "webhook",
        Proof::Webhook,
        "a webhook is delivered to several instances; it is processed once",
    ),
    #[cfg(feature = "relay")]
    ("relay", Proof::Relay, "an Ethereum sender's transactions stay in order behind three relays"),
];

/// How often each process of the race takes a number, by default.
const COUNT: u32 = 1000;
/// The largest count of the race: about half an hour of work.
const MOST: u32 = 1_000_000;

pub(super) fn define() -> Command {
    let proofs = PROOFS.iter().map(|(name, _, shows)| format!("  {name:<9} {shows}\n"));
    Command::new("demo")
        .about("Show what locks prevent: short proofs with real processes, no server needed")
        .after_help(format!(
            "Proofs:\n{}\nThey run on a temporary file, or on the engine of --url under names that begin with `tenure-demo/`.\n\
             The exit code is 1 if a proof fails.",
            proofs.collect::<String>()
        ))
        .arg(word("proof", "NAME", "Proof to run; all of them if omitted"))
        .arg(option(
            "count",
            None,
            "N",
            &format!(
                "How often each of the two processes of `race` increments the counter [default: {COUNT}]"
            ),
        ))
}

impl Demo {
    pub(super) fn read(given: &Given<'_>) -> Result<Demo, Failure> {
        let count = given.number("count", 1..=u64::from(MOST))?;
        let count = count.and_then(|count| u32::try_from(count).ok()).unwrap_or(COUNT);
        let Some(name) = given.word("proof")? else {
            return Ok(Demo { proofs: PROOFS.iter().map(|(_, proof, _)| *proof).collect(), count });
        };
        let Some(proof) = proof_named(&name) else {
            let known: Vec<_> = PROOFS.iter().map(|(name, ..)| *name).collect();
            return Err(Failure::new(
                USAGE,
                format!("unknown proof {}", quoted(&name)),
                format!("proofs: {}", known.join(", ")),
                "name one of them, or none to run all",
            ));
        };
        if proof != Proof::Race && given.is_on_command_line("count") {
            return Err(Failure::new(
                USAGE,
                format!("--count cannot be used with {}", quoted(&name)),
                "it sets how often the processes of `race` increment the counter",
                "remove --count, or run `tenure demo race`",
            ));
        }
        Ok(Demo { proofs: vec![proof], count })
    }
}

/// The proof with this name.
pub(crate) fn proof_named(name: &str) -> Option<Proof> {
    PROOFS.iter().find(|(known, ..)| *known == name).map(|(_, proof, _)| *proof)
}

/// The name of a proof, as on the command line.
pub(crate) fn name_of(proof: Proof) -> String {
    let known = PROOFS.iter().find(|(_, known, _)| *known == proof);
    known.map(|(name, ..)| (*name).to_owned()).unwrap_or_default()
}
