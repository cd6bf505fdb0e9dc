//! Which commands run on this host: for the case that all processes of `tenure` are killed at the same instant.
//!
//! Then nobody is left to end the command. So the supervisor creates an entry before it starts a command, and
//! removes it when the command has exited. A `tenure` that is about to start a command, on this host and as this
//! user, first ends what is left of commands whose supervisor is gone and whose entry still exists.
//!
//! Processes belong to a command by its process group, by `TENURE_RUN` in their environment, or by their parents. A
//! process that has left the group, has no such variable and has lost its parent is not found.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, geteuid, getpid};

use super::tree::{self, Process};

/// The variable that shows that a process belongs to a run.
pub(super) const VARIABLE: &str = "TENURE_RUN";
/// Files here are in memory, gone after a reboot, and the same for all who share this host's processes.
const MEMORY: &str = "/dev/shm";

/// The entry of a run.
#[derive(Debug)]
pub(super) struct Entry {
    path: Option<PathBuf>,
    /// The value of the variable.
    pub(super) run: String,
}

impl Entry {
    /// Creates an entry, before the command is started. Without a place for it, there is none.
    pub(super) fn create() -> Entry {
        let run = name(getpid()).unwrap_or_default();
        let path = folder().filter(|_| !run.is_empty()).map(|folder| folder.join(&run));
        let made = path.as_ref().is_some_and(|path| write(path, "").is_ok());
        Entry { path: path.filter(|_| made), run }
    }

    /// The command was started: its group belongs to it.
    pub(super) fn started(&self, command: Pid) {
        let (Some(path), Some(Process { pid, session, started, .. })) =
            (&self.path, tree::look(command))
        else {
            return;
        };
        let _ = write(path, &format!("{} {session} {started}", tree::number(pid)));
    }

    /// The command has exited, and what it left running may stay.
    pub(super) fn remove(self) {
        self.path.map(fs::remove_file);
    }
}

/// The name of a run: the pid namespace of its supervisor, the pid, and when that process was started.
pub(super) fn name(supervisor: Pid) -> Option<String> {
    let Process { started, .. } = tree::look(supervisor)?;
    Some(format!("{}.{}.{started}", space()?, tree::number(supervisor)))
}

/// Removes the entry of a run of which nothing is left.
pub(super) fn forget(run: Option<&str>) {
    if let Some((folder, run)) = folder().zip(run) {
        let _ = fs::remove_file(folder.join(run));
    }
}

/// Kills what is left of commands whose supervisor was killed, and returns what still exists.
pub(super) fn end_abandoned() -> Vec<Process> {
    let Some((folder, space)) = folder().zip(space()) else { return Vec::new() };
    let runs = fs::read_dir(&folder).into_iter().flatten().flatten();
    let runs = runs.filter_map(|entry| entry.file_name().into_string().ok());
    let mut left = Vec::new();
    for run in runs.filter(|run| is_abandoned(run, space)) {
        let group = fs::read_to_string(folder.join(&run)).ok().and_then(|text| Group::read(&text));
        let found = processes_of(&run, group);
        if found.is_empty() {
            let _ = fs::remove_file(folder.join(&run));
        }
        for process in &found {
            // A process that could not be killed is found again at the next check.
            let _ = process.signal(Signal::KILL);
        }
        left.extend(found);
    }
    left
}

/// Whether the supervisor of a run is gone. That cannot be known for another pid namespace.
fn is_abandoned(run: &str, own_space: u64) -> bool {
    let mut numbers = run.split('.').map(|number| number.parse().ok());
    let mut number = || -> Option<u64> { numbers.next().flatten() };
    let (Some(space), Some(pid), Some(started)) = (number(), number(), number()) else {
        return false;
    };
    let supervisor = i32::try_from(pid).ok().and_then(Pid::from_raw).and_then(tree::look);
    space == own_space && !supervisor.is_some_and(|it| it.started == started && !it.ended)
}

/// The process group of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Group {
    number: i32,
    session: i32,
    /// When the command was started.
    since: u64,
}

impl Group {
    fn read(text: &str) -> Option<Group> {
        let mut words = text.split(' ');
        let (number, session) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Group { number, session, since: words.next()?.parse().ok()? })
    }

    fn has(self, process: &Process) -> bool {
        let Group { number, session, since } = self;
        process.group == number && process.session == session && process.started >= since
    }
}

/// All processes of a run.
fn processes_of(run: &str, group: Option<Group>) -> Vec<Process> {
    let all = tree::all();
    let marker = format!("{VARIABLE}={run}");
    let belongs = |process: &&Process| {
        group.is_some_and(|group| group.has(process)) || has_variable(process.pid, &marker)
    };
    let mut found: Vec<_> = all.iter().filter(belongs).copied().collect();
    let parents = found.iter().map(|process| tree::number(process.pid)).collect();
    for process in tree::among(&all, parents) {
        if !found.contains(&process) {
            found.push(process);
        }
    }
    found.retain(|process| !process.ended);
    // This process may belong to it as well, and goes last.
    found.sort_by_key(|process| process.pid == getpid());
    found
}

fn has_variable(pid: Pid, marker: &str) -> bool {
    let variables = fs::read(format!("/proc/{}/environ", tree::number(pid))).unwrap_or_default();
    variables.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes())
}

/// The pid namespace of this process.
fn space() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").map(|about| about.ino()).ok()
}

/// The folder with this user's entries. One that belongs to anyone else is not used.
fn folder() -> Option<PathBuf> {
    let user = geteuid().as_raw();
    let folder = Path::new(MEMORY).join(format!("tenure-{user}"));
    let _ = DirBuilder::new().mode(0o700).create(&folder);
    let about = fs::symlink_metadata(&folder).ok()?;
    (about.is_dir() && about.uid() == user && about.mode() & 0o077 == 0).then_some(folder)
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_abandoned_when_its_supervisor_is_gone_and_only_then() {
        let (run, space) = (name(getpid()).unwrap(), space().unwrap());
        assert!(!is_abandoned(&run, space));
        let (rest, started) = run.rsplit_once('.').unwrap();
        let earlier = format!("{rest}.{}", started.parse::<u64>().unwrap() - 1);
        assert!(is_abandoned(&earlier, space), "another process has its number now");
        assert!(!is_abandoned(&earlier, space + 1), "it cannot be seen from here");
        for text in ["", "x", "1.2", "1.2.x", "..", "note.txt"] {
            assert!(!is_abandoned(text, 1), "{text}");
        }
    }

    #[test]
    fn a_group_is_known_by_its_session_and_its_time_too() {
        let group = Group::read("7 3 100").unwrap();
        assert_eq!(group, Group { number: 7, session: 3, since: 100 });
        assert_eq!((Group::read(""), Group::read("7 3")), (None, None));
        let own = tree::look(getpid()).unwrap();
        let own_group = Group { number: own.group, session: own.session, since: own.started };
        assert!(own_group.has(&own));
        assert!(!Group { session: own.session + 1, ..own_group }.has(&own));
        assert!(!Group { since: own.started + 1, ..own_group }.has(&own));
    }
}
