//! A pooler in front of a Postgres server.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::flavour::not_installed;
use super::postgres::User;
use super::process::Process;
use super::{Folder, Postgres, ServerError, eventually, free_port};

const PATIENCE: Duration = Duration::from_secs(10);
/// Few, so that another client soon gets a session with leftover state.
const SERVER_CONNECTIONS: u32 = 8;

/// pgbouncer in transaction mode: each transaction may run in another session. Dropping it ends it.
#[derive(Debug)]
pub struct Pgbouncer {
    // First, so that the process ends before its folder is removed.
    process: Mutex<Process>,
    program: PathBuf,
    user: User,
    folder: Folder,
    port: u16,
}

impl Pgbouncer {
    /// Starts one in front of a server.
    pub fn start(server: &Postgres) -> Result<Pgbouncer, ServerError> {
        let program = Path::new("/usr/sbin/pgbouncer").to_owned();
        if !program.is_file() {
            return Err(not_installed("pgbouncer"));
        }
        let folder = Folder::new("pgb")?;
        let user = User::for_server()?;
        let port = free_port()?;
        let server = server.port();
        // With `any`, the user is the one in the line of the database.
        let config = format!(
            "[databases]\n* = host=127.0.0.1 port={server} user=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\nmax_client_conn = 500\ndefault_pool_size = {SERVER_CONNECTIONS}\n\
             server_login_retry = 1\n"
        );
        folder.write("pgbouncer.ini", &config)?;
        user.give(folder.path())?;
        let mut pooler = Pgbouncer::launch(&program, &user, &folder)?;
        answers(&mut pooler, port, &folder)?;
        Ok(Pgbouncer { process: Mutex::new(pooler), program, user, folder, port })
    }

    /// The URL of a database behind it.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Kills it and starts it again with the same port.
    pub fn restart(&self) -> Result<(), ServerError> {
        let mut process = self.process();
        process.kill()?;
        *process = Pgbouncer::launch(&self.program, &self.user, &self.folder)?;
        answers(&mut process, self.port, &self.folder)
    }

    fn launch(program: &Path, user: &User, folder: &Folder) -> Result<Process, ServerError> {
        let log = File::options().create(true).append(true).open(folder.path().join("log"));
        let log = log.map_err(ServerError::during("cannot open a log"))?;
        let mut command = user.command_of_ours(program);
        command.arg(folder.path().join("pgbouncer.ini"));
        Process::start(&command, &log)
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn answers(process: &mut Process, port: u16, folder: &Folder) -> Result<(), ServerError> {
    eventually("pgbouncer answers", PATIENCE, || {
        process.ended().is_some() || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    })?;
    match process.ended() {
        None => Ok(()),
        Some(status) => {
            let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            Err(ServerError::new(format!("pgbouncer ended with {status}: {log}")))
        }
    }
}
