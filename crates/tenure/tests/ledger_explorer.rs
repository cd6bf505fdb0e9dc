//! Explores the rule: every order in which three or four claimants can claim, ask again, try, keep their places,
//! renew, leave, leave in doubt, be broken, become unreachable, come back and run out of time, step by step, with
//! every invariant checked after every step.
//!
//! States that differ only in their numbers and moments are the same, so the walk ends by itself: what it prints
//! (`--nocapture`) is everything that can happen in that setting, not a sample. Time passes in whole seconds, and a
//! ttl has three of them; a place does not age bit by bit, but ends at any moment. A violation is reported with the
//! shortest way to it. `TENURE_SLOW=1` adds larger settings, which take a minute or so.

use crate::explorer;

use explorer::{Fault, Setting, explore};

const MUTEX: Setting = Setting {
    name: "mutex",
    capacity: 1,
    weights: &[1, 1, 1],
    processes: [0; 4],
    resizes: &[],
    deaf: true,
    doubt: true,
    breaks: true,
};

/// Four claimants, none of whom is unreachable or leaves in doubt: with four, the whole walk would take hours.
const FOUR: Setting =
    Setting { name: "mutex with four", weights: &[1, 1, 1, 1], deaf: false, doubt: false, ..MUTEX };

const SEMAPHORE: Setting = Setting {
    name: "semaphore of 3, asked for 1, 2, 3 and 1",
    capacity: 3,
    weights: &[1, 2, 3, 1],
    ..FOUR
};

const WRITE: u32 = 1 << 20;
const RWLOCK: Setting = Setting {
    name: "rwlock with three readers and a writer",
    capacity: WRITE,
    weights: &[1, 1, WRITE, 1],
    ..FOUR
};

/// The same with fewer claimants, to whom more can happen.
const RWLOCK_OF_THREE: Setting = Setting {
    name: "rwlock with two readers and a writer",
    capacity: WRITE,
    weights: &[1, 1, WRITE],
    ..MUTEX
};

const RESIZED: Setting = Setting {
    name: "semaphore of 2, resized to 1 and 3",
    capacity: 2,
    weights: &[1, 2, 1],
    resizes: &[1, 3],
    doubt: false,
    ..MUTEX
};

const PROCESSES: Setting =
    Setting { name: "mutex between processes of two and one", processes: [1, 1, 2, 0], ..MUTEX };

#[test]
fn no_order_of_events_breaks_a_mutex() {
    walk(&MUTEX, 85_000);
}

#[test]
fn no_order_of_events_breaks_a_mutex_with_four_claimants() {
    walk(&FOUR, 42_000);
}

#[test]
fn no_order_of_events_breaks_a_semaphore() {
    walk(&SEMAPHORE, 72_000);
}

#[test]
fn no_order_of_events_breaks_a_rwlock() {
    walk(&RWLOCK, 77_000);
    walk(&RWLOCK_OF_THREE, 87_000);
}

#[test]
fn no_order_of_events_breaks_what_is_resized() {
    walk(&RESIZED, 38_000);
}

#[test]
fn no_order_of_events_breaks_a_mutex_between_processes() {
    walk(&PROCESSES, 69_000);
}

#[test]
fn no_order_of_events_breaks_anything_with_four_claimants() {
    if std::env::var_os("TENURE_SLOW").is_none() {
        return;
    }
    for (setting, least) in [(FOUR, 350_000), (SEMAPHORE, 420_000), (RWLOCK, 400_000)] {
        walk(&Setting { deaf: true, breaks: false, ..setting }, least);
    }
    walk(&Setting { processes: [1, 1, 2, 2], deaf: true, breaks: false, ..FOUR }, 210_000);
}

/// An explorer that cannot fail proves nothing.
#[test]
fn every_fault_of_the_storage_is_found() {
    let faults = [
        (Fault::LastIsHead, &MUTEX, "overtook one who waits"),
        (Fault::HeadIsWhoFits, &SEMAPHORE, "overtook one who waits"),
        (Fault::NoHead, &MUTEX, "the head of the line fits and waits"),
        (Fault::HeldIsUnderstated, &MUTEX, "2 held of 1"),
        (Fault::NumbersRepeat, &MUTEX, "does not rise"),
        (Fault::HoldsStay, &MUTEX, "someone still holds or waits"),
        (Fault::PlacesStay, &MUTEX, "a claim that left is still there"),
        (Fault::NothingEnds, &MUTEX, "someone still holds or waits"),
        (Fault::AllEndsEarly, &MUTEX, "the fence of a hold changed"),
        (Fault::FoundLastsLonger, &MUTEX, "the answer was Granted"),
        (Fault::NobodyIsSetAside, &PROCESSES, "its process let a hold run out"),
        (Fault::NobodyComesBack, &PROCESSES, "was not brought back"),
        (Fault::AllComeBack, &PROCESSES, "came back without contact"),
        (Fault::TracesAreLost, &MUTEX, "a claim that left is still there"),
        (Fault::NobodyIsAhead, &MUTEX, "the answer was Waiting"),
    ];
    for (fault, setting, says) in faults {
        match explore(setting, Some(fault)) {
            Ok(walk) => panic!("{fault:?} was not found: {walk}"),
            Err(violation) => {
                let found = violation.to_string();
                assert!(found.contains(says), "{fault:?}: {found}");
                println!("{fault:?}: {found}");
            }
        }
    }
}

fn walk(setting: &Setting, least: usize) {
    match explore(setting, None) {
        Ok(walk) => {
            println!("{walk}");
            assert!(walk.states >= least, "the walk has shrunk: {walk}");
        }
        Err(violation) => panic!("{}: {violation}", setting.name),
    }
}
