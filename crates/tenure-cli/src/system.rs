//! Calls to the operating system that the standard library does not have: fork, signal dispositions, shared
//! memory. The only module with `unsafe`; its functions are safe to call.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed,
};

use libc::{c_char, c_int, sigset_t};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use rustix::termios::tcsetpgrp;
use tokio::io::unix::AsyncFd;

/// The process in which a [`fork`] returns.
pub(crate) enum Forked {
    /// The original process, with the pid of the child.
    Parent(Pid),
    /// The child.
    Child,
}

/// Forks this process, which must not have threads yet: the child has only the calling thread, and anything that
/// another one had locked would stay locked for ever.
pub(crate) fn fork() -> io::Result<Forked> {
    if std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() > 1) {
        return Err(io::Error::other("there are threads already"));
    }
    // SAFETY: a call without arguments. There is no other thread, so the child is a full copy and may do
    // everything that its parent may.
    match unsafe { libc::fork() } {
        0 => Ok(Forked::Child),
        pid => Pid::from_raw(pid).filter(|_| pid > 0).map(Forked::Parent).ok_or_else(last_error),
    }
}

/// The signal with this number; `None` for those that are reserved or do not exist.
pub(crate) fn signal(number: i32) -> Option<Signal> {
    let usable = (1..=31).contains(&number) || (34..=64).contains(&number);
    // SAFETY: 32 and 33, which the C library uses itself, are left out.
    usable.then(|| unsafe { Signal::from_raw_unchecked(number) })
}

/// Signals that are not taken: two that cannot be, those that report a crash of this process, and SIGPIPE, which
/// the standard library ignores so that writes fail with an error.
const NOT_TAKEN: [c_int; 10] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
    libc::SIGPIPE,
];

/// The signal dispositions that this process was started with. A command that it starts gets them back.
#[derive(Clone, Copy)]
pub(crate) struct Inherited {
    mask: sigset_t,
    /// The signals that are taken here.
    taken: sigset_t,
    /// Whether SIGCHLD and SIGPIPE were ignored: these two are changed here.
    ignored: [(c_int, bool); 2],
    terminal_input_ignored: bool,
}

/// Takes all signals that can be taken, for this process and those that it forks: they no longer have their
/// default effect, and are read from [`Inherited::taken`].
///
/// A signal that was ignored from the start stays ignored, as `nohup` expects.
pub(crate) fn take_signals() -> io::Result<Inherited> {
    let child_ignored = is_ignored(libc::SIGCHLD)?;
    if child_ignored {
        // If it is ignored, the exit codes of children are lost.
        dispose(libc::SIGCHLD, libc::SIG_DFL)?;
    }
    let mut taken = empty_set();
    for number in 1..=64 {
        let usable = signal(number).is_some() && !NOT_TAKEN.contains(&number);
        if usable && !is_ignored(number)? {
            // SAFETY: the set is initialised and the number is that of a signal.
            unsafe { libc::sigaddset(&mut taken, number) };
        }
    }
    let mask = change_mask(libc::SIG_BLOCK, &taken)?;
    let ignored = [(libc::SIGCHLD, child_ignored), (libc::SIGPIPE, PIPE_IGNORED.load(Relaxed))];
    let terminal_input_ignored = is_ignored(libc::SIGTTIN)?;
    Ok(Inherited { mask, taken, ignored, terminal_input_ignored })
}

impl Inherited {
    /// A descriptor that yields the signals of the process that reads it, 128 bytes each: the first four are the
    /// number.
    pub(crate) fn taken(&self) -> io::Result<OwnedFd> {
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the set is initialised; the call makes a descriptor that nobody else owns.
        let descriptor = unsafe { libc::signalfd(-1, &self.taken, flags) };
        if descriptor < 0 {
            return Err(last_error());
        }
        // SAFETY: it was created by the call above.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// Starts a command with the signal dispositions as they were, and with the standard descriptors closed that were
    /// closed. It is killed when the calling thread ends, which must therefore live as long as this process.
    ///
    /// A command that needs the terminal from the start takes it before it runs.
    pub(crate) fn spawn(self, command: &mut Command, terminal: Option<&File>) -> io::Result<Child> {
        let parent = getpid();
        let terminal = terminal.map(File::as_raw_fd);
        let prepare = move || {
            if let Some(number) = terminal {
                // SAFETY: the caller's file is open until the exec, or its failure. SIGTTOU is blocked, so a
                // background group may do this.
                let _ = tcsetpgrp(unsafe { BorrowedFd::borrow_raw(number) }, getpid());
            }
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // If the parent has exited before, there will be no signal.
            if getppid() != Some(parent) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            for (number, ignored) in self.ignored {
                dispose(number, if ignored { libc::SIG_IGN } else { libc::SIG_DFL })?;
            }
            for number in (0..3).filter(|number| CLOSED.load(Relaxed) & (1 << number) != 0) {
                // SAFETY: nothing owns what the standard library has opened there.
                unsafe { libc::close(number) };
            }
            change_mask(libc::SIG_SETMASK, &self.mask).map(drop)
        };
        // SAFETY: between fork and exec only async-signal-safe calls are made: tcsetpgrp, prctl, getppid,
        // sigaction, close and sigprocmask. No memory is allocated; an error is a bare number.
        unsafe { command.pre_exec(prepare) };
        command.spawn()
    }

    /// Whether SIGTTIN is ignored: then a background job that reads from the terminal is not stopped, but fails.
    pub(crate) fn ignores_terminal_input(&self) -> bool {
        self.terminal_input_ignored
    }

    /// Lets a signal that is taken have its default effect on this process. Returns whether it stopped the
    /// process, which has been continued since.
    pub(crate) fn give_in(&self, send: impl FnOnce() -> io::Result<()>, number: c_int) -> bool {
        let mut only = empty_set();
        // SAFETY: the set is initialised and the number is that of a signal.
        unsafe { libc::sigaddset(&mut only, number) };
        let sent = send();
        let Ok(mask) = change_mask(libc::SIG_UNBLOCK, &only) else { return false };
        let _ = change_mask(libc::SIG_SETMASK, &mask);
        // The process that continued it sent SIGCONT, which is taken and waits to be read.
        sent.is_ok() && is_pending(libc::SIGCONT)
    }
}

fn is_pending(number: c_int) -> bool {
    let mut pending = empty_set();
    // SAFETY: both sets are initialised memory of the right type.
    unsafe { libc::sigpending(&mut pending) == 0 && libc::sigismember(&pending, number) == 1 }
}

fn empty_set() -> sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the call initialises the whole set and cannot fail.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// Changes the set of blocked signals, and returns the previous one.
fn change_mask(how: c_int, set: &sigset_t) -> io::Result<sigset_t> {
    let mut before = empty_set();
    // SAFETY: both sets are initialised and live until the call returns.
    match unsafe { libc::sigprocmask(how, set, &mut before) } {
        0 => Ok(before),
        _ => Err(last_error()),
    }
}

fn is_ignored(number: c_int) -> io::Result<bool> {
    // SAFETY: all-zero is a valid `sigaction`, and the call only writes to it.
    let (result, action) = unsafe {
        let mut action: libc::sigaction = zeroed();
        (libc::sigaction(number, std::ptr::null(), &mut action), action)
    };
    if result == 0 { Ok(action.sa_sigaction == libc::SIG_IGN) } else { Err(last_error()) }
}

/// Sets the disposition of a signal: ignored, or default.
fn dispose(number: c_int, how: libc::sighandler_t) -> io::Result<()> {
    debug_assert!(how == libc::SIG_IGN || how == libc::SIG_DFL);
    // SAFETY: all-zero is a valid `sigaction`; no handler is installed.
    let result = unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = how;
        libc::sigaction(number, &action, null_mut())
    };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> io::Error {
    io::Error::last_os_error()
}

/// Numbers that this process shares with those that it forks, all zero.
pub(crate) fn share<const N: usize>() -> io::Result<&'static [AtomicU64; N]> {
    let length = size_of::<[AtomicU64; N]>();
    let (read_write, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping, without a fixed address, replaces nothing. It is zeroed, which is a valid value;
    // aligned to a page; and never unmapped, so it is `'static`.
    unsafe {
        let memory = mmap_anonymous(null_mut(), length, read_write, shared)?;
        Ok(&*memory.cast::<[AtomicU64; N]>())
    }
}

/// Registers a descriptor with the current runtime.
pub(crate) fn register(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is the same open descriptor for as long as it lives, and is never replaced by another:
    // `AsyncFd` owns it, and only shared references to it are used.
    unsafe { AsyncFd::register(descriptor) }.map_err(Into::into)
}

/// Closes the descriptors that this process was started with, except the three standard ones, such as the pipes
/// of a shell. Descriptors that it opened itself are close-on-exec, and stay.
pub(crate) fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let open = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for number in open.filter(|number| *number > 2).collect::<Vec<c_int>>() {
        // SAFETY: reading the flags of a number is harmless, even if it is not open.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        if flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
            // SAFETY: everything that is owned here was opened close-on-exec, so nothing owns this one.
            unsafe { libc::close(number) };
        }
    }
}

static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
/// A bit for each of the three standard descriptors that was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);
static TITLE: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
static TITLE_LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Runs before `main`, and before the standard library ignores SIGPIPE and opens `/dev/null` for closed standard
/// descriptors: after that the original state cannot be determined.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn(c_int, *const *mut c_char) = before_main;

extern "C" fn before_main(count: c_int, arguments: *const *mut c_char) {
    PIPE_IGNORED.store(is_ignored(libc::SIGPIPE).unwrap_or(false), Relaxed);
    // SAFETY: reading the flags of a number is harmless, even if it is not open.
    let is_closed = |number| unsafe { libc::fcntl(number, libc::F_GETFD) } < 0;
    let closed =
        (0..3).filter(|number| is_closed(*number)).fold(0, |all, number| all | 1 << number);
    CLOSED.store(closed, Relaxed);
    // Only glibc passes the arguments to functions that run this early.
    if !cfg!(target_env = "gnu") || count < 1 || arguments.is_null() {
        return;
    }
    // SAFETY: glibc passes `main`'s arguments: `count` pointers to strings that end in zero. The kernel stores
    // the strings contiguously; from the first that is not, they are left alone.
    unsafe {
        let first = *arguments;
        let mut end = first;
        for index in 0..count as usize {
            let argument = *arguments.add(index);
            if argument != end {
                break;
            }
            end = argument.add(libc::strlen(argument) + 1);
        }
        TITLE.store(first, Relaxed);
        TITLE_LENGTH.store(end.offset_from(first) as usize, Relaxed);
    }
}

/// Overwrites the arguments that this process was started with, as `ps` and `pkill -f` see them. The standard
/// library reads them from there, too: they must not be needed any more.
pub(crate) fn retitle(title: &str) {
    let (start, length) = (TITLE.load(Relaxed), TITLE_LENGTH.load(Relaxed));
    if start.is_null() || length == 0 {
        return;
    }
    let shown = title.len().min(length - 1);
    // SAFETY: the memory is this process's own copy of its arguments, `length` bytes that stay for
    // its life; no reference into them exists, and the last byte stays zero.
    unsafe {
        start.write_bytes(0, length);
        start.cast::<u8>().copy_from_nonoverlapping(title.as_ptr(), shown);
    }
}
