//! The other process, from outside: this test program, started again as a puppet.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tenure::engine::Moment;

use super::{BOUND, Site, now, pause, puppet};

/// A process that does what it is told; killed on drop.
pub(crate) struct Other {
    child: Child,
    orders: Option<ChildStdin>,
    said: Arc<Mutex<Vec<String>>>,
}

impl Other {
    /// Starts one, and connects it.
    pub(crate) async fn on(site: &impl Site) -> Other {
        Other::at(&site.url()).await
    }

    pub(crate) async fn at(url: &str) -> Other {
        let mut other = Other::start(&[]).await;
        other.tell(&format!("connect {url}"));
        other.hears("connected").await;
        other
    }

    /// Starts one through another program, such as `unshare -m`, which ends in `exec "$0" "$@"`.
    pub(crate) async fn start(through: &[&str]) -> Other {
        Other::start_with(through, &[]).await
    }

    /// The same, if it gets that far.
    pub(crate) async fn may_start(through: &[&str]) -> Option<Other> {
        let mut other = Other::spawn(through, &[]);
        while other.all("ready").is_empty() {
            if other.child.try_wait().expect("a child").is_some() {
                return None;
            }
            pause(Duration::from_millis(2)).await;
        }
        Some(other)
    }

    pub(crate) async fn start_with(through: &[&str], variables: &[(&str, OsString)]) -> Other {
        let other = Other::spawn(through, variables);
        other.hears("ready").await;
        other
    }

    fn spawn(through: &[&str], variables: &[(&str, OsString)]) -> Other {
        // Whoever is killed takes it along: the kernel sees to that.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).args(through);
        command.arg(std::env::current_exe().expect("this program"));
        command.args(["--exact", "puppet", "--nocapture", "--test-threads=1"]);
        command.env(puppet::SIGN, "1").envs(variables.iter().map(|(name, to)| (name, to)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("another process");
        let orders = child.stdin.take();
        let said = Arc::new(Mutex::new(Vec::new()));
        let out = BufReader::new(child.stdout.take().expect("an output"));
        let list = said.clone();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                list.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Other { child, orders, said }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order.
    pub(crate) fn tell(&mut self, order: &str) {
        let orders = self.orders.as_mut().expect("one who still listens");
        orders.write_all(format!("{order}\n").as_bytes()).expect("one who still listens");
    }

    /// All that it said, a line each.
    pub(crate) fn said(&self) -> Vec<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it said that begins so.
    pub(crate) fn all(&self, begins: &str) -> Vec<Line> {
        let is = |line: &String| line == begins || line.starts_with(&format!("{begins} "));
        self.said().into_iter().filter(is).map(Line).collect()
    }

    /// Waits until it has said something that begins so.
    pub(crate) async fn hears(&self, begins: &str) -> Line {
        self.hears_within(begins, BOUND).await
    }

    pub(crate) async fn hears_within(&self, begins: &str, bound: Duration) -> Line {
        let began = now();
        loop {
            if let Some(line) = self.all(begins).into_iter().next_back() {
                return line;
            }
            let said = self.said();
            let last = &said[said.len().saturating_sub(6)..];
            assert!(now().since(began) < bound, "no {begins:?} within {bound:?}, but {last:#?}");
            pause(Duration::from_millis(2)).await;
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // Not waited for yet, so that the id is still its own.
        kill_process(Pid::from_child(&self.child), signal).expect("it hears signals");
    }

    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        // On a busy machine a thread of it may go on for a while.
        while !self.is_stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        threads.expect("a process that is there").flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['T', 'Z', 'X']))
        })
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, and leaves its zombie to be reaped later.
    pub(crate) fn kill(&mut self) -> Moment {
        let at = now();
        self.child.kill().expect("it can be killed");
        at
    }

    /// Waits for the end of one that was killed or has nothing more to do.
    pub(crate) fn reap(&mut self) {
        self.orders = None;
        self.child.wait().expect("it ends");
    }

    /// Lets it end by itself.
    pub(crate) fn end(mut self) {
        self.reap();
    }

    /// The letter of its state in the kernel's list.
    pub(crate) fn state(&self) -> char {
        self.stat()[0].chars().next().expect("a letter")
    }

    /// How long it has been on a processor.
    pub(crate) fn busy_for(&self) -> Duration {
        let field = |at: usize| self.stat()[at].parse::<u64>().expect("a number");
        // Fields 14 and 15, and the state is field 3. The kernel shows hundredths of a second.
        Duration::from_millis((field(11) + field(12)) * 10)
    }

    fn stat(&self) -> Vec<String> {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = std::fs::read_to_string(path).expect("a process that is there");
        let (_, after_command) = stat.rsplit_once(')').expect("a command");
        after_command.split_whitespace().map(str::to_owned).collect()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Something that it said.
#[derive(Clone, Debug)]
pub(crate) struct Line(pub(crate) String);

impl Line {
    pub(crate) fn word(&self, at: usize) -> &str {
        self.0.split(' ').nth(at).unwrap_or_else(|| panic!("no word {at} in {:?}", self.0))
    }

    pub(crate) fn number(&self, at: usize) -> u64 {
        self.word(at).parse().unwrap_or_else(|_| panic!("no number at {at} in {:?}", self.0))
    }

    /// The fence of a `held`.
    pub(crate) fn fence(&self) -> u64 {
        self.number(2)
    }

    /// The moment at which it happened.
    pub(crate) fn at(&self) -> Moment {
        Moment::from_nanos(self.number(if self.word(0) == "lost" { 2 } else { 3 }))
    }
}
