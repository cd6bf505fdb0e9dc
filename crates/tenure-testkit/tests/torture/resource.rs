//! The resources that the locks protect: a file per name, which remembers the highest fence it has seen.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A folder with such files.
#[derive(Clone, Debug)]
pub(crate) struct Resource(PathBuf);

impl Resource {
    pub(crate) fn new(folder: &Path) -> Resource {
        Resource(folder.to_owned())
    }

    /// Writes if no higher fence has written before, and returns whether it did. Every hold writes at most once, so
    /// an equal fence belongs to another hold.
    pub(crate) fn write(&self, name: &str, fence: u64) -> io::Result<bool> {
        let path = self.0.join(format!("resource-{name}"));
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        file.lock()?;
        let mut highest = [0; 8];
        // The first one finds nothing, which is zero.
        let _ = file.read_at(&mut highest, 0)?;
        let accepted = fence > u64::from_le_bytes(highest);
        if accepted {
            file.write_all_at(&fence.to_le_bytes(), 0)?;
        }
        Ok(accepted)
    }
}
