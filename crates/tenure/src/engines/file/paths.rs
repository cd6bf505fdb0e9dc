//! The paths of the database and of the files beside it, and whether locks are safe there.
//!
//! Beside the database are the writer's lock file, a folder with a socket for every client that can be reached,
//! and a file that only reserves disk space.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, statfs};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::exposed::{Exposed, Way};
use crate::model::error::{Error, ErrorKind, Result};

/// The database and the files beside it.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    pub(super) database: PathBuf,
    /// SQLite's journal, and its index.
    pub(super) journal: PathBuf,
    pub(super) index: PathBuf,
    pub(super) writer_lock: PathBuf,
    pub(super) sockets: PathBuf,
    pub(super) reserve: PathBuf,
}

/// The inodes of these files: a client that has others open does not share locks with us, even if the names are
/// the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Inodes {
    pub(super) database: u64,
    pub(super) journal: u64,
    pub(super) index: u64,
}

/// File systems that are shared between machines, or whose locks are not handled by this machine.
const SHARED: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB"),
    (0x517B, "SMB"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x7461_636F, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x564C, "NCP"),
    (0x786F_4256, "a folder shared with a virtual machine"),
];

impl Paths {
    /// Works out the paths, creates the folder if needed, and refuses one that is not safe for locks.
    pub(super) fn prepare(path: &Path) -> Result<Paths> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(no_file(path));
        };
        make_folder(folder)?;
        // SQLite does not follow symbolic links, and the folder may be behind one.
        let way = Way::to(folder).map_err(|error| cannot("find", folder, &error))?;
        let paths = Paths::at(way.folder.join(name));
        let exposed = way.exposed(&paths.database);
        let exposed = exposed.map_err(|error| cannot("read", &way.folder, &error))?;
        if let Some(Exposed { reason, .. }) = exposed {
            return Err(Error::new(ErrorKind::Denied, reason).next(
                "they could replace the file: put it in a folder of its own, with mode 700, below folders that \
                 only you and root may write to",
            ));
        }
        if let Some(kind) = shared_file_system(&way.folder)? {
            let folder = way.folder.display();
            let reason =
                format!("{folder} is on {kind}, a file system that several machines share");
            return Err(Error::new(ErrorKind::Unsupported, reason)
                .next("use a local disk, or redis:// for locks between machines"));
        }
        Ok(paths)
    }

    /// The paths for a database at this path.
    pub(super) fn at(path: PathBuf) -> Paths {
        let beside = |suffix: &str| {
            let mut name = path.clone().into_os_string();
            name.push(suffix);
            PathBuf::from(name)
        };
        // The suffixes must stay as they are: programs that share a file must agree on them, or each would take
        // its own writer lock. `-gate` is the writer lock, `-ballast` the reserve of disk space.
        Paths {
            journal: beside("-wal"),
            index: beside("-shm"),
            writer_lock: beside("-gate"),
            sockets: beside("-sockets"),
            reserve: beside("-ballast"),
            database: path.clone(),
        }
    }

    /// Refuses a database that is not a plain file of this user, or that others can read. Returns whether it
    /// exists.
    pub(super) fn check_database(&self) -> Result<bool> {
        let path = &self.database;
        let about = match fs::symlink_metadata(path) {
            Ok(about) => about,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(cannot("read", path, &error)),
        };
        check_own(path, &about)?;
        if about.nlink() > 1 {
            let reason = format!("{} has several names (hard links)", path.display());
            return Err(Error::new(ErrorKind::Denied, reason)
                .next("each name would have its own journal: remove the others"));
        }
        if about.mode() & 0o077 != 0 {
            let reason = format!("others may read or write {}", path.display());
            return Err(Error::new(ErrorKind::Denied, reason)
                .next("it contains secrets: chmod 600 it, if nobody has changed it"));
        }
        Ok(true)
    }

    /// The current inodes; `None` if one of the files is missing.
    pub(super) fn inodes(&self) -> Option<Inodes> {
        let number = |path: &Path| fs::symlink_metadata(path).map(|about| about.ino()).ok();
        Some(Inodes {
            database: number(&self.database)?,
            journal: number(&self.journal)?,
            index: number(&self.index)?,
        })
    }

    pub(super) fn create_database(&self) -> Result<()> {
        let created =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.database);
        created.map(drop).map_err(|error| cannot("create", &self.database, &error))
    }

    /// Gives the files that root creates beside a user's file to that user.
    pub(super) fn give_to_owner(&self) {
        let owner = |path: &Path| fs::symlink_metadata(path).map(|it| (it.uid(), it.gid())).ok();
        let Some((user, group)) = owner(&self.database).filter(|_| geteuid().is_root()) else {
            return;
        };
        for path in [&self.writer_lock, &self.sockets, &self.reserve] {
            if owner(path).is_some_and(|has| has != (user, group)) {
                // If this fails, the user gets an error that names the file.
                let _ = std::os::unix::fs::lchown(path, Some(user), Some(group));
            }
        }
    }

    /// Whether this is the lock file that the others use.
    pub(super) fn is_lock_file(&self, writer_lock: &File) -> bool {
        let number = |about: io::Result<Metadata>| about.map(|about| about.ino()).ok();
        number(writer_lock.metadata()) == number(fs::symlink_metadata(&self.writer_lock))
    }

    pub(super) fn open_lock_file(&self) -> Result<File> {
        let flags = OFlags::NOFOLLOW.bits() as i32;
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags)
            .open(&self.writer_lock);
        let writer_lock = open.map_err(|error| cannot("open", &self.writer_lock, &error))?;
        let about =
            writer_lock.metadata().map_err(|error| cannot("read", &self.writer_lock, &error))?;
        check_own(&self.writer_lock, &about)?;
        Ok(writer_lock)
    }

    /// Opens SQLite's journal, which SQLite has made.
    pub(super) fn open_journal(&self) -> Result<File> {
        let flags = OFlags::NOFOLLOW.bits() as i32;
        let journal = OpenOptions::new().read(true).custom_flags(flags).open(&self.journal);
        journal.map_err(|error| cannot("open", &self.journal, &error))
    }

    /// Opens the folder with the sockets: paths of sockets must be short, and those of users are not.
    pub(super) fn open_sockets(&self) -> Result<File> {
        let path = &self.sockets;
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(cannot("create", path, &error));
            }
            _ => {}
        }
        let flags = (OFlags::NOFOLLOW | OFlags::DIRECTORY).bits() as i32;
        let folder = OpenOptions::new().read(true).custom_flags(flags).open(path);
        folder.map_err(|error| cannot("open", path, &error))
    }
}

/// Creates a folder and those on the way to it, and syncs them, so that a power cut does not remove them with
/// everything in them.
fn make_folder(folder: &Path) -> Result<()> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|above| !above.exists()).collect();
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(folder).map_err(|error| cannot("create", folder, &error))?;
    for above in missing.iter().filter_map(|made| made.parent()) {
        // Some file systems cannot sync a folder. SQLite ignores that, too.
        let _ = File::open(above).and_then(|above| above.sync_all());
    }
    Ok(())
}

/// The kind of file system, if it is shared between machines.
pub(super) fn shared_file_system(folder: &Path) -> Result<Option<&'static str>> {
    let found = statfs(folder).map_err(|error| cannot("read", folder, &error.into()))?;
    Ok(shared_kind(found.f_type as u64))
}

fn shared_kind(number: u64) -> Option<&'static str> {
    // Where the field is signed, some of the numbers are negative.
    let number = number & 0xFFFF_FFFF;
    SHARED.iter().find(|(known, _)| *known == number).map(|(_, kind)| *kind)
}

fn check_own(path: &Path, about: &Metadata) -> Result<()> {
    if !about.file_type().is_file() {
        let reason = format!("{} is not a plain file", path.display());
        return Err(Error::new(ErrorKind::Denied, reason).next("name another file"));
    }
    let user = geteuid();
    if about.uid() != user.as_raw() && !user.is_root() {
        let reason = format!("{} belongs to another user", path.display());
        return Err(Error::new(ErrorKind::Denied, reason)
            .next("use a file of your own, or run as its owner"));
    }
    Ok(())
}

pub(super) fn no_file(path: &Path) -> Error {
    let reason = match path.as_os_str().is_empty() {
        true => "no file is named".to_owned(),
        false => format!("{} does not name a file", path.display()),
    };
    Error::invalid(reason).next("write file: and a path, such as file:./locks.db")
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> Error {
    let is_link = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Denied,
        io::ErrorKind::NotADirectory => ErrorKind::Denied,
        _ if is_link => ErrorKind::Denied,
        _ => ErrorKind::Unavailable,
    };
    let reason = format!("cannot {what} {}: {error}", path.display());
    Error::new(kind, reason).next("name a file that this user can write to")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(mode: u32) -> PathBuf {
        let name = format!("tenure-place-{}-{mode:o}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_folder_that_everyone_may_write_to_is_refused() {
        let open = folder(0o777);
        let error = Paths::prepare(&open.join("x.db")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.to_string().contains("everyone may write"), "{error}");
        fs::remove_dir_all(open).unwrap();
    }

    /// The numbers are from linux/magic.h and the sources of the file systems.
    #[test]
    fn file_systems_that_machines_share_are_known() {
        for (number, kind) in [
            (0x6969, Some("NFS")),
            (0x6573_5546, Some("FUSE")),
            (0x0102_1997, Some("9p")),
            (0xFF53_4D42, Some("CIFS")),
            (0xFFFF_FFFF_FF53_4D42, Some("CIFS")),
            (0xFFFF_FFFF_FE53_4D42, Some("SMB")),
            (0x00C3_6400, Some("Ceph")),
            (0x7461_636F, Some("OCFS2")),
            (0x0116_1970, Some("GFS2")),
            // ext4, XFS, Btrfs, tmpfs, overlayfs, ZFS, F2FS.
            (0xEF53, None),
            (0x5846_5342, None),
            (0x9123_683E, None),
            (0x0102_1994, None),
            (0x794C_7630, None),
            (0x2FC1_2FC1, None),
            (0xF2F5_2010, None),
        ] {
            assert_eq!(shared_kind(number), kind, "{number:x}");
        }
    }

    #[test]
    fn links_folders_and_files_that_others_can_read_are_refused() {
        let own = folder(0o700);
        let paths = Paths::prepare(&own.join("x.db")).unwrap();
        assert!(!paths.check_database().unwrap());
        std::os::unix::fs::symlink("/etc/passwd", &paths.database).unwrap();
        assert!(paths.check_database().unwrap_err().to_string().contains("not a plain file"));
        fs::remove_file(&paths.database).unwrap();
        fs::create_dir(&paths.database).unwrap();
        assert!(paths.check_database().unwrap_err().to_string().contains("not a plain file"));
        fs::remove_dir(&paths.database).unwrap();
        paths.create_database().unwrap();
        assert!(paths.check_database().unwrap());
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        fs::set_permissions(&paths.database, open).unwrap();
        assert!(paths.check_database().unwrap_err().to_string().contains("chmod 600"));
        fs::remove_dir_all(own).unwrap();
    }

    #[test]
    fn folders_are_made_for_this_user_alone() {
        let own = folder(0o750);
        let paths = Paths::prepare(&own.join("state/tenure/x.db")).unwrap();
        let mode = fs::metadata(paths.database.parent().unwrap()).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::remove_dir_all(own).unwrap();
    }
}
