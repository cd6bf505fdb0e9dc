//! The settings of a connection, from its URL.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::model::error::{Error, Result};

/// How to reach a server.
#[derive(Clone)]
#[non_exhaustive]
pub struct HttpConfig {
    /// The unix socket of a server on this machine, in place of host and port.
    pub socket: Option<PathBuf>,
    /// The host.
    pub host: String,
    /// The port. Default: 7117.
    pub port: u16,
    /// Whether to use TLS: `https://`.
    pub tls: bool,
    /// A PEM file with the roots to trust, in place of the system's.
    pub ca: Option<PathBuf>,
    /// The token, a secret. Default: none.
    pub token: Option<String>,
    /// How long the server may take to answer a batch of steps. Default: 5 s.
    pub answer_within: Duration,
    /// How long connecting may take. Default: 2 s.
    pub connect_within: Duration,
}

impl fmt::Debug for HttpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConfig").field("label", &self.label()).finish_non_exhaustive()
    }
}

type Fields = Vec<(String, String)>;

impl HttpConfig {
    /// Reads `http://host:port`, `https://host:port` or `http+unix:/path`, with `:TOKEN@` before the host or `token_file=`
    /// or `ca=` in the query. Returns the fields of the query that are not the engine's. Without a token, `TENURE_TOKEN` is used.
    ///
    /// # Errors
    /// `Invalid`. Never quotes the URL, which may have a token in it.
    pub fn from_url(url: &str) -> Result<(HttpConfig, Fields)> {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let bad = |reason: &str| {
            Error::invalid(reason).next("write http://HOST:PORT, or http+unix:/PATH")
        };
        let socket = address.strip_prefix("http+unix:").map(|path| {
            // http+unix:///run/x names the same file as http+unix:/run/x.
            path.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(path)
        });
        if socket == Some("") {
            return Err(bad("the URL has no path of a socket"));
        }
        let address = if socket.is_some() { "http://localhost" } else { address };
        let (tls, rest) = match (address.strip_prefix("http://"), address.strip_prefix("https://"))
        {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(bad("the URL is not one of a server")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains('/') || rest.contains('#') {
            return Err(bad("the URL of a server has no path"));
        }
        let (secret, host) = match rest.rsplit_once('@') {
            Some((secret, host)) => (Some(secret), host),
            None => (None, rest),
        };
        let (host, port) = match host.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                (host, port.parse().map_err(|_| bad("the port is not a number"))?)
            }
            _ => (host, 7117),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(bad("the URL has no host"));
        }
        let mut config = HttpConfig {
            socket: socket.map(PathBuf::from),
            host: host.to_owned(),
            port,
            tls,
            ca: None,
            token: None,
            answer_within: Duration::from_secs(5),
            connect_within: Duration::from_secs(2),
        };
        let said = secret.map(|secret| secret.strip_prefix(':').unwrap_or(secret).to_owned());
        let (mut fields, mut file) = (Vec::new(), None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("token_file", path) => file = Some(path.to_owned()),
                ("ca", path) => config.ca = Some(path.into()),
                (field, value) => fields.push((field.to_owned(), value.to_owned())),
            }
        }
        config.token = token(said, file)?;
        Ok((config, fields))
    }

    /// The server, without secrets.
    pub(crate) fn label(&self) -> String {
        if let Some(socket) = &self.socket {
            return format!("http+unix:{}", socket.display());
        }
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// The `Host` of requests.
    pub(crate) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// The token: the one in the URL, that of this file, or that of the environment.
fn token(said: Option<String>, file: Option<String>) -> Result<Option<String>> {
    let token = match (said, file) {
        (Some(token), _) => Some(token),
        (None, Some(path)) => {
            let text = fs::read_to_string(&path).map_err(|error| {
                Error::invalid(format!("the token_file {path} cannot be read: {error}"))
            })?;
            Some(text.trim().to_owned())
        }
        (None, None) => std::env::var("TENURE_TOKEN").ok().filter(|token| !token.is_empty()),
    };
    if token.as_ref().is_some_and(|token| token.bytes().any(|b| !b.is_ascii_graphic())) {
        return Err(Error::invalid("the token has characters that no token has"));
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_the_server_is() {
        let read = |url: &str| HttpConfig::from_url(url).unwrap();
        let (config, fields) = read("http://locks.internal:80/?ttl=5s");
        assert_eq!((config.label().as_str(), config.port), ("http://locks.internal:80", 80));
        assert_eq!(fields, [("ttl".to_owned(), "5s".to_owned())]);
        let (config, _) = read("https://:s3cret@[::1]");
        assert_eq!((config.label().as_str(), config.tls), ("https://[::1]:7117", true));
        assert_eq!(config.token.as_deref(), Some("s3cret"));
        assert!(!format!("{config:?}").contains("s3cret"));
        for url in ["http+unix:/run/tenure.sock?ttl=5s", "http+unix:///run/tenure.sock?ttl=5s"] {
            let (config, fields) = read(url);
            assert_eq!(config.socket.as_deref(), Some("/run/tenure.sock".as_ref()));
            assert_eq!(config.label(), "http+unix:/run/tenure.sock");
            assert_eq!((config.authority().as_str(), fields.len()), ("localhost:7117", 1));
        }
        for bad in [
            "http://",
            "http+unix:",
            "http://x:y",
            "http://x/path",
            "ftp://x",
            "http://a b@",
            "http://:a b@x",
        ] {
            let error = HttpConfig::from_url(bad).unwrap_err().to_string();
            assert!(!error.contains("a b"), "{error}");
        }
    }
}
