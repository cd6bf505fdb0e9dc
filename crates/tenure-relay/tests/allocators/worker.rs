//! A process that takes nonces, sends, fails to send, and forgets, until it is killed.

use std::time::Duration;

use alloy_primitives::{Address, keccak256};
use tenure::Tenure;
use tenure_relay::nonces::{Nonces, Reserved, Terms};
use tenure_testkit::rng::Rng;

use crate::allocators::chain::Client;

/// Set in a process that is to be one: the engine, the chain, a seed.
pub(crate) const SIGN: &str = "TENURE_TEST_ALLOCATOR";
pub(crate) const WALLET: Address = Address::repeat_byte(0x14);

pub(crate) fn terms() -> Terms {
    let mut terms = Terms::default();
    terms.ttl = Duration::from_secs(3);
    terms.unknown_for = Duration::from_secs(2);
    terms.reserved_for = Duration::from_secs(30);
    terms.late = Duration::from_millis(500);
    terms
}

pub(crate) fn work(sign: &str) {
    let [url, chain, seed] = sign.split(' ').collect::<Vec<_>>()[..] else { panic!("{sign}") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // A stopped process may block the others; then this one ends without being killed.
        let Ok(tenure) = Tenure::connect(url).await else { return };
        let nonces = Nonces::with_terms(&tenure, 1, WALLET, Client::connect(chain), terms());
        let mut rng = Rng::new(seed.parse().unwrap());
        while let Ok(reserved) = nonces.reserve().await {
            let nonce = reserved.nonce();
            nonces.chain().tell(&format!("issued {nonce}"));
            tokio::time::sleep(rng.micros(0, 5_000)).await;
            if rng.chance(100) {
                nonces.chain().tell(&format!("releasing {nonce}"));
                let _ = reserved.release().await;
            } else if rng.chance(20) {
                nonces.chain().tell(&format!("forgetting {nonce}"));
                drop(reserved);
            } else if rng.chance(20) {
                nonces.chain().tell(&format!("forgetting {nonce}"));
                let _ = reserved.unknown(keccak256("never sent")).await;
            } else {
                send(reserved, rng.bits()).await;
            }
        }
    });
}

/// Sends a transaction whose answer may never arrive.
pub(crate) async fn send(mut reserved: Reserved<Client>, salt: u64) {
    let nonce = reserved.nonce();
    let hash = keccak256(format!("{nonce} {salt} {}", std::process::id()));
    if reserved.sending(hash).await.is_err() {
        reserved.chain().tell(&format!("lost {nonce}"));
        return;
    }
    let said = reserved.chain().tell(&format!("send {nonce} {hash}"));
    // A report that the engine did not get is kept anyway.
    let _ = match said.as_str() {
        "ok" if salt % 20 == 1 => reserved.unknown(hash).await,
        "ok" => reserved.commit(hash).await,
        _ => reserved.wrong_nonce().await,
    };
}
