//! A reserve of disk space, so that held locks can be renewed and released on a full disk.
//!
//! While there is space, a file of one megabyte occupies some. When a renewal or a release finds the disk full,
//! that file is emptied, the journal is checkpointed, and the journal gets the space that it may need from then
//! on: other programs that fill the disk cannot take it. Claims would use it up, so they are refused while the
//! disk is full.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::process::geteuid;

use super::paths::Paths;

/// The size of the reserve.
const SIZE: u64 = 1 << 20;
/// How much of it the journal gets.
const FOR_JOURNAL: u64 = SIZE / 2;
/// With less free space than this the disk is full.
const LEAST: u64 = SIZE / 4;

/// Makes the reserve, if there is space.
pub(super) fn keep(paths: &Paths) {
    let options =
        || OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).clone();
    if let Ok(reserve) = options().open(&paths.reserve)
        && length(&reserve) < SIZE
    {
        let _ = fallocate(&reserve, FallocateFlags::empty(), 0, SIZE);
    }
}

/// The size of the reserve, and the size that it should have.
pub(super) fn kept(paths: &Paths) -> (u64, u64) {
    (std::fs::metadata(&paths.reserve).map(|about| about.len()).unwrap_or_default(), SIZE)
}

/// Gives up the reserve.
pub(super) fn give_up(paths: &Paths) {
    if let Ok(reserve) = OpenOptions::new().write(true).open(&paths.reserve) {
        let _ = reserve.set_len(0);
    }
}

/// Allocates space behind the journal's end. Opening and closing this file is safe, because SQLite holds no locks
/// on it.
pub(super) fn lengthen_journal(paths: &Paths) {
    if let Ok(journal) = OpenOptions::new().write(true).open(&paths.journal) {
        let end = length(&journal);
        let _ = fallocate(&journal, FallocateFlags::KEEP_SIZE, end, FOR_JOURNAL);
    }
}

/// Whether there is no space for new claims: the reserve was used, and the disk is still full.
pub(super) fn is_needed(paths: &Paths) -> bool {
    let kept = std::fs::metadata(&paths.reserve).map(|about| about.len());
    if kept.is_ok_and(|kept| kept > 0) {
        return false;
    }
    let Ok(disk) = statvfs(&paths.reserve) else { return false };
    // Some blocks are for root only.
    let blocks = if geteuid().is_root() { disk.f_bfree } else { disk.f_bavail };
    blocks.saturating_mul(disk.f_frsize) < LEAST
}

fn length(file: &File) -> u64 {
    file.metadata().map(|about| about.len()).unwrap_or_default()
}
