//! Which web pages may use the relay: which `Origin` may read answers in a browser.

use hyper::header::{self, HeaderMap, HeaderValue};

/// The origins whose pages may send requests and read the answers (CORS).
pub(super) struct Origins(Vec<String>);

impl Origins {
    pub(super) fn new(origins: Vec<String>) -> Origins {
        Origins(origins)
    }

    /// The origin of a request, if it is allowed.
    pub(super) fn known(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        let is_known = |known: &String| known == "*" || known.as_bytes() == origin.as_bytes();
        self.0.iter().any(is_known).then(|| origin.clone())
    }
}

/// Whether a browser asks in advance what it may send.
pub(super) fn is_preflight(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Lets pages of this origin read an answer.
pub(super) fn allow(origin: HeaderValue, headers: &mut HeaderMap) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    let outcome = HeaderValue::from_static("tenure-outcome, retry-after");
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, outcome);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
}

/// What pages of an origin may send.
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
