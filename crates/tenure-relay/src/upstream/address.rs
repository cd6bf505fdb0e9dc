//! The URL of a node. It may contain a password or a key: only host and port are shown.

use std::fmt;
use std::str::FromStr;

use hyper::header::HeaderValue;
use hyper::{Uri, http};

/// The address of a node.
#[derive(Clone)]
pub struct Address {
    uri: Uri,
    host: String,
    credentials: Option<HeaderValue>,
}

impl Address {
    /// Host and port.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The header for `user:password@` in the URL.
    pub(super) fn credentials(&self) -> Option<&HeaderValue> {
        self.credentials.as_ref()
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.host)
    }
}

/// An error never quotes the URL.
impl FromStr for Address {
    type Err = String;

    fn from_str(url: &str) -> Result<Address, String> {
        let bad = |why: &str| format!("the URL of the node is not valid: {why}");
        let uri: Uri = url.parse().map_err(|_| bad("it cannot be read"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(bad("it must begin with http:// or https://"));
        }
        let authority = uri.authority().ok_or_else(|| bad("it names no host"))?.clone();
        let (host, credentials) = match authority.as_str().rsplit_once('@') {
            Some((user, host)) => (host, Some(basic(user).ok_or_else(|| bad("its user"))?)),
            None => (authority.as_str(), None),
        };
        if authority.host().is_empty() {
            return Err(bad("it names no host"));
        }
        let mut parts = uri.into_parts();
        let host = host.to_owned();
        parts.authority = Some(host.parse().map_err(|_| bad("its host"))?);
        let path = parts.path_and_query.take();
        parts.path_and_query = path.or_else(|| Some(http::uri::PathAndQuery::from_static("/")));
        let uri = Uri::from_parts(parts).map_err(|_| bad("it cannot be read"))?;
        Ok(Address { uri, host, credentials })
    }
}

fn basic(user: &str) -> Option<HeaderValue> {
    let user = if user.contains(':') { unescaped(user)? } else { unescaped(user)? + ":" };
    let mut value = HeaderValue::try_from(format!("Basic {}", base64(user.as_bytes()))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let number = three.iter().fold(0u32, |number, byte| number << 8 | u32::from(*byte))
            << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = DIGITS[(number >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= three.len() { digit as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart_and_only_its_host_is_shown() {
        let address: Address =
            "https://me:p%40ss@node.example:8545/v2/planted?x=1".parse().unwrap();
        assert_eq!(address.host(), "node.example:8545");
        assert_eq!(address.uri(), "https://node.example:8545/v2/planted?x=1");
        assert_eq!(address.credentials().unwrap(), "Basic bWU6cEBzcw==");
        assert_eq!(format!("{address:?}"), "Address(node.example:8545)");
        let plain: Address = "http://127.0.0.1:8545".parse().unwrap();
        assert_eq!(plain.uri(), "http://127.0.0.1:8545/");
        assert!(plain.credentials().is_none());
    }

    #[test]
    fn what_is_no_url_is_refused_and_not_repeated() {
        for bad in ["", "planted", "ftp://planted/", "http://", "/planted", "http://pl anted/"] {
            let error = bad.parse::<Address>().unwrap_err();
            assert!(!error.contains("planted"), "{error}");
        }
    }

    #[test]
    fn base64_ends_as_it_should() {
        for (plain, packed) in [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj")] {
            assert_eq!(base64(plain.as_bytes()), packed);
        }
    }
}
