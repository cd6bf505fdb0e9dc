//! The cost of decoding a transaction and recovering its sender.
#![allow(clippy::unwrap_used, reason = "clippy does not see that the helpers of tests are tests")]
#![cfg(feature = "relay")]

mod vectors;

use std::hint::black_box;
use std::time::Instant;

use alloy_primitives::hex;
use tenure_relay::envelope::Json;
use tenure_relay::transaction::{Kind, Rules, decode};

#[test]
#[ignore = "it measures, and says something only with --release on an idle machine"]
fn reading_a_transaction_takes() {
    let rules = Rules::new(vectors::CHAIN);
    for (kind, raw) in vectors::each() {
        let params = Json::of(&[hex::encode_prefixed(raw)]);
        let rounds = if kind == Kind::Blob { 500 } else { 20_000 };
        let began = Instant::now();
        for _ in 0..rounds {
            decode(black_box(Some(&params)), &rules).unwrap();
        }
        let each = began.elapsed() / rounds;
        // The one thing this is for.
        #[allow(clippy::print_stdout, reason = "a measurement is printed")]
        {
            println!("{}: {each:?}", kind.as_str());
        }
    }
}
