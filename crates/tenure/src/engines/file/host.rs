//! The machine and its boot, and which processes are alive.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::model::error::{Error, ErrorKind, Result};

/// One boot of one machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Host {
    pub(super) boot: String,
    /// Empty if the machine has no id.
    pub(super) machine: String,
}

impl Host {
    pub(super) fn here() -> Result<Host> {
        let boot = read("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned();
        // The file does not exist if the kernel has no time namespaces.
        let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        if shifts_boot_time(&offsets) {
            let reason = "this process is in a time namespace with its own boot time";
            return Err(Error::new(ErrorKind::Unsupported, reason)
                .next("run it outside of that namespace, or use a server engine"));
        }
        Ok(Host { boot, machine })
    }
}

/// Whether `/proc/self/timens_offsets` shows that this clock is not the machine's.
fn shifts_boot_time(offsets: &str) -> bool {
    offsets
        .lines()
        .filter_map(|line| line.trim().strip_prefix("boottime"))
        .any(|offset| offset.split_whitespace().any(|part| part != "0"))
}

/// The wall clock in microseconds. Numbers start there, so they never go back.
pub(super) fn wall_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

/// Identifies a process, so that no later one with the same pid is mistaken for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    pub(super) pid: i32,
    /// When it was started, in ticks since boot.
    pub(super) start: i64,
    /// The pid namespace that the pid belongs to; 0 if it is not known.
    pub(super) space: i64,
}

/// Whether another process is alive.
pub(super) enum Life {
    /// It is alive. The descriptor becomes readable when it ends.
    Lives(OwnedFd),
    /// It has ended.
    Ended,
    /// It cannot be seen from here: its claims end by their ttl.
    Unseen,
}

impl Identity {
    /// Identifies a running process.
    pub(super) fn of(pid: u32) -> Result<Identity> {
        let space = own_space()?;
        if space == 0 {
            return Ok(Identity { pid: pid as i32, start: 0, space });
        }
        let path = format!("/proc/{pid}/stat");
        let start = start_of(&read(&path)?).ok_or_else(|| unreadable(&path, "no start time"))?;
        Ok(Identity { pid: pid as i32, start, space })
    }

    /// Looks for the process.
    pub(super) fn look(self, own_space: i64) -> Life {
        if self.space != own_space || own_space == 0 {
            return Life::Unseen;
        }
        let Some(pid) = Pid::from_raw(self.pid) else { return Life::Ended };
        let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => descriptor,
            Err(rustix::io::Errno::SRCH) => return Life::Ended,
            Err(_) => return Life::Unseen,
        };
        // Read after the descriptor was opened: if the pid has been reused in between, the start differs.
        match fs::read_to_string(format!("/proc/{}/stat", self.pid)) {
            Ok(stat) if start_of(&stat) == Some(self.start) => {}
            Ok(_) => return Life::Ended,
            // It has just ended, or is hidden from this user (`hidepid`): the descriptor knows.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return Life::Unseen,
        }
        if has_ended(&descriptor) { Life::Ended } else { Life::Lives(descriptor) }
    }
}

/// Whether the process has ended. A zombie counts as ended.
pub(super) fn has_ended(descriptor: &OwnedFd) -> bool {
    let mut poll_for = [PollFd::new(descriptor, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut poll_for, Some(&at_once)), Ok(1))
}

/// The pid namespace of this process, or 0 if `/proc` belongs to another one and says nothing about the pids that
/// this process knows.
fn own_space() -> Result<i64> {
    let (path, own) = ("/proc/self/ns/pid", "/proc/self");
    let shown = fs::read_link(own).map_err(|error| unreadable(own, error))?;
    if shown.to_str() != Some(&std::process::id().to_string()) {
        return Ok(0);
    }
    fs::metadata(path).map(|space| space.ino() as i64).map_err(|error| unreadable(path, error))
}

/// Field 22. The second one is the command in parentheses, and may contain anything.
fn start_of(stat: &str) -> Option<i64> {
    let (_, after_command) = stat.rsplit_once(')')?;
    after_command.split_whitespace().nth(19)?.parse().ok()
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).map_err(|error| unreadable(path, error))
}

fn unreadable(path: &str, why: impl std::fmt::Display) -> Error {
    let reason = format!("cannot read {path}: {why}");
    Error::new(ErrorKind::Unsupported, reason).next("the file engine needs /proc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_one_with_its_pid_from_another_time_is_not() {
        let own = Identity::of(std::process::id()).unwrap();
        assert!(matches!(own.look(own.space), Life::Lives(_)));
        let earlier = Identity { start: own.start - 1, ..own };
        assert!(matches!(earlier.look(own.space), Life::Ended));
        assert!(matches!(own.look(own.space + 1), Life::Unseen));
    }

    #[test]
    fn a_process_that_was_killed_has_ended_before_its_parent_has_noticed() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (identity, space) = (Identity::of(child.id()).unwrap(), own_space().unwrap());
        let Life::Lives(watched) = identity.look(space) else { panic!("it lives") };
        child.kill().unwrap();
        poll(&mut [PollFd::new(&watched, PollFlags::IN)], None).unwrap();
        assert!(matches!(identity.look(space), Life::Ended));
        child.wait().unwrap();
        assert!(matches!(identity.look(space), Life::Ended));
    }

    #[test]
    fn the_start_is_found_behind_a_command_with_a_strange_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(start_of(&format!("12 (a) b (c) {rest}")), Some(4711));
    }

    #[test]
    fn a_shifted_boot_time_is_noticed() {
        assert!(!shifts_boot_time(
            "monotonic           0         0\nboottime            0         0\n"
        ));
        assert!(shifts_boot_time(
            "monotonic           0         0\nboottime         3600         0\n"
        ));
        assert!(!shifts_boot_time(""));
    }
}
