//! The processes of one side of a proof, as the demo sees them: started, told, heard and ended by their ids. Dropping
//! [`Processes`] ends all of them, no matter how the side ends.

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

use super::environment::{Environment, Event, Interrupted};
use super::{PATIENCE, Trouble, participant};
use crate::output::{clean_sentence, precise};

/// The processes of one side.
pub(super) struct Processes<'s, 'w> {
    environment: &'s mut Environment<'w>,
    workers: Vec<Worker>,
    /// Lines that arrived while another process was listened to.
    heard: VecDeque<(usize, String)>,
}

struct Worker {
    /// Unique within the demo, so that lines of earlier processes are not taken for this one's.
    number: usize,
    /// Its part in the proof.
    part: String,
    process: Child,
    cues: ChildStdin,
    /// It has reported that it is done, or was ended by us.
    may_end: bool,
}

impl<'s, 'w> Processes<'s, 'w> {
    pub(super) fn new(environment: &'s mut Environment<'w>) -> Processes<'s, 'w> {
        Processes { environment, workers: Vec::new(), heard: VecDeque::new() }
    }

    /// Starts a process for this part, and returns its index.
    pub(super) fn start(&mut self, part: &str) -> Result<usize, Trouble> {
        let failed = |error| format!("a process cannot be started: {error}");
        let mut process = self.command(part).spawn().map_err(failed)?;
        let (Some(cues), Some(out)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("a process has no pipes".into());
        };
        self.environment.started += 1;
        let (number, tell) = (self.environment.started, self.environment.tell.clone());
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
        let engine = &self.environment.engine;
        let mut command = Command::new(own_binary());
        command.arg0("tenure").arg(participant::COMMAND).args(part.split_whitespace());
        // The user's settings are for commands, and must not change the proof.
        for (name, _) in env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"TENURE_") {
                command.env_remove(name);
            }
        }
        command
            .env(participant::URL, engine.url())
            .env(participant::PREFIX, &engine.prefix)
            .env(participant::TTL, engine.ttl.as_millis().to_string())
            .env(participant::FOLDER, self.environment.folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Its own process group: Ctrl-C is for the demo, which then ends this process.
            .process_group(0);
        command
    }

    /// Sends a line to a process. If it has exited, the next read shows that.
    pub(super) fn tell(&mut self, index: usize, line: &str) {
        if let Some(worker) = self.workers.get_mut(index) {
            let _ = worker.cues.write_all(format!("{line}\n").as_bytes());
        }
    }

    /// Sends the same line to all processes.
    pub(super) fn tell_all(&mut self, line: &str) {
        (0..self.workers.len()).for_each(|index| self.tell(index, line));
    }

    /// The next line, and which process sent it.
    pub(super) fn hear(&mut self) -> Result<(usize, String), Trouble> {
        match self.heard.pop_front() {
            Some(heard) => Ok(heard),
            None => self.listen(PATIENCE)?.ok_or_else(nothing_heard),
        }
    }

    /// The same, if a line arrives in time.
    pub(super) fn hear_within(
        &mut self,
        time: Duration,
    ) -> Result<Option<(usize, String)>, Trouble> {
        match self.heard.pop_front() {
            Some(heard) => Ok(Some(heard)),
            None => self.listen(time),
        }
    }

    /// The next line of one process, which must begin with this word. Returns the rest.
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

    /// Waits, and fails if the demo is to end or a process fails.
    pub(super) fn wait(&mut self, time: Duration) -> Result<(), Trouble> {
        let until = Instant::now() + time;
        while let Some(heard) = self.listen(until.saturating_duration_since(Instant::now()))? {
            self.heard.push_back(heard);
        }
        Ok(())
    }

    /// Sends a signal to a process. If that ends it, this is not a failure.
    pub(super) fn signal(&mut self, index: usize, signal: Signal) -> Result<(), Trouble> {
        let Some(worker) = self.workers.get_mut(index) else { return Err("no process".into()) };
        worker.may_end |= signal == Signal::KILL || signal == Signal::TERM;
        // It is our child and has not been waited for, so the pid is still its own.
        Ok(kill_process(Pid::from_child(&worker.process), signal)?)
    }

    /// Shows the progress.
    pub(super) fn progress(&mut self, text: &str) {
        self.environment.screen.progress(text);
    }

    fn listen(&mut self, time: Duration) -> Result<Option<(usize, String)>, Trouble> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.environment.events.recv_timeout(left) {
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

impl Drop for Processes<'_, '_> {
    fn drop(&mut self) {
        // All of them first, so that none waits for the end of another. This fails for those that have exited.
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
        // If nobody receives it, the demo is over.
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

/// This binary, even if the file has been replaced in the meantime.
fn own_binary() -> PathBuf {
    let known = env::current_exe().ok().filter(|path| path.exists());
    known.unwrap_or_else(|| "/proc/self/exe".into())
}
