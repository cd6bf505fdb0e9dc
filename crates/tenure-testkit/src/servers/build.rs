//! The settings of a server.

use std::fmt::Write;

use super::folder::Folder;
use super::launch::{Launch, SOCKET};
use super::{Certificates, Clock, Flavour, Redis, ServerError, free_port};

/// The user of the test kit, if a server has users.
const OWN_USER: (&str, &str) = ("testkit", "testkit-secret");

/// When an append-only file is synced to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Before each answer.
    Always,
    /// Once a second.
    EverySec,
}

/// A server that is not started yet. By default it listens on a free port of the loopback address, and keeps
/// nothing on disk.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing runs before `start`"]
pub struct Build {
    flavour: Flavour,
    port: Option<u16>,
    fsync: Option<Fsync>,
    rdb: bool,
    socket_only: bool,
    cluster: bool,
    sentinel: bool,
    password: Option<String>,
    users: Option<String>,
    tls: Option<Certificates>,
    wants_client_certificate: bool,
    clock: Option<Clock>,
    settings: String,
}

impl Build {
    /// The program. Default: [`Flavour::Debian`].
    pub fn flavour(mut self, flavour: Flavour) -> Build {
        self.flavour = flavour;
        self
    }

    /// A port. Default: a free one.
    pub fn port(mut self, port: u16) -> Build {
        self.port = Some(port);
        self
    }

    /// Keeps an append-only file.
    pub fn aof(mut self, fsync: Fsync) -> Build {
        self.fsync = Some(fsync);
        self
    }

    /// Saves a snapshot a second after a change, and on shutdown.
    pub fn rdb(mut self) -> Build {
        self.rdb = true;
        self
    }

    /// Listens only on its Unix socket, which always exists because the test kit uses it.
    pub fn unix_socket(mut self) -> Build {
        self.socket_only = true;
        self
    }

    /// Requires this password from all clients.
    pub fn password(mut self, password: &str) -> Build {
        self.password = Some(password.to_owned());
        self
    }

    /// Users, one per line: `user alice on >secret ~tenure:* &* +@all`. The test kit adds its own.
    pub fn acl(mut self, lines: &[&str]) -> Build {
        let (user, secret) = OWN_USER;
        let own = format!("user {user} on >{secret} ~* &* +@all");
        self.users = Some([lines, &[own.as_str(), ""]].concat().join("\n"));
        self
    }

    /// Uses TLS on its port, and nothing else there. Only [`Flavour::Debian`] supports it.
    pub fn tls(mut self, certificates: &Certificates) -> Build {
        self.tls = Some(certificates.clone());
        self
    }

    /// With TLS, clients need a certificate of the authority, too.
    pub fn client_certificate_needed(mut self) -> Build {
        self.wants_client_certificate = true;
        self
    }

    /// A replica of the server on that port of the loopback address.
    pub fn replica_of(self, port: u16) -> Build {
        self.setting("replicaof", &format!("127.0.0.1 {port}"))
    }

    /// The server sees the time of this clock.
    pub fn clock(mut self, clock: &Clock) -> Build {
        self.clock = Some(clock.clone());
        self
    }

    /// Adds a line to the configuration, unchanged.
    pub fn setting(mut self, key: &str, value: &str) -> Build {
        let _ = writeln!(self.settings, "{key} {value}");
        self
    }

    /// A node of a cluster that is not formed yet; [`Cluster`](super::Cluster) forms one.
    pub fn cluster(mut self) -> Build {
        self.cluster = true;
        self
    }

    /// A sentinel that watches nothing yet.
    pub(crate) fn sentinel(mut self) -> Build {
        self.sentinel = true;
        self
    }

    /// Starts it, and waits until it answers: at most 10 s. The error contains the end of its log.
    pub fn start(self) -> Result<Redis, ServerError> {
        for _ in 0..10 {
            let port = self.port.map_or_else(free_port, Ok)?;
            let launch = self.launch(port)?;
            match launch.run() {
                Ok(process) => return Ok(Redis::new(launch, process)),
                // Another process took the port between our check and the server's.
                Err(_) if self.port.is_none() && launch.port_was_taken() => {}
                Err(error) => return Err(error),
            }
        }
        Err(ServerError::new("every port that looked free was taken, ten times in a row"))
    }

    fn launch(&self, port: u16) -> Result<Launch, ServerError> {
        let folder = Folder::new("redis")?;
        let (user, secret) = OWN_USER;
        let mut credentials = Vec::new();
        if let Some(users) = &self.users {
            folder.write("users.acl", users)?;
            credentials = vec![user.to_owned(), secret.to_owned()];
        } else if let Some(password) = &self.password {
            credentials = vec![password.clone()];
        }
        folder.write("server.conf", &self.configuration(&folder, port)?)?;
        let socket = folder.path().join(SOCKET);
        let url = if self.socket_only {
            format!("unix://{}", socket.display())
        } else {
            let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
            format!("{scheme}://127.0.0.1:{port}")
        };
        Ok(Launch {
            program: self.flavour.program()?,
            folder,
            socket,
            port,
            url,
            sentinel: self.sentinel,
            credentials,
            clock: self.clock.clone(),
        })
    }

    fn configuration(&self, folder: &Folder, port: u16) -> Result<String, ServerError> {
        let directory = folder.path().display();
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            format!("dir \"{directory}\""),
            format!("unixsocket \"{directory}/{SOCKET}\""),
        ];
        let listens_plainly = !self.socket_only && self.tls.is_none();
        lines.push(format!("port {}", if listens_plainly { port } else { 0 }));
        if let Some(certificates) = &self.tls {
            let clients = if self.wants_client_certificate { "yes" } else { "no" };
            lines.push(format!("tls-port {port}\ntls-auth-clients {clients}"));
            lines.push(format!("tls-ca-cert-file \"{}\"", certificates.ca_path().display()));
            let (certificate, key) = (certificates.server_path(), certificates.server_key_path());
            lines.push(format!("tls-cert-file \"{}\"", certificate.display()));
            lines.push(format!("tls-key-file \"{}\"", key.display()));
        }
        if !self.sentinel {
            lines.push(format!("save {}", if self.rdb { "1 1" } else { "\"\"" }));
            // The replica syncs at once: by default its primary waits 5 s for others to join.
            lines.push("repl-diskless-sync-delay 0".to_owned());
            if self.flavour.is_modern() {
                lines.push("enable-debug-command local".to_owned());
            }
        }
        if let Some(fsync) = self.fsync {
            let when = if fsync == Fsync::Always { "always" } else { "everysec" };
            lines.push(format!("appendonly yes\nappendfsync {when}"));
        }
        if let Some(password) = &self.password {
            lines.push(format!("requirepass \"{password}\"\nmasterauth \"{password}\""));
        }
        if self.users.is_some() {
            let (user, secret) = OWN_USER;
            lines.push(format!("aclfile \"{directory}/users.acl\""));
            lines.push(format!("masteruser {user}\nmasterauth {secret}"));
        }
        if self.cluster {
            lines.push("cluster-enabled yes\ncluster-node-timeout 1000".to_owned());
            if self.flavour.is_modern() {
                // Not its port plus 10,000, which is in the range of outgoing connections.
                lines.push(format!("cluster-port {}", free_port()?));
            }
        }
        Ok(format!("{}\n{}", lines.join("\n"), self.settings))
    }
}
