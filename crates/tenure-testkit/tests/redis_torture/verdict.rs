//! From journals to a judgement.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use tenure::engine::Moment;
use tenure_testkit::judge::{Record, Rules, judge};

use crate::crew::Told;
use crate::journal::{Entry, Event};

/// Under faults nobody can tell whether one was passed over, or for how long a name was free.
const RULES: Rules = Rules { order: false, free_for: Duration::MAX };

/// What the journals say.
#[derive(Debug, Default)]
pub(crate) struct Report {
    wrong: Vec<String>,
    history: Vec<Record>,
    /// Holds that ended before they were left.
    lost: u64,
    /// Workers were killed while they held or waited.
    killed_holding: u64,
    killed_waiting: u64,
    /// Writes under a fence that was too low, of holds that were not good any more.
    late_writes_stopped: u64,
    /// The longest time without a grant of any name.
    longest_gap: Duration,
    /// The longest wait of anybody once the faults were over, counted from then.
    longest_calm_wait: Duration,
}

/// One ask, from the first entry about it to the last.
#[derive(Debug, Default)]
struct Story {
    name: String,
    asked: Moment,
    patient: bool,
    gave_up: bool,
    acquired: Option<Acquired>,
    left: Option<(Moment, bool)>,
    wrote: Option<(bool, bool)>,
}

#[derive(Clone, Copy, Debug)]
struct Acquired {
    at: Moment,
    deadline: Moment,
    fence: u64,
    weight: u32,
    capacity: u32,
}

/// Judges; faults were over at `calm`, and from then on everybody is served within `served`.
pub(crate) fn judge_all(told: &[Told], calm: Moment, served: Duration) -> Report {
    let mut report = Report::default();
    for told in told {
        for (serial, story) in stories(&told.entries) {
            report.take_in(told, serial, &story, calm, served);
        }
    }
    report.longest_gap = longest_gap(&report.history);
    report.wrong.extend(judge(&report.history, RULES).iter().map(|wrong| format!("{wrong:?}")));
    report
}

impl Report {
    /// Everything that cannot have been right.
    pub(crate) fn wrong(&self) -> &[String] {
        &self.wrong
    }

    fn take_in(&mut self, told: &Told, serial: u64, story: &Story, calm: Moment, served: Duration) {
        let who = format!("worker {} serial {serial} {}", told.worker, story.name);
        let Some(acquired) = story.acquired else {
            if !story.gave_up && told.killed {
                self.killed_waiting += 1;
            } else if !story.gave_up {
                self.wrong.push(format!("never served: {who}"));
            }
            return;
        };
        if story.left.is_none() {
            if told.killed {
                self.killed_holding += 1;
            } else {
                self.wrong.push(format!("never left: {who}"));
            }
        }
        match story.wrote {
            Some((false, true)) => {
                let fence = acquired.fence;
                self.wrong.push(format!("a higher fence than {fence} wrote before: {who}"));
            }
            Some((false, false)) => self.late_writes_stopped += 1,
            Some((true, _)) | None => {}
        }
        let waited = calm.max(story.asked).until(acquired.at);
        self.longest_calm_wait = self.longest_calm_wait.max(waited);
        if story.patient && waited > served {
            self.wrong.push(format!("served {waited:?} after the last fault: {who}"));
        }
        self.lost += u64::from(matches!(story.left, Some((_, false))));
        self.history.push(record(told.worker, story, acquired));
    }
}

fn stories(entries: &[Entry]) -> HashMap<u64, Story> {
    let mut stories: HashMap<u64, Story> = HashMap::new();
    for Entry { serial, event } in entries {
        if *serial == 0 {
            continue;
        }
        let story = stories.entry(*serial).or_default();
        match event.clone() {
            Event::Asked { at, patient, name } => {
                (story.asked, story.patient, story.name) = (at, patient, name);
            }
            Event::GaveUp => story.gave_up = true,
            Event::Acquired { at, deadline, fence, weight, capacity } => {
                story.acquired = Some(Acquired { at, deadline, fence, weight, capacity });
            }
            Event::Extended { deadline } => {
                if let Some(acquired) = &mut story.acquired {
                    acquired.deadline = acquired.deadline.max(deadline);
                }
            }
            Event::Wrote { accepted, live } => story.wrote = Some((accepted, live)),
            Event::Left { at, live } => story.left = Some((at, live)),
            Event::Failed { .. } | Event::Done => {}
        }
    }
    stories
}

/// A hold that was good when it was left ended there; one that was lost, or whose process was killed,
/// with the last deadline that it knew.
fn record(process: u32, story: &Story, acquired: Acquired) -> Record {
    let Acquired { at, deadline, fence, weight, capacity } = acquired;
    let ended = match story.left {
        Some((left, true)) => left,
        Some((left, false)) => left.min(deadline),
        None => deadline,
    };
    let (name, asked, freed) = (story.name.clone(), story.asked, ended.max(deadline));
    let excused = true;
    // When it stood in line nobody knows but the engine; at the latest it did when it was granted.
    let (joined, granted) = (at, at);
    Record { process, name, weight, capacity, asked, joined, granted, ended, freed, fence, excused }
}

fn longest_gap(history: &[Record]) -> Duration {
    let mut granted: Vec<_> = history.iter().map(|record| record.granted).collect();
    granted.sort_unstable();
    let gaps = granted.windows(2).map(|pair| pair[0].until(pair[1]));
    gaps.max().unwrap_or_default()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} acquisitions, {} holds lost, {} killed holding and {} waiting, {} late writes \
             stopped by the fence, longest time without a grant {:.1?}, longest wait after the last \
             fault {:.1?}",
            self.history.len(),
            self.lost,
            self.killed_holding,
            self.killed_waiting,
            self.late_writes_stopped,
            self.longest_gap,
            self.longest_calm_wait
        )
    }
}
