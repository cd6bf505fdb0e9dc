//! The suite must be able to fail: it catches every engine that is wrong on purpose.

#![allow(clippy::print_stdout, reason = "what was seen is worth reading")]

use std::sync::Arc;

use tenure::engines::memory::Memory;
use tenure_testkit::broken::{Mutant, Wrong};
use tenure_testkit::conformance;
use tenure_testkit::sim::OUTSIDE;

#[test]
fn every_wrong_engine_is_caught() {
    // They panic a lot, as expected.
    std::panic::set_hook(Box::new(|_| {}));
    let caught: Vec<_> = std::thread::scope(|scope| {
        let runs: Vec<_> = Wrong::ALL
            .iter()
            .map(|wrong| {
                scope.spawn(move || {
                    let failed = conformance::check_on_virtual_time(3, |sim| {
                        let right = Memory::in_world(sim.process(OUTSIDE).world(), 0);
                        Arc::new(Mutant::new(Arc::new(right), *wrong))
                    });
                    (*wrong, failed)
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().expect("a run ends")).collect()
    });
    drop(std::panic::take_hook());
    let mut survived = Vec::new();
    for (wrong, failed) in caught {
        match failed.first() {
            Some((case, why)) => {
                let why = why.lines().next().unwrap_or_default();
                println!("{wrong:?}: caught by {case}: {why}");
            }
            None => survived.push(wrong),
        }
    }
    assert!(survived.is_empty(), "not caught: {survived:?}");
}
