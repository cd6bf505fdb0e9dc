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

/// The proofs that there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Proof {
    /// Two processes count in one file; none of their updates is lost.
    Race,
    /// Two book the same table at once, and one has it.
    Booking,
    /// A holder that comes back too late can do no harm.
    Stolen,
    /// A holder is killed, and the next one goes on.
    Crash,
    /// Twenty want in, and five are inside at once.
    Slots,
    /// One sender's transactions stay in order across instances.
    Order,
    /// A worker ends, and the next one takes over.
    Handover,
    /// A cron job is on every instance, and the leader runs it.
    Leader,
    /// The same webhook comes to several processes, and is processed once.
    Webhook,
    /// One sender's transactions stay in order behind three relays.
    #[cfg(feature = "relay")]
    Relay,
}

/// The proofs, in the order in which they are played, with what they show.
const PROOFS: &[(&str, Proof, &str)] = &[
    ("race", Proof::Race, "two processes count in one file; none of their updates is lost"),
    ("booking", Proof::Booking, "two book the same table at once, and one has it"),
    ("stolen", Proof::Stolen, "a holder that comes back too late can do no harm"),
    ("crash", Proof::Crash, "a holder is killed, and the next one goes on"),
    ("slots", Proof::Slots, "twenty want in, and five are inside at once"),
    ("order", Proof::Order, "one sender's transactions stay in order across instances"),
    ("handover", Proof::Handover, "a worker ends, and the next one takes over"),
    ("leader", Proof::Leader, "a cron job is on every instance, and the leader runs it"),
    ("webhook", Proof::Webhook, "the same webhook comes to several, and is processed once"),
    #[cfg(feature = "relay")]
    ("relay", Proof::Relay, "an Ethereum sender's transactions stay in order behind three relays"),
];

/// How often each process of the race takes a number unless told otherwise.
const COUNT: u32 = 1000;
/// The most that the race counts to: half an hour of work, more or less.
const MOST: u32 = 1_000_000;

pub(super) fn define() -> Command {
    let proofs = PROOFS.iter().map(|(name, _, shows)| format!("  {name:<9} {shows}\n"));
    Command::new("demo")
        .about("Show what a lock changes: proofs, played by real processes, without a server")
        .after_help(format!(
            "Proofs:\n{}\nThey are played on a file of their own, which is gone in the end; or on the engine that you\n\
             name, with names that begin with `tenure-demo/`. The exit code is 1 if one of them fails.",
            proofs.collect::<String>()
        ))
        .arg(word("proof", "NAME", "The one proof to play; all of them if none is named"))
        .arg(option(
            "count",
            None,
            "N",
            &format!(
                "How often each of the two processes of `race` takes a number [default: {COUNT}]"
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
                format!("there is no proof {}", quoted(&name)),
                format!("known: {}", known.join(", ")),
                "name one of them, or none to play all",
            ));
        };
        if proof != Proof::Race && given.is_spoken("count") {
            return Err(Failure::new(
                USAGE,
                format!("{} does not count", quoted(&name)),
                "--count says how often the processes of `race` take a number",
                "leave --count out, or play `tenure demo race`",
            ));
        }
        Ok(Demo { proofs: vec![proof], count })
    }
}

/// The proof of this name.
pub(crate) fn proof_named(name: &str) -> Option<Proof> {
    PROOFS.iter().find(|(known, ..)| *known == name).map(|(_, proof, _)| *proof)
}

/// The name of a proof, as it is written on the command line.
pub(crate) fn name_of(proof: Proof) -> String {
    let known = PROOFS.iter().find(|(_, known, _)| *known == proof);
    known.map(|(name, ..)| (*name).to_owned()).unwrap_or_default()
}
