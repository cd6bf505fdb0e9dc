//! Wallets, and signed transactions of every kind.

use alloy_consensus::transaction::SignableTransaction;
use alloy_consensus::{
    BlobTransactionSidecar, TxEip1559, TxEip2930, TxEip4844, TxEip4844WithSidecar, TxEip7702,
    TxLegacy,
};
use alloy_eips::eip2718::Encodable2718;
use alloy_eips::eip2930::{AccessList, AccessListItem};
use alloy_eips::eip4844::{Blob, Bytes48, kzg_to_versioned_hash};
use alloy_eips::eip7702::Authorization;
use alloy_primitives::{Address, B256, Bytes, Signature, TxKind, U256, keccak256};
use secp256k1::{Message, PublicKey, SECP256K1, SecretKey};

/// The first accounts of anvil, which have money; everybody knows their secrets.
const RICH: [&str; 3] = [
    "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
    "59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
    "5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a",
];

/// Enough for any of anvil's base fees in a test.
const FEE: u128 = 20_000_000_000;
const TIP: u128 = 1_000_000_000;
const GAS: u64 = 21_000;
/// Whom everybody pays.
const TO: Address = Address::repeat_byte(0x77);

/// Somebody who signs.
#[derive(Clone, Debug)]
pub(crate) struct Wallet {
    secret: SecretKey,
    pub(crate) address: Address,
    pub(crate) chain: u64,
}

/// A signed transaction: its bytes and its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Raw {
    /// `0x` and digits.
    pub(crate) raw: String,
    /// `0x` and digits.
    pub(crate) hash: String,
    pub(crate) nonce: u64,
}

/// The kinds of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Legacy,
    /// Without a chain id, as before EIP-155.
    Unprotected,
    Eip2930,
    Eip1559,
    /// With a blob beside it.
    Eip4844,
    Eip7702,
}

impl Kind {
    pub(crate) const ALL: [Kind; 6] = [
        Kind::Legacy,
        Kind::Unprotected,
        Kind::Eip2930,
        Kind::Eip1559,
        Kind::Eip4844,
        Kind::Eip7702,
    ];
}

impl Wallet {
    /// One of anvil's accounts, from 0.
    pub(crate) fn rich(number: usize, chain: u64) -> Wallet {
        let secret: B256 = RICH[number].parse().unwrap();
        Wallet::of(secret, chain)
    }

    /// One that nobody else has; the same number is the same wallet.
    pub(crate) fn fresh(number: u64, chain: u64) -> Wallet {
        Wallet::of(keccak256(format!("wallet {number}")), chain)
    }

    fn of(secret: B256, chain: u64) -> Wallet {
        let secret = SecretKey::from_slice(secret.as_slice()).unwrap();
        let public = PublicKey::from_secret_key(SECP256K1, &secret).serialize_uncompressed();
        let address = Address::from_slice(&keccak256(&public[1..])[12..]);
        Wallet { secret, address, chain }
    }

    /// As nodes and lanes write it.
    pub(crate) fn name(&self) -> String {
        format!("{:#x}", self.address)
    }

    /// A small payment.
    pub(crate) fn pay(&self, nonce: u64) -> Raw {
        self.pay_of(nonce, 1)
    }

    /// A payment of so much: another value is another hash.
    pub(crate) fn pay_of(&self, nonce: u64, value: u64) -> Raw {
        self.pay_with(nonce, value, 1)
    }

    /// A small payment that offers this many times the fee.
    pub(crate) fn pay_more(&self, nonce: u64, times: u128) -> Raw {
        self.pay_with(nonce, 1, times)
    }

    fn pay_with(&self, nonce: u64, value: u64, times: u128) -> Raw {
        self.sign(
            TxEip1559 {
                chain_id: self.chain,
                nonce,
                gas_limit: GAS,
                max_fee_per_gas: FEE * times,
                max_priority_fee_per_gas: TIP * times,
                to: TxKind::Call(TO),
                value: U256::from(value),
                ..TxEip1559::default()
            },
            nonce,
        )
    }

    /// Payments with the nonces from 0.
    pub(crate) fn pay_many(&self, many: u64) -> Vec<Raw> {
        (0..many).map(|nonce| self.pay(nonce)).collect()
    }

    /// One of each kind.
    pub(crate) fn of_kind(&self, kind: Kind, nonce: u64) -> Raw {
        let (chain_id, to, value) = (self.chain, TxKind::Call(TO), U256::from(1));
        let legacy = TxLegacy {
            chain_id: Some(chain_id),
            nonce,
            gas_price: FEE,
            gas_limit: GAS,
            to,
            value,
            input: Bytes::new(),
        };
        match kind {
            Kind::Legacy => self.sign(legacy, nonce),
            Kind::Unprotected => self.sign(TxLegacy { chain_id: None, ..legacy }, nonce),
            Kind::Eip2930 => {
                let item = AccessListItem { address: TO, storage_keys: vec![B256::ZERO] };
                let access_list = AccessList(vec![item]);
                let gas_limit = 2 * GAS;
                let (gas_price, input) = (FEE, Bytes::new());
                self.sign(
                    TxEip2930 {
                        chain_id,
                        nonce,
                        gas_price,
                        gas_limit,
                        to,
                        value,
                        access_list,
                        input,
                    },
                    nonce,
                )
            }
            Kind::Eip1559 => self.pay(nonce),
            Kind::Eip4844 => self.sign(self.blob(nonce), nonce),
            Kind::Eip7702 => self.sign(self.delegation(nonce), nonce),
        }
    }

    /// Whose blob is empty, so that its proof is known: the point at infinity.
    fn blob(&self, nonce: u64) -> TxEip4844WithSidecar<BlobTransactionSidecar> {
        let mut infinity = Bytes48::default();
        infinity[0] = 0xc0;
        let sidecar = BlobTransactionSidecar {
            blobs: vec![Blob::default()],
            commitments: vec![infinity],
            proofs: vec![infinity],
        };
        let tx = TxEip4844 {
            chain_id: self.chain,
            nonce,
            gas_limit: GAS,
            max_fee_per_gas: FEE,
            max_priority_fee_per_gas: TIP,
            to: TO,
            value: U256::from(1),
            blob_versioned_hashes: vec![kzg_to_versioned_hash(infinity.as_slice())],
            max_fee_per_blob_gas: FEE,
            ..TxEip4844::default()
        };
        TxEip4844WithSidecar { tx, sidecar }
    }

    /// Another wallet lets its account act by the code of `TO`, which is none.
    fn delegation(&self, nonce: u64) -> TxEip7702 {
        let other = Wallet::fresh(u64::MAX, self.chain);
        let authorization =
            Authorization { chain_id: U256::from(self.chain), address: TO, nonce: 0 };
        let signature = other.sign_hash(authorization.signature_hash());
        TxEip7702 {
            chain_id: self.chain,
            nonce,
            gas_limit: 5 * GAS,
            max_fee_per_gas: FEE,
            max_priority_fee_per_gas: TIP,
            to: TO,
            value: U256::from(1),
            authorization_list: vec![authorization.into_signed(signature)],
            ..TxEip7702::default()
        }
    }

    fn sign<T>(&self, transaction: T, nonce: u64) -> Raw
    where
        T: SignableTransaction<Signature>,
        alloy_consensus::Signed<T>: Encodable2718,
    {
        let signature = self.sign_hash(transaction.signature_hash());
        let signed = transaction.into_signed(signature);
        let raw = format!("{}", Bytes::from(signed.encoded_2718()));
        Raw { raw, hash: format!("{:#x}", signed.trie_hash()), nonce }
    }

    fn sign_hash(&self, hash: B256) -> Signature {
        let message = Message::from_digest(hash.0);
        let signed = SECP256K1.sign_ecdsa_recoverable(&message, &self.secret);
        let (parity, bytes) = signed.serialize_compact();
        Signature::from_bytes_and_parity(&bytes, i32::from(parity) == 1)
    }
}
