//! A chain in memory: counts, transactions and the errors for them. No fees, no state, no blocks.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

/// A transaction that the node accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its sender, in lower case.
    pub sender: String,
    /// Its nonce.
    pub nonce: u64,
    /// Its hash.
    pub hash: String,
}

/// How the test decodes a raw transaction, `0x` and digits; `None` if it is invalid.
#[derive(Clone)]
pub struct Decoder(Arc<Decode>);

type Decode = dyn Fn(&str) -> Option<Sent> + Send + Sync;

impl Decoder {
    /// Wraps a function, which should be pure.
    pub fn new(decode: impl Fn(&str) -> Option<Sent> + Send + Sync + 'static) -> Decoder {
        Decoder(Arc::new(decode))
    }

    /// Unsigned transactions: after `0x`, the first 40 digits are the sender and the next 16 the nonce. The
    /// hash is the transaction itself.
    #[must_use]
    pub fn plain() -> Decoder {
        Decoder::new(|raw| {
            let digits = raw.strip_prefix("0x")?;
            let nonce = u64::from_str_radix(digits.get(40..56)?, 16).ok()?;
            let sender = format!("0x{}", &digits[..40]);
            Some(Sent { sender, nonce, hash: raw.to_owned() })
        })
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decoder")
    }
}

#[derive(Debug, Default)]
struct Account {
    /// The number of transactions in blocks.
    mined: u64,
    /// The number of transactions in blocks, or waiting without a gap.
    pending: u64,
    /// Transactions whose nonce is too high.
    kept: BTreeMap<u64, String>,
}

#[derive(Debug)]
pub(super) struct Chain {
    id: u64,
    decoder: Decoder,
    mines: bool,
    keeps_gaps: bool,
    accounts: HashMap<String, Account>,
    sent: Vec<Sent>,
}

/// A JSON-RPC error code and a text.
type Refused = (i64, String);

impl Chain {
    pub(super) fn new(id: u64, decoder: Decoder) -> Chain {
        let (accounts, sent) = (HashMap::new(), Vec::new());
        Chain { id, decoder, mines: true, keeps_gaps: true, accounts, sent }
    }

    pub(super) fn mines(&mut self, at_once: bool) {
        self.mines = at_once;
        if at_once {
            self.accounts.values_mut().for_each(|account| account.mined = account.pending);
        }
    }

    pub(super) fn keeps_gaps(&mut self, keeps: bool) {
        self.keeps_gaps = keeps;
    }

    pub(super) fn sent(&self) -> &[Sent] {
        &self.sent
    }

    /// Executes a request.
    pub(super) fn call(&mut self, method: &str, params: &Value) -> Result<Value, Refused> {
        let text = |at: usize| params.get(at).and_then(Value::as_str);
        match method {
            "eth_chainId" => Ok(hex(self.id)),
            "net_version" => Ok(json!(self.id.to_string())),
            "web3_clientVersion" => Ok(json!("scripted/1")),
            "eth_blockNumber" => Ok(hex(1)),
            "eth_gasPrice" | "eth_maxPriorityFeePerGas" => Ok(hex(1_000_000_000)),
            "eth_getBalance" => Ok(json!("0x56bc75e2d63100000")),
            "eth_getCode" => Ok(json!("0x")),
            "eth_getBlockByNumber" => {
                Ok(json!({ "number": "0x1", "baseFeePerGas": "0x1", "gasLimit": "0x1c9c380" }))
            }
            "eth_getTransactionCount" => {
                let account = text(0).map(str::to_lowercase).unwrap_or_default();
                let account = self.accounts.get(&account);
                let pending = text(1) == Some("pending");
                Ok(hex(account.map_or(0, |it| if pending { it.pending } else { it.mined })))
            }
            "eth_getTransactionByHash" => Ok(self.look(text(0).unwrap_or_default())),
            "eth_sendRawTransaction" => self.send(text(0).unwrap_or_default()),
            "test_echo" => Ok(params.clone()),
            _ => Err((-32601, format!("the method {method} does not exist"))),
        }
    }

    fn look(&self, hash: &str) -> Value {
        let Some(sent) = self.sent.iter().find(|sent| sent.hash == hash) else {
            return Value::Null;
        };
        let mined = self.accounts.get(&sent.sender).map_or(0, |account| account.mined);
        let block = if sent.nonce < mined { json!("0x1") } else { Value::Null };
        json!({ "hash": sent.hash, "from": sent.sender, "nonce": hex(sent.nonce), "blockNumber": block })
    }

    fn send(&mut self, raw: &str) -> Result<Value, Refused> {
        let refused = |text: &str| Err((-32000, text.to_owned()));
        let Some(sent) = (self.decoder.0)(raw) else {
            return refused("failed to decode signed transaction");
        };
        if self.sent.iter().any(|known| known.hash == sent.hash) {
            return refused("already known");
        }
        let account = self.accounts.entry(sent.sender.clone()).or_default();
        if sent.nonce < account.mined {
            let (next, nonce) = (account.mined, sent.nonce);
            return refused(&format!("nonce too low: next nonce {next}, tx nonce {nonce}"));
        }
        if sent.nonce < account.pending || account.kept.contains_key(&sent.nonce) {
            return refused("replacement transaction underpriced");
        }
        if sent.nonce > account.pending && !self.keeps_gaps {
            return refused("nonce too high");
        }
        account.kept.insert(sent.nonce, sent.hash.clone());
        while account.kept.remove(&account.pending).is_some() {
            account.pending += 1;
        }
        if self.mines {
            account.mined = account.pending;
        }
        let hash = json!(sent.hash);
        self.sent.push(sent);
        Ok(hash)
    }
}

fn hex(number: u64) -> Value {
    json!(format!("{number:#x}"))
}
