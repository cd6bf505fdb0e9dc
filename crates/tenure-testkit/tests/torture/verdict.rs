//! From journals to a verdict.
#![allow(dead_code, reason = "each run uses a part of it")]

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use tenure::engine::{FIRST_LIFE, Moment};
use tenure_testkit::judge::{Record, Rules, judge};

use crate::journal::{Entry, Event};
use crate::liveness::{self, Liveness, Span};
use crate::workers::Told;

/// What the order of waiters is checked against.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// It cannot be told whether a claim was passed over, because it is not known when it stood in line.
    Unknown,
    /// Claims in line are served in order, unless their process was stopped, or let a hold of that name run out, or
    /// could not be reached at these times.
    Kept { unless: Vec<(Moment, Moment)> },
}

/// The contents of the journals.
#[derive(Debug, Default)]
pub(crate) struct Report {
    wrong: Vec<String>,
    history: Vec<Record>,
    /// How many were known to stand in line, and how many may have been passed over.
    waited: usize,
    excused: usize,
    /// Holds that ended before they were left.
    lost: u64,
    /// Workers were killed while they held or waited.
    killed_holding: u64,
    killed_waiting: u64,
    /// Writes under a fence that was too low, by holds that were no longer good.
    late_writes_stopped: u64,
    /// The longest time without a grant of any name.
    longest_gap: Duration,
    /// The longest wait of any claim once the faults were over, counted from then.
    longest_calm_wait: Duration,
    liveness: Liveness,
}

/// How much later a claim may ask than one that is passed over by it: no ttl of a worker is shorter than twenty times
/// that. The trip that may be added is not: a claim is only known to stand in line when it hears so.
const PASSES_WITHIN: Duration = Duration::from_millis(20);

/// Shorter ones explain nothing.
const SHORTEST_SILENCE: Duration = Duration::from_millis(100);

/// One request, from the first entry about it to the last.
#[derive(Debug, Default)]
struct Story {
    name: String,
    asked: Moment,
    patient: bool,
    ttl: Duration,
    stood: Option<Moment>,
    gave_up: Option<Moment>,
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

/// Checks everything. Faults were over at `calm`, and from then on every claim is served within `served`. In `calms`
/// nothing went wrong either.
pub(crate) fn judge_all(
    told: &[Told],
    calm: Moment,
    served: Duration,
    order: &Order,
    calms: &[Span],
) -> Report {
    let mut report = Report::default();
    let mut wanted: HashMap<String, Vec<Span>> = HashMap::new();
    for told in told {
        let stories = stories(&told.entries);
        let excuses = Excuses::of(told, &stories, order);
        for (serial, story) in stories {
            report.take_in(told, serial, &story, calm, served);
            report.history.extend(record(told, &story, &excuses));
            if let Some(acquired) = story.acquired.filter(|_| story.patient) {
                let spans = wanted.entry(story.name.clone()).or_default();
                spans.push((story.asked, acquired.at));
            }
        }
    }
    report.longest_gap = longest_gap(&report.history);
    report.liveness = liveness::judge(&report.history, wanted, calms);
    report.wrong.append(&mut report.liveness.wrong);
    // `liveness`, which knows when there were faults, checks for how long a name may be free.
    let (order, passes_within) = (matches!(order, Order::Kept { .. }), PASSES_WITHIN);
    let rules = Rules { order, passes_within, free_for: Duration::MAX };
    report.waited = report.history.iter().filter(|it| it.joined < it.granted).count();
    report.excused = report.history.iter().filter(|it| it.excused).count();
    report.wrong.extend(judge(&report.history, rules).iter().map(|wrong| format!("{wrong:?}")));
    report
}

/// Why a claim of a worker may have been passed over.
struct Excuses {
    always: bool,
    times: Vec<(Moment, Moment)>,
    silences: Vec<Silence>,
    /// By name: when a hold on it ran out.
    lost: Vec<(String, Moment, Moment)>,
}

/// A time in which a worker wrote nothing: the machine may have kept it from running.
struct Silence {
    from: Moment,
    until: Moment,
    /// By name: the shortest life of a turn that was given to a claim of the worker then. If it ran out, all
    /// claims of the worker were passed over, also those whose own turns live longer.
    shortest_life: HashMap<String, Duration>,
}

impl Excuses {
    fn of(told: &Told, stories: &HashMap<u64, Story>, order: &Order) -> Excuses {
        let Order::Kept { unless } = order else {
            let (times, silences, lost) = (Vec::new(), Vec::new(), Vec::new());
            return Excuses { always: true, times, silences, lost };
        };
        let times = told.paused.iter().chain(unless).copied().collect();
        let silences = silences(&told.entries, stories);
        let lost = stories.values().filter_map(|story| {
            let (acquired, (left, live)) = (story.acquired?, story.left?);
            // The engine ends it a little later than its holder does.
            let over = acquired.deadline.max(left) + Duration::from_secs(1);
            (!live).then(|| (story.name.clone(), acquired.at, over))
        });
        Excuses { always: false, times, silences, lost: lost.collect() }
    }

    /// Whether they explain that a claim which asked and was granted then was passed over.
    fn cover(&self, name: &str, from: Moment, until: Moment) -> bool {
        let meets = |start: Moment, end: Moment| start <= until && from <= end;
        let too_long = |silence: &&Silence| silence.is_too_long(name);
        self.always
            || self.silences.iter().filter(too_long).any(|it| meets(it.from, it.until))
            || self.times.iter().any(|(start, end)| meets(*start, *end))
            || self.lost.iter().any(|(of, start, end)| of == name && meets(*start, *end))
    }
}

impl Silence {
    /// Whether a turn for that name may have run out in it: a turn that is heard of in the second half of its life is
    /// not started.
    fn is_too_long(&self, name: &str) -> bool {
        let silent = self.from.until(self.until);
        self.shortest_life.get(name).is_some_and(|life| silent > *life / 2)
    }
}

impl Report {
    /// Everything that cannot be right.
    pub(crate) fn wrong(&self) -> &[String] {
        &self.wrong
    }

    fn take_in(&mut self, told: &Told, serial: u64, story: &Story, calm: Moment, served: Duration) {
        let who = format!("worker {} serial {serial} {}", told.worker, story.name);
        let Some(acquired) = story.acquired else {
            if story.gave_up.is_none() && told.killed.is_some() {
                self.killed_waiting += 1;
            } else if story.gave_up.is_none() {
                self.wrong.push(format!("never served: {who}"));
            }
            return;
        };
        if story.left.is_none() {
            if told.killed.is_some() {
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
    }
}

/// The times between one entry of a worker and the next.
fn silences(entries: &[Entry], stories: &HashMap<u64, Story>) -> Vec<Silence> {
    let moments = entries.iter().filter_map(|entry| match &entry.event {
        Event::Asked { at, .. } | Event::Stood { at } => Some(*at),
        Event::Acquired { at, .. } | Event::Left { at, .. } => Some(*at),
        _ => None,
    });
    let mut moments: Vec<_> = moments.collect();
    moments.sort_unstable();
    let pairs = moments.windows(2).map(|pair| (pair[0], pair[1]));
    let long = pairs.filter(|(from, until)| from.until(*until) > SHORTEST_SILENCE);
    long.map(|(from, until)| {
        let mut shortest_life: HashMap<String, Duration> = HashMap::new();
        for story in stories.values().filter(|story| story.asked <= until && from <= story.over()) {
            let shortest = shortest_life.entry(story.name.clone()).or_insert(FIRST_LIFE);
            *shortest = story.ttl.min(*shortest);
        }
        Silence { from, until, shortest_life }
    })
    .collect()
}

impl Story {
    /// When the worker was done with it.
    fn over(&self) -> Moment {
        self.left.map(|(at, _)| at).or(self.gave_up).unwrap_or(Moment::FAR)
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
            Event::Asked { at, patient, ttl, name } => {
                (story.asked, story.patient) = (at, patient);
                (story.ttl, story.name) = (ttl, name);
            }
            Event::Stood { at } => story.stood = story.stood.or(Some(at)),
            Event::GaveUp { at } => story.gave_up = Some(at),
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

/// A hold that was good when it was left ended there. One that was lost, or whose process was killed, ended with the
/// last deadline that it knew, or, where the engine notices deaths, with its process.
fn record(told: &Told, story: &Story, excuses: &Excuses) -> Option<Record> {
    let Acquired { at, deadline, fence, weight, capacity } = story.acquired?;
    let ended = match story.left {
        Some((left, true)) => left,
        Some((left, false)) => left.min(deadline),
        None => deadline.min(told.killed.filter(|_| !excuses.always).unwrap_or(deadline)),
    };
    let process = told.worker;
    let (name, asked) = (story.name.clone(), story.asked);
    let freed = if matches!(story.left, Some((_, false))) { ended.max(deadline) } else { ended };
    // Only the engine knows when it stood in line; at the latest, that was when it was granted.
    let (joined, granted) = (story.stood.unwrap_or(at), at);
    let excused = excuses.cover(&name, asked, granted);
    Some(Record {
        process,
        name,
        weight,
        capacity,
        asked,
        joined,
        granted,
        ended,
        freed,
        fence,
        excused,
    })
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
            "{} acquisitions, {} known to have waited and {} excused, {} holds lost, {} killed holding and {} waiting, {} late writes \
             stopped by the fence, longest time without a grant {:.1?}, longest wait after the last \
             fault {:.1?}, longest time that a wanted name stood free {:.1?}, without faults {:.1?}",
            self.history.len(),
            self.waited,
            self.excused,
            self.lost,
            self.killed_holding,
            self.killed_waiting,
            self.late_writes_stopped,
            self.longest_gap,
            self.longest_calm_wait,
            self.liveness.longest,
            self.liveness.longest_in_calm
        )
    }
}
