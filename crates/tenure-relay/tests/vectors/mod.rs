//! Signed transactions of each kind, and RLP written by hand for what no library would write.

#![allow(dead_code, reason = "no test needs all of them")]

use alloy_consensus::crypto::secp256k1::sign_message;
use alloy_consensus::transaction::RlpEcdsaEncodableTx;
use alloy_consensus::{
    SignableTransaction, TxEip1559, TxEip2930, TxEip4844, TxEip4844WithSidecar, TxEip7702, TxLegacy,
};
use alloy_eips::eip2930::{AccessList, AccessListItem};
use alloy_eips::eip4844::{Blob, BlobTransactionSidecar, Bytes48, kzg_to_versioned_hash};
use alloy_eips::eip7594::{
    BlobTransactionSidecarEip7594, BlobTransactionSidecarVariant, CELLS_PER_EXT_BLOB,
};
use alloy_eips::eip7702::{Authorization, SignedAuthorization};
use alloy_primitives::{Address, B256, Bytes, Signature, TxKind, U256, address};
use tenure_relay::transaction::Kind;

/// The chain that all of them are for.
pub(crate) const CHAIN: u64 = 1337;
/// Who signs, and the address that belongs to it.
pub(crate) const SECRET: B256 = B256::repeat_byte(0x46);
pub(crate) const SENDER: Address = address!("9d8a62f656a8d1615c1294fd71e9cfb3e4855a4f");
const TO: Address = Address::repeat_byte(0x35);

/// The encoding of a transaction that the secret signed.
pub(crate) fn signed<T>(transaction: &T) -> Vec<u8>
where
    T: SignableTransaction<Signature> + RlpEcdsaEncodableTx,
{
    signed_as(transaction, |signature| signature)
}

/// The same with the signature made into another one.
pub(crate) fn signed_as<T>(transaction: &T, change: impl Fn(Signature) -> Signature) -> Vec<u8>
where
    T: SignableTransaction<Signature> + RlpEcdsaEncodableTx,
{
    let signature = change(sign_message(SECRET, transaction.signature_hash()).unwrap());
    let mut encoded = Vec::new();
    transaction.eip2718_encode(&signature, &mut encoded);
    encoded
}

/// A valid one of each kind; the one with blobs has one blob, and a proof for it.
pub(crate) fn each() -> Vec<(Kind, Vec<u8>)> {
    vec![
        (Kind::Legacy, signed(&legacy())),
        (Kind::AccessList, signed(&access_list())),
        (Kind::DynamicFee, signed(&dynamic_fee())),
        (Kind::Blob, signed(&blob(sidecar_4844(1)))),
        (Kind::SetCode, signed(&set_code())),
    ]
}

pub(crate) fn legacy() -> TxLegacy {
    TxLegacy {
        chain_id: Some(CHAIN),
        nonce: 9,
        gas_price: 20_000_000_000,
        gas_limit: 21_000,
        to: TxKind::Call(TO),
        value: U256::from(1_000_000_u64),
        input: Bytes::new(),
    }
}

pub(crate) fn access_list() -> TxEip2930 {
    let item = AccessListItem { address: TO, storage_keys: vec![B256::ZERO, B256::repeat_byte(1)] };
    TxEip2930 {
        chain_id: CHAIN,
        nonce: 0,
        gas_price: 7,
        gas_limit: 100_000,
        to: TxKind::Call(TO),
        value: U256::ZERO,
        input: Bytes::from_static(&[0, 1, 2, 0]),
        access_list: AccessList(vec![item]),
    }
}

pub(crate) fn dynamic_fee() -> TxEip1559 {
    TxEip1559 {
        chain_id: CHAIN,
        nonce: 300,
        gas_limit: 60_000,
        max_fee_per_gas: 30,
        max_priority_fee_per_gas: 2,
        to: TxKind::Call(TO),
        value: U256::from(5),
        input: Bytes::from_static(b"hello"),
        access_list: AccessList::default(),
    }
}

pub(crate) fn set_code() -> TxEip7702 {
    let authorization = Authorization { chain_id: U256::from(CHAIN), address: TO, nonce: 1 };
    let signature = sign_message(SECRET, authorization.signature_hash()).unwrap();
    TxEip7702 {
        chain_id: CHAIN,
        nonce: 3,
        gas_limit: 100_000,
        max_fee_per_gas: 30,
        max_priority_fee_per_gas: 2,
        to: TO,
        value: U256::ZERO,
        input: Bytes::new(),
        access_list: AccessList::default(),
        authorization_list: vec![authorization.into_signed(signature)],
    }
}

/// As many authorizations as are wanted.
pub(crate) fn authorizations(count: usize) -> Vec<SignedAuthorization> {
    vec![set_code().authorization_list.remove(0); count]
}

/// One with the blobs of this sidecar.
pub(crate) fn blob(
    sidecar: BlobTransactionSidecarVariant,
) -> TxEip4844WithSidecar<BlobTransactionSidecarVariant> {
    let hashes = sidecar.commitments().iter().map(|one| kzg_to_versioned_hash(one.as_slice()));
    let tx = TxEip4844 { blob_versioned_hashes: hashes.collect(), ..bare_blob() };
    TxEip4844WithSidecar { tx, sidecar }
}

/// One with a blob hash, and without what belongs to it.
pub(crate) fn bare_blob() -> TxEip4844 {
    TxEip4844 {
        chain_id: CHAIN,
        nonce: 4,
        gas_limit: 21_000,
        max_fee_per_gas: 30,
        max_priority_fee_per_gas: 2,
        to: TO,
        value: U256::from(1),
        access_list: AccessList::default(),
        blob_versioned_hashes: vec![B256::repeat_byte(1)],
        max_fee_per_blob_gas: 3,
        input: Bytes::new(),
    }
}

/// Blobs with a proof each, as before Osaka.
pub(crate) fn sidecar_4844(blobs: usize) -> BlobTransactionSidecarVariant {
    BlobTransactionSidecarVariant::Eip4844(BlobTransactionSidecar::new(
        vec![Blob::repeat_byte(1); blobs],
        vec![Bytes48::repeat_byte(2); blobs],
        vec![Bytes48::repeat_byte(3); blobs],
    ))
}

/// Blobs with a proof for each of their cells, as since Osaka.
pub(crate) fn sidecar_7594(blobs: usize) -> BlobTransactionSidecarVariant {
    BlobTransactionSidecarVariant::Eip7594(BlobTransactionSidecarEip7594::new(
        vec![Blob::repeat_byte(1); blobs],
        vec![Bytes48::repeat_byte(2); blobs],
        vec![Bytes48::repeat_byte(3); blobs * CELLS_PER_EXT_BLOB],
    ))
}

/// A text of RLP, also where a number would not be written like this.
pub(crate) fn text(bytes: &[u8]) -> Vec<u8> {
    if let [single @ 0..0x80] = bytes {
        return vec![*single];
    }
    [header(0x80, bytes.len()), bytes.to_vec()].concat()
}

/// A list of RLP.
pub(crate) fn list(items: &[Vec<u8>]) -> Vec<u8> {
    let items = items.concat();
    [header(0xc0, items.len()), items].concat()
}

fn header(base: u8, length: usize) -> Vec<u8> {
    match u8::try_from(length) {
        Ok(short @ 0..56) => vec![base + short],
        Ok(long) => vec![base + 56, long],
        Err(_) => [vec![base + 57], u16::try_from(length).unwrap().to_be_bytes().to_vec()].concat(),
    }
}
