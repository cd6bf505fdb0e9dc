//! The file engine, with a note in the worker's journal whenever a claim stands in line.

use std::sync::{Arc, Weak};

use tenure::engine::{
    Ack, Broken, Claim, ClaimId, Engine, Fence, Finding, Forgotten, Keep, Kept, Leave, Left, Name,
    Note, OnceRecord, Page, Profile, Renewal, Renewed, Scope, Step, Turns, Verdict, View,
};
use tenure::engines::file::File;

use crate::journal::{Event, Journal, now};

/// Uses the file, and records its answers.
#[derive(Debug)]
pub(crate) struct Recording {
    file: File,
    journal: Arc<Journal>,
}

impl Recording {
    pub(crate) fn open(url: &str, journal: Arc<Journal>) -> tenure::Result<Recording> {
        let path = url.strip_prefix("file:").unwrap_or(url);
        Ok(Recording { file: File::open(path)?, journal })
    }
}

#[deny(clippy::missing_trait_methods)]
impl Engine for Recording {
    fn claim(&self, claim: &Claim) -> Step<Verdict> {
        // The worker's number of the request identifies it.
        let serial = claim.details.owner.parse();
        let (step, journal) = (self.file.claim(claim), self.journal.clone());
        Step::pending(async move {
            let verdict = step.await?;
            if let (Verdict::Waiting(_), Ok(serial)) = (&verdict, serial) {
                journal.write(serial, &Event::Stood { at: now() });
            }
            Ok(verdict)
        })
    }

    fn profile(&self) -> &Profile {
        self.file.profile()
    }

    fn attach(&self, turns: Weak<dyn Turns>) {
        self.file.attach(turns);
    }

    fn shard(&self, name: &Name) -> u32 {
        self.file.shard(name)
    }

    fn renew(&self, shard: u32, batch: &[Renewal]) -> Step<Vec<Renewed>> {
        self.file.renew(shard, batch)
    }

    fn keep(&self, keep: &Keep) -> Step<Kept> {
        self.file.keep(keep)
    }

    fn leave(&self, leave: &Leave) -> Step<Left> {
        self.file.leave(leave)
    }

    fn leave_soon(&self, leave: Leave, done: Ack) {
        self.file.leave_soon(leave, done);
    }

    fn leave_at_once(&self, leave: &Leave) -> Option<Left> {
        self.file.leave_at_once(leave)
    }

    fn detach(&self, name: &Name, id: &ClaimId) -> Step<()> {
        self.file.detach(name, id)
    }

    fn resize(&self, name: &Name, capacity: u32) -> Step<()> {
        self.file.resize(name, capacity)
    }

    fn break_hold(&self, name: &Name, fence: Fence, note: &Note) -> Step<Broken> {
        self.file.break_hold(name, fence, note)
    }

    fn forget(&self, name: &Name, seen: &OnceRecord) -> Step<Forgotten> {
        self.file.forget(name, seen)
    }

    fn inspect(&self, scope: &Scope) -> Step<Page> {
        self.file.inspect(scope)
    }

    fn glance(&self, name: &Name) -> Option<View> {
        self.file.glance(name)
    }

    fn lifeline(&self) -> Option<Arc<dyn Engine>> {
        self.file.lifeline()
    }

    fn health(&self) -> Step<()> {
        self.file.health()
    }

    fn examine(&self) -> Step<Vec<Finding>> {
        self.file.examine()
    }

    fn close(&self) -> Step<()> {
        self.file.close()
    }
}
