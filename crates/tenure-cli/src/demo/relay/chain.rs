//! A node with its own chain: it accepts transactions by their nonces, and keeps those that come too early, as
//! nodes do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use alloy_primitives::B256;
use bytes::Bytes;
use tenure_relay::envelope::{self, Call, Incoming, Json, Limits};
use tenure_relay::transaction::{Decoded, Rules, decode};
use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpStream};

use super::{Participant, Trouble, http};
use crate::demo::environment::random;

const CHAIN: u64 = 31337;
/// The sender of the transactions.
pub(super) const SENDER: &str = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266";

/// The transactions of the only sender, by nonce.
#[derive(Clone, Default)]
struct Chain(Arc<Mutex<HashMap<u64, B256>>>);

pub(super) async fn serve(participant: &Participant) -> Result<(), Trouble> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    participant.say(&format!("listens {}", listener.local_addr()?));
    let chain = Chain::default();
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(talk(stream, chain.clone()));
    }
}

async fn talk(stream: TcpStream, chain: Chain) -> Result<(), Trouble> {
    let mut stream = BufReader::new(stream);
    while let Some(body) = http::message(&mut stream).await? {
        // The work of a node takes time.
        tokio::time::sleep(Duration::from_micros(random() % 3000)).await;
        let answer = match envelope::read(&Bytes::from(body), &Limits::default())? {
            Incoming::One(Ok(call)) => chain.answer(&call),
            Incoming::Batch(calls) => {
                envelope::batch(calls.iter().flatten().map(|call| chain.answer(call)))
            }
            Incoming::One(Err(bad)) => envelope::refuse(&bad.id, &bad.refusal),
        };
        http::answer(&mut stream, &answer).await?;
    }
    Ok(())
}

impl Chain {
    fn answer(&self, call: &Call) -> Bytes {
        let id = call.id.clone().unwrap_or_else(Json::null);
        let result = match call.method.as_str() {
            "eth_chainId" => Json::of(&format!("{CHAIN:#x}")),
            "eth_getTransactionCount" => Json::of(&format!("{:#x}", self.next())),
            "eth_getBlockByNumber" => Json::of(&HashMap::from([("baseFeePerGas", "0x1")])),
            "eth_sendRawTransaction" => match self.take(call) {
                Ok(hash) => Json::of(&hash.to_string()),
                Err(message) => return envelope::fail(&id, &message),
            },
            _ => Json::null(),
        };
        envelope::answer(&id, &result)
    }

    fn take(&self, call: &Call) -> Result<B256, Json> {
        let transaction = match decode(call.params.as_ref(), &Rules::new(CHAIN)) {
            Ok(Decoded::Ordered(transaction)) => transaction,
            _ => return Err(error("invalid transaction")),
        };
        if transaction.nonce < self.next() {
            return Err(error("nonce too low"));
        }
        self.lock().insert(transaction.nonce, transaction.hash);
        Ok(transaction.hash)
    }

    /// The next nonce after those without a gap.
    fn next(&self) -> u64 {
        let taken = self.lock();
        (0..).find(|nonce| !taken.contains_key(nonce)).unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, B256>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn error(message: &str) -> Json {
    let error: HashMap<&str, serde_json::Value> =
        HashMap::from([("code", (-32000).into()), ("message", message.into())]);
    Json::of(&error)
}
