//! The rule, explored.
#![allow(clippy::print_stdout, reason = "the size of the walk is the result")]

mod explorer;

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
const SEMAPHORE: Setting = Setting { name: "semaphore", capacity: 3, weights: &[1, 2, 3], ..MUTEX };
const RWLOCK: Setting =
    Setting { name: "rwlock", capacity: 1 << 20, weights: &[1, 1, 1 << 20], ..MUTEX };
const RESIZED: Setting = Setting {
    name: "resized",
    capacity: 2,
    weights: &[1, 2, 1],
    resizes: &[1, 3],
    deaf: false,
    doubt: false,
    ..MUTEX
};
const PROCESSES: Setting = Setting { name: "processes", processes: [1, 1, 2, 2], ..MUTEX };

#[test]
fn mutex() {
    walk(&MUTEX, 1);
}
#[test]
fn sem() {
    walk(&SEMAPHORE, 1);
}
#[test]
fn rw() {
    walk(&RWLOCK, 1);
}
#[test]
fn re() {
    walk(&RESIZED, 1);
}
#[test]
fn proc() {
    walk(&PROCESSES, 1);
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

#[test]
fn faults() {
    for fault in [Fault::LastIsHead] {
        assert!(explore(&MUTEX, Some(fault)).is_err());
    }
}
