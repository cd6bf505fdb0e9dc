//! Processes that are killed or stopped: this test program, started again as another process.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tenure::Tenure;
use tenure::engine::{Claim, Moment, Name, Space, SystemWorld, Verdict, World};
use tenure_testkit::servers::{Clock, Redis};

use crate::probe_redis::*;

/// What the other process reads: URL, name, ttl in milliseconds, weight and capacity.
const ORDER: &str = "TENURE_TEST_ORDER";
/// Where it writes what happens to it, a line each.
const DIARY: &str = "TENURE_TEST_DIARY";

/// Not a test: what the other process does. It waits for the name, holds it for ever, and notes when.
#[test]
fn other_process() {
    let (Ok(order), Ok(diary)) = (std::env::var(ORDER), std::env::var(DIARY)) else { return };
    let mut words = order.split(' ');
    let mut word = || words.next().expect("an order").to_owned();
    let (url, name, ttl) = (word(), word(), word().parse().expect("milliseconds"));
    let (weight, capacity): (u32, u32) = (word().parse().unwrap(), word().parse().unwrap());
    let note = |line: String| {
        use std::io::Write;
        let mut file = std::fs::File::options().append(true).create(true).open(&diary).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tenure = Tenure::connect(&url).await.unwrap();
        loop {
            let hold = match capacity {
                1 => tenure.mutex(&name).ttl(ms(ttl)).acquire().await,
                _ => tenure.semaphore(&name, capacity).ttl(ms(ttl)).acquire_many(weight).await,
            };
            let hold = hold.unwrap();
            let (mut last, fence) = (Moment::ORIGIN, hold.fence().get());
            let mut noted = false;
            // The clock is read before the question: it was live at that moment or later.
            while let (at, true) = (now(), hold.is_live()) {
                if !std::mem::replace(&mut noted, true) {
                    note(format!("held {fence} {}", at.as_nanos()));
                }
                last = at;
                std::thread::sleep(ms(5));
            }
            note(format!("lost {fence} {}", last.as_nanos()));
        }
    });
}

struct Other {
    child: Child,
    diary: PathBuf,
}

impl Other {
    fn start(server: &Redis, name: &str, ttl: u64) -> Other {
        Other::start_as(server, name, ttl, 0)
    }

    fn start_as(server: &Redis, name: &str, ttl: u64, number: usize) -> Other {
        Other::start_for(server, name, ttl, number, (1, 1))
    }

    fn start_for(
        server: &Redis,
        name: &str,
        ttl: u64,
        number: usize,
        (weight, capacity): (u32, u32),
    ) -> Other {
        let diary = server.directory().join(format!("diary-{name}-{number}"));
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "redis_faults::processes::other_process"])
            .env(ORDER, format!("{} {name} {ttl} {weight} {capacity}", server.url()))
            .env(DIARY, &diary)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Other { child, diary }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        // On a busy machine a thread of it may go on for a while.
        while signal == Signal::STOP && !self.is_stopped() {
            std::thread::sleep(ms(1));
        }
    }

    fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['T', 'Z', 'X']))
        })
    }

    /// What it noted of the kind: fence and time.
    fn noted(&self, kind: &str) -> Vec<(u64, Moment)> {
        let diary = std::fs::read_to_string(&self.diary).unwrap_or_default();
        let lines = diary.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let lines = lines.filter(|words| words.len() == 3 && words[0] == kind);
        lines.map(|w| (w[1].parse().unwrap(), Moment::from_nanos(w[2].parse().unwrap()))).collect()
    }

    async fn until(&self, kind: &str) -> (u64, Moment) {
        until(kind, async || !self.noted(kind).is_empty()).await;
        self.noted(kind)[0]
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s4_a_holder_that_was_stopped_finds_its_hold_lost_before_anything_else() {
    let server = server();
    let tenure = connect(&server.url()).await;
    let other = Other::start(&server, "x", 1000);
    let (old, _) = other.until("held").await;
    let next = wait_for(&tenure, "x", secs(30));
    until_waiting(&tenure, "x", 1).await;
    other.signal(Signal::STOP);
    let next = served(next).await;
    let granted = now();
    pause(ms(1000)).await;
    other.signal(Signal::CONT);
    let (lost, last_live) = other.until("lost").await;
    assert_eq!(lost, old);
    assert!(last_live < granted, "it believed in its hold while another had it");
    assert!(next.fence().get() > old && next.is_live());
}

#[tokio::test(flavor = "multi_thread")]
async fn s26_the_line_passes_over_a_waiter_that_was_killed() {
    let server = server();
    let tenure = connect(&server.url()).await;
    for round in 0..2 {
        let name = format!("x{round}");
        let hold = tenure.mutex(&name).acquire().await.unwrap();
        let mut other = Other::start(&server, &name, 30_000);
        until_waiting(&tenure, &name, 1).await;
        let next = wait_for(&tenure, &name, secs(30));
        until_waiting(&tenure, &name, 2).await;
        other.kill();
        // Where a server has just come up nobody is passed over.
        pause(ms(1100)).await;
        hold.release().await.unwrap();
        // Not after the first life of a turn that nobody took, which is two seconds.
        drop(within(ms(1500), next).await.unwrap().unwrap());
    }
}

/// A head that does not fit is handed nothing: those behind it must find out that it is dead.
#[tokio::test(flavor = "multi_thread")]
async fn s26_one_that_wanted_many_units_and_was_killed_holds_up_nobody() {
    let server = server();
    let tenure = connect(&server.url()).await;
    let units = || tenure.semaphore("x", 4);
    let held = units().acquire_many(2).await.unwrap();
    let mut wide = Other::start_for(&server, "x", 30_000, 0, (4, 4));
    until_waiting(&tenure, "x", 1).await;
    let behind = [(); 2].map(|()| tokio::spawn(units().join()));
    until_waiting(&tenure, "x", 3).await;
    assert!(
        units().try_acquire().await.unwrap().is_none(),
        "it waits for its turn, and comes first"
    );
    wide.kill();
    // The server knows it as soon as it has seen that the connection is closed.
    until_waiting(&tenure, "x", 2).await;
    let asked = now();
    // Whoever asks finds out, and serves those who wait; then there are none left.
    let newcomer = soon(units().try_acquire()).await.unwrap();
    assert!(newcomer.is_none(), "those who were there before it come first");
    let mut served = Vec::new();
    for waiter in behind {
        served.push(within(secs(10), waiter).await.unwrap().unwrap());
    }
    let took = now().since(asked);
    println!("units behind a dead waiter were taken after {took:?}");
    // Not when they would have looked by themselves, which is after two seconds.
    assert!(took < ms(1500), "{took:?}");
    drop((held, served));
}

/// The same, and nobody else asks.
#[tokio::test(flavor = "multi_thread")]
async fn s26_those_behind_a_dead_waiter_find_that_out_by_themselves() {
    let server = server();
    let tenure = connect(&server.url()).await;
    let units = || tenure.semaphore("x", 4);
    let held = units().acquire_many(2).await.unwrap();
    let mut wide = Other::start_for(&server, "x", 30_000, 0, (4, 4));
    until_waiting(&tenure, "x", 1).await;
    let behind = [(); 2].map(|()| tokio::spawn(units().join()));
    until_waiting(&tenure, "x", 3).await;
    wide.kill();
    let killed = now();
    for waiter in behind {
        drop(within(secs(12), waiter).await.unwrap().unwrap());
    }
    println!("units behind a dead waiter were taken after {:?}", now().since(killed));
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn s26_the_line_moves_on_also_where_the_server_has_just_come_up() {
    let server = server();
    let (tenure, other) = (connect(&server.url()).await, connect(&server.url()).await);
    // An engine without a client above it: whatever dies with it is not left by anyone.
    let dies = engine(&server.url()).await;
    let hold = tenure.mutex("x").acquire().await.unwrap();
    let name = Name::new(Space::Lock, "x").unwrap();
    let claim = Claim::new(name, SystemWorld.mint().unwrap());
    assert!(matches!(dies.claim(&claim).await.unwrap(), Verdict::Waiting(_)));
    let next = wait_for(&other, "x", secs(30));
    until_waiting(&tenure, "x", 2).await;
    drop(dies);
    pause(ms(50)).await;
    // Nobody is passed over in the first second, so that those who come back keep their places.
    hold.release().await.unwrap();
    drop(within(secs(6), next).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn s28_the_turn_of_a_stopped_waiter_passes_on_and_it_comes_back_to_the_line() {
    let server = server();
    let tenure = connect(&server.url()).await;
    let hold = tenure.mutex("x").acquire().await.unwrap();
    let other = Other::start(&server, "x", 30_000);
    until_waiting(&tenure, "x", 1).await;
    let next = wait_for(&tenure, "x", secs(30));
    until_waiting(&tenure, "x", 2).await;
    other.signal(Signal::STOP);
    hold.release().await.unwrap();
    let given = holders(&tenure, "x").await[0];
    // At the end of a first life, far from that of the ttl.
    let next = within(secs(12), next).await.unwrap().unwrap();
    assert!(next.fence().get() > given);
    other.signal(Signal::CONT);
    pause(ms(1500)).await;
    assert_eq!(other.noted("held"), [], "its turn was over");
    let fence = next.fence().get();
    next.release().await.unwrap();
    assert!(other.until("held").await.0 > fence);
}

/// However many of them, and although the one that came last is stopped, too.
#[tokio::test(flavor = "multi_thread")]
async fn s28_stopped_waiters_in_a_row_cost_a_first_life_each() {
    let server = server();
    let (two, three, five) =
        tokio::join!(stopped_row(&server, 2), stopped_row(&server, 3), stopped_row(&server, 5));
    for (count, waited) in [two, three, five] {
        // Two seconds each, and not until the next contact.
        println!("{count} in a row that were stopped: {waited:?}");
        assert!(waited < secs(2) * count + secs(4), "{waited:?} for {count}");
    }
}

/// How long the first that reacts waits behind so many that are stopped.
async fn stopped_row(server: &Redis, count: u32) -> (u32, Duration) {
    let name = format!("x{count}");
    let tenure = connect(&server.url()).await;
    let hold = tenure.mutex(&name).acquire().await.unwrap();
    let mut stopped = Vec::new();
    for number in 0..count as usize {
        stopped.push(Other::start_as(server, &name, 30_000, number));
        until_waiting(&tenure, &name, number + 1).await;
    }
    // One that is behind them, in a process of its own: another client.
    let client = connect(&server.url()).await;
    let next = wait_for(&client, &name, secs(30));
    until_waiting(&tenure, &name, count as usize + 1).await;
    stopped.push(Other::start_as(server, &name, 30_000, count as usize));
    until_waiting(&tenure, &name, count as usize + 2).await;
    // By then all have looked for the first time; of their own accord they ask again after twenty seconds.
    pause(LOOKED).await;
    stopped.iter().for_each(|other| other.signal(Signal::STOP));
    let released = now();
    hold.release().await.unwrap();
    drop(within(secs(60), next).await.unwrap().unwrap());
    (count, now().since(released))
}

#[tokio::test(flavor = "multi_thread")]
async fn s29_a_stopped_waiter_that_wakes_up_late_holds_only_what_the_server_says() {
    let server = server();
    let tenure = connect(&server.url()).await;
    let hold = tenure.mutex("x").acquire().await.unwrap();
    let other = Other::start(&server, "x", 30_000);
    until_waiting(&tenure, "x", 1).await;
    other.signal(Signal::STOP);
    hold.release().await.unwrap();
    let given = holders(&tenure, "x").await[0];
    // Its first life is over, and nobody else came.
    until_free(&tenure, "x").await;
    other.signal(Signal::CONT);
    let (held, _) = other.until("held").await;
    assert!(held > given, "it started on a turn that was over");
    assert_eq!(holders(&tenure, "x").await, [held]);
}

#[tokio::test(flavor = "multi_thread")]
async fn s39_nothing_is_left_of_processes_that_were_killed() {
    let clock = Clock::new().unwrap();
    let server = Redis::build().clock(&clock).start().unwrap();
    let tenure = connect(&server.url()).await;
    let mut others = ["x", "x", "y"].map(|name| (name, None));
    for (name, other) in &mut others {
        *other = Some(Other::start(&server, name, 1000));
        until_held(&tenure, name).await;
    }
    until_waiting(&tenure, "x", 1).await;
    others.iter_mut().for_each(|(_, other)| other.as_mut().unwrap().kill());
    assert!(!keys_of_names(&server).is_empty());
    // Places last a minute, and keys not two.
    clock.advance(120_000).unwrap();
    until("the keys are gone", async || keys_of_names(&server).is_empty()).await;
    assert!(keys(&server).len() <= 2, "one key for each partition that was used");
    for name in ["x", "y"] {
        assert!(tenure.mutex(name).try_acquire().await.unwrap().is_some());
    }
}
