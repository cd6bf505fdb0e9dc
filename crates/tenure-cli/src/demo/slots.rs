//! Twenty processes call an API that can take five calls at a time.

use std::time::{Duration, Instant};

use super::environment::Environment;
use super::participant::Participant;
use super::record::Record;
use super::{Act, PATIENCE, Played, Seen, Trouble, no_such_part};

pub(super) const ACT: Act = Act {
    title: "twenty processes call what bears five at once",
    lines: [
        r#"let unit = tenure.semaphore("partner-api", 5).acquire().await?;"#,
        "partner.call(5).await?;",
        "drop(unit);",
    ],
};

const CALLERS: usize = 20;
const CAPACITY: usize = 5;
const PARTNER: &str = "partner-api";

pub(super) fn without(environment: &mut Environment<'_>) -> Played {
    let most = call_together(environment, "without")?;
    Ok(Seen::report(format!("{most} inside at once"), "nobody counts").fact("most", most as u64))
}

pub(super) fn with(environment: &mut Environment<'_>) -> Played {
    let most = call_together(environment, "with")?;
    let held = most == CAPACITY;
    let more = match held {
        true => format!("as many as there are units; all {CALLERS} were served"),
        false => format!("there are {CAPACITY} units"),
    };
    let seen = Seen::check(held, format!("{most} inside at once"), more);
    Ok(seen.fact("most", most as u64))
}

fn call_together(environment: &mut Environment<'_>, side: &str) -> Result<usize, Trouble> {
    let record = environment.record(PARTNER, &Calls::default().text())?;
    let mut processes = environment.processes();
    processes.start_all((0..CALLERS).map(|_| format!("slots {side}")))?;
    processes.tell_all("go");
    for served in 0..CALLERS {
        processes.progress(&format!("  {side:8} {served} of {CALLERS} served"));
        let (_, line) = processes.hear()?;
        if line != "done" {
            return Err(format!("{line:?} was not to come").into());
        }
    }
    Ok(Calls::read(&record.value()?).most)
}

pub(super) async fn work(participant: &mut Participant, words: &[&str]) -> Result<(), Trouble> {
    let partner = Partner { calls: participant.record(PARTNER) };
    match *words {
        ["without"] => {
            participant.say("ready");
            participant.cue().await;
            partner.call(CALLERS).await?;
        }
        ["with"] => {
            let tenure = participant.tenure().await?;
            participant.say("ready");
            participant.cue().await;
            let unit = tenure.semaphore("partner-api", 5).acquire().await?;
            partner.call(5).await?;
            drop(unit);
        }
        _ => return Err(no_such_part(words)),
    }
    participant.say("done");
    Ok(())
}

/// The API, which counts the callers inside.
struct Partner {
    calls: Record,
}

impl Partner {
    /// Stays until `group` callers have been inside together. So the result does not depend on timing: if fewer
    /// are let in, the call does not end.
    async fn call(&self, group: usize) -> Result<(), Trouble> {
        let since = Instant::now();
        let mut calls = self.change(Calls::enter)?;
        while calls.most < group {
            if since.elapsed() > PATIENCE {
                return Err(format!("only {} are let in together", calls.most).into());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
            calls = Calls::read(&self.calls.value()?);
        }
        // Time for one too many to come in, if one is let in.
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.change(Calls::leave).map(drop)
    }

    fn change(&self, change: impl FnOnce(&mut Calls)) -> Result<Calls, Trouble> {
        self.calls.change(|text, _| {
            let mut calls = Calls::read(text);
            change(&mut calls);
            *text = calls.text();
            calls
        })
    }
}

/// The number of callers inside, and the largest so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Calls {
    inside: usize,
    most: usize,
}

impl Calls {
    fn enter(&mut self) {
        self.inside += 1;
        self.most = self.most.max(self.inside);
    }

    fn leave(&mut self) {
        self.inside -= 1;
    }

    fn text(self) -> String {
        format!("{} {}", self.inside, self.most)
    }

    fn read(text: &str) -> Calls {
        let number = |text: &str| text.parse().unwrap_or_default();
        let (inside, most) = text.split_once(' ').unwrap_or_default();
        Calls { inside: number(inside), most: number(most) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_too_many_is_seen_although_it_has_left() {
        let mut calls = Calls::read("4 4");
        calls.enter();
        calls.enter();
        calls.leave();
        assert_eq!(calls, Calls { inside: 5, most: 6 });
        assert_eq!(Calls::read(&calls.text()), calls);
    }
}
