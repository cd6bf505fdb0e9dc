//! Whether others could replace the file: by writing to a folder on the way to it, or by pointing a symbolic link on
//! that way somewhere else.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::geteuid;

use super::groups::{self, Accounts};

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// How others could replace the file.
#[derive(Debug)]
pub(super) struct Exposed {
    pub(super) reason: String,
    pub(super) fix: &'static str,
}

/// Where a path leads.
#[derive(Debug)]
pub(super) struct Way {
    /// The folder at its end, without links.
    pub(super) folder: PathBuf,
    /// The symbolic links on the way. Their own folders are named without links.
    links: Vec<PathBuf>,
}

impl Way {
    pub(super) fn to(folder: &Path) -> io::Result<Way> {
        let parts = |path: &Path| -> Vec<OsString> {
            path.components().map(|part| part.as_os_str().to_owned()).collect()
        };
        let mut way = Way { folder: PathBuf::from("/"), links: Vec::new() };
        let mut ahead = VecDeque::from(parts(&std::path::absolute(folder)?));
        while let Some(part) = ahead.pop_front() {
            if part == "." {
                continue;
            }
            if part == ".." {
                way.folder.pop();
                continue;
            }
            // The root replaces everything before it.
            let next = way.folder.join(&part);
            if !fs::symlink_metadata(&next)?.is_symlink() {
                way.folder = next;
                continue;
            }
            if way.links.len() == MOST_LINKS {
                return Err(Errno::LOOP.into());
            }
            for part in parts(&fs::read_link(&next)?).into_iter().rev() {
                ahead.push_front(part);
            }
            way.links.push(next);
        }
        Ok(way)
    }

    /// Who could replace `file` in the folder at the end, or a link on the way.
    pub(super) fn exposed(&self, file: &Path) -> io::Result<Option<Exposed>> {
        self.exposed_by(file, Accounts::read)
    }

    fn exposed_by(
        &self,
        file: &Path,
        accounts: impl Fn() -> Accounts,
    ) -> io::Result<Option<Exposed>> {
        let user = geteuid();
        // Root may open the file of a user, who can replace it anyway.
        let theirs = fs::symlink_metadata(file).map(|about| about.uid());
        let theirs = theirs.ok().filter(|_| user.is_root());
        let is_trusted = |owner| owner == 0 || owner == user.as_raw() || Some(owner) == theirs;
        for link in &self.links {
            if !is_trusted(fs::symlink_metadata(link)?.uid()) {
                let reason =
                    format!("the symbolic link {} belongs to another user", link.display());
                return Ok(Some(Exposed { reason, fix: "name the folder that it leads to" }));
            }
        }
        let above_links = self.links.iter().flat_map(|link| link.ancestors().skip(1));
        let above = self.folder.ancestors().skip(1).chain(above_links);
        for (folder, has_file) in
            [(&*self.folder, true)].into_iter().chain(above.map(|folder| (folder, false)))
        {
            let about = fs::metadata(folder)?;
            let (mode, shown) = (about.mode(), folder.display());
            // In a folder with the sticky bit nobody can rename or replace what belongs to others.
            let is_sticky = !has_file && mode & 0o1000 != 0;
            // A group that consists of one of these users alone can do nothing that they cannot. The folder of the
            // file itself is refused all the same: it is easily changed, and the group may gain members later.
            let is_alone = |group| {
                !has_file
                    && is_trusted(group)
                    && accounts().is_private(group)
                    && !groups::has_list(folder)
            };
            let (reason, fix) = if !is_trusted(about.uid()) {
                (
                    format!("{shown} belongs to another user"),
                    "use a folder that belongs to this user",
                )
            } else if mode & 0o002 != 0 && !is_sticky {
                (format!("everyone may write to {shown}"), "chmod o-w it")
            } else if mode & 0o020 != 0 && !is_sticky && !is_alone(about.gid()) {
                (format!("a group may write to {shown}"), "chmod g-w it")
            } else {
                continue;
            };
            return Ok(Some(Exposed { reason, fix }));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::DirBuilder;
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt, lchown, symlink};

    use super::*;

    /// A new folder with this mode.
    fn folder(name: &str, mode: u32) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tenure-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn exposed(folder: &Path) -> Option<String> {
        let found = Way::to(folder).unwrap().exposed(&folder.join("x.db")).unwrap();
        found.map(|found| found.reason)
    }

    #[test]
    fn links_are_followed_as_the_kernel_does() {
        let top = folder("links", 0o700);
        DirBuilder::new().recursive(true).mode(0o700).create(top.join("a/b/c")).unwrap();
        symlink("a/b", top.join("relative")).unwrap();
        symlink(top.join("relative/../b"), top.join("a/again")).unwrap();
        symlink("./a", top.join("here")).unwrap();
        symlink("loop", top.join("loop")).unwrap();
        for path in
            ["a/b/c", "relative/c", "relative/../b/c", "a/again/c", "./a/./again/../b/c", "here/b"]
        {
            let path = top.join(path);
            let (found, real) = (Way::to(&path).unwrap().folder, path.canonicalize().unwrap());
            // A `Path` is also equal to one with a `.` in it.
            assert_eq!(found.as_os_str(), real.as_os_str(), "{path:?}");
        }
        assert_eq!(Way::to(&top.join("a/again/c")).unwrap().links.len(), 2);
        let error = Way::to(&top.join("loop/c")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn a_link_that_others_could_point_elsewhere_is_refused() {
        let (own, open) = (folder("own", 0o700), folder("open", 0o777));
        let link = open.join("link");
        symlink(&own, &link).unwrap();
        assert_eq!(exposed(&own), None);
        let reason = exposed(&link).unwrap();
        assert!(reason.starts_with("everyone may write to"), "{reason}");
        // Only the owner of a link can replace it there.
        fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(exposed(&link), None);
        if geteuid().is_root() {
            lchown(&link, Some(54321), None).unwrap();
            let reason = exposed(&link).unwrap();
            assert!(reason.starts_with("the symbolic link"), "{reason}");
        }
        fs::remove_dir_all(open).unwrap();
        fs::remove_dir_all(own).unwrap();
    }

    #[test]
    fn a_private_group_may_write_to_folders_above() {
        let above = folder("above", 0o770);
        let own = above.join("own");
        DirBuilder::new().mode(0o700).create(&own).unwrap();
        let (user, way) = (geteuid().as_raw(), Way::to(&own).unwrap());
        if fs::metadata(&above).unwrap().gid() != user {
            // This user has no group of the same number: `Accounts` is tested alone.
            return fs::remove_dir_all(above).unwrap();
        }
        let users = format!("me:x:{user}:{user}::/:/bin/sh\nbo:x:54321:54321::/:/bin/sh");
        let reason = |groups: &str| {
            let accounts = || Accounts::of(&users, groups);
            let found = way.exposed_by(&own.join("x.db"), accounts).unwrap();
            found.map(|found| found.reason)
        };
        assert_eq!(reason(&format!("me:x:{user}:")), None);
        let shared = reason(&format!("me:x:{user}:bo")).unwrap();
        assert!(shared.starts_with("a group may write to"), "{shared}");
        // A user on an access control list need not be in the group.
        let entries: [(u16, u16, u32); 5] = [
            (0x01, 7, u32::MAX),
            (0x02, 7, 54321),
            (0x04, 7, u32::MAX),
            (0x10, 7, u32::MAX),
            (0x20, 0, u32::MAX),
        ];
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (who, may, number) in entries {
            list.extend(who.to_le_bytes());
            list.extend(may.to_le_bytes());
            list.extend(number.to_le_bytes());
        }
        let flags = rustix::fs::XattrFlags::empty();
        match rustix::fs::setxattr(&above, "system.posix_acl_access", &list, flags) {
            Err(Errno::OPNOTSUPP) => {}
            set => {
                set.unwrap();
                assert!(
                    reason(&format!("me:x:{user}:")).is_some(),
                    "somebody else may write to it"
                );
            }
        }
        fs::remove_dir_all(above).unwrap();
    }
}
