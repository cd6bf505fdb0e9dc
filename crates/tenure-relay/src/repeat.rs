//! Repetitions: which client handed a transaction in first.
//!
//! Two services that make the same payment sign the same bytes, and a node takes them once. So only the
//! client that sent a transaction is told that it was sent when it comes again; everyone else hears what
//! the node says of it. A client shows that it is the same one by the `Idempotency-Key` of its request:
//! a digest of it is kept beside the lanes, where every relay finds it.

use std::time::Duration;

use alloy_primitives::{B256, keccak256};
use hyper::header::{HeaderMap, HeaderName};
use tenure::{Hold, OnOutage, Protection, Result};

use crate::lane::Lanes;

/// The request header by which a client is known again.
const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// How long a client is known again for what it sent.
const REMEMBERED: Duration = Duration::from_secs(3600);
const CLIENT: &str = "client";

/// A client that says who it is: a digest of its key, which is its secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Client(String);

impl Client {
    pub(crate) fn of(headers: &HeaderMap) -> Option<Client> {
        let key = headers.get(KEY)?.as_bytes();
        (!key.is_empty()).then(|| Client(keccak256(key).to_string()))
    }
}

impl Lanes {
    /// Says that this client is about to send the transaction, until what this returns is released. Nothing
    /// where that is known already, or where nobody keeps it.
    pub(crate) async fn remember(&self, hash: B256, client: &Client) -> Result<Option<Hold>> {
        let first = self.tenure.mutex(self.sent(hash)).ttl(REMEMBERED).renew(false);
        let first = first.on_outage(OnOutage::Closed).meta(CLIENT, &client.0);
        let hold = first.try_acquire().await?;
        if let Some(hold) = &hold
            && hold.protection() == Protection::Engine
        {
            hold.outlive().await?;
        }
        Ok(hold)
    }

    /// Whether it was this client that sent the transaction.
    pub(crate) async fn was_sent_by(&self, hash: B256, client: &Client) -> Result<bool> {
        let view = self.tenure.inspect(&self.sent(hash)).await?;
        let mut holders = view.iter().flat_map(|view| &view.holders);
        Ok(holders.any(|holder| {
            let mut meta = holder.details.meta.iter();
            meta.any(|(key, digest)| key == CLIENT && *digest == client.0)
        }))
    }

    fn sent(&self, hash: B256) -> String {
        self.name("sent", &format!("{hash:#x}"))
    }
}
