//! Calls to the operating system that the standard library does not have. The only module with `unsafe`.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use tokio::io::unix::AsyncFd;

static GENERATION: AtomicU64 = AtomicU64::new(1);

/// A number that differs between a process and its forked children.
///
/// `fork` copies the parent's locks, sockets and random state, but not its threads: whatever was made in another
/// generation must not be touched.
pub(crate) fn generation() -> u64 {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: `in_child` is an `extern "C"` function without captures. It does one relaxed
        // atomic add, which is allowed between fork and exec.
        // It fails only if there is no memory; then a fork goes unnoticed.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    GENERATION.load(Ordering::Relaxed)
}

unsafe extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

thread_local! {
    static OWN_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as the watchdog's own.
pub(crate) fn is_own_thread_from_now_on() {
    OWN_THREAD.set(true);
}

/// Whether this thread is the watchdog's own, where the caller's code must not run.
pub(crate) fn is_own_thread() -> bool {
    OWN_THREAD.get()
}

/// Wakes a task. Wakers are foreign code: one that panics must not keep later ones from being woken.
pub(crate) fn wake(waker: Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}

/// Registers a descriptor with the current runtime.
pub(crate) fn register(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is the same open descriptor for as long as it lives, and is never replaced by another:
    // `AsyncFd` owns it, and only shared references to it are used.
    unsafe { AsyncFd::register(descriptor) }.map_err(Into::into)
}
