//! Thousands of seeds, every one judged. A failure prints its seed, and the seed repeats it:
//! `TENURE_FIRST_SEED=42 TENURE_SEEDS=1 cargo test -p tenure-testkit --test simulation`.

#![allow(clippy::print_stdout, reason = "what was seen is worth reading")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tenure_testkit::scenario::{Report, Scenario};

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn every_seed_is_judged_clean() {
    let first = number("TENURE_FIRST_SEED", 0);
    let count = number("TENURE_SEEDS", 20_000);
    let next = AtomicU64::new(first);
    let failed = AtomicBool::new(false);
    let play = || {
        let (mut total, mut wrong) = (Report::default(), Vec::new());
        while !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                break;
            }
            match std::panic::catch_unwind(|| Scenario::new(seed).play()) {
                Ok(Ok(report)) => total = total + report,
                Ok(Err(why)) => wrong.push(format!("seed {seed}: {why}")),
                Err(_) => wrong.push(format!("seed {seed}: panicked")),
            }
            failed.fetch_or(!wrong.is_empty(), Ordering::Relaxed);
        }
        (total, wrong)
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let results: Vec<_> = std::thread::scope(|scope| {
        let players: Vec<_> = (0..threads).map(|_| scope.spawn(play)).collect();
        players.into_iter().map(|player| player.join().expect("a player ends")).collect()
    });
    let total = results.iter().fold(Report::default(), |total, (report, _)| total + *report);
    let wrong: Vec<_> = results.into_iter().flat_map(|(_, wrong)| wrong).collect();
    println!("{count} seeds from {first}: {total:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The seeds must have covered the cases that they are for.
    if count >= 1000 {
        let Report { granted, lost, dropped, over, passed_on, stopped, forgot, .. } = total;
        let Report { led, several, ran, replayed, unsettled, .. } = total;
        assert!(granted > count && lost > count / 20 && dropped > count / 20 && over > count / 100);
        assert!(passed_on > count / 10 && stopped > count / 100);
        assert!(forgot > count / 100 && led > count / 20 && several > count / 20);
        assert!(ran > count / 20 && replayed > count / 100 && unsettled > count / 200);
    }
}

#[test]
fn a_seed_repeats_itself() {
    for seed in 0..50 {
        let (one, two) = (Scenario::new(seed).play(), Scenario::new(seed).play());
        assert_eq!(format!("{one:?}"), format!("{two:?}"));
    }
}
