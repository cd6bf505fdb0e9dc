//! A process that does not outlive this one.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::{ServerError, eventually};

/// Starts a program only if its parent is still the process that asked for it; see [`Process::start`].
pub(crate) const ONLY_OF_PARENT: &str = r#"[ "$PPID" = "$0" ] && exec "$@""#;

/// A child with its process group. Killed on drop.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts a program; its output is appended to the log.
    ///
    /// If this process is killed, the kernel kills the child: `setpriv` requests that before it becomes the
    /// program. If this process dies before the request, the shell notices that it has another parent, and
    /// starts nothing.
    pub(crate) fn start(program: &Command, log: &File) -> Result<Process, ServerError> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "sh", "-c", ONLY_OF_PARENT]);
        command.arg(std::process::id().to_string());
        command.arg(program.get_program()).args(program.get_args());
        for (name, value) in program.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        if let Some(folder) = program.get_current_dir() {
            command.current_dir(folder);
        }
        let shared =
            |log: &File| log.try_clone().map_err(ServerError::during("cannot share a log"));
        command.stdin(Stdio::null()).stdout(shared(log)?).stderr(shared(log)?);
        // A separate group, so that its children, which write snapshots, are killed with it.
        command.process_group(0);
        let child = spawn(command).map_err(ServerError::during("cannot start `setpriv`"))?;
        Ok(Process { child, ended: None })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Sends a signal to it and its children; does nothing if it has ended.
    pub(crate) fn signal(&mut self, signal: Signal) -> Result<(), ServerError> {
        if self.ended().is_some() {
            return Ok(());
        }
        // It was not waited for yet, so the id is still its own.
        kill_process_group(Pid::from_child(&self.child), signal)
            .map_err(ServerError::during(format_args!("cannot send {signal:?}")))
    }

    /// Kills it and waits until it has ended.
    pub(crate) fn kill(&mut self) -> Result<(), ServerError> {
        self.signal(Signal::KILL)?;
        if self.ended.is_none() {
            self.ended = Some(self.child.wait().map_err(ServerError::during("cannot wait"))?);
        }
        Ok(())
    }

    /// Asks it to end, and waits; after `bound` it is killed, which is an error.
    pub(crate) fn terminate(&mut self, bound: Duration) -> Result<(), ServerError> {
        self.signal(Signal::TERM)?;
        let ended = eventually("the server ends when asked to", bound, || self.ended().is_some());
        if ended.is_err() {
            self.kill()?;
        }
        ended
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

type Started = io::Result<Child>;

/// Spawns from a thread that never ends: "when the parent dies" refers to the spawning thread, and a test's own
/// thread may end long before a server that several tests share.
fn spawn(command: Command) -> Started {
    type Request = (Command, Sender<Started>);
    static NURSERY: OnceLock<Mutex<Sender<Request>>> = OnceLock::new();
    let nursery = NURSERY.get_or_init(|| {
        let (ask, requests): (Sender<Request>, Receiver<Request>) = channel();
        std::thread::spawn(move || {
            for (mut command, answer) in requests {
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(ask)
    });
    let (answer, started) = channel();
    let asked = nursery.lock().unwrap_or_else(PoisonError::into_inner).send((command, answer));
    let gone = || io::Error::other("the thread that starts servers is gone");
    asked.map_err(|_| gone())?;
    started.recv().map_err(|_| gone())?
}
