//! The relay's own questions to a node.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use alloy_primitives::{Address, B256, U256, hex};
use bytes::Bytes;
use serde_json::Value;

use crate::envelope::{Json, Reply, batch, call, read_replies, read_reply};
use crate::refusal::Refusal;
use crate::transaction::Transaction;
use crate::upstream::{NoAnswer, Node, Nodes};

/// How long a base fee counts as that of the latest block.
const FEE_LASTS: Duration = Duration::from_secs(1);

/// What to ask for besides the count.
#[derive(Clone, Copy, Default)]
pub(crate) struct Want {
    pub(crate) balance: bool,
    pub(crate) fee: bool,
}

/// A recent base fee, which changes by an eighth per block at most.
#[derive(Default)]
pub(crate) struct BaseFee(Mutex<Option<(Instant, Option<u128>)>>);

impl BaseFee {
    /// The fee, or `None` if it must be asked for again.
    fn get(&self) -> Option<Option<u128>> {
        let (since, fee) = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        (since.elapsed() < FEE_LASTS).then_some(fee)
    }

    fn set(&self, fee: Option<u128>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), fee));
    }
}

/// The state of an account at a node.
pub(crate) struct Account {
    /// How many of its transactions the node has, including pending ones.
    pub(crate) count: u64,
    pub(crate) balance: Option<U256>,
    /// The base fee; `None` also on chains without one.
    pub(crate) base_fee: Option<u128>,
}

impl Nodes {
    /// Asks everything in one request. Returns the answer and the node that gave it.
    pub(crate) async fn account(
        &self,
        sender: Address,
        want: Want,
    ) -> Result<(Account, Arc<Node>), Refusal> {
        let pending = Json::of(&(format!("{sender:#x}"), "pending"));
        let mut calls = vec![("eth_getTransactionCount", pending.clone())];
        calls.extend(want.balance.then_some(("eth_getBalance", pending)));
        let base_fee = if want.fee { self.base_fee.get() } else { Some(None) };
        if base_fee.is_none() {
            calls.push(("eth_getBlockByNumber", Json::of(&("latest", false))));
        }
        let base_fee = base_fee.flatten();
        let mut account = Account { count: 0, balance: None, base_fee };
        let (results, node) = self.results(&calls).await?;
        for ((method, _), result) in calls.iter().zip(results) {
            match *method {
                "eth_getTransactionCount" => account.count = quantity(&result)?,
                "eth_getBalance" => account.balance = Some(quantity(&result)?),
                _ => {
                    account.base_fee = base_fee_of(&result)?;
                    self.base_fee.set(account.base_fee);
                }
            }
        }
        Ok((account, node))
    }

    /// How many transactions of the sender this node has.
    pub(crate) async fn count_at(&self, node: &Arc<Node>, sender: Address) -> Result<u64, Refusal> {
        let (id, pending) = (Json::of(&1), Json::of(&(format!("{sender:#x}"), "pending")));
        let read = |answer: &Bytes| quantity(&result(read_reply(answer, &id)?)?);
        self.ask_one(node, call(&id, "eth_getTransactionCount", &pending), read).await
    }

    /// How many transactions of the sender are in blocks.
    pub(crate) async fn mined(&self, sender: Address) -> Result<u64, Refusal> {
        let latest = Json::of(&(format!("{sender:#x}"), "latest"));
        let (results, _) = self.results(&[("eth_getTransactionCount", latest)]).await?;
        results.first().ok_or_else(|| no_number("nothing")).and_then(quantity)
    }

    /// Whether a node has this transaction, mined or not.
    pub(crate) async fn knows(&self, hash: B256) -> Result<bool, Refusal> {
        let (results, _) = self
            .results(&[("eth_getTransactionByHash", Json::of(&[format!("{hash:#x}")]))])
            .await?;
        Ok(results.iter().all(|result| *result != Json::null()))
    }

    /// Sends a transaction. Returns the reply, and whether it came from the node itself rather than a proxy.
    pub(crate) async fn submit(
        &self,
        node: &Arc<Node>,
        transaction: &Transaction,
    ) -> Result<(Reply, bool), NoAnswer> {
        let id = Json::of(&1);
        let params = Json::of(&[hex::encode_prefixed(&transaction.raw)]);
        let heard = self.post_to(node, call(&id, "eth_sendRawTransaction", &params)).await?;
        // An unreadable answer: the node may have taken the transaction.
        let reply = read_reply(&heard.body, &id).map_err(NoAnswer::Unknown)?;
        Ok((reply, !heard.is_unavailable))
    }

    /// Makes several calls in one request, to save round trips.
    async fn results(&self, calls: &[(&str, Json)]) -> Result<(Vec<Json>, Arc<Node>), Refusal> {
        let ids: Vec<Json> = (1..=calls.len()).map(|id| Json::of(&id)).collect();
        let write = |(id, (method, params)): (&Json, &(&str, Json))| call(id, method, params);
        let written: Vec<Bytes> = ids.iter().zip(calls).map(write).collect();
        if let ([one], [id]) = (&written[..], &ids[..]) {
            let read = |answer: &Bytes| Ok(vec![result(read_reply(answer, id)?)?]);
            return self.ask(one.clone(), read).await;
        }
        let read = |answer: &Bytes| {
            read_replies(answer, &ids)?.into_iter().map(|reply| result(reply?)).collect()
        };
        self.ask(batch(written), read).await
    }
}

fn result(reply: Reply) -> Result<Json, Refusal> {
    match reply {
        Reply::Result(result) => Ok(result),
        Reply::Error { message, .. } => Err(Refusal::BadReply(message)),
    }
}

/// A number as nodes write it: `0x` and hex digits.
pub(crate) fn quantity<N: TryFrom<U256>>(raw: &Json) -> Result<N, Refusal> {
    let text: String = serde_json::from_str(raw.as_str()).map_err(|_| no_number(raw.as_str()))?;
    number(&text).ok_or_else(|| no_number(&text))
}

fn base_fee_of(block: &Json) -> Result<Option<u128>, Refusal> {
    let block: Value =
        serde_json::from_slice(block.as_bytes()).map_err(|_| no_number("a block"))?;
    match block.get("baseFeePerGas") {
        None | Some(Value::Null) => Ok(None),
        Some(fee) => {
            let fee = fee.as_str().and_then(number);
            fee.map(Some).ok_or_else(|| no_number("a base fee"))
        }
    }
}

pub(crate) fn number<N: TryFrom<U256>>(text: &str) -> Option<N> {
    let digits = text.strip_prefix("0x").filter(|digits| !digits.is_empty())?;
    N::try_from(U256::from_str_radix(digits, 16).ok()?).ok()
}

fn no_number(what: &str) -> Refusal {
    let what: String = what.chars().take(40).collect();
    Refusal::BadReply(format!("{what:?} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_nodes_write_them() {
        let raw = |text: &str| Json::of(&serde_json::from_str::<Value>(text).unwrap());
        assert_eq!(quantity::<u64>(&raw("\"0x0\"")).unwrap(), 0);
        assert_eq!(quantity::<u64>(&raw("\"0x1f\"")).unwrap(), 31);
        for bad in ["\"0x\"", "\"12\"", "12", "null", "\"0x1ffffffffffffffff\"", "\"0xzz\""] {
            assert!(quantity::<u64>(&raw(bad)).is_err(), "{bad}");
        }
    }
}
