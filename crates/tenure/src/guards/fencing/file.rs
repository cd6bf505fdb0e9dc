//! A file whose contents are guarded.
//!
//! Beside `PATH` there is `PATH.fence`, with the highest fence seen so far as text. Writers lock it in turn. Both
//! files are only ever replaced as a whole, the fence first: a writer that is killed in between has at worst raised
//! the fence to its own.
//!
//! For local file systems. A writer that is *stopped* in the middle of [`write()`] blocks the others
//! until it continues or is killed. Deleting `PATH.fence` forgets the fence.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

use super::{GuardError, check, is_fence};
use crate::model::claim::Fence;

/// Replaces the contents of the file, unless a higher fence than `fence` has been seen.
///
/// Readers see the old contents or the new, never a mixture; the new ones are on the disk when this
/// returns. The file keeps its mode, but not its owner. A symbolic link is followed.
///
/// It blocks on the disk and on other writers: in async code, use `spawn_blocking`.
///
/// ```
/// # async fn example(tenure: tenure::Tenure, folder: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
/// let hold = tenure.mutex("report").acquire().await?;
/// tenure::fencing::file::write(folder.join("report.json"), hold.fence(), b"{}")?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Stale` if a higher fence has been seen. `Failed` with the error of the file system; the contents are then the
/// old ones, or the new ones, which may not be on the disk yet.
pub fn write(
    path: impl AsRef<Path>,
    fence: Fence,
    contents: impl AsRef<[u8]>,
) -> Result<(), GuardError<io::Error>> {
    replace(path.as_ref(), fence, contents.as_ref(), |_| {})
}

/// A point between two steps, where a test kills its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Point {
    Checked,
    Written,
    Noted,
    Raised,
    Replaced,
}

fn replace(
    path: &Path,
    fence: Fence,
    contents: &[u8],
    mut at: impl FnMut(Point),
) -> Result<(), GuardError<io::Error>> {
    if !is_fence(fence) {
        return Err(GuardError::NoFence(fence));
    }
    let place = Place::of(path)?;
    let memory = place.lock()?;
    let seen = seen(&memory)?;
    if let Some(seen) = seen {
        check(&path.to_string_lossy(), fence, seen).map_err(GuardError::Stale)?;
    }
    at(Point::Checked);
    let mode = std::fs::metadata(&place.file).ok().map(|file| file.permissions());
    let next = TempFile::new(place.beside(".fence-write"), contents, mode)?;
    at(Point::Written);
    // Locked before anyone can find it, until the contents are written, too.
    let _raised = match seen == Some(fence) {
        true => None,
        false => {
            let mode = memory.metadata()?.permissions();
            let number = format!("{fence}\n");
            let raised =
                TempFile::new(place.beside(".fence-raise"), number.as_bytes(), Some(mode))?;
            flock(&raised.file, FlockOperation::NonBlockingLockExclusive)
                .map_err(io::Error::from)?;
            at(Point::Noted);
            let raised = place.put(raised, &place.beside(".fence"))?;
            at(Point::Raised);
            Some(raised)
        }
    };
    place.put(next, &place.file)?;
    at(Point::Replaced);
    Ok(())
}

/// The file itself, with links resolved, and its folder.
struct Place {
    file: PathBuf,
    folder: File,
}

impl Place {
    fn of(path: &Path) -> io::Result<Place> {
        let file = match std::fs::canonicalize(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                std::fs::canonicalize(folder.unwrap_or(Path::new(".")))?.join(name)
            }
            Err(error) => return Err(error),
        };
        let folder = File::open(file.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
        Ok(Place { file, folder })
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = OsString::from(&self.file);
        name.push(suffix);
        name.into()
    }

    /// Waits until nobody else writes. The lock must be on the file that has the name now: another writer may
    /// have replaced it during the wait.
    fn lock(&self) -> io::Result<File> {
        let path = self.beside(".fence");
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            let file = options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(&path)?;
            rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))?;
            let of = |file: &std::fs::Metadata| (file.dev(), file.ino());
            match std::fs::symlink_metadata(&path) {
                Ok(named) if of(&named) == of(&file.metadata()?) => return Ok(file),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives a file its final name, durably.
    fn put(&self, mut temp: TempFile, name: &Path) -> io::Result<TempFile> {
        std::fs::rename(&temp.path, name)?;
        temp.named = true;
        self.folder.sync_all()?;
        Ok(temp)
    }
}

/// The highest fence; `None` in a file that was just created.
fn seen(memory: &File) -> io::Result<Option<Fence>> {
    let mut text = String::new();
    memory.take(64).read_to_string(&mut text)?;
    if text.is_empty() {
        return Ok(None);
    }
    let fence = text.strip_suffix('\n').and_then(|digits| digits.parse().ok());
    let fence = fence.filter(|fence| is_fence(*fence)).ok_or_else(|| {
        let what = "the file with the highest fence does not contain a fence; correct it, or \
                    delete it to forget the fence";
        io::Error::new(io::ErrorKind::InvalidData, what)
    })?;
    Ok(Some(fence))
}

/// A file on the disk that does not have its final name yet. Dropping it deletes it.
struct TempFile {
    path: PathBuf,
    file: File,
    named: bool,
}

impl TempFile {
    /// Only the owner of the lock uses this name: a file that exists was left by a writer that was killed.
    fn new(path: PathBuf, contents: &[u8], mode: Option<Permissions>) -> io::Result<TempFile> {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = File::create_new(&path)?;
        let mut temp = TempFile { path, file, named: false };
        if let Some(mode) = mode {
            temp.file.set_permissions(mode)?;
        }
        temp.file.write_all(contents)?;
        temp.file.sync_all()?;
        Ok(temp)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.named {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests;
