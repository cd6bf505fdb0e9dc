//! Two workers take the next number from one file: read, add one, write back.
//!
//! It is how a nonce is lost: between reading and writing, the other one reads the same number.

use std::fs;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use super::{Act, Played, Seen, Stage, Trouble};

pub(super) const ACT: Act = Act {
    title: "two workers take the next number from one file, over and over",
    lines: [
        r#"let hold = tenure.mutex("wallet:0xab").acquire().await?;"#,
        "take_number(file)?;",
        "drop(hold);",
    ],
    without,
    with,
};

/// What a worker does with the number before it writes the next one: sign a transaction, say.
const WORK: Duration = Duration::from_micros(50);

fn without(stage: &Stage) -> Played {
    let (found, expected) = count_together(stage, take_number)?;
    let lost = expected.saturating_sub(found);
    Ok(Seen::report(format!("{found} of {expected}, {lost} lost"), "both read, then both write"))
}

fn with(stage: &Stage) -> Played {
    let tenure = &stage.tenure;
    let (found, expected) = count_together(stage, |file| {
        stage.runtime.block_on(async {
            let hold = tenure.mutex("wallet:0xab").acquire().await?;
            take_number(file)?;
            drop(hold);
            Ok(())
        })
    })?;
    let lost = expected.saturating_sub(found);
    let brief = format!("{found} of {expected}, {lost} lost");
    Ok(Seen::check(found == expected, brief, "one at a time"))
}

/// Lets two threads do `once` as often as asked; returns what the file says then, and what it should.
fn count_together(
    stage: &Stage,
    once: impl Fn(&Path) -> Result<(), Trouble> + Sync,
) -> Result<(u64, u64), Trouble> {
    let folder = Folder::new()?;
    let file = folder.path.join("next-number");
    write_number(&file, 0)?;
    let start = Barrier::new(2);
    let work = || {
        start.wait();
        (0..stage.count).try_for_each(|_| once(&file))
    };
    thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work)];
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(worked) => worked,
            Err(_) => Err("a worker panicked".into()),
        })
    })?;
    Ok((read_number(&file)?, 2 * u64::from(stage.count)))
}

fn take_number(file: &Path) -> Result<(), Trouble> {
    let number = read_number(file)?;
    thread::sleep(WORK);
    write_number(file, number + 1)
}

fn read_number(file: &Path) -> Result<u64, Trouble> {
    let text = fs::read_to_string(file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let number = text.trim().parse();
    Ok(number.map_err(|_| format!("{} says {text:?}, which is no number", file.display()))?)
}

fn write_number(file: &Path, number: u64) -> Result<(), Trouble> {
    // Of one width and in place: who reads at the same time finds the old number or the new one, and
    // not an empty file. The race is to be lost by what the workers do, and not by how files work.
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(file)
        .and_then(|mut file| file.write_all(format!("{number:>10}\n").as_bytes()));
    Ok(written.map_err(|error| format!("cannot write {}: {error}", file.display()))?)
}

/// A folder of our own, which is gone when this is dropped, however the race ends.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new() -> Result<Folder, Trouble> {
        let name = format!("tenure-demo-{}-{:016x}", std::process::id(), super::random());
        let path = std::env::temp_dir().join(name);
        // It must not be there yet, and is for this user only: the place is open to everyone.
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(|error| {
            let path = path.display();
            format!("cannot create {path}: {error}; set TMPDIR to a folder that you can write to")
        })?;
        Ok(Folder { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing depends on it: what stays is a few bytes where such things are swept away.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_that_are_lost_are_seen() {
        let stage = Stage::new(50).unwrap();
        let (found, expected) = count_together(&stage, |file| write_number(file, 7)).unwrap();
        assert_eq!((found, expected), (7, 100));
    }

    #[test]
    fn the_folder_is_gone_when_the_race_breaks_off() {
        let stage = Stage::new(1).unwrap();
        let seen = std::sync::Mutex::new(PathBuf::new());
        let raced = count_together(&stage, |file| {
            *seen.lock().unwrap() = file.to_owned();
            Err("broken off".into())
        });
        assert_eq!(raced.unwrap_err().to_string(), "broken off");
        let file = seen.into_inner().unwrap();
        assert!(file.is_absolute() && !file.parent().unwrap().exists(), "{}", file.display());
    }
}
