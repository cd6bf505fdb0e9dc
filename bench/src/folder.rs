//! A folder for one measurement.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// An empty folder of this process, removed on drop.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Creates the folder. A process can have one at a time.
    pub(crate) fn new() -> io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("tenure-bench-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
