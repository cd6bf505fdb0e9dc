//! Who has the terminal.
//!
//! The command has a group of its own, so that it can be stopped with all it started. To the
//! terminal that is a job in the background, which is right as long as the command only writes:
//! `tenure run x -- cmd | less` leaves the keys to `less`. A command that wants to read them is
//! stopped by the kernel; then, and only if the foreground's group has the terminal, it is lent to the
//! command's group, until that ends or is stopped.

use std::fs::File;
use std::io::IsTerminal;

use rustix::process::{Pid, getpgid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use crate::system::Inherited;

/// The terminal that this process belongs to, if there is one.
pub(super) struct Terminal {
    foreground: Pid,
    lent: Option<Lent>,
}

struct Lent {
    terminal: File,
    to: Pid,
    modes: Option<Termios>,
}

impl Terminal {
    pub(super) fn new(foreground: Pid) -> Terminal {
        Terminal { foreground, lent: None }
    }

    /// Lends the terminal to a group, if it is the foreground's to lend. SIGTTOU is taken by this process,
    /// which is what allows a group in the background to do this.
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
        self.lent = Some(Lent { terminal, to, modes });
        true
    }

    /// The terminal for a command that must have it from the start, because it ignores SIGTTIN and
    /// would not be stopped when it reads; `None` if it does not read from there, or if it is not the
    /// foreground's to lend.
    pub(super) fn for_start(&self, inherited: &Inherited) -> Option<File> {
        if !inherited.ignores_terminal_input() || !std::io::stdin().is_terminal() {
            return None;
        }
        let (terminal, has_it) = open()?;
        (getpgid(Some(self.foreground)) == Ok(has_it)).then_some(terminal)
    }

    /// What became of it: the command that took it, or none if it could not be started.
    pub(super) fn started(&mut self, terminal: Option<File>, command: Option<Pid>) {
        let Some(terminal) = terminal else { return };
        match command {
            Some(to) => {
                let modes = tcgetattr(&terminal).ok();
                self.lent = Some(Lent { terminal, to, modes });
            }
            None => {
                let group = getpgid(Some(self.foreground));
                let _ = group.and_then(|group| tcsetpgrp(&terminal, group));
            }
        }
    }

    /// Takes it back for the foreground, if it is still where it was lent to; if the command ended abruptly,
    /// in the state in which it was lent. Returns whether it was.
    pub(super) fn take_back(&mut self, abrupt: bool) -> bool {
        let Some(Lent { terminal, to, modes }) = self.lent.take() else { return false };
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

/// The terminal that this process belongs to, and the group that has it.
fn open() -> Option<(File, Pid)> {
    let terminal = File::options().read(true).write(true).open("/dev/tty").ok()?;
    let has_it = tcgetpgrp(&terminal).ok()?;
    Some((terminal, has_it))
}
