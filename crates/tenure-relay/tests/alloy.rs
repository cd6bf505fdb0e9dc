//! Alloy's providers with nonces that processes share, on a real node.
#![cfg(feature = "alloy")]

use std::sync::Arc;
use std::time::Duration;

use alloy_network::{Ethereum, Network, TransactionBuilder};
use alloy_primitives::{Address, U256};
use alloy_provider::fillers::{FillProvider, NonceFiller, TxFiller};
use alloy_provider::{Provider, ProviderBuilder};
use alloy_signer_local::PrivateKeySigner;
use tenure::Tenure;
use tenure::engines::memory::Memory;
use tenure_relay::alloy::SharedNonces;
use tenure_relay::nonces::Terms;
use tenure_testkit::servers::{Anvil, Mining};

type Payment = <Ethereum as Network>::TransactionRequest;

const SECRET: &str = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";
const PAID: Address = Address::repeat_byte(0x77);

/// A node and an engine, which processes share.
struct Place {
    node: Anvil,
    engine: Arc<Memory>,
    signer: PrivateKeySigner,
}

impl Place {
    fn new(mining: Mining) -> Place {
        let node = Anvil::build().mining(mining).start().unwrap();
        Place { node, engine: Arc::new(Memory::new()), signer: SECRET.parse().unwrap() }
    }

    fn nonces(&self) -> SharedNonces {
        let tenure = Tenure::with_engine(self.engine.clone());
        let mut terms = Terms::default();
        terms.unknown_for = Duration::from_secs(20);
        SharedNonces::with_terms(&tenure, self.node.chain(), terms)
    }

    fn payment(&self) -> Payment {
        let payment = Payment::default().with_from(self.signer.address()).with_to(PAID);
        payment.with_value(U256::from(1)).with_gas_limit(21_000)
    }

    /// A provider without a nonce filler.
    fn provider(&self) -> FillProvider<impl TxFiller<Ethereum>, impl Provider, Ethereum> {
        let builder = ProviderBuilder::new().wallet(self.signer.clone());
        builder.connect_http(self.node.url().parse().unwrap())
    }

    fn count(&self, at: &str) -> u64 {
        self.node.nonce(&format!("{:#x}", self.signer.address()), at).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn providers_with_the_filler_give_each_nonce_once() {
    let place = Place::new(Mining::Every(Duration::from_millis(100)));
    let senders = (0..3).map(|_| {
        let builder = ProviderBuilder::new().disable_recommended_fillers();
        let builder = builder.with_gas_estimation().fetch_chain_id();
        let builder = builder.filler(NonceFiller::new(place.nonces())).wallet(place.signer.clone());
        let provider = builder.connect_http(place.node.url().parse().unwrap());
        let payment = place.payment();
        tokio::spawn(async move {
            for _ in 0..15 {
                drop(provider.send_transaction(payment.clone()).await.unwrap());
            }
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await.unwrap();
    }
    assert_eq!(place.count("pending"), 45);
    // The node answers before it has mined the last one.
    let mined = async {
        while place.count("latest") < 45 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), mined).await.expect("all are mined");
    assert_eq!(place.count("pending"), 45);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_node_refuses_and_what_is_not_sent_leaves_no_gap() {
    let place = Place::new(Mining::Every(Duration::from_millis(100)));
    let (nonces, provider) = (place.nonces(), place.provider());
    drop(nonces.send(&provider, place.payment()).await.unwrap());
    // More than there is: the node says no.
    let error = nonces.send(&provider, place.payment().with_value(U256::MAX)).await.unwrap_err();
    assert!(error.as_error_resp().is_some(), "{error}");
    // Nobody signs it.
    let unsigned = ProviderBuilder::new().connect_http(place.node.url().parse().unwrap());
    let error = nonces.send(&unsigned, place.payment()).await.unwrap_err();
    assert!(error.to_string().contains("give it a wallet"), "{error}");
    let error = nonces.send(&provider, Payment::default()).await.unwrap_err();
    assert!(error.to_string().contains("set `from`"), "{error}");
    for expected in [1, 2] {
        let sent = nonces.send(&provider, place.payment()).await.unwrap();
        sent.get_receipt().await.unwrap();
        assert_eq!(place.count("latest"), expected + 1);
    }
    let of_wallet = nonces.of(place.signer.address(), &provider);
    let standing = of_wallet.resync().await.unwrap();
    assert_eq!((standing.count, standing.in_flight.len()), (3, 0));
}

/// Behind a gap the node keeps transactions and does not count them: their nonces stay theirs, and the gap is
/// filled by whoever comes next.
#[tokio::test(flavor = "multi_thread")]
async fn a_gap_is_filled_first() {
    let place = Place::new(Mining::Never);
    let (ours, theirs, provider) = (place.nonces(), place.nonces(), place.provider());
    let of_wallet = ours.of(place.signer.address(), &provider);
    let gap = of_wallet.reserve().await.unwrap();
    drop(theirs.send(&provider, place.payment()).await.unwrap());
    drop(theirs.send(&provider, place.payment()).await.unwrap());
    assert_eq!(place.count("pending"), 0, "the node has none that it can count");
    gap.release().await.unwrap();
    assert_eq!(of_wallet.gaps().await.unwrap(), [0]);
    drop(ours.send(&provider, place.payment()).await.unwrap());
    assert_eq!(place.count("pending"), 3);
    assert_eq!(of_wallet.reserve().await.unwrap().nonce(), 3);
}
