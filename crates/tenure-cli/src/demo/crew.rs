//! The processes of one side of a proof, as the demo sees them: started, told, heard, ended by their
//! ids. They are gone when the crew is dropped, however the side ends.

use std::collections::VecDeque;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::stage::{Event, Interrupted, Stage};
use super::{PATIENCE, Trouble, player};
use crate::output::{clean_sentence, precise};

/// The processes of one side.
pub(super) struct Crew<'s, 'w> {
    stage: &'s mut Stage<'w>,
    workers: Vec<Worker>,
    /// What was said while another one was listened to.
    heard: VecDeque<(usize, String)>,
}

struct Worker {
    /// Unique for the demo: what earlier processes still say is not taken for this one's.
    number: usize,
    /// What it plays.
    part: String,
    process: Child,
    cues: ChildStdin,
    /// It has said that it is done, or was ended by us.
    may_end: bool,
}

impl<'s, 'w> Crew<'s, 'w> {
    pub(super) fn new(stage: &'s mut Stage<'w>) -> Crew<'s, 'w> {
        Crew { stage, workers: Vec::new(), heard: VecDeque::new() }
    }

    /// Starts a process for this part, and returns its index.
    pub(super) fn start(&mut self, part: &str) -> Result<usize, Trouble> {
        let failed = |error| format!("a process cannot be started: {error}");
        let mut process = self.command(part).spawn().map_err(failed)?;
        let (Some(cues), Some(out)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("a process has no pipes".into());
        };
        self.stage.started += 1;
        let (number, tell) = (self.stage.started, self.stage.tell.clone());
        let part = part.to_owned();
        self.workers.push(Worker { number, part, process, cues, may_end: false });
        thread::Builder::new().spawn(move || listen(number, out, &tell)).map_err(failed)?;
        Ok(self.workers.len() - 1)
    }

    /// Starts a process for each part, and waits until all of them are ready.
    pub(super) fn start_all<P: AsRef<str>>(
        &mut self,
        parts: impl IntoIterator<Item = P>,
    ) -> Result<(), Trouble> {
        for part in parts {
            self.start(part.as_ref())?;
        }
        (0..self.workers.len()).try_for_each(|index| self.expect(index, "ready").map(drop))
    }

    fn command(&self, part: &str) -> Command {
        let engine = &self.stage.engine;
        let mut command = Command::new(own_binary());
        command.arg0("tenure").arg(player::COMMAND).args(part.split_whitespace());
        // What the user has set is for the commands, and must not change what is played.
        for (name, _) in env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"TENURE_") {
                command.env_remove(name);
            }
        }
        command
            .env(player::URL, engine.url())
            .env(player::PREFIX, &engine.prefix)
            .env(player::TTL, engine.ttl.as_millis().to_string())
            .env(player::FOLDER, self.stage.folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A group of its own: Ctrl-C is for the demo, which then ends this one.
            .process_group(0);
        command
    }

    /// Tells a process something. If it has ended, what is heard next says so.
    pub(super) fn tell(&mut self, index: usize, line: &str) {
        if let Some(worker) = self.workers.get_mut(index) {
            let _ = worker.cues.write_all(format!("{line}\n").as_bytes());
        }
    }

    /// Tells all processes the same.
    pub(super) fn tell_all(&mut self, line: &str) {
        (0..self.workers.len()).for_each(|index| self.tell(index, line));
    }

    /// What is said next, and by whom.
    pub(super) fn hear(&mut self) -> Result<(usize, String), Trouble> {
        match self.heard.pop_front() {
            Some(heard) => Ok(heard),
            None => self.listen(PATIENCE)?.ok_or_else(nothing_heard),
        }
    }

    /// The same, if something is said soon enough.
    pub(super) fn hear_within(
        &mut self,
        time: Duration,
    ) -> Result<Option<(usize, String)>, Trouble> {
        match self.heard.pop_front() {
            Some(heard) => Ok(Some(heard)),
            None => self.listen(time),
        }
    }

    /// What one process says next, which must begin with this word. Returns the rest.
    pub(super) fn expect(&mut self, index: usize, word: &str) -> Result<String, Trouble> {
        let mut others = VecDeque::new();
        let line = loop {
            match self.hear()? {
                (from, line) if from == index => break line,
                other => others.push_back(other),
            }
        };
        others.append(&mut self.heard);
        self.heard = others;
        let rest = line.strip_prefix(word).map(str::trim_start);
        rest.map(str::to_owned).ok_or_else(|| format!("{word:?} was to come, not {line:?}").into())
    }

    /// Waits, and hears of it if the demo is to end or a process breaks down.
    pub(super) fn wait(&mut self, time: Duration) -> Result<(), Trouble> {
        let until = Instant::now() + time;
        while let Some(heard) = self.listen(until.saturating_duration_since(Instant::now()))? {
            self.heard.push_back(heard);
        }
        Ok(())
    }

    /// Sends a signal to a process. One that ends it is no reason to be worried about it.
    pub(super) fn signal(&mut self, index: usize, signal: Signal) -> Result<(), Trouble> {
        let Some(worker) = self.workers.get_mut(index) else { return Err("no process".into()) };
        worker.may_end |= signal == Signal::KILL || signal == Signal::TERM;
        // It is our child and nobody has waited for it, so that the id is still its own.
        Ok(kill_process(Pid::from_child(&worker.process), signal)?)
    }

    /// Says how far it is.
    pub(super) fn progress(&mut self, text: &str) {
        self.stage.screen.progress(text);
    }

    fn listen(&mut self, time: Duration) -> Result<Option<(usize, String)>, Trouble> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.stage.events.recv_timeout(left) {
                Ok(Event::Said(number, line)) => {
                    let Some(index) = self.index(number) else { continue };
                    if let Some(trouble) = line.strip_prefix("trouble ") {
                        return Err(clean_sentence(trouble).into());
                    }
                    self.workers[index].may_end |= line.starts_with("done");
                    return Ok(Some((index, line)));
                }
                Ok(Event::Ended(number)) => {
                    if let Some(index) = self.index(number) {
                        self.workers[index].check_end()?;
                    }
                }
                Ok(Event::Signal(number)) => return Err(Interrupted(number).into()),
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err("nobody can be heard".into()),
            }
        }
    }

    fn index(&self, number: usize) -> Option<usize> {
        self.workers.iter().position(|worker| worker.number == number)
    }
}

impl Drop for Crew<'_, '_> {
    fn drop(&mut self) {
        // All of them first, so that none waits for the end of another. It fails for those that have
        // ended already.
        for worker in &mut self.workers {
            let _ = worker.process.kill();
        }
        for worker in &mut self.workers {
            let _ = worker.process.wait();
        }
    }
}

impl Worker {
    fn check_end(&mut self) -> Result<(), Trouble> {
        let status = self.process.wait()?;
        match self.may_end {
            true => Ok(()),
            false => Err(format!("the process for `{}` {}", self.part, ended(status)).into()),
        }
    }
}

fn listen(number: usize, out: ChildStdout, tell: &Sender<Event>) {
    for line in BufReader::new(out).lines() {
        let Ok(line) = line else { break };
        // If nobody listens, the demo is over.
        let _ = tell.send(Event::Said(number, line));
    }
    let _ = tell.send(Event::Ended(number));
}

fn nothing_heard() -> Trouble {
    format!("nothing happened for {}", precise(PATIENCE)).into()
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended too soon, with code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// This binary, even if another one has taken its place meanwhile.
fn own_binary() -> PathBuf {
    let known = env::current_exe().ok().filter(|path| path.exists());
    known.unwrap_or_else(|| "/proc/self/exe".into())
}
