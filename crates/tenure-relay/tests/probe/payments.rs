//! Payments of one wallet by several processes that are killed meanwhile, and the checks of the chain afterwards.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_testkit::servers::{Anvil, Mining, eventually};

/// Anvil's first account, whose secret everybody knows.
pub(crate) const WALLET: &str = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266";

/// A node for many payments. Anvil with a block for each transaction falls behind on a busy machine, and may
/// then leave some in its pool for good.
pub(crate) fn node() -> Anvil {
    Anvil::build().mining(Mining::Every(Duration::from_millis(100))).start().unwrap()
}

/// The open payments and those that were made. The amounts are 1, 2, 3 and so on.
pub(crate) struct Payments {
    many: u64,
    left: Mutex<Vec<u64>>,
    paid: AtomicU64,
    kills: u64,
    killed: AtomicU64,
}

impl Payments {
    pub(crate) fn new(many: u64, kills: u64) -> Payments {
        let (paid, killed) = (AtomicU64::new(0), AtomicU64::new(0));
        Payments { many, left: Mutex::new((1..=many).rev().collect()), paid, kills, killed }
    }

    pub(crate) fn take(&self) -> Option<u64> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    pub(crate) fn is_paid(&self) {
        self.paid.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn paid(&self) -> u64 {
        self.paid.load(Ordering::Relaxed)
    }

    pub(crate) fn killed(&self) -> u64 {
        self.killed.load(Ordering::Relaxed)
    }

    /// Whether it is time for a kill: they are spread over the payments.
    pub(crate) fn is_kill_due(&self) -> bool {
        let due = |killed: u64| {
            let at = (killed + 1) * self.many / (self.kills + 1);
            (killed < self.kills && self.paid.load(Ordering::Relaxed) >= at).then_some(killed + 1)
        };
        self.killed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok()
    }

    /// Every nonce once, every payment, nothing that waits in the end. Returns how many were mined.
    pub(crate) fn look_at_the_chain(&self, node: &Anvil) -> u64 {
        let pool = || node.rpc("txpool_status", json!([])).unwrap();
        let is_empty = || pool() == json!({"pending": "0x0", "queued": "0x0"});
        eventually("all is mined", Duration::from_secs(30), is_empty)
            .unwrap_or_else(|error| panic!("{error}: {}", pool()));
        let mined = node.nonce(WALLET, "latest").unwrap();
        assert_eq!(node.nonce(WALLET, "pending").unwrap(), mined);
        let (mut nonces, mut amounts) = (Vec::new(), BTreeMap::new());
        for block in 0..=number(&node.rpc("eth_blockNumber", json!([])).unwrap()) {
            let whole = json!([format!("{block:#x}"), true]);
            let block = node.rpc("eth_getBlockByNumber", whole).unwrap();
            for transaction in block["transactions"].as_array().unwrap() {
                assert_eq!(transaction["from"], WALLET);
                nonces.push(number(&transaction["nonce"]));
                *amounts.entry(number(&transaction["value"])).or_insert(0_u64) += 1;
            }
        }
        assert!(nonces.iter().copied().eq(0..mined), "{nonces:?}");
        // What fills gaps pays nothing.
        amounts.remove(&0);
        assert!(amounts.keys().copied().eq(1..=self.many), "{amounts:?}");
        // A process that was killed may have paid before it could report it.
        let twice: u64 = amounts.values().map(|times| times - 1).sum();
        assert!(twice <= self.killed(), "{twice} were paid twice");
        mined
    }
}

fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}
