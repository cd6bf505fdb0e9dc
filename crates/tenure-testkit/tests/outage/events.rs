//! The log: each change once, and each hold that the engine did not grant.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::policies::{POLICIES, connect_with, until_protected};
use crate::redis_site::*;

/// Keeps every event of the process as its level and fields.
struct Keeper;

#[derive(Clone, Debug)]
struct Line {
    level: Level,
    fields: BTreeMap<&'static str, String>,
}

static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

fn lines() -> MutexGuard<'static, Vec<Line>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tenure")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line { level: *event.metadata().level(), fields: BTreeMap::new() };
        event.record(&mut line);
        lines().push(line);
    }

    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// Records the log from now on.
pub(crate) fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Keeper).expect("the only one"));
}

/// The events that the engine was unreachable and is back, each as often as it happened.
pub(crate) fn changes(times: usize) -> Vec<(Level, String)> {
    let once = [(Level::ERROR, "engine.down".to_owned()), (Level::INFO, "engine.up".to_owned())];
    vec![once; times].concat()
}

/// The events of an engine, or about a name, in order.
pub(crate) fn written(field: &str, value: &str, events: &[&str]) -> Vec<(Level, String)> {
    let of = |line: &&Line| line.fields.get(field).is_some_and(|it| it == value);
    let event = |line: &Line| line.fields.get("event").cloned().unwrap_or_default();
    let lines = lines();
    let all = lines.iter().filter(of).map(|line| (line.level, event(line)));
    all.filter(|(_, event)| events.contains(&event.as_str())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_is_logged_once_and_so_is_each_unprotected_hold() {
    keep();
    for (_, policy, protection) in POLICIES {
        let server = server();
        let tenure = connect_with(&server, policy).await;
        let label = tenure.profile().label.clone();
        let name = format!("events-{policy}");
        for round in 0..2 {
            if round == 0 {
                server.kill().unwrap()
            } else {
                server.pause().unwrap()
            }
            // Many notice it at the same time.
            let asks: Vec<_> =
                (0..20).map(|n| tokio::spawn(tenure.mutex(format!("{name}-{n}")).join())).collect();
            for ask in asks {
                assert_eq!(served(ask).await.protection(), protection);
            }
            for _ in 0..3 {
                drop(soon(tenure.mutex(&name).acquire()).await.unwrap());
            }
            if round == 0 {
                server.restart().unwrap()
            } else {
                server.resume().unwrap()
            }
            drop(until_protected(&tenure, "back").await);
            assert_eq!(
                written("engine", &label, &["engine.down", "engine.up"]),
                changes(round + 1)
            );
        }
        let unprotected = written("name", &name, &["lock.unprotected"]);
        assert_eq!(unprotected, vec![(Level::WARN, "lock.unprotected".to_owned()); 6]);
        let lines = lines();
        let one = |line: &&Line| line.fields.get("name") == Some(&name);
        let said = lines.iter().filter(one).find(|line| line.fields.contains_key("protection"));
        let said = said.expect("a line about it");
        assert_eq!(said.fields["protection"], format!("{protection:?}").to_lowercase());
        assert_eq!(said.fields["owner"], tenure.defaults().details().owner);
    }
}
