//! The history judge: compares the records of many tasks and processes for a name.
//!
//! Each acquisition writes a [`Record`], stamped with `CLOCK_BOOTTIME`, which all processes of a host share.
//! [`judge`] reports what must not happen: overlap, fences that fall, a waiter that was skipped, a free name
//! that no waiter was granted. A record has a text form of one line, so that a process that is killed leaves
//! its records in a file.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tenure::engine::Moment;

/// One acquisition, as its own process saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of the process.
    pub process: u32,
    /// The name.
    pub name: String,
    /// The units that were requested.
    pub weight: u32,
    /// The capacity.
    pub capacity: u32,
    /// The claim was sent.
    pub asked: Moment,
    /// The claim was known to be in line, or was granted: claims that are sent later come after it.
    pub joined: Moment,
    /// The hold began.
    pub granted: Moment,
    /// The last moment at which it was used as a live hold.
    pub ended: Moment,
    /// The name was free again: the hold was released or, if it was lost, its time had run out.
    pub freed: Moment,
    /// The fence.
    pub fence: u64,
    /// The process lost its connection to the engine while this claim waited, so it may be skipped.
    pub excused: bool,
}

/// A violation of a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// More units were held than the capacity.
    Overlap {
        /// The name.
        name: String,
        /// The fences of the holds at that moment.
        fences: Vec<u64>,
    },
    /// Two holds had the same fence.
    SameFence {
        /// The name.
        name: String,
        /// The fence.
        fence: u64,
    },
    /// A later hold had a lower fence.
    FenceFell {
        /// The name.
        name: String,
        /// The fence before.
        before: u64,
        /// The fence after.
        after: u64,
    },
    /// A claim that was in line before another was sent was served after it.
    PassedOver {
        /// The name.
        name: String,
        /// The fence of the claim that was overtaken.
        first: u64,
        /// The fence of the claim that overtook it.
        second: u64,
    },
    /// The name was free while a claim was in line, for longer than allowed.
    LeftFree {
        /// The name.
        name: String,
        /// The fence of the next grant.
        fence: u64,
        /// For how long.
        free_for: Duration,
    },
}

/// The promises to check.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Whether waiters are served in the order of arrival.
    pub order: bool,
    /// How much later than a claim in line another may be sent, and still be served before it: the tasks of one process
    /// hand over among themselves for that long before they know that another process waits.
    pub passes_within: Duration,
    /// How long a name may be free while a claim is in line.
    pub free_for: Duration,
}

/// All violations.
pub fn judge(history: &[Record], rules: Rules) -> Vec<Violation> {
    let mut names: Vec<&str> = history.iter().map(|record| record.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let mut found = Vec::new();
    for name in names {
        let mut records: Vec<&Record> = history.iter().filter(|r| r.name == name).collect();
        records.sort_by_key(|record| (record.granted, record.fence));
        overlap(name, &records, &mut found);
        fences(name, &records, &mut found);
        fences_of_the_whole(name, &records, &mut found);
        if rules.order {
            order(name, &records, rules.passes_within, &mut found);
        }
        liveness(name, &records, rules.free_for, &mut found);
    }
    found
}

fn overlap(name: &str, records: &[&Record], found: &mut Vec<Violation>) {
    let mut inside: Vec<&Record> = Vec::new();
    for record in records {
        inside.retain(|other| other.ended > record.granted);
        if record.ended > record.granted {
            inside.push(record);
        }
        let held: u64 = inside.iter().map(|record| u64::from(record.weight)).sum();
        if held > u64::from(record.capacity) {
            let fences = inside.iter().map(|record| record.fence).collect();
            found.push(Violation::Overlap { name: name.to_owned(), fences });
            inside.pop();
        }
    }
}

/// If a hold was requested after another had ended, it must have the higher fence. Holds that overlap, as those
/// of readers do, must only have different fences.
fn fences(name: &str, records: &[&Record], found: &mut Vec<Violation>) {
    let mut by_fence: Vec<_> = records.iter().map(|record| record.fence).collect();
    by_fence.sort_unstable();
    for pair in by_fence.windows(2) {
        if let [one, other] = pair
            && one == other
        {
            found.push(Violation::SameFence { name: name.to_owned(), fence: *one });
        }
    }
    let mut ended: Vec<_> = records.to_vec();
    ended.sort_by_key(|record| record.ended);
    let mut asked: Vec<_> = records.to_vec();
    asked.sort_by_key(|record| record.asked);
    let (mut next, mut highest) = (0, 0);
    for record in asked {
        while let Some(before) = ended.get(next)
            && before.ended < record.asked
        {
            highest = highest.max(before.fence);
            next += 1;
        }
        if record.fence <= highest {
            let (name, before, after) = (name.to_owned(), highest, record.fence);
            found.push(Violation::FenceFell { name, before, after });
        }
    }
}

/// A claim with the whole capacity shares with nobody, so it was granted after every hold that began before it,
/// whenever they were requested. A hold of zero length ended before anyone saw it begin.
fn fences_of_the_whole(name: &str, records: &[&Record], found: &mut Vec<Violation>) {
    let (mut of_any, mut of_whole) = (0, 0);
    for record in records.iter().filter(|record| record.ended > record.granted) {
        let is_whole = record.weight == record.capacity;
        let before = if is_whole { of_any } else { of_whole };
        if record.fence < before {
            let (name, after) = (name.to_owned(), record.fence);
            found.push(Violation::FenceFell { name, before, after });
        }
        of_any = of_any.max(record.fence);
        if is_whole {
            of_whole = of_whole.max(record.fence);
        }
    }
}

fn order(name: &str, records: &[&Record], within: Duration, found: &mut Vec<Violation>) {
    let mut by_fence: Vec<_> = records.to_vec();
    by_fence.sort_by_key(|record| record.fence);
    // From the end: the earliest join among those served later.
    let mut first: Option<&Record> = None;
    for record in by_fence.iter().rev() {
        if let Some(first) = first
            && first.joined + within < record.asked
        {
            let (name, first, second) = (name.to_owned(), first.fence, record.fence);
            found.push(Violation::PassedOver { name, first, second });
        }
        if !record.excused && first.is_none_or(|first| record.joined < first.joined) {
            first = Some(record);
        }
    }
}

/// For exclusive names only: a record does not show whether the next in line fits beside other holds.
fn liveness(name: &str, records: &[&Record], allowed: Duration, found: &mut Vec<Violation>) {
    let mut taken_until = Moment::ORIGIN;
    for record in records {
        let free_since = taken_until.max(record.joined);
        taken_until = taken_until.max(record.freed);
        let free_for = free_since.until(record.granted);
        if record.weight == record.capacity && !record.excused && free_for > allowed {
            let (name, fence) = (name.to_owned(), record.fence);
            found.push(Violation::LeftFree { name, fence, free_for });
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { process, weight, capacity, fence, excused, name, .. } = self;
        let [asked, joined, granted, ended, freed] =
            [self.asked, self.joined, self.granted, self.ended, self.freed].map(Moment::as_nanos);
        let excused = u8::from(*excused);
        write!(
            f,
            "{process} {weight} {capacity} {asked} {joined} {granted} {ended} {freed} {fence} {excused} {name}"
        )
    }
}

impl FromStr for Record {
    type Err = String;

    fn from_str(line: &str) -> Result<Record, String> {
        let mut words = line.splitn(11, ' ');
        let mut number = || -> Result<u64, String> {
            let word = words.next().ok_or_else(|| format!("too short: {line:?}"))?;
            word.parse().map_err(|error| format!("{word:?} in {line:?}: {error}"))
        };
        let mut small =
            || u32::try_from(number()?).map_err(|error| format!("in {line:?}: {error}"));
        let (process, weight, capacity) = (small()?, small()?, small()?);
        let mut moment = || number().map(Moment::from_nanos);
        let (asked, joined, granted) = (moment()?, moment()?, moment()?);
        let (ended, freed) = (moment()?, moment()?);
        let (fence, excused) = (number()?, number()? != 0);
        let name = words.next().ok_or_else(|| format!("no name: {line:?}"))?.to_owned();
        Ok(Record {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules =
        Rules { order: true, passes_within: Duration::ZERO, free_for: Duration::from_nanos(5) };

    /// asked, joined, granted, ended, fence.
    fn record(times: [u64; 4], fence: u64) -> Record {
        let [asked, joined, granted, ended] = times;
        let line = format!("7 1 1 {asked} {joined} {granted} {ended} {ended} {fence} 0 a name");
        line.parse().expect("a record in its text form")
    }

    #[test]
    fn a_clean_history_is_clean() {
        let history =
            [record([0, 1, 2, 10], 1), record([3, 4, 11, 20], 2), record([30, 31, 31, 40], 3)];
        assert_eq!(judge(&history, RULES), []);
    }

    #[test]
    fn a_hold_of_no_length_is_not_before_itself() {
        assert_eq!(judge(&[record([5, 5, 5, 5], 1)], RULES), []);
    }

    #[test]
    fn each_kind_of_wrong_is_found() {
        let overlap = [record([0, 1, 2, 10], 1), record([3, 4, 9, 20], 2)];
        assert!(
            matches!(&judge(&overlap, RULES)[..], [Violation::Overlap { fences, .. }] if *fences == [1, 2])
        );

        let same = [record([0, 1, 2, 10], 1), record([3, 4, 11, 20], 1)];
        assert!(matches!(judge(&same, RULES)[..], [Violation::SameFence { fence: 1, .. }]));

        let fell = [record([0, 1, 2, 10], 9), record([11, 11, 12, 20], 8)];
        assert!(matches!(
            judge(&fell, RULES)[..],
            [Violation::FenceFell { before: 9, after: 8, .. }, ..]
        ));

        let swapped = [record([0, 1, 2, 10], 2), record([1, 1, 12, 20], 1)];
        assert!(matches!(
            judge(&swapped, Rules { order: false, ..RULES })[..],
            [Violation::FenceFell { before: 2, after: 1, .. }]
        ));

        let passed =
            [record([0, 1, 2, 10], 1), record([3, 4, 21, 30], 3), record([5, 6, 11, 20], 2)];
        assert!(matches!(
            judge(&passed, RULES)[..],
            [Violation::PassedOver { first: 3, second: 2, .. }]
        ));

        // The one that passed came 1 ns after the other stood in line.
        let within = |nanos| Rules { passes_within: Duration::from_nanos(nanos), ..RULES };
        assert_eq!(judge(&passed, within(1)), []);
        assert_ne!(judge(&passed, within(0)), []);

        let free = [record([0, 1, 2, 10], 1), record([3, 4, 16, 30], 2)];
        assert!(matches!(judge(&free, RULES)[..], [Violation::LeftFree { fence: 2, .. }]));
    }

    #[test]
    fn an_excused_waiter_may_be_passed_over() {
        let mut passed =
            [record([0, 1, 2, 10], 1), record([3, 4, 21, 30], 3), record([5, 6, 11, 20], 2)];
        passed[1].excused = true;
        assert_eq!(judge(&passed, RULES), []);
    }

    #[test]
    fn sharing_is_no_overlap_up_to_the_capacity() {
        let mut shared =
            [record([0, 0, 1, 10], 1), record([0, 0, 2, 10], 2), record([0, 0, 3, 10], 3)];
        shared.iter_mut().for_each(|record| record.capacity = 3);
        assert_eq!(judge(&shared, RULES), []);
        shared[0].weight = 2;
        assert!(matches!(judge(&shared, RULES)[..], [Violation::Overlap { .. }]));
    }

    #[test]
    fn records_survive_their_text_form() {
        let record = record([1, 2, 3, 4], 5);
        assert_eq!(record.to_string().parse(), Ok(record));
        assert!("1 2 3".parse::<Record>().is_err());
        assert!("1 2 x 4 5 6 7 8 9 0 name".parse::<Record>().is_err());
    }
}
