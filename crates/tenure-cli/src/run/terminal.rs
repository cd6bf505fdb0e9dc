//! Which process group has the terminal.
//!
//! The command has its own process group, so that it can be stopped with everything it started. For the terminal
//! that is a background job, which is right as long as the command only writes: `tenure run x -- cmd | less` leaves
//! the keys to `less`. A command that reads from the terminal is stopped by the kernel. Then, and only if the
//! foreground's group has the terminal, it is lent to the command's group, until the command exits or is stopped.

use std::fs::File;
use std::io::IsTerminal;

use rustix::process::{Pid, getpgid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use crate::system::Inherited;

/// The controlling terminal of this process, if there is one.
pub(super) struct Terminal {
    foreground: Pid,
    lent: Option<BorrowedTerminal>,
}

struct BorrowedTerminal {
    terminal: File,
    to: Pid,
    modes: Option<Termios>,
}

impl Terminal {
    pub(super) fn new(foreground: Pid) -> Terminal {
        Terminal { foreground, lent: None }
    }

    /// Lends the terminal to a group, if the foreground has it. This process takes SIGTTOU, which is what allows
    /// a background group to do this.
    pub(super) fn lend(&mut self, to: Pid) -> bool {
        let Some((terminal, has_it)) = open() else { return false };
        if has_it == to {
            return true;
        }
        if getpgid(Some(self.foreground)) != Ok(has_it) {
            return false;
        }
        let modes = tcgetattr(&terminal).ok();
        if tcsetpgrp(&terminal, to).is_err() {
            return false;
        }
        self.lent = Some(BorrowedTerminal { terminal, to, modes });
        true
    }

    /// The terminal for a command that must have it from the start, because it ignores SIGTTIN and would not be
    /// stopped when it reads. `None` if it does not read from there, or if the foreground does not have it.
    pub(super) fn for_start(&self, inherited: &Inherited) -> Option<File> {
        if !inherited.ignores_terminal_input() || !std::io::stdin().is_terminal() {
            return None;
        }
        let (terminal, has_it) = open()?;
        (getpgid(Some(self.foreground)) == Ok(has_it)).then_some(terminal)
    }

    /// Records which command took it, or that none could be started.
    pub(super) fn started(&mut self, terminal: Option<File>, command: Option<Pid>) {
        let Some(terminal) = terminal else { return };
        match command {
            Some(to) => {
                let modes = tcgetattr(&terminal).ok();
                self.lent = Some(BorrowedTerminal { terminal, to, modes });
            }
            None => {
                let group = getpgid(Some(self.foreground));
                let _ = group.and_then(|group| tcsetpgrp(&terminal, group));
            }
        }
    }

    /// Takes it back for the foreground, if the group that it was lent to still has it. If the command ended
    /// abruptly, restores its state. Returns whether it was taken back.
    pub(super) fn take_back(&mut self, abrupt: bool) -> bool {
        let Some(BorrowedTerminal { terminal, to, modes }) = self.lent.take() else { return false };
        if tcgetpgrp(&terminal) != Ok(to) {
            return false;
        }
        let Ok(group) = getpgid(Some(self.foreground)) else { return false };
        if let Some(modes) = modes.filter(|_| abrupt) {
            let _ = tcsetattr(&terminal, OptionalActions::Now, &modes);
        }
        tcsetpgrp(&terminal, group).is_ok()
    }
}

/// The controlling terminal of this process, and the group that has it.
fn open() -> Option<(File, Pid)> {
    let terminal = File::options().read(true).write(true).open("/dev/tty").ok()?;
    let has_it = tcgetpgrp(&terminal).ok()?;
    Some((terminal, has_it))
}
