//! Which `Host` headers a server accepts. This keeps out web pages of other domains.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{self, HeaderMap};
use hyper::http::uri::Authority;

/// The host names of a server. If the domain of a web page pointed here, a browser would treat this server as the
/// page's own, and send that domain as the `Host`.
#[derive(Clone, Debug)]
pub enum Hosts {
    /// Any host: clients must authenticate, which a page cannot do.
    Any,
    /// IP addresses, `localhost` and these names; if the server listens on a loopback address, only IP addresses that
    /// are loopback addresses.
    Known {
        /// The names.
        names: Vec<String>,
        /// Whether the server listens on a loopback address.
        is_local: bool,
    },
}

impl Hosts {
    /// Accepts these names, or all if one is `*`, for a server that listens here.
    pub fn new(names: Vec<String>, listens: SocketAddr) -> Hosts {
        match names.iter().any(|name| name == "*") {
            true => Hosts::Any,
            false => Hosts::Known { names, is_local: listens.ip().is_loopback() },
        }
    }

    /// Whether a request with these headers is meant for this server.
    pub fn accept(&self, headers: &HeaderMap) -> bool {
        let Hosts::Known { names, is_local } = self else { return true };
        // If there are several, a proxy may have checked another one.
        headers.get_all(header::HOST).iter().all(|host| {
            let Ok(host) = host.to_str() else { return false };
            let Ok(host) = host.parse::<Authority>() else { return false };
            let host = host.host().trim_start_matches('[').trim_end_matches(']');
            let is_own = |address: IpAddr| !is_local || address.is_loopback();
            host.eq_ignore_ascii_case("localhost")
                || names.iter().any(|name| host.eq_ignore_ascii_case(name))
                || host.parse().is_ok_and(is_own)
        })
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn with(host: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(host))])
    }

    #[test]
    fn on_loopback_only_names_of_this_machine_are_accepted() {
        let hosts = Hosts::new(vec!["relay.internal".into()], "127.0.0.1:1".parse().unwrap());
        for good in ["localhost", "LOCALHOST:8545", "127.0.0.1:1", "127.1.2.3", "[::1]:80"] {
            assert!(hosts.accept(&with(good)), "{good}");
        }
        for bad in ["example.org", "localhost.example.org:1", "10.0.0.1", "", "a b"] {
            assert!(!hosts.accept(&with(bad)), "{bad}");
        }
        assert!(hosts.accept(&with("relay.internal:9545")) && hosts.accept(&HeaderMap::new()));
        let mut two = with("localhost");
        two.append(header::HOST, HeaderValue::from_static("example.org"));
        assert!(!hosts.accept(&two));
    }

    #[test]
    fn elsewhere_addresses_and_the_given_names_are_accepted() {
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
}
