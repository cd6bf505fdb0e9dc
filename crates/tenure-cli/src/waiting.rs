//! Notes while a claim waits: who holds the name, since when, and our place in line.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::time::Duration;

use tenure::engine::Space;
use tenure::{Details, Fence, Tenure, View};
use tokio::time::{Instant, sleep_until};

use crate::facts;
use crate::names;
use crate::output::{precise, quoted, span};
use crate::settings::Settings;

/// When to print a note: soon, so that nobody wonders, and then less and less often.
const TIMES: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_secs(30), Duration::from_secs(5 * 60)];

/// A wait for a name.
pub(crate) struct Waiting<'a> {
    tenure: &'a Tenure,
    settings: &'a Settings,
    name: &'a str,
    space: Space,
    /// The details of our claim, which identify it in the line; `None` if we only watch.
    me: Option<&'a Details>,
    began: Instant,
}

impl<'a> Waiting<'a> {
    /// Starts now. `name` is as the user typed it.
    pub(crate) fn new(
        tenure: &'a Tenure,
        settings: &'a Settings,
        name: &'a str,
        space: Space,
        me: Option<&'a Details>,
    ) -> Waiting<'a> {
        Waiting { tenure, settings, name, space, me, began: Instant::now() }
    }

    /// Prints notes while it takes long, and never ends: for a `select!` beside the wait.
    pub(crate) async fn announce(&self) -> Infallible {
        for time in TIMES {
            sleep_until(self.began + time).await;
            // If the engine does not answer now, the claim will report that.
            let name = self.settings.full_name(self.name);
            let view = names::look(self.tenure, self.space, &name).await;
            if let Ok(Some(view)) = view {
                self.settings.notes().say(&self.sentence(&view));
            }
        }
        std::future::pending().await
    }

    /// Prints that the wait is over, if a note was printed.
    pub(crate) fn got(&self, fence: Fence) {
        let waited = self.began.elapsed();
        if waited >= TIMES[0] {
            let (name, waited) = (quoted(self.name), precise(waited));
            self.settings.notes().say(&format!("acquired {name} after {waited}, fence {fence}"));
        }
    }

    fn sentence(&self, view: &View) -> String {
        let mut text = format!("waiting for {}", quoted(self.name));
        if let Some(held) = facts::held_by(view) {
            // Writing to a string cannot fail.
            let _ = write!(text, ": {held}");
        }
        let ago = facts::oldest(view).and_then(facts::renewed_ago);
        if let Some(ago) = ago {
            let _ = write!(text, ", renewed {} ago", span(ago));
        }
        let end = match self.me {
            Some(me) => {
                let place = place(view, me, self.began.elapsed());
                format!("{place}. Ctrl-C leaves the line.")
            }
            None => format!("{} in line.", view.waiters.len()),
        };
        format!("{text}; {end}")
    }
}

/// `you are 2nd of 3`. Ids are secret, so we recognise ourselves by our details and by how long we have waited.
fn place(view: &View, me: &Details, waited: Duration) -> String {
    let mine = view.waiters.iter().enumerate().filter(|(_, waiter)| *waiter.details == *me);
    let mine = mine.min_by_key(|(_, waiter)| waiter.waited.abs_diff(waited));
    match (mine, view.waiters.len()) {
        (Some((0, _)), _) => "you are next".into(),
        (Some((ahead, _)), all) => format!("you are {} of {all}", ordinal(ahead + 1)),
        (None, all) => format!("{all} in line"),
    }
}

fn ordinal(number: usize) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_as_people_do() {
        let said: Vec<_> = [1, 2, 3, 4, 11, 12, 13, 21, 22, 101, 111].map(ordinal).into();
        let right =
            ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "101st", "111th"];
        assert_eq!(said, right);
    }
}
