//! Whether a group is a user's private group, which most distributions create for each user.
//!
//! Such a group comes with a umask of 002, so a user's own folders, `~/.local` included, are often writable by it.
//! Refusing them would protect against nobody.

use std::fs;
use std::path::Path;

use rustix::fs::getxattr;
use rustix::io::Errno;

/// The access control list of a folder. If there is one, the mode's group bits are the most that anyone on it has.
const LIST: &str = "system.posix_acl_access";

/// The users and groups in this machine's own files.
pub(super) struct Accounts {
    users: String,
    groups: String,
}

impl Accounts {
    #[cfg(test)]
    pub(super) fn of(users: &str, groups: &str) -> Accounts {
        Accounts { users: users.to_owned(), groups: groups.to_owned() }
    }

    pub(super) fn read() -> Accounts {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Accounts { users: text("/etc/passwd"), groups: text("/etc/group") }
    }

    /// Whether the group is the private one of the user with the same number: it has the user's name and no other
    /// members, and is nobody else's primary group. A group that is not in the files is not known to be private.
    /// The numbers must match because the files do not show the users of a directory service, whose primary group
    /// may be one of these, such as `users`.
    pub(super) fn is_private(&self, group: u32) -> bool {
        // NAME:PASSWORD:UID:GID:…
        let users = self.users.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, _) = (fields.next()?, fields.next()?);
            let (user, first) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            Some((name, user, first))
        });
        let users: Vec<(&str, u32, u32)> = users.collect();
        let is_the_user = |member: &str| {
            let mut named = users.iter().filter(|(name, ..)| *name == member).peekable();
            named.peek().is_some() && named.all(|(_, user, _)| *user == group)
        };
        // NAME:PASSWORD:GID:MEMBER,MEMBER
        let mut same = self.groups.lines().filter_map(|line| {
            let fields: Vec<_> = line.split(':').collect();
            let [name, _, number, members] = fields[..] else { return None };
            (number.parse() == Ok(group)).then_some((name, members))
        });
        let (Some((name, members)), None) = (same.next(), same.next()) else { return false };
        let members = members.split(',').map(str::trim).filter(|member| !member.is_empty());
        is_the_user(name)
            && members.into_iter().all(is_the_user)
            && users.iter().all(|(_, user, first)| *first != group || *user == group)
    }
}

/// Whether the folder has an access control list. If that cannot be determined, it may have one.
pub(super) fn has_list(folder: &Path) -> bool {
    let none = [Errno::NODATA, Errno::OPNOTSUPP];
    getxattr(folder, LIST, &mut [0_u8; 0]).err().is_none_or(|error| !none.contains(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/bash\nsync:x:4:65534::/bin:/bin/sync\n\
        ada:x:1000:1000::/home/ada:/bin/sh\nbo:x:1001:1001::/home/bo:/bin/sh\n\
        cy:x:1002:1003::/home/cy:/bin/sh\ndi:x:1003:1003::/home/di:/bin/sh\n\
        app:x:100:65534::/:/bin/false\nel:x:1004:1004::/:/bin/sh";

    #[test]
    fn a_group_is_private_if_it_is_one_user_alone() {
        let groups = "root:x:0:\nstaff:x:50:\nusers:x:100:\nada:x:1000:\nbo:x:1001:ada\n\
            di:x:1003:\nel:x:1004:el\nfay:x:1005:\n";
        let accounts = Accounts::of(USERS, groups);
        for (group, private, why) in [
            (0, true, "root's, which nobody else is in"),
            (1000, true, "ada's"),
            (1004, true, "el is named as a member of her own group"),
            (1001, false, "ada is in bo's"),
            (1003, false, "it is cy's first group, too"),
            (100, false, "the user with this number has another name"),
            (50, false, "no user has this number"),
            (1005, false, "its user is not known"),
            (4242, false, "it is not known"),
        ] {
            assert_eq!(accounts.is_private(group), private, "{group}: {why}");
        }
        let twice = Accounts::of(USERS, &format!("{groups}also:x:1000:bo\n"));
        assert!(!twice.is_private(1000), "the number has two names");
        assert!(!Accounts::of("", "").is_private(0), "files that cannot be read say nothing");
    }
}
