//! A signer service: any number of processes pay from one wallet, and no two use the same nonce.
//!
//! ```text
//! export TENURE_URL=redis://127.0.0.1:6379 NODE_URL=http://127.0.0.1:8545 SIGNER_SECRET=0x…
//! echo "0x70997970C51812dc3A010C7d01b50e0d17dc79C8 1000" | cargo run -p tenure-relay --example signer --features alloy
//! ```
//!
//! Each line of the input is a payment: an address and an amount in wei. Start it twice, feed both, and kill
//! one: the other continues, and the last one to exit fills the gap that a kill may leave.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use alloy_network::{Ethereum, Network, TransactionBuilder};
use alloy_primitives::{Address, U256};
use alloy_provider::fillers::{FillProvider, TxFiller};
use alloy_provider::{Provider, ProviderBuilder};
use alloy_signer_local::PrivateKeySigner;
use tenure::Tenure;
use tenure_relay::alloy::{Node, send};
use tenure_relay::nonces::{Nonces, Reserved, Terms};
use tokio::io::{AsyncBufReadExt, BufReader};

type Payment = <Ethereum as Network>::TransactionRequest;
type Failure = Box<dyn Error + Send + Sync>;

/// After this long without an answer, nobody knows whether a payment was sent.
const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    // From the environment only: everyone on the machine can see arguments.
    let signer: PrivateKeySigner = std::env::var("SIGNER_SECRET")?.parse()?;
    let wallet = signer.address();
    let url = std::env::var("NODE_URL")?.parse()?;
    let provider = ProviderBuilder::new().wallet(signer).connect_http(url);
    let chain_id = provider.get_chain_id().await?;

    let tenure = Tenure::from_env().await?;
    let node = Node::<_, Ethereum>::new(provider.root().clone());
    let nonces = Nonces::with_terms(&tenure, chain_id, wallet, node, terms()?);

    let mut payments = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = payments.next_line().await? {
        let (to, amount) = line.split_once(' ').ok_or("a payment is an address and an amount")?;
        let payment = Payment::default().with_to(to.parse()?).with_value(amount.parse()?);
        match pay(&provider, nonces.reserve().await?, payment).await {
            Ok((nonce, hash)) => println!("paid {amount} with nonce {nonce}: {hash}"),
            Err(error) => println!("failed {amount}: {error}"),
        }
    }
    finish(&provider, &nonces, wallet).await
}

async fn pay<F, P>(
    provider: &FillProvider<F, P, Ethereum>,
    reserved: Reserved<impl tenure_relay::nonces::Chain>,
    payment: Payment,
) -> Result<(u64, String), Failure>
where
    F: TxFiller<Ethereum>,
    P: Provider,
{
    let nonce = reserved.nonce();
    let payment = payment.with_gas_limit(21_000);
    // A payment that is given up here keeps its nonce until its outcome is known.
    let pending = tokio::time::timeout(PATIENCE, send(provider, reserved, payment)).await??;
    Ok((nonce, pending.tx_hash().to_string()))
}

/// Fills free nonces until nothing is in flight: the chain accepts no nonce above a gap, and no other process
/// may come to fill it.
async fn finish<F, P, C>(
    provider: &FillProvider<F, P, Ethereum>,
    nonces: &Nonces<C>,
    wallet: Address,
) -> Result<(), Failure>
where
    F: TxFiller<Ethereum>,
    P: Provider,
    C: tenure_relay::nonces::Chain,
{
    loop {
        let standing = nonces.resync().await?;
        if standing.in_flight.is_empty() {
            return Ok(());
        }
        for gap in standing.gaps() {
            let Some(reserved) = nonces.fill(gap).await? else { continue };
            let nothing = Payment::default().with_to(wallet).with_value(U256::ZERO);
            let (nonce, hash) = pay(provider, reserved, nothing).await?;
            println!("filled nonce {nonce}: {hash}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// `SIGNER_UNKNOWN_FOR=60` sets how long a payment that no node knows keeps its nonce, in seconds.
fn terms() -> Result<Terms, Failure> {
    let mut terms = Terms::default();
    if let Ok(seconds) = std::env::var("SIGNER_UNKNOWN_FOR") {
        terms.unknown_for = Duration::from_secs(seconds.parse()?);
        terms.ttl = terms.ttl.min(terms.unknown_for);
    }
    Ok(terms)
}
