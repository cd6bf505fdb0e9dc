//! The stolen lock: a holder is paused past its ttl, another one gets the lock, and the first goes on
//! as if nothing had happened.
//!
//! No lock can prevent that: a process can be stopped between any two lines. What it writes to can
//! refuse it, by the fence.

use std::time::Duration;

use tenure::{Fence, Released};

use super::{Act, Played, Seen, Stage, Trouble};

pub(super) const ACT: Act = Act {
    title: "a holder is paused past its ttl, and writes when another one has the lock",
    lines: [
        "if fence < self.highest {",
        "    return false; // whoever this is, a later holder was here",
        "}",
    ],
    without,
    with,
};

/// How long the first holder's lock lasts; its pause is longer.
const TTL: Duration = Duration::from_millis(100);

fn without(stage: &Stage) -> Played {
    let ending = stolen(stage, |table, guest, _| table.book(guest))?;
    let guest = ending.guest;
    Ok(Seen::report("the late write won", format!("Ben had the table, and now it is {guest}'s")))
}

fn with(stage: &Stage) -> Played {
    let ending = stolen(stage, Table::book_by_fence)?;
    let held = !ending.late_write_taken
        && ending.guest == "Ben"
        && ending.released == Released::Late
        && ending.ben_kept_it;
    let brief = if ending.late_write_taken { "the late write won" } else { "late write refused" };
    let keeps = if ending.ben_kept_it { "still holds" } else { "no longer holds" };
    let more = format!(
        "the table is {}'s, Ada's release says {:?}, Ben {keeps} the lock",
        ending.guest, ending.released
    );
    Ok(Seen::check(held, brief, more))
}

/// What the lock protects: one table, and who has booked it.
#[derive(Default)]
struct Table {
    guest: &'static str,
    highest: Fence,
}

impl Table {
    /// Writes, whoever asks.
    fn book(&mut self, guest: &'static str) -> bool {
        self.guest = guest;
        true
    }

    /// Writes unless a later holder has written before.
    fn book_by_fence(&mut self, guest: &'static str, fence: Fence) -> bool {
        if fence < self.highest {
            return false; // whoever this is, a later holder was here
        }
        self.highest = fence;
        self.book(guest)
    }
}

/// What was to be seen when both had written.
struct Ending {
    guest: &'static str,
    late_write_taken: bool,
    released: Released,
    ben_kept_it: bool,
}

fn stolen(
    stage: &Stage,
    book: impl Fn(&mut Table, &'static str, Fence) -> bool,
) -> Result<Ending, Trouble> {
    let tenure = &stage.tenure;
    stage.play(async {
        let mut table = Table::default();
        let lock = tenure.mutex("table:12");
        // Ada has the lock, and then is paused: nobody renews it, and she does nothing.
        let ada = lock.clone().owner("Ada").ttl(TTL).renew(false).acquire().await?;
        // Ben waits until her time is over.
        let ben = lock.clone().owner("Ben").acquire().await?;
        if !book(&mut table, "Ben", ben.fence()) {
            return Err("the table refused the one who holds the lock".into());
        }
        // Ada goes on where she was.
        let late_write_taken = book(&mut table, "Ada", ada.fence());
        let released = ada.release().await?;
        let refused = lock.try_acquire().await?.is_none();
        let ben_kept_it = refused && ben.release().await? == Released::InTime;
        Ok(Ending { guest: table.guest, late_write_taken, released, ben_kept_it })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_takes_the_holder_again_and_a_later_one_but_no_earlier_one() {
        let mut table = Table::default();
        assert!(table.book_by_fence("Ada", Fence::new(4)));
        assert!(table.book_by_fence("Ada", Fence::new(4)));
        assert!(table.book_by_fence("Ben", Fence::new(6)));
        assert!(!table.book_by_fence("Ada", Fence::new(4)));
        assert_eq!(table.guest, "Ben");
    }
}
