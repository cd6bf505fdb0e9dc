//! The descendants of our processes, wherever they went: a process that has left the command's group is still a
//! descendant.

use std::collections::HashMap;
use std::fs;
use std::io;

use crate::output::clean;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, pidfd_send_signal,
};

/// A process, as it was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    /// It has exited, and was not waited for.
    pub(super) ended: bool,
    /// When it was started: with its pid, that identifies it.
    pub(super) started: u64,
}

/// All visible processes.
pub(super) fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter_map(look).collect()
}

/// All descendants of `root`.
pub(super) fn below(root: Pid) -> Vec<Process> {
    among(&all(), vec![number(root)])
}

/// Those among `all` that descend from these.
pub(super) fn among(all: &[Process], mut parents: Vec<i32>) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(*process);
    }
    let mut found: Vec<Process> = Vec::new();
    while let Some(parent) = parents.pop() {
        let below = children.remove(&parent).unwrap_or_default();
        parents.extend(below.iter().map(|process| number(process.pid)));
        found.extend(below);
    }
    found
}

/// Kills all descendants of a process, repeatedly, until none is left.
pub(super) fn end_below(root: Pid, wait: impl Fn()) {
    loop {
        for process in below(root) {
            // A process that could not be killed is found again at the next check.
            let _ = process.signal(Signal::KILL);
        }
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        wait();
    }
}

/// The current state of a process.
pub(super) fn look(pid: Pid) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", number(pid))).ok()?;
    read(pid, &stat)
}

/// Parses `/proc/PID/stat`. The name in it may contain anything, so only what follows the last parenthesis
/// counts.
fn read(pid: Pid, stat: &str) -> Option<Process> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    // The 22nd field; the first two and these four have been read.
    let started = fields.nth(15)?.parse().ok()?;
    Some(Process { pid, parent, group, session, ended: matches!(state, "Z" | "X" | "x"), started })
}

impl Process {
    /// Sends it a signal, and no other process: if it is gone and its pid was reused, nothing is sent.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_open(self.pid, PidfdFlags::empty()) {
            Ok(process) => {
                let is_it = look(self.pid).is_some_and(|now| now.started == self.started);
                if is_it { Ok(pidfd_send_signal(process, signal)?) } else { Ok(()) }
            }
            Err(Errno::SRCH) => Ok(()),
            // On an old kernel, or without a spare descriptor: better than letting it live.
            Err(_) => Ok(kill_process(self.pid, signal)?),
        }
    }
}

/// Processes for people: `4711 sleep, 4712 sh`.
pub(super) fn shown(processes: &[Process]) -> String {
    let name = |process: &Process| {
        let pid = number(process.pid);
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("{pid} {}", clean(name.trim()))
    };
    processes.iter().map(name).collect::<Vec<_>>().join(", ")
}

pub(super) fn number(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let stat = "77 (a) Z 1 (b) S 12 34 5 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 9876 1 2";
        let pid = Pid::from_raw(77).unwrap();
        let process = read(pid, stat).unwrap();
        assert_eq!((process.parent, process.group, process.started), (12, 34, 9876));
        assert!(!process.ended);
        assert_eq!(read(pid, "77 (a"), None);
    }

    #[test]
    fn grandchildren_are_found_wherever_they_went_and_only_they_are_hit() {
        let script = "setsid sleep 600 & echo; wait";
        let mut shell =
            Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let shell_pid = Pid::from_child(&shell);
        let sleeper = loop {
            let all = below(shell_pid);
            let elsewhere = all.iter().find(|process| process.group == number(process.pid));
            if let Some(found) = elsewhere {
                break *found;
            }
            std::thread::yield_now();
        };
        assert!(below(rustix::process::getpid()).contains(&sleeper));
        let another = Process { started: sleeper.started + 1, ..sleeper };
        another.signal(Signal::KILL).unwrap();
        assert!(look(sleeper.pid).is_some_and(|process| !process.ended), "it was someone else");
        sleeper.signal(Signal::KILL).unwrap();
        assert!(shell.wait().unwrap().success(), "the shell waited for it");
        assert_eq!(below(shell_pid), []);
        sleeper.signal(Signal::KILL).unwrap();
    }
}
