//! What signals mean to `run`, and how they are read.

use std::os::fd::AsFd;

use rustix::process::Signal;

/// All signals that have arrived, from a descriptor of [`crate::system::Inherited::taken`].
pub(super) fn read(from: impl AsFd) -> Vec<i32> {
    let mut signals = Vec::new();
    // One at a time: there is never more than a handful.
    let mut record = [0; 128];
    while let Ok(length) = rustix::io::read(&from, &mut record)
        && length == record.len()
    {
        let [a, b, c, d, ..] = record;
        signals.push(i32::from_ne_bytes([a, b, c, d]));
    }
    signals
}

/// Whether a signal to `tenure` is meant for its command. SIGCHLD is about our own children; SIGTTIN and SIGTTOU
/// are about reading from the terminal, which we never do.
pub(super) fn is_for_command(signal: i32) -> bool {
    !matches!(signal, libc::SIGCHLD | libc::SIGTTIN | libc::SIGTTOU)
}

/// Whether a signal ends a process by default.
pub(super) fn is_an_end(signal: i32) -> bool {
    !matches!(signal, libc::SIGCONT | libc::SIGTSTP | libc::SIGURG | libc::SIGWINCH)
        && is_for_command(signal)
}

/// The exit code for a process that was ended by this signal.
pub(super) fn exit_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// The name of a signal.
pub(super) fn name(signal: i32) -> String {
    match Signal::from_named_raw(signal) {
        Some(named) => format!("{named:?}").replace("Signal::", "SIG").replace('"', ""),
        None => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_called_by_their_names_and_make_exit_codes() {
        assert_eq!((name(9), exit_code(9)), ("SIGKILL".into(), 137));
        assert_eq!((name(40), exit_code(64)), ("signal 40".into(), 192));
    }

    #[test]
    fn a_window_that_changes_its_size_ends_nothing() {
        for signal in [libc::SIGWINCH, libc::SIGCONT, libc::SIGTSTP, libc::SIGURG, libc::SIGCHLD] {
            assert!(!is_an_end(signal), "{}", name(signal));
        }
        for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGUSR1, libc::SIGALRM, 40] {
            assert!(is_an_end(signal), "{}", name(signal));
        }
    }
}
