//! Repeated transactions: which client sent a transaction first.
//!
//! Two services that make the same payment sign the same bytes, and a node accepts them once. So when a transaction is
//! sent again, only the client that sent it first is told that it was sent; everyone else gets the node's error. A client
//! identifies itself by the `Idempotency-Key` header. A digest of the key is kept in the engine, where every relay
//! finds it.

use std::time::Duration;

use alloy_primitives::{B256, keccak256};
use hyper::header::{HeaderMap, HeaderName};
use tenure::{Hold, OnOutage, Protection, Result};

use crate::lane::Lanes;

/// The request header that identifies a client.
const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// How long the relays remember who sent a transaction.
const REMEMBERED: Duration = Duration::from_secs(3600);
const CLIENT: &str = "client";

/// A client that identified itself: a digest of its key, which is secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Client(String);

impl Client {
    pub(crate) fn of(headers: &HeaderMap) -> Option<Client> {
        let key = headers.get(KEY)?.as_bytes();
        (!key.is_empty()).then(|| Client(keccak256(key).to_string()))
    }
}

impl Lanes {
    /// Records that this client is about to send the transaction, until the hold is released. `None` if a client is
    /// already recorded.
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
