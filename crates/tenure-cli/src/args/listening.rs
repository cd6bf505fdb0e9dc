//! Where a server listens, and which clients may use it: for the relay and for `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Command;
use tenure_http::{Listen, Tls};

use super::define::{flag, option};
use super::given::Given;
use crate::failure::{CONFIGURATION, Failure, USAGE};

const EXAMPLE: &str = "127.0.0.1:9545";
const SOCKET: &str = "unix:/run/tenure/tenure.sock";
/// The permissions of a unix socket: for the user of the server alone.
const OWN_SOCKET: u32 = 0o600;
#[cfg(feature = "relay")]
const ADMIN: &str = "127.0.0.1:9546";
#[cfg(feature = "relay")]
/// The variable with the tokens themselves. There is no flag for them, because others can see the command line.
const TOKENS: &str = "tokens";

/// Where it listens, and what it requires of clients.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) listen: Listen,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) hosts: Vec<String>,
    #[cfg(feature = "relay")]
    pub(crate) origins: Vec<String>,
    /// The tokens from the variable.
    tokens: Option<String>,
    tokens_file: Option<PathBuf>,
    tls: Option<TlsFiles>,
}

#[derive(Debug)]
struct TlsFiles {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

/// The flags that both servers have, apart from the address.
pub(super) fn define(command: Command) -> Command {
    command
        .arg(flag(
            "insecure",
            None,
            "Allow other machines to connect without TLS or without authentication",
        ))
        .arg(option("tls-cert", None, "FILE", "Serve TLS with the certificates in this PEM file"))
        .arg(option("tls-key", None, "FILE", "Private key of --tls-cert, in PEM"))
        .arg(option("tls-client-ca", None, "FILE", "Only accept clients with a certificate of these authorities, in PEM"))
        .arg(option("hosts", None, "NAMES", "Host names by which clients reach the server, comma-separated; * for any [default: addresses and localhost]"))
}

impl Listening {
    /// Reads the flags of [`define`], the address and the file of tokens.
    pub(super) fn read(given: &Given<'_>, default_port: u16) -> Result<Listening, Failure> {
        let path = |name| given.bytes(name).map(|found| PathBuf::from(found.value));
        let own = SocketAddr::from(([127, 0, 0, 1], default_port));
        Ok(Listening {
            listen: listen(given)?.unwrap_or(Listen::Address(own)),
            admin: None,
            hosts: list(given, "hosts")?,
            #[cfg(feature = "relay")]
            origins: Vec::new(),
            tokens: None,
            tokens_file: path("tokens-file"),
            tls: read_tls(given)?,
        })
    }

    /// What the relay has besides.
    #[cfg(feature = "relay")]
    pub(super) fn read_more(mut self, given: &Given<'_>) -> Result<Listening, Failure> {
        self.admin = address(given, "admin-listen", ADMIN)?;
        self.origins = list(given, "cors")?;
        self.tokens = match given.secret(TOKENS).map(std::ffi::OsString::into_string) {
            Some(Ok(lines)) => Some(lines),
            Some(Err(_)) => return Err(no_tokens("TENURE_TOKENS", "it is not valid UTF-8", "")),
            None => None,
        };
        if self.tokens_file.is_some() && self.tokens.is_some() {
            return Err(Failure::new(
                CONFIGURATION,
                "tokens given in two places",
                "both TENURE_TOKENS and --tokens-file are set",
                "use one of them",
            ));
        }
        Ok(self)
    }

    /// Without authentication, a server must not be reachable by others by accident.
    pub(super) fn check(&self, given: &Given<'_>) -> Result<(), Failure> {
        let is_insecure = given.flag("insecure")?.value;
        let asks_by_certificate = self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let asks = self.tokens_file.is_some() || self.tokens.is_some() || asks_by_certificate;
        if let Some(admin) = self.admin.filter(|admin| !admin.ip().is_loopback() && !is_insecure) {
            return Err(Failure::new(
                USAGE,
                format!("{admin} can be reached by other machines"),
                "health and metrics are served over plain HTTP, without authentication",
                "use --insecure if the network is trusted; --listen keeps its tokens and TLS",
            ));
        }
        if self.tls.is_some() && matches!(self.listen, Listen::Socket { .. }) {
            return Err(Failure::new(
                USAGE,
                "TLS is for addresses",
                "nobody can listen in on a unix socket",
                "leave out --tls-cert and --tls-key",
            ));
        }
        let why = match (asks, self.tls.is_some()) {
            _ if self.listen.is_local() || is_insecure => return Ok(()),
            (true, true) => return Ok(()),
            (true, false) => "tokens would cross the network unencrypted",
            (false, true) => "clients are not authenticated",
            (false, false) => "there is no TLS, and clients are not authenticated",
        };
        Err(Failure::new(
            USAGE,
            format!("{} can be reached by other machines", self.listen),
            why,
            "set --tls-cert and --tls-key, and --tokens-file or --tls-client-ca; or use --insecure \
             if the network is trusted",
        ))
    }

    /// Whether there are files to reload.
    pub(crate) fn has_files(&self) -> bool {
        self.tokens_file.is_some() || self.tls.is_some()
    }

    /// Which clients have access. `read` reads the lines, whose form is `form`.
    pub(crate) fn access<A: Default>(
        &self,
        read: impl Fn(&str) -> Result<A, String>,
        form: &'static str,
    ) -> Result<A, Failure> {
        if let Some(lines) = &self.tokens {
            return read(lines).map_err(|why| no_tokens("TENURE_TOKENS", &why, form));
        }
        let Some(path) = &self.tokens_file else { return Ok(A::default()) };
        let lines = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let access = lines.and_then(|lines| read(&lines));
        access.map_err(|why| no_tokens(&path.display().to_string(), &why, form))
    }

    /// Reads the tokens from the variable, if there are any. A file is read later.
    #[cfg(feature = "relay")]
    pub(super) fn check_tokens<A>(
        &self,
        read: impl Fn(&str) -> Result<A, String>,
        form: &'static str,
    ) -> Result<(), Failure> {
        let read = self.tokens.as_deref().map(read).transpose();
        read.map(drop).map_err(|why| no_tokens("TENURE_TOKENS", &why, form))
    }

    /// The TLS configuration, if TLS is used.
    pub(crate) fn tls(&self) -> Result<Option<Tls>, Failure> {
        let Some(TlsFiles { cert, key, client_ca }) = &self.tls else { return Ok(None) };
        let tls = Tls::from_files(cert, key, client_ca.as_deref());
        let help = "name PEM files that this user can read";
        tls.map(Some).map_err(|why| Failure::new(CONFIGURATION, "cannot set up TLS", why, help))
    }
}

fn no_tokens(place: &str, why: &str, form: &'static str) -> Failure {
    Failure::new(CONFIGURATION, format!("cannot read tokens from {place}"), why, form)
}

/// A list, separated by commas.
fn list(given: &Given<'_>, name: &'static str) -> Result<Vec<String>, Failure> {
    let said = given.text(name)?.map(|found| found.value).unwrap_or_default();
    Ok(words(&said).map(String::from).collect())
}

/// The words of a list.
pub(super) fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split([',', ' ']).map(str::trim).filter(|word| !word.is_empty())
}

fn read_tls(given: &Given<'_>) -> Result<Option<TlsFiles>, Failure> {
    let path = |name| given.bytes(name).map(|found| PathBuf::from(found.value));
    let client_ca = path("tls-client-ca");
    match (path("tls-cert"), path("tls-key")) {
        (Some(cert), Some(key)) => Ok(Some(TlsFiles { cert, key, client_ca })),
        (None, None) if client_ca.is_none() => Ok(None),
        _ => Err(Failure::new(
            USAGE,
            "TLS needs a certificate and its key",
            "--tls-cert and --tls-key must be set together, and --tls-client-ca requires them",
            "set both",
        )),
    }
}

/// An address, or `unix:` and a path.
fn listen(given: &Given<'_>) -> Result<Option<Listen>, Failure> {
    let said = given.text("listen")?.map(|found| found.value).unwrap_or_default();
    let Some(path) = said.strip_prefix("unix:") else {
        return Ok(address(given, "listen", EXAMPLE)?.map(Listen::Address));
    };
    // unix:///run/x names the same file as unix:/run/x.
    let path = path.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(path);
    match path.is_empty() {
        true => Err(given.unreadable("listen", said.as_ref(), "the path is missing", SOCKET)),
        false => Ok(Some(Listen::Socket { path: path.into(), mode: OWN_SOCKET })),
    }
}

fn address(
    given: &Given<'_>,
    name: &'static str,
    example: &str,
) -> Result<Option<SocketAddr>, Failure> {
    let Some(said) = given.text(name)? else { return Ok(None) };
    match said.value.parse() {
        Ok(address) => Ok(Some(address)),
        Err(_) => {
            let why = "expected an IP address and a port";
            Err(given.unreadable(name, said.value.as_ref(), why, example))
        }
    }
}
