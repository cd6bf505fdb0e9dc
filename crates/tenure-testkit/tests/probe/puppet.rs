//! The other process, from within: it does what its standard input says, a line each, and says on its
//! standard output what happens to it.
//!
//! | line | what it does, and what it says of it |
//! |---|---|
//! | `connect URL` | `connected`, or `refused KIND why` |
//! | `claim TAG NAME TTL` | `held TAG FENCE AT`, later perhaps `risk TAG why`, `lost TAG LAST-LIVE`, `ended TAG AT why`; or `failed TAG KIND why` |
//! | `keep TAG NAME TTL` | the same without renewals |
//! | `units TAG NAME WEIGHT CAPACITY TTL` | the same of a semaphore |
//! | `try TAG NAME TTL` | `held …` or `busy TAG` |
//! | `release TAG`, `drop TAG`, `detach TAG` | `released TAG how AT`, `dropped TAG`, `detached TAG` |
//! | `outlive TAG` | the hold is to outlive this process; `outlives TAG` |
//! | `show NAME` | `shown NAME HOLDERS WAITERS`, or `failed show KIND why` |
//! | `storm NAMES TASKS TTL` | takes and leaves in a loop until `calm`; then `stormed COUNT P99 WORST`, in microseconds, and each fence as `fence NAME FENCE` |
//! | `block MILLIS` | keeps the runtime's only thread |
//! | `open COUNT` | opens files until so few descriptors are left; `opened` |
//! | `spawn` | starts a child that sleeps; `spawned PID` |
//! | `fork` | makes a child without starting a program in it, which sleeps; `forked PID` |
//! | `fuse FOLDER` | mounts a file system of its own there, in its own mount namespace; `mounted` |
//! | `close` | `closed` |

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tenure::engine::{Moment, SystemWorld, World};
use tenure::{Hold, Result, Tenure};
use tokio::sync::mpsc;

/// Set in a process that is to be one.
pub(crate) const SIGN: &str = "TENURE_TEST_PUPPET";

/// Plays until the standard input ends.
pub(crate) fn play() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime.expect("a runtime"), perform());
    // Whatever is left is left as by a process that ends.
    std::process::exit(0);
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever started this may be gone.
    let _ = out.write_all(format!("{line}\n").as_bytes());
    let _ = out.flush();
}

#[derive(Default)]
struct Stage {
    tenure: RefCell<Option<Tenure>>,
    holds: RefCell<HashMap<String, Hold>>,
    calm: RefCell<bool>,
}

async fn perform() {
    let (tell, mut told) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            let _ = tell.send(line);
        }
    });
    let stage = Rc::new(Stage::default());
    // After what the test harness has written on its line.
    say("\nready");
    while let Some(line) = told.recv().await {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let stage = stage.clone();
        match words[0].as_str() {
            // One after the other, so that `claim` comes after `connect`.
            "connect" | "close" | "block" => stage.act(words).await,
            _ => drop(tokio::task::spawn_local(stage.act(words))),
        }
    }
}

impl Stage {
    async fn act(self: Rc<Self>, words: Vec<String>) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match *words {
            ["connect", url] => match Tenure::connect(url).await {
                Ok(tenure) => {
                    self.tenure.replace(Some(tenure));
                    say("connected");
                }
                Err(error) => say(&format!("refused {:?} {error}", error.kind())),
            },
            ["claim", tag, name, ttl] => {
                let asked = self.tenure().mutex(name).ttl(millis(ttl)).acquire().await;
                self.got(tag, asked.map(Some));
            }
            ["keep", tag, name, ttl] => {
                let mutex = self.tenure().mutex(name).ttl(millis(ttl)).renew(false);
                self.got(tag, mutex.acquire().await.map(Some));
            }
            ["units", tag, name, weight, capacity, ttl] => {
                let semaphore = self.tenure().semaphore(name, number(capacity) as u32);
                let semaphore = semaphore.ttl(millis(ttl));
                self.got(tag, semaphore.acquire_many(number(weight) as u32).await.map(Some));
            }
            ["try", tag, name, ttl] => {
                let asked = self.tenure().mutex(name).ttl(millis(ttl)).try_acquire().await;
                self.got(tag, asked);
            }
            ["release", tag] => {
                let hold = self.take(tag);
                let released = hold.release().await;
                say(&format!("released {tag} {released:?} {}", now().as_nanos()));
            }
            ["drop", tag] => {
                drop(self.take(tag));
                say(&format!("dropped {tag}"));
            }
            ["detach", tag] => {
                let detached = self.take(tag).detach().await;
                say(&format!("detached {tag} {}", detached.is_ok()));
            }
            ["outlive", tag] => {
                let hold = self.take(tag);
                let told = hold.outlive().await;
                self.holds.borrow_mut().insert((*tag).to_owned(), hold);
                say(&format!("outlives {tag} {}", told.is_ok()));
            }
            ["show", name] => self.show(name).await,
            ["storm", names, tasks, ttl] => self.storm(number(names), number(tasks), ttl).await,
            ["calm"] => drop(self.calm.replace(true)),
            ["block", span] => std::thread::sleep(millis(span)),
            ["open", left] => {
                let mut all: Vec<_> =
                    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
                all.truncate(all.len().saturating_sub(number(left) as usize));
                std::mem::forget(all);
                say("opened");
            }
            ["spawn"] => {
                let child = std::process::Command::new("sleep").arg("60").spawn();
                say(&format!("spawned {}", child.expect("a child").id()));
            }
            ["fuse", folder] => {
                super::fuse::mount(folder);
                say("mounted");
            }
            ["fork"] => say(&format!("forked {}", fork())),
            ["close"] => {
                self.tenure().close().await;
                say("closed");
            }
            _ => say(&format!("what does {words:?} mean?")),
        }
    }

    fn tenure(&self) -> Tenure {
        self.tenure.borrow().clone().expect("connected")
    }

    fn take(&self, tag: &str) -> Hold {
        self.holds.borrow_mut().remove(tag).expect("a hold")
    }

    fn got(self: &Rc<Self>, tag: &str, asked: Result<Option<Hold>>) {
        let tag = tag.to_owned();
        match asked {
            Ok(Some(hold)) => {
                let fence = hold.fence().get();
                // The clock before the question: it was live at that moment or later.
                let at = now();
                if hold.is_live() {
                    say(&format!("held {tag} {fence} {}", at.as_nanos()));
                }
                let (lost, risk) = (hold.lost(), hold.at_risk());
                self.holds.borrow_mut().insert(tag.clone(), hold);
                let stage = self.clone();
                tokio::task::spawn_local(stage.clone().watch(tag.clone()));
                let of = tag.clone();
                tokio::task::spawn_local(async move { say(&format!("risk {of} {}", risk.await)) });
                tokio::task::spawn_local(async move {
                    let ended = lost.await;
                    say(&format!("ended {tag} {} {ended:?}", now().as_nanos()));
                });
            }
            Ok(None) => say(&format!("busy {tag} 0 {}", now().as_nanos())),
            Err(error) => say(&format!("failed {tag} {:?} {error}", error.kind())),
        }
    }

    /// Looks at the hold all the time, and says when it last was good.
    async fn watch(self: Rc<Self>, tag: String) {
        let mut last = Moment::ORIGIN;
        loop {
            let at = now();
            match self.holds.borrow().get(&tag).map(Hold::is_live) {
                None => return,
                Some(true) => last = at,
                Some(false) => break,
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        say(&format!("lost {tag} {}", last.as_nanos()));
    }

    async fn show(&self, name: &str) {
        match self.tenure().inspect(name).await {
            Ok(view) => {
                let counts = view.map_or((0, 0), |it| (it.holders.len(), it.waiters.len()));
                say(&format!("shown {name} {} {}", counts.0, counts.1));
            }
            Err(error) => say(&format!("failed show {:?} {error}", error.kind())),
        }
    }

    async fn storm(self: Rc<Self>, names: u64, tasks: u64, ttl: &str) {
        let ttl = millis(ttl);
        let tasks: Vec<_> = (0..tasks)
            .map(|task| tokio::task::spawn_local(self.clone().gust(task, names, ttl)))
            .collect();
        let mut spans = Vec::new();
        for task in tasks {
            spans.extend(task.await.expect("no panic"));
        }
        spans.sort();
        let at = |part: usize| spans.get(spans.len() * part / 1000).or(spans.last());
        let micros = |span: Option<&Duration>| span.map_or(0, |span| span.as_micros());
        let (usual, worst) = (micros(at(990)), micros(spans.last()));
        say(&format!("stormed {} {usual} {worst}", spans.len()));
    }

    async fn gust(self: Rc<Self>, task: u64, names: u64, ttl: Duration) -> Vec<Duration> {
        let mut spans = Vec::new();
        let mut turn = task;
        while !*self.calm.borrow() {
            turn += 1;
            let name = format!("n{}", turn % names);
            let began = Instant::now();
            match self.tenure().mutex(&name).ttl(ttl).acquire().await {
                Ok(hold) => {
                    spans.push(began.elapsed());
                    say(&format!("fence {name} {}", hold.fence().get()));
                    if let Err(error) = hold.release().await {
                        say(&format!("failed release {:?} {error}", error.kind()));
                    }
                }
                Err(error) => say(&format!("failed {name} {:?} {error}", error.kind())),
            }
        }
        spans
    }
}

/// A child that has all that this process has, and does nothing with it.
#[allow(unsafe_code, reason = "there is no safe fork")]
fn fork() -> i32 {
    // SAFETY: the child calls only functions that may be called between fork and exec, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: calls without pointers.
        unsafe {
            libc::sleep(60);
            libc::_exit(0);
        }
    }
    child
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn millis(text: &str) -> Duration {
    Duration::from_millis(number(text))
}

fn now() -> Moment {
    SystemWorld.now()
}
