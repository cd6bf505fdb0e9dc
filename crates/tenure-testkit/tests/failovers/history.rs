//! Who held what, and when, as the holders saw it.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::Hold;
use tenure::engine::Moment;

use crate::redis_site::*;

#[derive(Clone, Default)]
pub(crate) struct History(Arc<Mutex<Vec<Span>>>);

#[derive(Clone, Debug)]
struct Span {
    name: String,
    from: Moment,
    until: Moment,
}

impl History {
    /// Holds until `let_go` or the loss, and records for how long its owner could believe in it. Returns whether it
    /// was released.
    pub(crate) async fn keep(&self, hold: Hold, let_go: impl Future<Output = ()>) -> bool {
        let from = now();
        let mut good_until = from + hold.remaining();
        let mut let_go = pin!(let_go);
        let released = loop {
            tokio::select! {
                biased;
                _ = hold.lost() => break false,
                () = &mut let_go => break true,
                () = pause(ms(10)) => good_until = good_until.max(now() + hold.remaining()),
            }
        };
        // A task that learns of the loss late has not relied on the hold for longer.
        let until = if released { now() } else { now().min(good_until) };
        let name = hold.name().to_owned();
        self.0.lock().unwrap().push(Span { name, from, until });
        if released {
            let _ = soon(hold.release()).await;
        }
        released
    }

    /// The longest time for which two held one name, among the names that are asked about.
    pub(crate) fn overlap(&self, is_asked: impl Fn(&str) -> bool) -> Duration {
        let mut spans = self.0.lock().unwrap().clone();
        spans.retain(|span| is_asked(&span.name));
        spans.sort_by_key(|span| span.from);
        let mut worst = Duration::ZERO;
        for (at, one) in spans.iter().enumerate() {
            for other in spans[at + 1..].iter().filter(|other| other.name == one.name) {
                worst = worst.max(other.from.until(one.until.min(other.until)));
            }
        }
        worst
    }

    /// The longest time after `since` in which no hold began.
    pub(crate) fn longest_gap(&self, since: Moment) -> Duration {
        let spans = self.0.lock().unwrap();
        let mut began: Vec<_> =
            spans.iter().map(|span| span.from).filter(|at| *at > since).collect();
        began.sort();
        let before = std::iter::once(since).chain(began.iter().copied());
        before.zip(&began).map(|(before, next)| next.since(before)).max().unwrap_or_default()
    }
}
