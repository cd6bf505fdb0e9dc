//! Tokens and certificates, which can be replaced while the server runs.

use std::sync::{Arc, PoisonError, RwLock};

use hyper::header::HeaderMap;
use tenure_http::Tls;

use crate::access::{Access, Caller};

/// The tokens and the TLS configuration of a server. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Credentials(Arc<RwLock<(Access, Option<Tls>)>>);

impl Credentials {
    /// Requires one of these tokens, if there are any, and TLS, if it is given.
    #[must_use]
    pub fn new(access: Access, tls: Option<Tls>) -> Credentials {
        Credentials(Arc::new(RwLock::new((access, tls))))
    }

    /// Replaces both: tokens for every request, TLS for every new connection.
    pub fn replace(&self, access: Access, tls: Option<Tls>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = (access, tls);
    }

    /// Whether clients must authenticate.
    pub(crate) fn ask(&self) -> bool {
        let (access, tls) = &*self.0.read().unwrap_or_else(PoisonError::into_inner);
        !access.is_open() || tls.as_ref().is_some_and(Tls::asks_clients)
    }

    /// Whether there are no tokens.
    pub(crate) fn are_open(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).0.is_open()
    }

    pub(crate) fn tls(&self) -> Option<Tls> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    pub(crate) fn caller(&self, headers: &HeaderMap, from: &Arc<str>) -> Option<Caller> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).0.caller(headers, from)
    }
}
