//! Whose pages may use the relay: which `Host` a request may name, and which `Origin` a browser may
//! show the answers to.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::uri::Authority;

/// Which names of the relay are its own. A page that had its name point here would say that name, and a
/// browser would take the relay for the page's own server.
pub(super) enum Hosts {
    /// Any: who asks must show who they are, which a page cannot.
    Any,
    /// Addresses, and these names; on a loopback address, this machine's only.
    Known { names: Vec<String>, is_local: bool },
}

impl Hosts {
    pub(super) fn new(names: Vec<String>, listens: SocketAddr) -> Hosts {
        match names.iter().any(|name| name == "*") {
            true => Hosts::Any,
            false => Hosts::Known { names, is_local: listens.ip().is_loopback() },
        }
    }

    pub(super) fn accept(&self, headers: &HeaderMap) -> bool {
        let Hosts::Known { names, is_local } = self else { return true };
        let Some(host) = headers.get(header::HOST) else { return true };
        let Ok(host) = host.to_str() else { return false };
        let Ok(host) = host.parse::<Authority>() else { return false };
        let host = host.host().trim_start_matches('[').trim_end_matches(']');
        let is_own = |address: IpAddr| !is_local || address.is_loopback();
        host.eq_ignore_ascii_case("localhost")
            || names.iter().any(|name| host.eq_ignore_ascii_case(name))
            || host.parse().is_ok_and(is_own)
    }
}

/// The origins whose pages may ask and read the answers (CORS).
pub(super) struct Origins(Vec<String>);

impl Origins {
    pub(super) fn new(origins: Vec<String>) -> Origins {
        Origins(origins)
    }

    /// The origin of a request, if its pages may.
    pub(super) fn known(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        let is_known = |known: &String| known == "*" || known.as_bytes() == origin.as_bytes();
        self.0.iter().any(is_known).then(|| origin.clone())
    }
}

/// Whether a browser asks beforehand what it may send.
pub(super) fn is_preflight(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Lets the pages of this origin read an answer.
pub(super) fn allow(origin: HeaderValue, headers: &mut HeaderMap) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    let outcome = HeaderValue::from_static("tenure-outcome, retry-after");
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, outcome);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
}

/// What the pages of an origin may send.
pub(super) fn allow_sending(headers: &mut HeaderMap) {
    let sent = "authorization, content-type, idempotency-key";
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "POST"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, sent),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(host: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(host))])
    }

    #[test]
    fn on_loopback_only_names_of_this_machine_are_taken() {
        let hosts = Hosts::new(vec!["relay.internal".into()], "127.0.0.1:1".parse().unwrap());
        for good in ["localhost", "LOCALHOST:8545", "127.0.0.1:1", "127.1.2.3", "[::1]:80"] {
            assert!(hosts.accept(&with(good)), "{good}");
        }
        for bad in ["example.org", "localhost.example.org:1", "10.0.0.1", "", "a b"] {
            assert!(!hosts.accept(&with(bad)), "{bad}");
        }
        assert!(hosts.accept(&with("relay.internal:9545")) && hosts.accept(&HeaderMap::new()));
    }

    #[test]
    fn elsewhere_addresses_and_the_names_that_were_given_are_taken() {
        let hosts = Hosts::new(vec!["relay.internal".into()], "0.0.0.0:1".parse().unwrap());
        for good in ["10.0.0.1:9545", "[fd00::1]:1", "localhost", "Relay.Internal:9545"] {
            assert!(hosts.accept(&with(good)), "{good}");
        }
        for bad in ["example.org", "relay.internal.example.org", "10.0.0.1.example.org"] {
            assert!(!hosts.accept(&with(bad)), "{bad}");
        }
        let any = Hosts::new(vec!["*".into()], "127.0.0.1:1".parse().unwrap());
        assert!(any.accept(&with("example.org")));
    }

    #[test]
    fn an_origin_is_known_by_all_of_it() {
        let origin = |text: &'static str| {
            HeaderMap::from_iter([(header::ORIGIN, HeaderValue::from_static(text))])
        };
        let origins = Origins::new(vec!["https://app.example".into()]);
        assert_eq!(origins.known(&origin("https://app.example")).unwrap(), "https://app.example");
        for other in ["http://app.example", "https://app.example:444", "https://app.example.org"] {
            assert!(origins.known(&origin(other)).is_none(), "{other}");
        }
        assert!(origins.known(&HeaderMap::new()).is_none());
        assert!(Origins::new(Vec::new()).known(&origin("https://app.example")).is_none());
        assert!(Origins::new(vec!["*".into()]).known(&origin("https://x.example")).is_some());
    }
}
