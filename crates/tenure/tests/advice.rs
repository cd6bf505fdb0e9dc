//! Which ttl would fit: what the adviser says about real holds, and when it says nothing.

use crate::fixtures;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use fixtures::log_recorder::{Line, expect, keep, lines};
use fixtures::{ms, now};
use tenure::engine::{ClaimId, Job, Moment, Result, SystemWorld, World};
use tenure::engines::memory::Memory;
use tenure::{Advice, Tenure};
use tracing::Level;

/// A world in which time passes only when told to, and which runs no watchdog.
#[derive(Debug, Default)]
struct Still(AtomicU64);

impl World for Still {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.load(SeqCst))
    }

    fn mint(&self) -> Result<ClaimId> {
        SystemWorld.mint()
    }

    fn start(&self, _: Job) -> std::io::Result<()> {
        Ok(())
    }
}

impl Still {
    fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, SeqCst);
    }
}

fn world() -> (Arc<Still>, Tenure) {
    keep();
    let world = Arc::new(Still::default());
    world.pass(Duration::from_secs(1000));
    let memory = Arc::new(Memory::in_world(world.clone(), 0));
    (world.clone(), Tenure::in_world(memory, world))
}

fn warned(group: &str) -> usize {
    let is_it = |line: &&Line| line.is("event", "ttl.advice") && line.is("group", group);
    lines().iter().filter(is_it).count()
}

#[test]
fn work_that_takes_most_of_its_ttl_is_warned_about_with_a_proposal() {
    let (world, tenure) = world();
    for number in 0..200 {
        let ask = tenure.mutex(format!("booking:{number}")).ttl(ms(1_000)).renew(false);
        let hold = now(ask.acquire()).unwrap();
        world.pass(ms(if number % 10 == 0 { 800 } else { 200 }));
        drop(hold);
    }
    let Advice { group, holds, p50, p99, ttl, proposal, .. } = tenure.advice().remove(0);
    assert_eq!((&*group, holds, p50, p99), ("booking", 200, ms(200), ms(800)));
    assert_eq!((ttl, proposal), (ms(1_000), Some(ms(5_000))));
    assert_eq!(warned("booking"), 1);
    let all = lines();
    let is_it = |line: &&Line| line.is("event", "ttl.advice") && line.is("group", "booking");
    let line = all.iter().find(is_it).unwrap();
    let said = [("p99_ms", "800"), ("p50_ms", "200"), ("ttl_ms", "1000"), ("proposal_ms", "5000")];
    expect(line, Level::WARN, &said);
    assert!(line.fields["message"].contains("raise the ttl"), "{line:?}");
}

#[test]
fn work_that_ran_on_after_its_ttl_counts_in_full() {
    let (world, tenure) = world();
    for number in 0..150 {
        let ask = tenure.mutex(format!("overdue:{number}")).ttl(ms(100)).renew(false);
        let hold = now(ask.acquire()).unwrap();
        world.pass(ms(300));
        drop(hold);
    }
    let Advice { p99, proposal, .. } = tenure.advice().remove(0);
    assert_eq!((p99, proposal), (ms(300), Some(ms(2_000))));
    assert_eq!(warned("overdue"), 1);
}

/// A hold that is renewed may last as long as it likes.
#[test]
fn holds_that_are_renewed_are_no_reason_to_warn() {
    let (world, tenure) = world();
    for number in 0..200 {
        let hold = now(tenure.mutex(format!("long:{number}")).ttl(ms(1_000)).acquire()).unwrap();
        world.pass(ms(900));
        drop(hold);
    }
    assert_eq!((tenure.advice(), warned("long")), (Vec::new(), 0));
}
