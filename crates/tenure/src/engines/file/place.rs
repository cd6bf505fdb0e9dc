//! Where the file is, and whether that is a place for locks.
//!
//! Beside the database lie the gate that writers pass one by one, a folder with a socket for every
//! client that can be told something, and a file that only keeps room on the disk.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, statfs};
use rustix::process::geteuid;

use crate::error::{Error, ErrorKind, Result};

/// The database and what lies beside it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) database: PathBuf,
    pub(super) gate: PathBuf,
    pub(super) sockets: PathBuf,
    pub(super) ballast: PathBuf,
}

/// Which file it is, however it is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Inode {
    device: u64,
    number: u64,
}

/// File systems that are shared between machines, or whose locks this machine does not see to.
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

impl Place {
    /// Finds the place, makes its folder if need be, and refuses one that is no place for locks.
    pub(super) fn prepare(path: &Path) -> Result<Place> {
        let path = std::path::absolute(path).map_err(|error| cannot("find", path, &error))?;
        let (Some(folder), Some(_)) = (path.parent(), path.file_name()) else {
            let reason = format!("{} does not name a file", path.display());
            return Err(
                Error::invalid(reason).next("write file: and a path, such as file:./locks.db")
            );
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(folder).map_err(|error| cannot("create", folder, &error))?;
        let beside = |suffix: &str| {
            let mut name = path.clone().into_os_string();
            name.push(suffix);
            PathBuf::from(name)
        };
        let place = Place {
            gate: beside("-gate"),
            sockets: beside("-sockets"),
            ballast: beside("-ballast"),
            database: path.clone(),
        };
        place.check_folder(folder)?;
        Ok(place)
    }

    fn check_folder(&self, folder: &Path) -> Result<()> {
        let about = fs::metadata(folder).map_err(|error| cannot("read", folder, &error))?;
        if about.mode() & 0o002 != 0 {
            let reason = format!("everyone may write to {}", folder.display());
            return Err(Error::new(ErrorKind::Denied, reason).next(
                "anyone could replace the file: put it in a folder of its own, with mode 700",
            ));
        }
        if let Some(kind) = shared_file_system(folder)? {
            let reason =
                format!("{} is on {kind}, which is not this machine's own", folder.display());
            return Err(Error::new(ErrorKind::Unsupported, reason)
                .next("use a local disk, or redis:// for locks between machines"));
        }
        Ok(())
    }

    /// Refuses a file that is not a plain file of this user's, or that others can read.
    pub(super) fn check_database(&self) -> Result<Option<Inode>> {
        let path = &self.database;
        let about = match fs::symlink_metadata(path) {
            Ok(about) => about,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot("read", path, &error)),
        };
        check_own(path, &about)?;
        if about.mode() & 0o077 != 0 {
            let reason = format!("others may read or write {}", path.display());
            return Err(Error::new(ErrorKind::Denied, reason)
                .next("it contains secrets: chmod 600 it, if nobody has changed it"));
        }
        Ok(Some(Inode::of(&about)))
    }

    /// Which file the database is at this moment.
    pub(super) fn inode(&self) -> io::Result<Inode> {
        fs::symlink_metadata(&self.database).map(|about| Inode::of(&about))
    }

    pub(super) fn create_database(&self) -> Result<Inode> {
        let created =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.database);
        let about = created.and_then(|file| file.metadata());
        about
            .map(|about| Inode::of(&about))
            .map_err(|error| cannot("create", &self.database, &error))
    }

    pub(super) fn open_gate(&self) -> Result<File> {
        let flags = OFlags::NOFOLLOW.bits() as i32;
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags)
            .open(&self.gate);
        let gate = open.map_err(|error| cannot("open", &self.gate, &error))?;
        let about = gate.metadata().map_err(|error| cannot("read", &self.gate, &error))?;
        check_own(&self.gate, &about)?;
        Ok(gate)
    }

    /// The folder with the sockets, opened: paths of sockets are short, and those of users are not.
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

impl Inode {
    fn of(about: &Metadata) -> Inode {
        Inode { device: about.dev(), number: about.ino() }
    }
}

/// The kind of file system, if it is one that machines share.
pub(super) fn shared_file_system(folder: &Path) -> Result<Option<&'static str>> {
    let found = statfs(folder).map_err(|error| cannot("read", folder, &error.into()))?;
    // Some numbers are negative where the field has a sign.
    let number = found.f_type as u64 & 0xFFFF_FFFF;
    Ok(SHARED.iter().find(|(known, _)| *known == number).map(|(_, kind)| *kind))
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

fn cannot(what: &str, path: &Path, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Denied,
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
        let error = Place::prepare(&open.join("x.db")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.to_string().contains("everyone may write"), "{error}");
        fs::remove_dir_all(open).unwrap();
    }

    #[test]
    fn links_folders_and_files_that_others_can_read_are_refused() {
        let own = folder(0o700);
        let place = Place::prepare(&own.join("x.db")).unwrap();
        assert_eq!(place.check_database().unwrap(), None);
        std::os::unix::fs::symlink("/etc/passwd", &place.database).unwrap();
        assert!(place.check_database().unwrap_err().to_string().contains("not a plain file"));
        fs::remove_file(&place.database).unwrap();
        fs::create_dir(&place.database).unwrap();
        assert!(place.check_database().unwrap_err().to_string().contains("not a plain file"));
        fs::remove_dir(&place.database).unwrap();
        let created = place.create_database().unwrap();
        assert_eq!(place.check_database().unwrap(), Some(created));
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        fs::set_permissions(&place.database, open).unwrap();
        assert!(place.check_database().unwrap_err().to_string().contains("chmod 600"));
        fs::remove_dir_all(own).unwrap();
    }

    #[test]
    fn folders_are_made_for_this_user_alone() {
        let own = folder(0o750);
        let place = Place::prepare(&own.join("state/tenure/x.db")).unwrap();
        let mode = fs::metadata(place.database.parent().unwrap()).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::remove_dir_all(own).unwrap();
    }
}
