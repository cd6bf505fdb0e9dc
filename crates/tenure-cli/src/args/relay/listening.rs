//! Where the relay listens, and who may ask there.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Command;
use tenure_relay::{Access, Tls};

use super::super::define::{flag, option};
use super::super::given::Given;
use super::words;
use crate::failure::{CONFIGURATION, Failure, USAGE};

const LISTEN: &str = "127.0.0.1:9545";
const ADMIN: &str = "127.0.0.1:9546";
/// The variable that has the tokens themselves. No flag does: others can see the command line.
const TOKENS: &str = "tokens";

/// Where it listens, and what is asked of clients there.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) listen: SocketAddr,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) hosts: Vec<String>,
    pub(crate) origins: Vec<String>,
    /// Those of the variable.
    access: Access,
    tokens_file: Option<PathBuf>,
    tls: Option<TlsFiles>,
}

#[derive(Debug)]
struct TlsFiles {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

pub(super) fn define(command: Command) -> Command {
    command
        .arg(option("listen", None, "ADDRESS", "Address to listen on [default: 127.0.0.1:9545]"))
        .arg(option("admin-listen", None, "ADDRESS", "Address for health and metrics, over plain HTTP [default: same as --listen]"))
        .arg(flag(
            "insecure",
            None,
            "Allow other machines to connect without TLS or without authentication",
        ))
        .arg(option("tokens-file", None, "FILE", "File of clients, one per line: name, token and limits; TENURE_TOKENS takes the lines themselves [default: everybody]"))
        .arg(option("tls-cert", None, "FILE", "Serve TLS with the certificates in this PEM file"))
        .arg(option("tls-key", None, "FILE", "Private key of --tls-cert, in PEM"))
        .arg(option("tls-client-ca", None, "FILE", "Only accept clients with a certificate of these authorities, in PEM"))
        .arg(option("hosts", None, "NAMES", "Host names by which clients reach the relay, comma-separated; * for any [default: addresses and localhost]"))
        .arg(option("cors", None, "ORIGINS", "Origins whose pages may use the relay from a browser, comma-separated; * for any [default: none]"))
}

impl Listening {
    pub(super) fn read(given: &Given<'_>) -> Result<Listening, Failure> {
        let list = |name| -> Result<Vec<String>, Failure> {
            let said = given.text(name)?.map(|found| found.value).unwrap_or_default();
            Ok(words(&said).map(String::from).collect())
        };
        let path = |name| given.bytes(name).map(|found| PathBuf::from(found.value));
        let listening = Listening {
            listen: address(given, "listen", LISTEN)?.unwrap_or_else(default_address),
            admin: address(given, "admin-listen", ADMIN)?,
            hosts: list("hosts")?,
            origins: list("cors")?,
            access: read_tokens(given)?,
            tokens_file: path("tokens-file"),
            tls: read_tls(given)?,
        };
        if listening.tokens_file.is_some() && !listening.access.is_open() {
            return Err(Failure::new(
                CONFIGURATION,
                "tokens given in two places",
                "both TENURE_TOKENS and --tokens-file are set",
                "use one of them",
            ));
        }
        listening.check(given.flag("insecure")?.value)?;
        Ok(listening)
    }

    /// Where nobody is asked who they are, others are not let in by accident.
    fn check(&self, is_insecure: bool) -> Result<(), Failure> {
        let asks_by_certificate = self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let asks = self.tokens_file.is_some() || !self.access.is_open() || asks_by_certificate;
        if let Some(admin) = self.admin.filter(|admin| !admin.ip().is_loopback() && !is_insecure) {
            return Err(Failure::new(
                USAGE,
                format!("{admin} can be reached by other machines"),
                "health and metrics are served over plain HTTP, without authentication",
                "use --insecure if the network is trusted; --listen keeps its tokens and TLS",
            ));
        }
        let why = match (asks, self.tls.is_some()) {
            _ if self.listen.ip().is_loopback() || is_insecure => return Ok(()),
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

    /// Whether there is something to read again.
    pub(crate) fn has_files(&self) -> bool {
        self.tokens_file.is_some() || self.tls.is_some()
    }

    /// Who may ask.
    pub(crate) fn access(&self) -> Result<Access, Failure> {
        let Some(path) = &self.tokens_file else { return Ok(self.access.clone()) };
        let lines = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let access = lines.and_then(|lines| Access::from_lines(&lines));
        access.map_err(|why| no_tokens(&path.display().to_string(), &why))
    }

    /// How TLS is spoken, if it is.
    pub(crate) fn tls(&self) -> Result<Option<Tls>, Failure> {
        let Some(TlsFiles { cert, key, client_ca }) = &self.tls else { return Ok(None) };
        let tls = Tls::from_files(cert, key, client_ca.as_deref());
        let help = "name PEM files that this user can read";
        tls.map(Some).map_err(|why| Failure::new(CONFIGURATION, "cannot set up TLS", why, help))
    }
}

fn no_tokens(place: &str, why: &str) -> Failure {
    let help = "each line is: NAME TOKEN rate=N in-flight=N; a hashed token is written sha256:HEX";
    Failure::new(CONFIGURATION, format!("cannot read tokens from {place}"), why, help)
}

fn read_tokens(given: &Given<'_>) -> Result<Access, Failure> {
    let Some(lines) = given.secret(TOKENS) else { return Ok(Access::default()) };
    let access = match lines.to_str() {
        Some(lines) => Access::from_lines(lines),
        None => Err("it is not valid UTF-8".to_owned()),
    };
    access.map_err(|why| no_tokens("TENURE_TOKENS", &why))
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

fn default_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 9545))
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
