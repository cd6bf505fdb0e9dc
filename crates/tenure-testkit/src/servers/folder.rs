//! A folder that lasts as long as its value.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::ServerError;

/// A fresh folder below the temporary one, removed on drop.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes one; `purpose` becomes part of its name.
    pub fn new(purpose: &str) -> Result<Folder, ServerError> {
        Folder::below(&std::env::temp_dir(), purpose)
    }

    /// Makes one in memory, if the machine has such a file system: for tests that share many steps and are not
    /// about the disk.
    pub fn in_memory(purpose: &str) -> Result<Folder, ServerError> {
        Folder::below(Path::new("/dev/shm"), purpose).or_else(|_| Folder::new(purpose))
    }

    fn below(base: &Path, purpose: &str) -> Result<Folder, ServerError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            // Short: the path of a Unix socket has at most 108 bytes.
            let name = format!("tenure-{purpose}-{}-{count}", std::process::id());
            let path = base.join(name);
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Folder { path }),
                // A killed process with the same id left it behind.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let what = format!("cannot make the folder {}", path.display());
                    return Err(ServerError::during(what)(error));
                }
            }
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file into it, and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, ServerError> {
        let path = self.path.join(name);
        std::fs::write(&path, text)
            .map_err(ServerError::during(format_args!("cannot write {}", path.display())))?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
