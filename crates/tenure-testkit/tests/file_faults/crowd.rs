//! Many processes on one file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use tenure_testkit::rng::Rng;

use crate::file_site::*;

/// Every reported fence, by name; none comes twice.
#[derive(Default)]
struct Fences(BTreeMap<String, BTreeSet<u64>>);

impl Fences {
    fn take_in(&mut self, other: &ChildProcess) -> usize {
        let said = other.all("fence");
        for line in &said {
            // A killed process may have written half a line.
            let words: Vec<_> = line.0.split(' ').collect();
            if let [_, name, fence] = *words {
                let fence = fence.parse().unwrap();
                let is_new = self.0.entry(name.to_owned()).or_default().insert(fence);
                assert!(is_new, "{name} was given {fence} twice");
            }
        }
        said.len()
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// Killed at any point, most often in a transaction. `TENURE_KILLS` sets how often.
#[tokio::test(flavor = "multi_thread")]
async fn s106_processes_that_are_killed_in_the_middle_of_a_step_leave_a_sound_file() {
    let site = FileSite::new();
    let (mut rng, kills) = (Rng::new(106), number("TENURE_KILLS", 150));
    let mut fences = Fences::default();
    let mut others = Vec::new();
    for _ in 0..16 {
        let mut other = ChildProcess::on(&site).await;
        other.tell("storm 4 4 60000");
        others.push(other);
    }
    let mut count = 0;
    for _ in 0..kills {
        pause(rng.micros(0, 15_000)).await;
        let at = rng.between(0, 15) as usize;
        let mut gone = std::mem::replace(&mut others[at], ChildProcess::start(&[]).await);
        gone.kill();
        gone.reap();
        others[at].tell(&format!("connect {}", site.url()));
        others[at].tell("storm 4 4 60000");
        assert_eq!(gone.all("failed").len(), 0, "{:?}", gone.all("failed"));
        count += fences.take_in(&gone);
    }
    for other in &mut others {
        other.tell("calm");
    }
    for other in &others {
        other.hears("stormed").await;
        assert_eq!(other.all("failed").len(), 0, "{:?}", other.all("failed"));
        count += fences.take_in(other);
    }
    assert!(count > 500, "{count}");
    drop(others);
    site.is_sound();
    let tenure = site.connect().await;
    for name in 0..4 {
        drop(within(AT_ONCE, tenure.mutex(format!("n{name}")).acquire()).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s110_sixty_four_processes_are_served_and_the_journal_stays_short() {
    let site = FileSite::new();
    let mut others = Vec::new();
    for _ in 0..64 {
        let mut other = ChildProcess::on(&site).await;
        other.tell("storm 8 1 60000");
        others.push(other);
    }
    let mut longest = 0;
    for _ in 0..30 {
        pause(ms(100)).await;
        longest = longest.max(fs::metadata(site.beside("-wal")).unwrap().len());
    }
    for other in &mut others {
        other.tell("calm");
    }
    let (mut fences, mut count, mut worst) = (Fences::default(), 0, 0);
    for other in &others {
        let stormed = other.hears("stormed").await;
        assert_eq!(other.all("failed").len(), 0, "{:?}", other.all("failed"));
        count += fences.take_in(other);
        worst = worst.max(stormed.number(2));
    }
    println!("{count} holds; worst p99 {worst} us; journal {longest} bytes");
    assert!(count > 1000, "{count}");
    // Each waits for about eight others; a process that starves waits for seconds.
    assert!(worst < 10_000_000, "{worst} us");
    assert!(longest < 16 << 20, "{longest} bytes");
    drop(others);
    site.is_sound();
}

/// In the order in which they came, whichever process they are in.
#[tokio::test(flavor = "multi_thread")]
async fn s33_processes_are_served_in_the_order_in_which_they_came() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let mut others = Vec::new();
    for _ in 0..6 {
        others.push(ChildProcess::on(&site).await);
    }
    let hold = tenure.mutex("x").ttl(secs(600)).acquire().await.unwrap();
    let mut order = Vec::new();
    for place in 0..48 {
        let at = (place * 5 + place / 6) % 6;
        others[at].tell(&format!("claim t{place} x 600000"));
        until_waiting(&tenure, "x", place + 1).await;
        order.push(at);
    }
    hold.release().await.unwrap();
    let mut last = 0;
    for (place, at) in order.into_iter().enumerate() {
        let held = others[at].hears(&format!("held t{place}")).await;
        assert!(held.fence() > last);
        last = held.fence();
        let held = others.iter().map(|other| other.all("held").len()).sum::<usize>();
        assert_eq!(held, place + 1, "someone was served before its turn");
        others[at].tell(&format!("release t{place}"));
    }
}

/// A waiting process does nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_waiters_are_idle() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let _holds = [
        tenure.mutex("x0").ttl(secs(600)).acquire().await.unwrap(),
        tenure.mutex("x1").ttl(secs(600)).acquire().await.unwrap(),
    ];
    let mut others = Vec::new();
    for number in 0..20 {
        let mut other = ChildProcess::on(&site).await;
        for task in 0..10 {
            other.tell(&format!("claim t{task} x{} 600000", number % 2));
        }
        others.push(other);
    }
    until_waiting(&tenure, "x0", 100).await;
    until_waiting(&tenure, "x1", 100).await;
    pause(ms(500)).await;
    let busy = || others.iter().map(ChildProcess::busy_for).sum::<std::time::Duration>();
    let (before, began) = (busy(), now());
    pause(secs(4)).await;
    let share = (busy() - before).as_secs_f64() / began.until(now()).as_secs_f64();
    println!("200 waiters: {:.2} % of a core", share * 100.0);
    assert!(share < 0.05, "{:.2} % of a core", share * 100.0);
}

/// Each in turn holds the name that it waits for, and all of them stay alive.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_keeps_no_descriptor_for_everyone_it_ever_waited_for() {
    let site = FileSite::new();
    let mut waiter = ChildProcess::on(&site).await;
    let mut holders = Vec::new();
    for round in 0..80 {
        let holder = site.connect().await;
        let hold = holder.mutex("x").ttl(secs(600)).acquire().await.unwrap();
        waiter.tell(&format!("claim t{round} x 600000"));
        until_waiting(&holder, "x", 1).await;
        hold.release().await.unwrap();
        waiter.hears(&format!("held t{round}")).await;
        waiter.tell(&format!("release t{round}"));
        waiter.hears(&format!("released t{round}")).await;
        holders.push(holder);
    }
    let all = fs::read_dir(format!("/proc/{}/fd", waiter.pid())).unwrap().flatten();
    let all = all.filter_map(|entry| fs::read_link(entry.path()).ok());
    let watched = all.filter(|path| path.to_string_lossy().contains("pidfd")).count();
    assert!(watched < 40, "{watched} of 80");
}
