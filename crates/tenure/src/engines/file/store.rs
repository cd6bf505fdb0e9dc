//! The open file: takes the writer lock, runs transactions, and explains what went wrong.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

use super::host::{Host, Identity, wall_micros};
use super::messages::Message;
use super::paths::{Inodes, Paths};
use super::reserve;
use super::rows::moment;
use super::sockets::{Reach, Sockets};
use super::statements as sql;
use super::storage::{Numbers, SqlResult};
use super::transaction::{ClientProcesses, Effects, Transaction};
use super::writer_lock::{WriteGuard, WriterLock};
use crate::ledger::{Process, RESIZED_LIFE};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;
use crate::observe;
use crate::world::{SystemWorld, World};

/// How long to wait for the writer lock.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// "tnur": marks a file as ours.
const APPLICATION: i32 = 0x746E_7572;
/// The format of the file. A file of a later format is refused.
const FORM: i32 = 1;
/// The journal is checkpointed from this many pages on. With more, a process that opens the file after all others
/// are gone would have to read them all; with fewer, everyone would wait for the disk more often.
const LONGEST_JOURNAL: i32 = 1000;
/// The same for a client that opens the file while nobody else uses it: otherwise the next one would read all of
/// it as well.
const LONG_JOURNAL: i32 = 250;

pub(super) struct Store {
    db: Connection,
    writer_lock: WriterLock,
    pub(super) paths: Paths,
    /// The files that this client has open.
    world: Inodes,
    host: Host,
    processes: ClientProcesses,
    pub(super) sockets: Sockets,
    /// This client's number.
    pub(super) own: Process,
    /// Others know this client and can reach it, since its first claim. A client that only reads is not known.
    present: bool,
    /// The file was deleted or replaced. There is no way back.
    gone: bool,
    /// The last transaction could begin: if it failed, its jobs were at fault.
    pub(super) is_available: bool,
    /// SQLite's journal, for syncing. SQLite holds no locks on it, so it may be open here.
    journal: File,
    /// Its length at the last commit, in pages.
    journal_length: Arc<AtomicI32>,
}

/// The result of a transaction.
pub(super) struct Done {
    pub(super) at: Moment,
    pub(super) effects: Effects,
    /// The messages from others to this client's claims that arrived before the transaction.
    pub(super) heard: Vec<(Moment, Message)>,
}

impl Store {
    /// Opens the file, and creates it if it does not exist. Blocks while someone writes.
    pub(super) fn open(path: &Path, guard: Option<u32>) -> Result<Store> {
        let host = Host::here()?;
        let process = Identity::of(std::process::id())?;
        let processes = ClientProcesses { process, guard: guard.map(Identity::of).transpose()? };
        let paths = Paths::prepare(path)?;
        // Before anything is created beside it.
        paths.check_database()?;
        let mut writer_lock = WriterLock::new(paths.open_lock_file()?);
        let mut sockets = Sockets::new(paths.open_sockets()?).map_err(|error| unopened(&error))?;
        // Locked from the start: two processes that change the journal mode at the same time both fail, however
        // long they retry.
        let locked = lock(&mut writer_lock, &paths)?;
        let there = sockets.strangers(paths.inodes());
        if there > 0 {
            return Err(deleted_while_used(there));
        }
        if !paths.check_database()? {
            paths.create_database()?;
        }
        paths.give_to_owner();
        let (mut db, journal_length) = connect(&paths).map_err(|error| fault(&error))?;
        let own = begin(&mut db, &host)?;
        if journal_length.load(Relaxed) > LONG_JOURNAL && is_alone(&db) {
            checkpoint(&db);
        }
        let journal = paths.open_journal()?;
        let world = paths.inodes().ok_or_else(gone)?;
        sockets.belong_to(world);
        drop(locked);
        let (present, gone, is_available) = (false, false, false);
        let mut store = Store {
            db,
            writer_lock,
            paths,
            world,
            host,
            processes,
            sockets,
            own,
            present,
            gone,
            is_available,
            journal,
            journal_length,
        };
        store.transact(&|_| false, |transaction| transaction.sweep_now_and_then())?;
        store.keep_reserve();
        Ok(store)
    }

    /// Runs one transaction as one step: all of it, or nothing.
    pub(super) fn transact<T>(
        &mut self,
        watched: &dyn Fn(Process) -> bool,
        mut act: impl FnMut(&mut Transaction<'_>) -> SqlResult<T>,
    ) -> Result<(T, Done)> {
        self.is_available = false;
        let locked = self.lock()?;
        let begun = self.db.transaction_with_behavior(TransactionBehavior::Immediate);
        let db = begun.map_err(|error| fault(&error))?;
        self.is_available = true;
        let (boot, last) = read_meta(&db).map_err(|error| fault(&error))?;
        if boot != self.host.boot {
            return Err(another_machine());
        }
        let mut transaction = Transaction {
            db: &db,
            sockets: &self.sockets,
            numbers: Numbers { last },
            now: SystemWorld.now(),
            own: self.own,
            processes: self.processes,
            watched,
            effects: Effects::default(),
            reach: Reach::default(),
        };
        let done = act(&mut transaction).map_err(|error| fault(&error))?;
        let Transaction { numbers, now: at, effects, .. } = transaction;
        if numbers.last != last {
            let set = db.prepare_cached(sql::SET_NUMBER);
            let set = set.and_then(|mut set| set.execute([numbers.last as i64]));
            set.map_err(|error| fault(&error))?;
        }
        db.commit().map_err(|error| fault(&error))?;
        // Messages are sent and read before the next writer has the lock, so they arrive in the order of the
        // steps.
        let heard = self.sockets.heard();
        let (after_sync, at_once): (Vec<_>, Vec<_>) = effects
            .said
            .iter()
            .cloned()
            .partition(|(_, said)| effects.must_last && is_once(&said.name));
        self.tell(at, &at_once);
        // Under the lock nobody adds to the journal; without it, the journal would never become empty.
        if self.journal_length.load(Relaxed) > LONGEST_JOURNAL {
            checkpoint(&self.db);
        }
        drop(locked);
        if effects.must_last {
            self.sync()?;
            self.tell(at, &after_sync);
        }
        effects.removed.iter().for_each(|client| self.sockets.forget(*client));
        effects.passed_over.iter().for_each(observe::passed_over);
        Ok((done, Done { at, effects, heard }))
    }

    /// Waits until what was committed is on the disk. Not under the lock: a disk can take seconds, and others
    /// need not wait for it. A process that finds the result in the file before that waits for the disk, too.
    fn sync(&mut self) -> Result<()> {
        // If the sync fails, nobody is told. What was written stays, so nothing is done twice.
        self.is_available = false;
        self.journal.sync_data().map_err(|error| unsynced(&error))?;
        self.is_available = true;
        Ok(())
    }

    fn tell(&mut self, at: Moment, said: &[(Process, Message)]) {
        for (client, said) in by_client(said, self.own) {
            self.sockets.tell(client, at, &said);
        }
    }

    /// Locks the files that this client has open, if they are still the ones that everyone else uses.
    fn lock(&mut self) -> Result<WriteGuard> {
        if self.gone {
            return Err(gone());
        }
        let locked = lock(&mut self.writer_lock, &self.paths)?;
        if self.paths.inodes() != Some(self.world) {
            self.gone = true;
            return Err(gone());
        }
        if self.sockets.has_lost_its_folder() {
            self.sockets.move_to(self.paths.open_sockets()?);
        }
        Ok(locked)
    }

    /// Registers this client, so that others know and can reach it, before its first claim.
    pub(super) fn be_present(&mut self) -> Result<()> {
        if !self.present {
            self.listen()?;
            self.transact(&|_| false, |transaction| transaction.register())?;
            self.present = true;
        }
        Ok(())
    }

    pub(super) fn is_present(&self) -> bool {
        self.present && !self.gone
    }

    /// Listens where others look for this client.
    fn listen(&mut self) -> Result<()> {
        let _locked = self.lock()?;
        self.sockets.listen(self.own).map_err(|error| unopened(&error))
    }

    /// Whether others can find this client, if they should.
    pub(super) fn is_found(&self) -> bool {
        self.gone || self.sockets.is_found(self.own)
    }

    /// Listens again after the socket was deleted. Returns whether that worked.
    pub(super) fn listen_again(&mut self) -> bool {
        self.listen().is_ok()
    }

    /// Frees space on a full disk, so that holds can be renewed and released.
    pub(super) fn use_reserve(&mut self) {
        if let Ok(_locked) = self.lock() {
            reserve::give_up(&self.paths);
            checkpoint(&self.db);
            reserve::lengthen_journal(&self.paths);
        }
    }

    pub(super) fn keep_reserve(&self) {
        reserve::keep(&self.paths);
    }

    /// Refuses new claims that would use up the space that holders need.
    pub(super) fn check_room(&mut self) -> Result<()> {
        self.is_available = true;
        if reserve::is_needed(&self.paths) { Err(full("the disk is full")) } else { Ok(()) }
    }

    /// Whether the file is still the one that was opened.
    pub(super) fn is_gone(&mut self) -> bool {
        self.gone |= self.paths.inodes() != Some(self.world);
        self.gone
    }

    /// The claims that this client had in a file that is gone, so that they can be told.
    pub(super) fn own_claims(
        &mut self,
    ) -> Vec<(crate::model::name::Name, crate::model::claim::ClaimId)> {
        let transaction = Transaction {
            db: &self.db,
            sockets: &self.sockets,
            numbers: Numbers { last: 0 },
            now: SystemWorld.now(),
            own: self.own,
            processes: self.processes,
            watched: &|_| false,
            effects: Effects::default(),
            reach: Reach::default(),
        };
        transaction.own_claims().unwrap_or_default()
    }

    pub(super) fn close(&mut self) {
        if self.present && !self.gone {
            let _ = self.transact(&|_| false, |transaction| transaction.sign_off());
        }
        self.sockets.close(self.own);
    }
}

/// Takes the lock that the others use. If the lock file was deleted, creates it again.
fn lock(writer_lock: &mut WriterLock, paths: &Paths) -> Result<WriteGuard> {
    loop {
        let locked = writer_lock.lock(PATIENCE)?;
        if paths.is_lock_file(locked.file()) {
            return Ok(locked);
        }
        *writer_lock = WriterLock::new(paths.open_lock_file()?);
    }
}

fn is_once(name: &crate::model::name::Name) -> bool {
    name.space() == crate::model::name::Space::Once
}

/// Groups the messages by client. Those to this client itself are not sent.
fn by_client(said: &[(Process, Message)], own: Process) -> Vec<(Process, Vec<Message>)> {
    let mut all: Vec<(Process, Vec<Message>)> = Vec::new();
    for (client, said) in said.iter().filter(|(client, _)| *client != own) {
        match all.iter_mut().find(|(known, _)| known == client) {
            Some((_, words)) => words.push(said.clone()),
            None => all.push((*client, vec![said.clone()])),
        }
    }
    all
}

/// Moves the journal into the database. If another process does that, or reads, the next try will do.
fn checkpoint(db: &Connection) {
    let _ = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
}

fn connect(paths: &Paths) -> SqlResult<(Connection, Arc<AtomicI32>)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut db = Connection::open_with_flags(&paths.database, flags)?;
    // Someone may look at the file with an SQLite tool.
    db.busy_timeout(Duration::from_secs(2))?;
    db.set_prepared_statement_cache_capacity(64);
    // Closing would checkpoint the journal and wait for the disk: the next client can do that.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    db.pragma_update(None, "synchronous", "NORMAL")?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    // Replaces SQLite's own checkpoints, which would run before the next in line has been told.
    let journal = Arc::new(AtomicI32::new(0));
    let length = journal.clone();
    db.wal_hook(Some(move |_: &mut Wal, pages| {
        length.store(pages, Relaxed);
        Ok(())
    }))?;
    Ok((db, journal))
}

/// Makes sure that the file has its tables, and returns a number for this client.
fn begin(db: &mut Connection, host: &Host) -> Result<Process> {
    let read = (|| -> SqlResult<(i32, i32, i32)> {
        let number = |query| db.query_row(query, [], |row| row.get(0));
        let tables = number("SELECT count(*) FROM sqlite_schema")?;
        Ok((number("PRAGMA application_id")?, number("PRAGMA user_version")?, tables))
    })();
    let (application, form, tables) = read.map_err(|error| fault(&error))?;
    // If its creator was killed too early, the file has no tables yet.
    let is_new = tables == 0 && application == 0 && form == 0;
    if !is_new && application != APPLICATION {
        let error = Error::new(ErrorKind::Conflict, "the file belongs to another program");
        return Err(error.next("name another file"));
    }
    if form > FORM {
        let reason = format!("the file has format {form}; this version reads formats up to {FORM}");
        return Err(Error::new(ErrorKind::Unsupported, reason)
            .next("use the later version of tenure, or another file"));
    }
    prepare(db, host, is_new).map_err(|error| fault(&error))?.ok_or_else(another_machine)
}

fn prepare(db: &mut Connection, host: &Host, is_new: bool) -> SqlResult<Option<Process>> {
    if is_new {
        db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    }
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let now = SystemWorld.now();
    if is_new {
        transaction.execute_batch(sql::SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", FORM)?;
        let values = params![host.boot, host.machine, wall_micros() as i64];
        transaction.execute(sql::NEW_META, values)?;
    }
    let (boot, machine, last): (String, String, i64) =
        transaction.query_row(sql::META, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let mut last = last as u64;
    if boot != host.boot {
        if !machine.is_empty() && !host.machine.is_empty() && machine != host.machine {
            return Ok(None);
        }
        transaction.execute_batch(sql::AFTER_A_REBOOT)?;
        let values = params![moment(now), RESIZED_LIFE.as_nanos() as i64, moment(Moment::FAR)];
        transaction.execute(sql::REMEMBER_AGAIN, values)?;
        last = last.max(wall_micros());
    }
    let own = last + 1;
    transaction.execute(sql::SET_META, params![host.boot, host.machine, own as i64])?;
    transaction.commit()?;
    Ok(Some(own))
}

/// Whether nobody has claims in the file.
fn is_alone(db: &Connection) -> bool {
    let count: SqlResult<i64> = db.query_row(sql::COUNT_PROCESSES, [], |row| row.get(0));
    count.is_ok_and(|count| count == 0)
}

fn read_meta(db: &Connection) -> SqlResult<(String, u64)> {
    let mut select = db.prepare_cached(sql::META)?;
    select.query_row([], |row| Ok((row.get(0)?, row.get::<_, i64>(2)? as u64)))
}

/// Converts an error of SQLite.
fn fault(error: &rusqlite::Error) -> Error {
    use rusqlite::ErrorCode as Code;
    let reason = format!("SQLite says: {error}");
    let unavailable = |next| Error::new(ErrorKind::Unavailable, reason.clone()).next(next);
    match error.sqlite_error_code() {
        Some(Code::DiskFull) => full(&reason),
        Some(Code::DatabaseBusy | Code::DatabaseLocked) => {
            unavailable("another program has the file locked; close it").not_now()
        }
        Some(Code::SystemIoFailure | Code::CannotOpen) => {
            unavailable("check the disk that the file is on")
        }
        Some(Code::ReadOnly | Code::PermissionDenied) => Error::new(ErrorKind::Denied, reason)
            .next("this user must be able to write to the file and its folder"),
        Some(Code::NotADatabase) => {
            Error::new(ErrorKind::Conflict, "the file belongs to another program")
                .next("name another file")
        }
        Some(Code::DatabaseCorrupt) => Error::new(ErrorKind::Internal, reason)
            .next("the file is damaged: stop all programs that use it, and delete it"),
        _ => Error::new(ErrorKind::Internal, reason).next("please report this"),
    }
}

fn full(reason: &str) -> Error {
    Error::new(ErrorKind::Unavailable, reason)
        .next("free some disk space; locks that are held can still be renewed and released")
        .not_now()
}

fn unsynced(error: &std::io::Error) -> Error {
    let reason = format!("cannot sync the file to disk: {error}");
    Error::new(ErrorKind::Unavailable, reason).next("check the disk that the file is on")
}

fn unopened(error: &std::io::Error) -> Error {
    let reason = format!("the socket beside the file cannot be made: {error}");
    Error::new(ErrorKind::Unavailable, reason).next("check the limits of this process")
}

fn deleted_while_used(count: usize) -> Error {
    let reason = format!("the file was deleted, and {count} processes that use it still run");
    Error::new(ErrorKind::Unavailable, reason)
        .next("with a new file there would be two holders: end them first, or put the file back")
}

/// Not `Unavailable`: for this client the file never comes back, and nobody should wait for it.
fn gone() -> Error {
    Error::new(ErrorKind::Closed, "the file was deleted or replaced while it was used")
        .next("all holds in it are lost; connect again")
}

fn another_machine() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the file is used by another machine, or was copied from one",
    )
    .next("use a server engine between machines; if that machine is no more, delete the file")
}

impl Store {
    /// Whether a step failed only because the disk is full.
    pub(super) fn lacks_room(error: &Error) -> bool {
        error.to_string().contains("disk is full")
    }
}
