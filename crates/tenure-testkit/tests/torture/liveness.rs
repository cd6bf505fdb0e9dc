//! How long a wanted name was free.
//!
//! Faults all the time explain much, but not everything: see `ALLOWED_UNDER_FAULTS`. So now and then there is a calm,
//! in which nothing goes wrong and all processes run: after a moment to recover, no wanted name may be free for
//! longer than an untaken turn.

use std::collections::HashMap;
use std::time::Duration;

use tenure::engine::{FIRST_LIFE, Moment};
use tenure_testkit::judge::Record;

/// A start and an end.
pub(crate) type Span = (Moment, Moment);

/// How long a calm lasts.
pub(crate) const CALM: Duration = Duration::from_secs(7);
/// The number of faults between two calms.
pub(crate) const FAULTS_BETWEEN: u64 = 40;
/// The first part of a calm: connections are made again, stopped processes continue, and a server that has lost its
/// memory waits for the holds that it does not know.
const RECOVERY: Duration = Duration::from_millis(2_500);
/// An untaken turn, and a second.
const ALLOWED: Duration = FIRST_LIFE.saturating_add(Duration::from_secs(1));

/// About two faults come in a second, so a bound for each would grow faster than the time that it bounds. This is one
/// for the worst that the decks deal at once: a hold that was granted to a process killed before it was recorded (2.5
/// s, the longest ttl), a turn for a stopped process (its first life, and a second until it is noticed) for each of
/// the three that can be stopped at the same time, and nobody who can write to a file (6 s) twice in a row. Runs see
/// 4 to 8 s, and 13 s beside a build.
const ALLOWED_UNDER_FAULTS: Duration = Duration::from_secs(25);

/// The records of names that have one holder at a time.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    /// The longest time for which a wanted name was free, and the longest in a calm.
    pub(crate) longest: Duration,
    pub(crate) longest_in_calm: Duration,
    pub(crate) wrong: Vec<String>,
}

/// Checks the names of `history`; `wanted` says when somebody waited for them until served.
pub(crate) fn judge(
    history: &[Record],
    mut wanted: HashMap<String, Vec<Span>>,
    calms: &[Span],
) -> Liveness {
    let mut seen = Liveness::default();
    for (name, wanted) in &mut wanted {
        let held = history.iter().filter(|it| it.name == *name && it.capacity == 1);
        let mut held: Vec<Span> = held.map(|it| (it.granted, it.freed)).collect();
        if held.is_empty() {
            continue;
        }
        for (from, until) in free(&mut held, wanted) {
            let free_for = from.until(until);
            seen.longest = seen.longest.max(free_for);
            if free_for > ALLOWED_UNDER_FAULTS {
                let at = from.as_nanos();
                let wrong =
                    format!("{name} was wanted and free for {free_for:?} at {at}, under faults");
                seen.wrong.push(wrong);
            }
            for (begins, ends) in calms {
                let (from, until) = (from.max(*begins + RECOVERY), until.min(*ends));
                let free_for = from.until(until);
                seen.longest_in_calm = seen.longest_in_calm.max(free_for);
                if free_for > ALLOWED {
                    let at = from.as_nanos();
                    seen.wrong.push(format!("{name} was wanted and free for {free_for:?} at {at}"));
                }
            }
        }
    }
    seen
}

/// The times when it was wanted and not held.
fn free(held: &mut [Span], wanted: &mut [Span]) -> Vec<Span> {
    held.sort_unstable();
    wanted.sort_unstable();
    let mut free = Vec::new();
    let mut wanted_until = Moment::ORIGIN;
    for (from, until) in wanted.iter() {
        // Records that overlap with earlier ones are checked at once.
        let mut at = (*from).max(wanted_until);
        wanted_until = wanted_until.max(*until);
        for (granted, freed) in held.iter() {
            if *granted >= wanted_until {
                break;
            }
            if at < *granted {
                free.push((at, *granted));
            }
            at = at.max(*freed);
        }
        if at < wanted_until {
            free.push((at, wanted_until));
        }
    }
    free
}

#[test]
fn free_is_what_is_wanted_and_not_held() {
    let span = |(from, until): (u64, u64)| (Moment::from_nanos(from), Moment::from_nanos(until));
    let free = |held: &[(u64, u64)], wanted: &[(u64, u64)]| -> Vec<(u64, u64)> {
        let [mut held, mut wanted] =
            [held, wanted].map(|spans| spans.iter().copied().map(span).collect::<Vec<_>>());
        let spans = super::liveness::free(&mut held, &mut wanted);
        spans.iter().map(|(from, until)| (from.as_nanos(), until.as_nanos())).collect()
    };
    assert_eq!(free(&[(10, 20), (25, 30)], &[(5, 25)]), [(5, 10), (20, 25)]);
    assert_eq!(free(&[(10, 20)], &[(12, 18), (14, 16)]), []);
    assert_eq!(free(&[(10, 20)], &[(12, 30), (25, 40)]), [(20, 30), (30, 40)]);
}

#[test]
fn a_wanted_name_that_stands_free_in_a_calm_is_found() {
    let second = |at: f64| Moment::from_nanos((at * 1e9) as u64);
    let record = |granted: f64, freed: f64| -> Record {
        let [granted, freed] = [granted, freed].map(|at| second(at).as_nanos());
        let line = format!("1 1 1 0 0 {granted} {freed} {freed} {granted} 0 door");
        line.parse().expect("a record")
    };
    let judge = |next: f64, calms: &[Span]| {
        let wanted = HashMap::from([("door".to_owned(), vec![(second(1.0), second(next))])]);
        judge(&[record(1.0, 10.0), record(next, 99.0)], wanted, calms)
    };
    let calm = (second(5.0), second(20.0));
    assert_eq!(judge(12.9, &[calm]).wrong, [""; 0]);
    let late = judge(13.1, &[calm]);
    assert_eq!((late.wrong.len(), late.longest_in_calm.as_millis()), (1, 3_100));
    // It has a moment to recover, and while things go wrong more than that.
    assert_eq!(judge(13.1, &[(second(9.0), second(20.0))]).wrong, [""; 0]);
    let stormy = judge(13.1, &[]);
    assert_eq!((stormy.wrong.len(), stormy.longest.as_millis()), (0, 3_100));
    assert_eq!(judge(34.9, &[]).wrong, [""; 0]);
    assert_eq!(judge(35.1, &[]).wrong.len(), 1);
}
