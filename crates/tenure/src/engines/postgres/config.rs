//! The configuration of the engine, and the URL that it is read from.
//!
//! **Invariant:** an error never quotes the URL: any of it can be part of a password.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::model::error::{Error, Result};

/// How long the server may take to answer. Longer than a step waits for the row of its name.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(6);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const MOST_CONNECTIONS: usize = 64;

/// How to connect to Postgres.
///
/// [`from_url`](PostgresConfig::from_url) reads a URL.
#[derive(Clone)]
#[non_exhaustive]
pub struct PostgresConfig {
    /// Hosts, user, password, database and the settings that Postgres itself knows.
    pub(super) server: tokio_postgres::Config,
    /// Over how many connections steps go, at most. Steps of one name always take the same one. Default: 4.
    pub connections: usize,
    /// When to listen for turns. Default: while someone waits or holds for longer than a second.
    pub listen: Listen,
    /// The host and port for the session that listens, if the others go through a pooler. Default: the same.
    pub listen_at: Option<(String, u16)>,
    /// Whether to make the tables and functions if they are missing. Default: no.
    pub setup: bool,
    /// A PEM file with the roots to trust instead of the system's, for TLS. Default: the system's roots.
    pub ca: Option<PathBuf>,
    /// How long the server may take to answer a step. Default: 6 s.
    pub command_timeout: Duration,
}

/// When to listen for turns.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Listen {
    /// While it is of use: up to Postgres 18, every notification wakes every session of the database that listens.
    #[default]
    WhenNeeded,
    /// Always.
    Always,
    /// Never: claims that wait look by themselves, as behind a pooler in transaction mode.
    Never,
}

/// The options of the URL that Postgres itself knows.
const SERVERS: [&str; 19] = [
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "sslmode",
    "sslnegotiation",
    "channel_binding",
    "host",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "load_balance_hosts",
];

impl PostgresConfig {
    /// The schemes of the URLs that [`from_url`](PostgresConfig::from_url) reads.
    pub const SCHEMES: [&str; 2] = crate::engines::POSTGRES_SCHEMES;

    /// Reads a URL. Returns the options that are not about Postgres, too.
    ///
    /// # Errors
    /// `Invalid` if it cannot be read.
    pub fn from_url(url: &str) -> Result<(PostgresConfig, Vec<(String, String)>)> {
        let (location, query) = url.split_once('?').unwrap_or((url, ""));
        let mut known = Vec::new();
        let (mut ours, mut rest) = (Vec::new(), Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (option, value) = pair.split_once('=').unwrap_or((pair, ""));
            if option.contains('@') {
                // Part of a password, which must not be quoted.
                return Err(Error::invalid("the URL of Postgres has a ? before its host")
                    .next("write ? as %3F in a user or a password"));
            }
            match option {
                // Certificates are always verified.
                "sslmode" if matches!(value, "verify-ca" | "verify-full") => {
                    known.push("sslmode=require".to_owned());
                }
                option if SERVERS.contains(&option) => known.push(pair.to_owned()),
                "connections" | "listen" | "setup" | "sslrootcert" | "command_timeout" => {
                    ours.push((option, decoded(value)?));
                }
                _ => rest.push((option.to_owned(), value.to_owned())),
            }
        }
        let text = format!("{location}?{}", known.join("&"));
        let server = text.parse().map_err(|error: tokio_postgres::Error| {
            // Its text may quote what it could not read.
            let about = if error.to_string().contains("option") { ": an option" } else { "" };
            Error::invalid(format!("the URL of Postgres cannot be read{about}"))
                .next("write postgres://USER:PASSWORD@HOST:PORT/DATABASE, with % codes for other characters")
        })?;
        let mut config = PostgresConfig::new(server);
        for (option, value) in &ours {
            config.set(option, value)?;
        }
        Ok((config, rest))
    }

    fn new(mut server: tokio_postgres::Config) -> PostgresConfig {
        if server.get_application_name().is_none() {
            server.application_name("tenure");
        }
        if server.get_connect_timeout().is_none() {
            server.connect_timeout(CONNECT_TIMEOUT);
        }
        if server.get_tcp_user_timeout().is_none() {
            server.tcp_user_timeout(COMMAND_TIMEOUT * 2);
        }
        server.keepalives_idle(server.get_keepalives_idle().min(Duration::from_secs(30)));
        if server.get_target_session_attrs() == TargetSessionAttrs::Any
            && server.get_hosts().len() > 1
        {
            server.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        // Opportunistic TLS protects from nobody who can change what is sent, and fails where certificates are not
        // made to be verified: TLS is for those who ask for it.
        if server.get_ssl_mode() == SslMode::Prefer {
            server.ssl_mode(SslMode::Disable);
        }
        PostgresConfig {
            server,
            connections: 4,
            listen: Listen::default(),
            listen_at: None,
            setup: false,
            ca: None,
            command_timeout: COMMAND_TIMEOUT,
        }
    }

    fn set(&mut self, option: &str, value: &str) -> Result<()> {
        let bad = |next| Error::invalid(format!("cannot read {option}={value:?}")).next(next);
        match option {
            "connections" => {
                let count =
                    value.parse().ok().filter(|count| (1..=MOST_CONNECTIONS).contains(count));
                self.connections = count.ok_or_else(|| bad("write a number from 1 to 64"))?;
            }
            "setup" => self.setup = value.parse().map_err(|_| bad("write true or false"))?,
            "sslrootcert" => self.ca = Some(PathBuf::from(value)),
            "command_timeout" => {
                let timeout = humantime::parse_duration(value).ok();
                let timeout = timeout.filter(|timeout| *timeout >= Duration::from_millis(10));
                self.command_timeout = timeout.ok_or_else(|| bad("write a time such as 6s"))?;
            }
            _ => match value {
                "always" => self.listen = Listen::Always,
                "never" => self.listen = Listen::Never,
                "when-needed" => self.listen = Listen::WhenNeeded,
                address => {
                    let next =
                        "write when-needed, always, never, or HOST:PORT of the server itself";
                    let (host, port) = address.rsplit_once(':').ok_or_else(|| bad(next))?;
                    let port = port.parse().map_err(|_| bad(next))?;
                    self.listen_at = Some((host.to_owned(), port));
                }
            },
        }
        Ok(())
    }

    /// How the session that listens connects.
    pub(super) fn listener(&self) -> tokio_postgres::Config {
        let Some((host, port)) = &self.listen_at else { return self.server.clone() };
        // Everything but the hosts, which cannot be replaced.
        let mut config = tokio_postgres::Config::new();
        config.host(host).port(*port);
        let from = &self.server;
        from.get_user().map(|user| config.user(user));
        from.get_password().map(|password| config.password(password));
        from.get_dbname().map(|database| config.dbname(database));
        from.get_application_name().map(|name| config.application_name(name));
        from.get_connect_timeout().map(|timeout| config.connect_timeout(*timeout));
        config.ssl_mode(from.get_ssl_mode());
        config.channel_binding(from.get_channel_binding());
        config.keepalives_idle(from.get_keepalives_idle());
        config
    }

    /// The servers and the database, without user and password.
    pub fn label(&self) -> String {
        let ports = self.server.get_ports();
        let hosts = self.server.get_hosts().iter().enumerate().map(|(at, host)| {
            let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(host) => format!("{host}:{port}"),
                Host::Unix(path) => path.display().to_string(),
            }
        });
        let database = self.server.get_dbname().or(self.server.get_user()).unwrap_or_default();
        format!("postgres://{}/{database}", hosts.collect::<Vec<_>>().join(","))
    }

    pub(super) fn uses_tls(&self) -> bool {
        self.server.get_ssl_mode() != SslMode::Disable
    }
}

/// Never shows the password.
impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig").field("server", &self.label()).finish_non_exhaustive()
    }
}

/// Decodes % codes.
fn decoded(text: &str) -> Result<String> {
    let bad = || Error::invalid("an option of the URL has a bad % code").next("write % as %25");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let digits = [rest.next().ok_or_else(bad)?, rest.next().ok_or_else(bad)?];
                let digits = std::str::from_utf8(&digits).map_err(|_| bad())?;
                u8::from_str_radix(digits, 16).map_err(|_| bad())?
            }
            byte => byte,
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let url = "postgres://me:s%20cret@one:1,two:2/locks?connections=7&ttl=3s&listen=db:5433&setup=true";
        let (config, rest) = PostgresConfig::from_url(url).unwrap();
        assert_eq!(config.label(), "postgres://one:1,two:2/locks");
        assert_eq!((config.connections, config.setup), (7, true));
        assert_eq!(config.listen_at, Some(("db".to_owned(), 5433)));
        assert_eq!(rest, [("ttl".to_owned(), "3s".to_owned())]);
        assert_eq!(config.server.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert!(!format!("{config:?}").contains("cret"));
    }

    #[test]
    fn what_cannot_be_read_is_named_and_no_password_is_shown() {
        for (url, says) in [
            ("postgres://me:secret@host:port/", "cannot be read"),
            ("postgres://me:sec?secret@host/", "%3F"),
            ("postgres://me:secret@host/?connections=0", "connections=\"0\""),
            ("postgres://me:secret@host/?setup=perhaps", "setup"),
            ("postgres://me:secret@host/?listen=there", "HOST:PORT"),
            ("postgres://me:secret@host/?listen=%zz", "% code"),
        ] {
            let error = PostgresConfig::from_url(url).unwrap_err().to_string();
            assert!(error.contains(says), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
