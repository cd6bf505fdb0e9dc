//! The intrinsic gas of a transaction.

use alloy_consensus::Transaction;

use super::Gas;

/// The cost of every transaction, and the additional cost of one that creates a contract.
const ANY: u64 = 21_000;
const CREATE: u64 = 32_000;
/// A word of a contract's init code (EIP-3860).
const INITCODE_WORD: u64 = 2;
/// Calldata: the cost of a zero byte, and the factor for any other (EIP-2028).
const ZERO_BYTE: u64 = 4;
const OTHER_BYTE: u64 = 4;
/// The floor for calldata, instead of the cost of a zero byte (EIP-7623).
const FLOOR: u64 = 10;
/// An address and a slot of an access list (EIP-2930).
const ADDRESS: u64 = 2_400;
const SLOT: u64 = 1_900;
/// An authorization to set code for an account (EIP-7702).
const AUTHORIZATION: u64 = 25_000;

/// The lowest gas limit with which the transaction is valid at all.
///
/// It saturates only beyond 2^64 bytes of transaction, which cannot occur, so nothing here overflows.
pub(super) fn intrinsic(transaction: &impl Transaction, rules: Gas) -> u64 {
    let input = transaction.input();
    let zeros = input.iter().filter(|byte| **byte == 0).count();
    let others = count(input.len() - zeros);
    let units = count(zeros).saturating_add(others.saturating_mul(OTHER_BYTE));
    let mut gas = ANY.saturating_add(units.saturating_mul(ZERO_BYTE));
    if transaction.is_create() {
        let words = count(input.len().div_ceil(32));
        gas = gas.saturating_add(CREATE).saturating_add(words.saturating_mul(INITCODE_WORD));
    }
    if let Some(list) = transaction.access_list() {
        let slots = list.iter().map(|item| item.storage_keys.len()).sum::<usize>();
        gas = gas
            .saturating_add(count(list.len()).saturating_mul(ADDRESS))
            .saturating_add(count(slots).saturating_mul(SLOT));
    }
    let authorizations = transaction.authorization_list().map_or(0, <[_]>::len);
    gas = gas.saturating_add(count(authorizations).saturating_mul(AUTHORIZATION));
    match rules {
        Gas::Shanghai => gas,
        Gas::Prague | Gas::Unchecked => gas.max(ANY.saturating_add(units.saturating_mul(FLOOR))),
    }
}

fn count(items: usize) -> u64 {
    u64::try_from(items).unwrap_or(u64::MAX)
}
