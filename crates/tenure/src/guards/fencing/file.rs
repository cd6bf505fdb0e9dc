//! A file whose contents are guarded.
//!
//! Beside `PATH` lies `PATH.fence` with the highest fence that was seen, as text. It is the lock that
//! writers take in turn, and both files are only ever replaced as a whole: the fence first, so that
//! whoever is killed in between has at worst raised a fence that was its own to raise.
//!
//! For local file systems. A writer that is *stopped* in the middle of [`write()`] holds up the others
//! until it goes on or is killed. Deleting `PATH.fence` forgets the fence.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

use super::{GuardError, check, is_fence};
use crate::model::claim::Fence;

/// Replaces the contents of the file if `fence` is not lower than any that was seen of it.
///
/// Readers see the old contents or the new, never a part; the new ones are on the disk when it
/// returns. The file keeps its mode, and not its owner; a symbolic link is followed.
///
/// It blocks, on the disk and on other writers: in async code call it by `spawn_blocking`.
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
/// `Stale` if a higher fence was seen. `Failed` with what the file system says; the contents are
/// then the old ones, or the new ones that may not be on the disk yet.
pub fn write(
    path: impl AsRef<Path>,
    fence: Fence,
    contents: impl AsRef<[u8]>,
) -> Result<(), GuardError<io::Error>> {
    replace(path.as_ref(), fence, contents.as_ref(), |_| {})
}

/// Between two steps, where a test ends its process.
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
    let next = RequestBuilder::new(place.beside(".fence-write"), contents, mode)?;
    at(Point::Written);
    // Locked before anyone can find it, and until the contents are there too.
    let _raised = match seen == Some(fence) {
        true => None,
        false => {
            let mode = memory.metadata()?.permissions();
            let number = format!("{fence}\n");
            let raised =
                RequestBuilder::new(place.beside(".fence-raise"), number.as_bytes(), Some(mode))?;
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

/// The file itself, however it was called, and its folder.
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

    /// Waits until nobody else writes. The lock is on the file that bears the name, which another
    /// may have replaced while this one waited for the lock.
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

    /// Gives a file its name, for good.
    fn put(&self, mut draft: RequestBuilder, name: &Path) -> io::Result<RequestBuilder> {
        std::fs::rename(&draft.path, name)?;
        draft.named = true;
        self.folder.sync_all()?;
        Ok(draft)
    }
}

/// The highest fence; a file that was just made says none.
fn seen(memory: &File) -> io::Result<Option<Fence>> {
    let mut text = String::new();
    memory.take(64).read_to_string(&mut text)?;
    if text.is_empty() {
        return Ok(None);
    }
    let fence = text.strip_suffix('\n').and_then(|digits| digits.parse().ok());
    let fence = fence.filter(|fence| is_fence(*fence)).ok_or_else(|| {
        let what = "the file with the highest fence holds something else; put it right, or delete \
                    it to forget the fence";
        io::Error::new(io::ErrorKind::InvalidData, what)
    })?;
    Ok(Some(fence))
}

/// A file on the disk that has not got its name yet. Dropped before that, it is gone.
struct RequestBuilder {
    path: PathBuf,
    file: File,
    named: bool,
}

impl RequestBuilder {
    /// Whoever has the lock may call a file like this: what is there was left by one that was killed.
    fn new(
        path: PathBuf,
        contents: &[u8],
        mode: Option<Permissions>,
    ) -> io::Result<RequestBuilder> {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = File::create_new(&path)?;
        let mut draft = RequestBuilder { path, file, named: false };
        if let Some(mode) = mode {
            draft.file.set_permissions(mode)?;
        }
        draft.file.write_all(contents)?;
        draft.file.sync_all()?;
        Ok(draft)
    }
}

impl Drop for RequestBuilder {
    fn drop(&mut self) {
        if !self.named {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests;
