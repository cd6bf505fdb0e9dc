//! The JSON-RPC methods for signers.

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::{Address, B256, keccak256};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Asks, Turns};
use crate::envelope::{Call, Json};
use crate::in_flight::Seen;
use crate::lane::Lanes;
use crate::node::number;
use crate::nonces::Ask;
use crate::refusal::Refusal;

/// The longest name of a reservation.
const LONGEST_ID: usize = 256;

/// A call about nonces that the relay answers instead of the node.
#[derive(Debug)]
pub(crate) enum Asked {
    Reserve {
        account: Address,
        ask: Ask,
    },
    /// `eth_getTransactionCount` of a client that sends with the count it gets.
    Next(Address),
    Sending {
        account: Address,
        id: String,
        hash: B256,
    },
    Release {
        account: Address,
        id: String,
        hash: Option<B256>,
    },
    Look(Address),
}

/// The one parameter of all methods.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    from: String,
    id: Option<String>,
    nonce: Option<String>,
    hash: Option<String>,
    lasts_ms: Option<u64>,
}

impl Asked {
    /// Reads a call, if it is one of these. `reserves`: its client sends with the count it gets.
    pub(crate) fn read(
        call: &Call,
        reserves: bool,
        lanes: &Lanes,
    ) -> Option<Result<Asked, Refusal>> {
        if let Some(what) = call.method.strip_prefix("tenure_") {
            return Some(own_method(what, call, lanes));
        }
        if reserves && call.method.eq_ignore_ascii_case("eth_fillTransaction") {
            // The node would choose the same nonce for everyone. Libraries fall back to asking for a count.
            return Some(Err(Refusal::MethodDenied(call.method.clone())));
        }
        if reserves && call.method.eq_ignore_ascii_case("eth_getTransactionCount") {
            let (account, at): (String, String) = parse(call.params.as_ref())?;
            let account = account.parse().ok().filter(|_| at == "pending")?;
            let is_on = lanes.config.nonces;
            return Some(if is_on { Ok(Asked::Next(account)) } else { Err(Refusal::NoncesOff) });
        }
        None
    }

    pub(crate) async fn answer(self, lanes: Arc<Lanes>, turns: Turns) -> Result<Json, Refusal> {
        match self {
            Asked::Next(account) => {
                let nonce = lanes.reserve_next(account, &turns).await?;
                Ok(Json::of(&format!("{nonce:#x}")))
            }
            Asked::Reserve { account, ask } => {
                let given = lanes.reserve(account, &ask).await?;
                let shown = given.map(|given| {
                    let lasts = given.lasts.as_millis() as u64;
                    json!({ "nonce": format!("{:#x}", given.nonce), "lasts_ms": lasts })
                });
                Ok(Json::of(&shown))
            }
            Asked::Sending { account, id, hash } => {
                let written = lanes.account(account).sending_for(&id, hash).await;
                written.map_err(|error| lanes.cannot(error))?;
                Ok(Json::of(&true))
            }
            Asked::Release { account, id, hash } => {
                let released = lanes.account(account).release_for(&id, hash).await;
                Ok(Json::of(&released.map_err(|error| lanes.cannot(error))?))
            }
            Asked::Look(account) => {
                let looked = lanes.account(account).look(&Asks(&lanes.nodes)).await;
                let standing = looked.map_err(|error| lanes.cannot(error))?;
                let hex = |nonce: u64| format!("{nonce:#x}");
                Ok(Json::of(&json!({
                    "count": hex(standing.count),
                    "next": hex(standing.next()),
                    "gaps": standing.gaps().into_iter().map(hex).collect::<Vec<_>>(),
                    "in_flight": standing.in_flight.iter().map(show).collect::<Vec<_>>(),
                })))
            }
        }
    }
}

fn show(seen: &Seen) -> Value {
    json!({
        "nonce": format!("{:#x}", seen.nonce),
        "hash": seen.hash.map(|hash| format!("{hash:#x}")),
        "age_ms": seen.age.as_millis() as u64,
        "lasts_ms": seen.remaining.as_millis() as u64,
    })
}

fn own_method(what: &str, call: &Call, lanes: &Lanes) -> Result<Asked, Refusal> {
    let known = ["reserveNonce", "sendingNonce", "releaseNonce", "getNonces"];
    if !known.contains(&what) {
        return Err(Refusal::MethodDenied(call.method.clone()));
    }
    if !lanes.config.nonces {
        return Err(Refusal::NoncesOff);
    }
    let (params,): (Params,) = parse(call.params.as_ref())
        .ok_or_else(|| bad("one object with from and, where there is a reservation, its id"))?;
    let account = params.from.parse().map_err(|_| bad("from is not an address"))?;
    if what == "getNonces" {
        return Ok(Asked::Look(account));
    }
    let is_good = |id: &String| !id.is_empty() && id.len() <= LONGEST_ID;
    let id = params.id.filter(is_good).ok_or_else(|| bad("the id must have 1 to 256 bytes"))?;
    // People who can read the engine do not see the signer's own name for it.
    let id = keccak256(id).to_string();
    let hash = params.hash.map(|hash| hash.parse()).transpose();
    let hash: Option<B256> = hash.map_err(|_| bad("hash is not a hash"))?;
    match (what, hash) {
        ("reserveNonce", None) => {
            let lasts = params.lasts_ms.map_or(lanes.config.nonces_for, Duration::from_millis);
            let shortest = lanes.tenure.profile().shortest_ttl;
            if lasts < shortest || lasts > lanes.config.unknown_for {
                return Err(bad("lasts_ms must be at least 50 and at most 60000"));
            }
            let read = |nonce: String| number(&nonce).ok_or_else(|| bad("nonce is not a number"));
            let nonce = params.nonce.map(read).transpose()?;
            Ok(Asked::Reserve { account, ask: Ask { id: Some(id), nonce, lasts, turn: None } })
        }
        ("sendingNonce", Some(hash)) => Ok(Asked::Sending { account, id, hash }),
        ("releaseNonce", hash) => Ok(Asked::Release { account, id, hash }),
        _ => Err(bad("a hash is for sendingNonce, which needs one, and releaseNonce")),
    }
}

fn bad(why: &str) -> Refusal {
    Refusal::BadParams(why.to_owned())
}

fn parse<'a, T: Deserialize<'a>>(params: Option<&'a Json>) -> Option<T> {
    serde_json::from_slice(params?.as_bytes()).ok()
}
