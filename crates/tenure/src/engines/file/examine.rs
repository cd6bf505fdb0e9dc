//! Checks whether a file is fit for locks.
//!
//! A file that is unfit is refused when it is opened; this checks what can change afterwards, and what is worth
//! knowing.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{statfs, statvfs};

use super::exposed::{Exposed, Way};
use super::host::Life;
use super::paths::Paths;
use super::reserve;
use super::statements as sql;
use super::storage::SqlResult;
use super::transaction::Transaction;
use crate::engine::Finding;
use crate::ledger::Process;
use crate::world::{SystemWorld, World};

/// With less free space than this the disk is nearly full.
const LITTLE_ROOM: u64 = 16 << 20;
/// A journal longer than this is no longer being checkpointed.
const LONG_JOURNAL: u64 = 64 << 20;
/// The kernel's number for a file system in memory.
const TMPFS: u64 = 0x0102_1994;

impl Transaction<'_> {
    pub(super) fn examine(&mut self, path: &Path) -> SqlResult<Vec<Finding>> {
        let waited = self.now.until(SystemWorld.now());
        let mut findings = vec![
            Finding::good(
                "reach",
                format!("open, the writer lock is free ({:.1} ms)", waited.as_secs_f64() * 1e3),
            ),
            rights(path),
            file_system(path),
            room(path),
            reserve(path),
            journal(path),
        ];
        findings.push(self.damage()?);
        findings.push(self.clients()?);
        Ok(findings)
    }

    fn damage(&self) -> SqlResult<Finding> {
        let said: String = self.db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        Ok(match said.as_str() {
            "ok" => Finding::good("damage", "the file is whole"),
            other => Finding::problem("damage", format!("the file is damaged: {other}"))
                .why("locks may be lost, or held twice")
                .fix("stop all programs that use it, and delete it with the files beside it"),
        })
    }

    /// Clients whose end cannot be noticed from here.
    fn clients(&mut self) -> SqlResult<Finding> {
        let numbers: Vec<i64> = {
            let mut select = self.db.prepare_cached(sql::PROCESSES)?;
            select.query_map([], |row| row.get(0))?.collect::<SqlResult<_>>()?
        };
        let (mut seen, mut unseen) = (0, 0);
        for number in numbers {
            match self.life_of(number as Process)? {
                Some(Life::Lives(_)) => seen += 1,
                Some(Life::Unseen) => unseen += 1,
                Some(Life::Ended) | None => {}
            }
        }
        Ok(match unseen {
            0 => Finding::good("clients", format!("{seen} with claims, all visible from here")),
            _ => Finding::warning(
                "clients",
                format!("{unseen} of {} cannot be seen from here", seen + unseen),
            )
            .why(
                "they are in another pid namespace: if one is killed, its holds end with their ttl",
            )
            .fix("give them a short ttl, or run them in one pid namespace"),
        })
    }
}

fn rights(path: &Path) -> Finding {
    let way = path.parent().and_then(|folder| Way::to(folder).ok());
    let exposed = way.and_then(|way| way.exposed(path).ok().flatten());
    if let Some(Exposed { reason, fix }) = exposed {
        return Finding::problem("rights", reason).why("they could replace the file").fix(fix);
    }
    let mode = |path: &Path| fs::metadata(path).map(|about| about.mode()).unwrap_or_default();
    if mode(path) & 0o077 != 0 {
        return Finding::problem("rights", format!("others may read or write {}", path.display()))
            .why("it contains the ids that prove ownership")
            .fix(format!("chmod 600 {}", path.display()));
    }
    Finding::good("rights", "this user only")
}

fn file_system(path: &Path) -> Finding {
    let number = statfs(path).map(|found| found.f_type as u64 & 0xFFFF_FFFF).unwrap_or_default();
    match number {
        TMPFS => Finding::good(
            "file system",
            "in memory: the outcomes of run-once jobs are lost at a reboot",
        ),
        _ => Finding::good("file system", "this machine's own"),
    }
}

fn room(path: &Path) -> Finding {
    let Ok(found) = statvfs(path) else { return Finding::good("room", "unknown") };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let shown = format!("{} MB free on the disk", free >> 20);
    if free >= LITTLE_ROOM {
        return Finding::good("room", shown);
    }
    Finding::warning("room", shown)
        .why(
            "on a full disk no new lock is granted; locks that are held can be renewed and released",
        )
        .fix("make room")
}

/// The space reserved for renewals and releases on a full disk.
fn reserve(path: &Path) -> Finding {
    let (kept, wanted) = reserve::kept(&Paths::at(path.to_owned()));
    let shown = format!("{} of {} KB set aside for a full disk", kept >> 10, wanted >> 10);
    if kept >= wanted {
        return Finding::good("reserve", shown);
    }
    Finding::warning("reserve", shown)
        .why("there is no room for it, or this file system cannot set room aside: on a full disk renewals \
              and releases may fail, and holds be lost")
        .fix("make room, or put the file on a larger disk; it is set aside within a minute")
}

fn journal(path: &Path) -> Finding {
    let journal = Paths::at(path.to_owned()).journal;
    let length = fs::metadata(journal).map(|about| about.len()).unwrap_or_default();
    let shown = format!("the journal has {:.1} MB", length as f64 / f64::from(1 << 20));
    if length <= LONG_JOURNAL {
        return Finding::good("journal", shown);
    }
    Finding::warning("journal", shown)
        .why("it cannot be emptied while another program reads the file")
        .fix("close what else has the file open, such as sqlite3")
}
