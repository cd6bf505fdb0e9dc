//! Decodes a signed transaction: its sender, its nonce, what it can cost, and whether any node would accept it.
//!
//! Everything that can be checked without IO is checked here. Nothing recurses, and what decodes encodes to the
//! same bytes. Cheap checks come before the recovery of the sender, which costs more than everything else together.

mod blob;
mod gas;
mod hex;

use std::fmt;

use alloy_consensus::crypto::secp256k1;
use alloy_consensus::transaction::{RlpEcdsaDecodableTx, RlpEcdsaEncodableTx};
use alloy_consensus::{SignableTransaction, TxEip1559, TxEip2930, TxEip7702, TxLegacy};
use alloy_eips::eip4844::DATA_GAS_PER_BLOB;
use alloy_primitives::{Address, B256, Signature, U256, keccak256};
use bytes::Bytes;

use crate::envelope::Json;
use crate::refusal::Refusal;

/// Which transactions a relay accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rules {
    /// The chain that transactions must be for.
    pub chain_id: u64,
    /// Legacy transactions without a chain. Default: refused.
    pub unprotected: Unprotected,
    /// Types that are not known here. Default: refused.
    pub unknown_types: UnknownTypes,
    /// The known types that are accepted. Default: all.
    pub kinds: Kinds,
    /// The rules for the lowest gas limit. Default: Prague's.
    pub gas: Gas,
    /// The largest transaction in bytes. Default: 128 KiB, as in geth.
    pub max_size: usize,
    /// The largest transaction with blobs, in bytes. Default: 1 MiB.
    pub max_blob_size: usize,
}

impl Rules {
    /// Strict rules for this chain.
    pub fn new(chain_id: u64) -> Rules {
        Rules {
            chain_id,
            unprotected: Unprotected::Refuse,
            unknown_types: UnknownTypes::Refuse,
            kinds: Kinds::ALL,
            gas: Gas::Prague,
            max_size: 128 << 10,
            max_blob_size: 1 << 20,
        }
    }
}

/// How to handle a legacy transaction without a chain id (EIP-155).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unprotected {
    /// Refuse it: anyone can replay it on every other chain.
    #[default]
    Refuse,
    /// Accept it, and keep it in order like the others.
    Take,
}

/// How to handle a type of transaction that is not known here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownTypes {
    /// Refuse it.
    #[default]
    Refuse,
    /// Forward it unchanged. Its sender is not known, so no order is kept.
    Pass,
}

/// The fork whose rules determine the intrinsic gas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gas {
    /// With a floor for calldata (EIP-7623).
    #[default]
    Prague,
    /// Without that floor.
    Shanghai,
    /// No check, for chains with other rules.
    Unchecked,
}

/// A type of transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The original one, without a type byte.
    Legacy,
    /// With an access list, EIP-2930: type 1.
    AccessList,
    /// With a tip and a fee, EIP-1559: type 2.
    DynamicFee,
    /// With blobs, EIP-4844: type 3.
    Blob,
    /// With code for accounts, EIP-7702: type 4.
    SetCode,
}

impl Kind {
    /// All kinds, in the order of their types.
    pub const ALL: [Kind; 5] =
        [Kind::Legacy, Kind::AccessList, Kind::DynamicFee, Kind::Blob, Kind::SetCode];

    /// Its name: `legacy`, or the number of its EIP.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Legacy => "legacy",
            Kind::AccessList => "2930",
            Kind::DynamicFee => "1559",
            Kind::Blob => "4844",
            Kind::SetCode => "7702",
        }
    }

    /// The type byte; a legacy transaction has none, and counts as 0.
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    /// All of them.
    pub const ALL: Kinds = Kinds(0b1_1111);

    /// Exactly these.
    pub fn only(kinds: impl IntoIterator<Item = Kind>) -> Kinds {
        Kinds(kinds.into_iter().fold(0, |set, kind| set | 1 << kind.number()))
    }

    /// Whether this kind is one of them.
    pub fn contains(self, kind: Kind) -> bool {
        self.0 & 1 << kind.number() != 0
    }
}

/// A decoded transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Its sender is known, so its order can be kept.
    Ordered(Transaction),
    /// Its type is unknown, and the rules forward it unchanged.
    Passed,
}

/// A valid signed transaction. Only the state of the chain may still speak against it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transaction {
    /// The encoding, as it arrived.
    pub raw: Bytes,
    /// Its hash: that of the encoding, without the blobs.
    pub hash: B256,
    /// Who signed it.
    pub sender: Address,
    /// Its place among the sender's transactions.
    pub nonce: u64,
    /// Its type.
    pub kind: Kind,
    /// The most gas it may use.
    pub gas_limit: u64,
    /// The gas it needs before it runs.
    pub intrinsic_gas: u64,
    /// The most it pays for a unit of gas.
    pub max_fee_per_gas: u128,
    /// The highest tip for the block's builder, per unit of gas.
    pub max_priority_fee: u128,
    /// The value, plus the most that gas and blobs can cost.
    pub most_it_can_cost: U256,
}

/// Without the encoding: anyone who reads it in a log could send it.
impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("hash", &self.hash)
            .field("sender", &self.sender)
            .field("nonce", &self.nonce)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// Decodes the parameters of `eth_sendRawTransaction`: an array with one hex string.
pub fn decode(params: Option<&Json>, rules: &Rules) -> Result<Decoded, Refusal> {
    let largest = rules.max_size.max(rules.max_blob_size);
    decode_raw(hex::read(params, largest)?, rules)
}

/// Decodes a signed transaction in its binary encoding (EIP-2718, blobs with their sidecar).
pub fn decode_raw(raw: Bytes, rules: &Rules) -> Result<Decoded, Refusal> {
    let kind = match raw.first() {
        None => return Err(undecodable("it is empty")),
        Some(0xc0..) => Kind::Legacy,
        Some(1) => Kind::AccessList,
        Some(2) => Kind::DynamicFee,
        Some(3) => Kind::Blob,
        Some(4) => Kind::SetCode,
        Some(0x80..0xc0) => return Err(undecodable("neither a list nor a type begins like this")),
        Some(number) => {
            within(&raw, rules.max_size.max(rules.max_blob_size))?;
            return match rules.unknown_types {
                UnknownTypes::Refuse => Err(Refusal::TypeRefused(*number)),
                UnknownTypes::Pass => Ok(Decoded::Passed),
            };
        }
    };
    if !rules.kinds.contains(kind) {
        return Err(Refusal::TypeRefused(kind.number()));
    }
    within(&raw, if kind == Kind::Blob { rules.max_blob_size } else { rules.max_size })?;
    let transaction = match kind {
        Kind::Legacy => judge(kind, &raw, open::<TxLegacy>(kind, &raw)?, rules),
        Kind::AccessList => judge(kind, &raw, open::<TxEip2930>(kind, &raw)?, rules),
        Kind::DynamicFee => judge(kind, &raw, open::<TxEip1559>(kind, &raw)?, rules),
        Kind::Blob => judge(kind, &raw, blob::open(&raw)?, rules),
        Kind::SetCode => judge(kind, &raw, open::<TxEip7702>(kind, &raw)?, rules),
    }?;
    Ok(Decoded::Ordered(transaction))
}

fn within(raw: &Bytes, limit: usize) -> Result<(), Refusal> {
    let size = raw.len();
    if size > limit { Err(Refusal::TooLarge { size, limit }) } else { Ok(()) }
}

fn undecodable(why: impl Into<String>) -> Refusal {
    Refusal::Undecodable(why.into())
}

/// Decodes, and encodes again to check that the encoding is canonical: nodes that disagree about an encoding
/// would disagree about the hash.
fn open<T>(kind: Kind, raw: &[u8]) -> Result<(T, Signature), Refusal>
where
    T: RlpEcdsaDecodableTx + RlpEcdsaEncodableTx,
{
    let mut rest = if kind == Kind::Legacy { raw } else { raw.get(1..).unwrap_or_default() };
    let (transaction, signature) = T::rlp_decode_with_signature(&mut rest)
        .map_err(|error| undecodable(format!("rlp: {error}")))?;
    if !rest.is_empty() {
        return Err(undecodable(format!("{} bytes after its end", rest.len())));
    }
    let mut again = Vec::with_capacity(raw.len());
    transaction.eip2718_encode(&signature, &mut again);
    if again != raw {
        return Err(undecodable("it is not encoded in the one way there is"));
    }
    Ok((transaction, signature))
}

/// Makes the checks that need no chain, and recovers the sender.
fn judge<T>(
    kind: Kind,
    raw: &Bytes,
    (inner, signature): (T, Signature),
    rules: &Rules,
) -> Result<Transaction, Refusal>
where
    T: alloy_consensus::Transaction + RlpEcdsaEncodableTx + SignableTransaction<Signature>,
{
    match inner.chain_id() {
        Some(have) if have != rules.chain_id => {
            return Err(Refusal::ChainId { have, want: rules.chain_id });
        }
        None if rules.unprotected == Unprotected::Refuse => return Err(Refusal::Unprotected),
        _ => {}
    }
    let nonce = inner.nonce();
    if nonce == u64::MAX {
        return Err(Refusal::NonceMax);
    }
    if inner.authorization_list().is_some_and(<[_]>::is_empty) {
        return Err(undecodable("its list of authorizations is empty"));
    }
    let max_fee_per_gas = inner.max_fee_per_gas();
    let max_priority_fee = inner.priority_fee_or_price();
    if max_priority_fee > max_fee_per_gas {
        return Err(Refusal::TipAboveFee { tip: max_priority_fee, max_fee: max_fee_per_gas });
    }
    let (gas_limit, intrinsic_gas) = (inner.gas_limit(), gas::intrinsic(&inner, rules.gas));
    if gas_limit < intrinsic_gas && rules.gas != Gas::Unchecked {
        return Err(Refusal::GasTooLow { limit: gas_limit, needed: intrinsic_gas });
    }
    let most_it_can_cost =
        most_it_can_cost(&inner).ok_or(Refusal::InsufficientFunds { balance: None, cost: None })?;
    if signature.normalize_s().is_some() {
        return Err(Refusal::HighS);
    }
    let sender = secp256k1::recover_signer_unchecked(&signature, inner.signature_hash())
        .map_err(|_| undecodable("nobody can have made its signature"))?;
    Ok(Transaction {
        // The hash of a transaction with blobs does not cover the blobs.
        hash: if kind == Kind::Blob { inner.tx_hash(&signature) } else { keccak256(raw) },
        raw: raw.clone(),
        sender,
        nonce,
        kind,
        gas_limit,
        intrinsic_gas,
        max_fee_per_gas,
        max_priority_fee,
        most_it_can_cost,
    })
}

/// `None` if it is more than 2^256-1.
fn most_it_can_cost(inner: &impl alloy_consensus::Transaction) -> Option<U256> {
    let gas = U256::from(inner.gas_limit()).checked_mul(U256::from(inner.max_fee_per_gas()))?;
    let blobs = inner.blob_versioned_hashes().map_or(0, <[_]>::len);
    let blob_gas = U256::from(blobs).checked_mul(U256::from(DATA_GAS_PER_BLOB))?;
    let blob_fee = U256::from(inner.max_fee_per_blob_gas().unwrap_or_default());
    inner.value().checked_add(gas)?.checked_add(blob_gas.checked_mul(blob_fee)?)
}
