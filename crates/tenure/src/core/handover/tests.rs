//! The machine together with the real ledger, explored: claimants of one process, which share what they are granted, and
//! claimants of other processes, an engine whose answers come late or never, pushes that are lost, an operator, and a
//! process that stands still. Every state is judged, and from every state everyone must be served in the end.
//!
//! A second is the smallest step of time. So an answer counts as news only in the second in which its question was sent.

#![allow(clippy::print_stdout, reason = "what was explored is worth reading")]

mod digest;
mod judge;
mod network;
mod state;
mod walk;

use super::wrong::Wrong;
use state::Event::{
    self, Arrives, Claim, Heard, Joins, Leave, Renew, Second, Take, TimesOut, Watchdog,
};
use walk::{Setting, explore};

/// The first has the hold, the second waits at the engine, and the engine has said that nobody else does.
const ALONE: &[Event] = &[
    Claim(0),
    Arrives(0),
    Heard(0),
    Take(0),
    Claim(1),
    Arrives(0),
    Heard(0),
    Arrives(1),
    Heard(1),
];

/// The first has been given the hold by the second, and there is another fence to give.
const READY: &[Event] = &[
    Claim(0),
    Arrives(0),
    Heard(0),
    Take(0),
    Claim(1),
    Arrives(0),
    Heard(0),
    Arrives(1),
    Heard(1),
    Leave(0),
    Claim(0),
    Arrives(0),
    Heard(0),
    Heard(0),
    Take(1),
    Leave(1),
    Arrives(1),
    Heard(1),
    Take(0),
];

const PLAIN: Setting = Setting {
    script: READY,
    name: "three of one process and one of another",
    rounds: &[2, 2, 1],
    strangers: 1,
    sleepers: 0,
    time_outs: 0,
    lost_pushes: 0,
    breaks: 0,
    extends: 0,
    again: 0,
    renews: 0,
    quits: 1,
    seconds: 2,
    most: 60_000,
};

const FAULTS: Setting = Setting {
    name: "with requests that are late, and leaves that are repeated",
    rounds: &[2, 2],
    time_outs: 2,
    again: 1,
    ..PLAIN
};

const TIME: Setting = Setting {
    name: "over a long time, with renewals",
    rounds: &[2, 2],
    seconds: 5,
    renews: 1,
    again: 1,
    quits: 0,
    ..PLAIN
};

const BROKEN: Setting = Setting {
    name: "with an operator who breaks holds and pushes that are lost",
    rounds: &[2, 2, 1],
    breaks: 1,
    lost_pushes: 1,
    seconds: 3,
    ..PLAIN
};

const EXTENDED: Setting =
    Setting { name: "with holds that are extended", rounds: &[2, 2], extends: 1, ..PLAIN };

const SLEEPERS: Setting = Setting {
    name: "with tasks that never take their turn",
    rounds: &[2, 1, 1, 1],
    sleepers: 2,
    seconds: 5,
    ..PLAIN
};

/// Two renewals at a time, answered in any order.
const LATE: Setting = Setting {
    name: "with answers that come late",
    rounds: &[2, 2, 1],
    renews: 1,
    seconds: 1,
    strangers: 0,
    quits: 0,
    ..PLAIN
};

/// Two renewals were answered, and the answers may come in any order, while others come.
const LATE_BLOCK: Setting = Setting {
    name: "with numbers that come late",
    script: &[
        Claim(0),
        Arrives(0),
        Heard(0),
        Take(0),
        Claim(1),
        Arrives(0),
        Heard(0),
        Arrives(1),
        Heard(1),
        Leave(0),
        Claim(0),
        Arrives(0),
        Heard(0),
        Heard(0),
        Take(1),
        Leave(1),
        Arrives(1),
        Heard(1),
        Take(0),
        Renew(0),
        Second,
        Claim(1),
        Arrives(1),
        Arrives(1),
    ],
    rounds: &[2, 2, 1, 1],
    renews: 1,
    seconds: 2,
    strangers: 0,
    quits: 0,
    ..PLAIN
};

/// A claim has stood in the process for too long behind one at the engine, and joins it there, while a renewal is on its
/// way.
const JOINS: Setting = Setting {
    name: "with a claim that joins the engine's line",
    script: &[
        Claim(0),
        Arrives(0),
        Heard(0),
        Take(0),
        Claim(1),
        Arrives(0),
        Heard(0),
        Arrives(1),
        Heard(1),
        Claim(2),
        Second,
        Joins(0),
        Second,
        Watchdog,
        Claim(3),
    ],
    rounds: &[1, 1, 1, 1, 1],
    seconds: 2,
    ..PLAIN
};

/// Own claims stand at the engine, and came there after numbers that nobody has taken.
const OLD_BLOCK: Setting = Setting {
    name: "with numbers that are left over",
    script: &[
        Claim(0),
        Arrives(0),
        Heard(0),
        Take(0),
        Claim(1),
        Arrives(0),
        Heard(0),
        Arrives(1),
        Heard(1),
        Second,
        Claim(2),
        Arrives(0),
        Heard(0),
        Second,
        Claim(3),
    ],
    rounds: &[1, 1, 1, 1, 1],
    strangers: 0,
    seconds: 2,
    ..PLAIN
};

/// A grant is taken so late that its claim must ask again, under the same id. Its time was extended meanwhile.
const TAKEN_LATE: Setting = Setting {
    name: "with a grant that is taken late",
    script: &[
        Claim(0),
        Arrives(0),
        Heard(0),
        Second,
        Claim(1),
        Arrives(1),
        Heard(1),
        Arrives(0),
        Heard(0),
        Second,
        Second,
        Second,
        Watchdog,
        Take(0),
    ],
    rounds: &[1, 2],
    strangers: 0,
    quits: 0,
    time_outs: 1,
    seconds: 5,
    ..PLAIN
};

/// A hold that is extended ends the line here, and one of the claims anew is late.
const DOUBT: Setting = Setting {
    name: "with claims anew that are late",
    rounds: &[2, 2],
    extends: 1,
    time_outs: 1,
    strangers: 0,
    ..PLAIN
};

/// The carrier's first request is late: it may arrive after everything else.
const CARRIER: Setting = Setting {
    name: "with a carrier in doubt",
    script: &[
        Claim(0),
        TimesOut(0),
        Heard(0),
        Arrives(0),
        Heard(0),
        Take(0),
        Renew(0),
        Arrives(1),
        Heard(1),
        Claim(1),
        Leave(0),
        Take(1),
    ],
    rounds: &[2, 3],
    time_outs: 1,
    renews: 1,
    ..PLAIN
};

/// From the very beginning.
const BEGIN: Setting =
    Setting { name: "from the beginning", script: &[], rounds: &[2, 1], quits: 0, ..PLAIN };

const FIRST: Setting = Setting { name: "from the first answer on", script: ALONE, ..PLAIN };

const TWO: Setting = Setting {
    name: "two of one process and two of another",
    rounds: &[2, 2],
    strangers: 2,
    seconds: 2,
    ..PLAIN
};

const ALL: [Setting; 16] = [
    JOINS, OLD_BLOCK, BEGIN, FIRST, PLAIN, LATE, LATE_BLOCK, TAKEN_LATE, DOUBT, CARRIER, FAULTS,
    TIME, BROKEN, EXTENDED, SLEEPERS, TWO,
];

#[test]
fn no_order_of_events_breaks_a_hold_that_is_handed_over() {
    let mut handed_over = 0;
    for setting in ALL {
        match explore(&setting, None) {
            Ok(walk) => {
                println!("{walk}");
                handed_over += walk.handed_over;
            }
            Err(violation) => panic!("{}: {violation}", setting.name),
        }
    }
    assert!(handed_over > 1000, "{handed_over}");
}

/// An exploration that cannot fail proves nothing.
#[test]
fn every_wrong_machine_is_found() {
    let all = [
        (Wrong::AfterDeadline, &TIME),
        (Wrong::OnStaleContact, &BROKEN),
        (Wrong::AnyoneHandsOver, &FAULTS),
        (Wrong::NoFirstLife, &SLEEPERS),
        (Wrong::EndToldToCarrier, &BROKEN),
        (Wrong::OldAnswerEnds, &LATE),
        (Wrong::OldAnswerProlongs, &TIME),
        (Wrong::LateBlockIsUsed, &LATE_BLOCK),
        (Wrong::NewcomersInAClosedLine, &PLAIN),
        (Wrong::NeverCloses, &PLAIN),
        (Wrong::OwnArePassed, &FIRST),
        (Wrong::OwnAreStrangers, &FIRST),
        (Wrong::CountedFromAnswer, &PLAIN),
        (Wrong::DoubtIsDropped, &DOUBT),
        (Wrong::DoubtOfCarrierIsDropped, &CARRIER),
        (Wrong::AfterExtend, &EXTENDED),
        (Wrong::JoinsWithoutTicket, &BROKEN),
        (Wrong::LeavesBeforeTheyJoin, &SLEEPERS),
        (Wrong::OldBlockIsKept, &OLD_BLOCK),
        (Wrong::CountedBeforeItCame, &JOINS),
        (Wrong::WaitersAreForgotten, &PLAIN),
        (Wrong::KeptInReserve, &PLAIN),
        (Wrong::LeavesForALiveClaim, &TAKEN_LATE),
        (Wrong::UntakenInARow, &SLEEPERS),
    ];
    let mut missed = Vec::new();
    for (wrong, setting) in all {
        match explore(setting, Some(wrong)) {
            Ok(walk) => missed.push(format!("{wrong:?} was not found: {walk}")),
            Err(violation) => println!("{wrong:?}: {violation}\n"),
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
