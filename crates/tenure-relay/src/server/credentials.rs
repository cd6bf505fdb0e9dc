//! Tokens and certificates, which can be replaced while the relay runs.

use std::sync::{Arc, PoisonError, RwLock};

use hyper::header::HeaderMap;

use super::Tls;
use crate::access::{Access, Caller};

/// The tokens and the TLS configuration of a server. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Credentials(Arc<RwLock<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    access: Access,
    tls: Option<Tls>,
}

impl Credentials {
    pub(super) fn new(access: Access, tls: Option<Tls>) -> Credentials {
        Credentials(Arc::new(RwLock::new(Inner { access, tls })))
    }

    /// Replaces both: tokens for every request, TLS for every new connection. A client's transactions in flight
    /// still count for the token with its name.
    pub fn replace(&self, access: Access, tls: Option<Tls>) {
        let mut inner = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let access = access.instead_of(&inner.access);
        *inner = Inner { access, tls };
    }

    /// Whether clients must authenticate.
    pub(super) fn ask(&self) -> bool {
        let inner = self.0.read().unwrap_or_else(PoisonError::into_inner);
        !inner.access.is_open() || inner.tls.as_ref().is_some_and(|tls| tls.asks_clients())
    }

    pub(super) fn tls(&self) -> Option<Tls> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).tls.clone()
    }

    pub(super) fn caller(&self, headers: &HeaderMap, from: &Arc<str>) -> Option<Caller> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).access.caller(headers, from)
    }
}
