//! Any transaction: no panic, and whatever is taken encodes to the same bytes, with the same hash and
//! sender as another decoder finds.

#![no_main]

use alloy_consensus::TxEnvelope;
use alloy_consensus::transaction::SignerRecoverable;
use alloy_eips::eip2718::{Decodable2718, Encodable2718};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tenure_relay::transaction::{Decoded, Gas, Rules, UnknownTypes, Unprotected, decode_raw};

fuzz_target!(|data: &[u8]| {
    let mut rules = Rules::new(1337);
    let raw = Bytes::copy_from_slice(data);
    let strict = decode_raw(raw.clone(), &rules);
    rules.unprotected = Unprotected::Take;
    rules.unknown_types = UnknownTypes::Pass;
    rules.gas = Gas::Unchecked;
    let lenient = decode_raw(raw, &rules);
    if strict.is_ok() {
        assert_eq!(strict, lenient);
    }
    let Ok(Decoded::Ordered(transaction)) = lenient else { return };
    let again = TxEnvelope::decode_2718_exact(data).expect("a node takes it too");
    assert_eq!(again.encoded_2718(), data);
    assert_eq!(*again.hash(), transaction.hash);
    assert_eq!(again.recover_signer().ok(), Some(transaction.sender));
});
