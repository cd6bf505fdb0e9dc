//! All errors of the relay itself.
//!
//! The node's errors are passed on as they are; these come from the relay. Codes and reasons are stable, because
//! clients match on them: docs/relay.md has the same table.

use std::fmt;
use std::time::Duration;

use alloy_primitives::{Address, B256, U256};
use serde_json::{Map, Value, json};

/// An error of the relay: a JSON-RPC error with a code, a text, and data for programs.
///
/// The texts begin like geth's where it has one, because wallets and libraries match on them.
///
/// | code | reasons | means |
/// |---|---|---|
/// | -32700 | `parse` | the body is not JSON |
/// | -32600 | `invalid_request` | JSON, but no JSON-RPC 2.0 call |
/// | -32601 | `method_denied`, `nonces_off` | a method that this relay does not pass on, or not without `--nonces on` |
/// | -32602 | `bad_params`, `undecodable` | not the parameters of the method, or not a transaction |
/// | -32603 | `internal` | a fault of the relay |
/// | -32000 | `nonce_too_low`, `nonce_gap`, `nonce_max`, `fee_too_low`, `tip_above_fee`, `gas_too_low`, `insufficient_funds`, `no_account`, `already_known`, `reservation_ended` | the chain would not accept it in its current state |
/// | -32003 | `type_refused`, `chain_id`, `unprotected`, `high_s`, `too_large` | a rule of this relay or of Ethereum forbids it |
/// | -32005 | `line_full`, `engine_down`, `batch_too_long`, `body_too_large`, `busy`, `rate_limited`, `shutting_down` | a limit is reached, or the relay cannot guarantee the order |
/// | -32002 | `node_unreachable`, `bad_reply` | the node did not answer, or not in JSON-RPC |
/// | -32050 | `outcome_unknown` | the transaction may or may not have reached the node |
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The body is not JSON.
    Parse(String),
    /// The body, or an item of a batch, is not a JSON-RPC 2.0 call.
    InvalidRequest(&'static str),
    /// This relay does not forward the method.
    MethodDenied(String),
    /// The parameters are not what the method takes.
    BadParams(String),
    /// The parameter is not the encoding of a signed transaction.
    Undecodable(String),
    /// A bug in the relay.
    Internal(String),
    /// The sender has used this nonce.
    NonceTooLow {
        /// The nonce that would be accepted.
        next: u64,
        /// The nonce of the transaction.
        nonce: u64,
    },
    /// Transactions of the sender before this one are missing.
    NonceGap {
        /// The nonce that would be accepted.
        next: u64,
        /// The nonce of the transaction.
        nonce: u64,
        /// How long the relay waited for the missing ones; zero if it does not wait.
        waited: Duration,
        /// Why the next one was refused, if this relay did that.
        because: Option<String>,
    },
    /// The nonce is the highest possible one, which no transaction may have (EIP-2681).
    NonceMax,
    /// The fee is lower than what any block currently requires.
    FeeTooLow {
        /// The highest fee per unit of gas that is offered.
        max_fee: u128,
        /// The base fee of a block.
        base_fee: u128,
    },
    /// The tip is higher than the whole fee.
    TipAboveFee {
        /// The tip per unit of gas.
        tip: u128,
        /// The highest fee per unit of gas that is offered.
        max_fee: u128,
    },
    /// The gas limit is below the intrinsic gas of the transaction.
    GasTooLow {
        /// The gas limit.
        limit: u64,
        /// The intrinsic gas.
        needed: u64,
    },
    /// The sender cannot pay for it. Nobody can pay more than 2^256-1.
    InsufficientFunds {
        /// The sender's balance, if it was looked up.
        balance: Option<U256>,
        /// The most it can cost; `None` if that is more than can be represented.
        cost: Option<U256>,
    },
    /// The sender has never been seen on this chain.
    NoAccount(Address),
    /// The same transaction was accepted before.
    AlreadyKnown(B256),
    /// A type of transaction that this relay does not accept.
    TypeRefused(u8),
    /// The transaction is for another chain.
    ChainId {
        /// The chain that the transaction names.
        have: u64,
        /// The chain of this relay.
        want: u64,
    },
    /// A legacy transaction without a chain: it could be replayed on any (EIP-155).
    Unprotected,
    /// The malleable form of a signature, which anyone can derive from the other (EIP-2).
    HighS,
    /// The transaction is longer than this relay accepts.
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// Too many transactions of the sender wait already.
    LineFull {
        /// The limit.
        limit: usize,
    },
    /// Order cannot be guaranteed, because the engine that keeps the lanes does not answer.
    EngineDown(String),
    /// The batch has more items than this relay accepts.
    BatchTooLong {
        /// The number of items.
        items: usize,
        /// The limit.
        limit: usize,
    },
    /// The body is longer than this relay accepts.
    BodyTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The relay has reached one of its limits: which one.
    Busy(&'static str),
    /// The client has exceeded its rate.
    RateLimited {
        /// How long until it may ask again.
        wait: Duration,
    },
    /// The relay is shutting down, and starts nothing new.
    ShuttingDown,
    /// This relay does not reserve nonces.
    NoncesOff,
    /// The signer no longer has a reservation with that name: someone else may have its nonce.
    ReservationEnded,
    /// The node could not be reached.
    NodeUnreachable(String),
    /// The node's answer is not valid.
    BadReply(String),
    /// The transaction was sent to the node, but its outcome is not known.
    OutcomeUnknown {
        /// The hash, to look it up.
        hash: B256,
        /// Why it is not known.
        why: String,
    },
}

/// The state of the transaction, as far as the relay knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It was not accepted, and its nonce is free.
    Rejected,
    /// It may have been accepted.
    Unknown,
}

impl Class {
    /// The word for it in `data.class`.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Rejected => "rejected",
            Class::Unknown => "unknown",
        }
    }
}

impl Refusal {
    /// The JSON-RPC error code.
    pub fn code(&self) -> i64 {
        self.row().0
    }

    /// A short word that stays the same: `data.reason`.
    pub fn name(&self) -> &'static str {
        self.row().1
    }

    /// What was refused and why, in one line.
    pub fn message(&self) -> String {
        self.to_string()
    }

    /// What it means for the transaction; `None` if there was none, or none that could be decoded.
    pub fn class(&self) -> Option<Class> {
        match self {
            Refusal::OutcomeUnknown { .. } => Some(Class::Unknown),
            Refusal::Parse(_)
            | Refusal::InvalidRequest(_)
            | Refusal::MethodDenied(_)
            | Refusal::NoncesOff
            | Refusal::ReservationEnded
            | Refusal::BatchTooLong { .. }
            | Refusal::BodyTooLarge { .. }
            | Refusal::RateLimited { .. }
            | Refusal::Internal(_)
            | Refusal::BadReply(_)
            | Refusal::NodeUnreachable(_) => None,
            _ => Some(Class::Rejected),
        }
    }

    /// The data for programs: the reason, the class, the hash if it is known, numbers, and what to do next.
    pub fn data(&self, hash: Option<&B256>) -> Value {
        let mut data = Map::new();
        data.insert("reason".to_owned(), self.name().into());
        // A transaction about which nothing else is known has not been sent.
        if let Some(class) = self.class().or(hash.map(|_| Class::Rejected)) {
            data.insert("class".to_owned(), class.as_str().into());
        }
        let own = match self {
            Refusal::OutcomeUnknown { hash, .. } | Refusal::AlreadyKnown(hash) => Some(hash),
            _ => None,
        };
        if let Some(hash) = own.or(hash) {
            data.insert("hash".to_owned(), format!("{hash:#x}").into());
        }
        if let Refusal::NonceTooLow { next, nonce } | Refusal::NonceGap { next, nonce, .. } = self {
            data.insert("nonce".to_owned(), format!("{nonce:#x}").into());
            data.insert("expected_nonce".to_owned(), format!("{next:#x}").into());
        }
        if let Refusal::NonceGap { because: Some(because), .. } = self {
            data.insert("missing_because".to_owned(), because.as_str().into());
        }
        data.insert("next_step".to_owned(), self.next_step().into());
        Value::Object(data)
    }

    /// The error object: code, message and data.
    pub fn error(&self, hash: Option<&B256>) -> Value {
        json!({ "code": self.code(), "message": self.message(), "data": self.data(hash) })
    }

    /// The table in the docs, as code.
    fn row(&self) -> (i64, &'static str) {
        match self {
            Refusal::Parse(_) => (-32700, "parse"),
            Refusal::InvalidRequest(_) => (-32600, "invalid_request"),
            Refusal::MethodDenied(_) => (-32601, "method_denied"),
            Refusal::BadParams(_) => (-32602, "bad_params"),
            Refusal::Undecodable(_) => (-32602, "undecodable"),
            Refusal::Internal(_) => (-32603, "internal"),
            Refusal::NonceTooLow { .. } => (-32000, "nonce_too_low"),
            Refusal::NonceGap { .. } => (-32000, "nonce_gap"),
            Refusal::NonceMax => (-32000, "nonce_max"),
            Refusal::FeeTooLow { .. } => (-32000, "fee_too_low"),
            Refusal::TipAboveFee { .. } => (-32000, "tip_above_fee"),
            Refusal::GasTooLow { .. } => (-32000, "gas_too_low"),
            Refusal::InsufficientFunds { .. } => (-32000, "insufficient_funds"),
            Refusal::NoAccount(_) => (-32000, "no_account"),
            Refusal::AlreadyKnown(_) => (-32000, "already_known"),
            Refusal::TypeRefused(_) => (-32003, "type_refused"),
            Refusal::ChainId { .. } => (-32003, "chain_id"),
            Refusal::Unprotected => (-32003, "unprotected"),
            Refusal::HighS => (-32003, "high_s"),
            Refusal::TooLarge { .. } => (-32003, "too_large"),
            Refusal::LineFull { .. } => (-32005, "line_full"),
            Refusal::EngineDown(_) => (-32005, "engine_down"),
            Refusal::BatchTooLong { .. } => (-32005, "batch_too_long"),
            Refusal::BodyTooLarge { .. } => (-32005, "body_too_large"),
            Refusal::Busy(_) => (-32005, "busy"),
            Refusal::RateLimited { .. } => (-32005, "rate_limited"),
            Refusal::ShuttingDown => (-32005, "shutting_down"),
            Refusal::NoncesOff => (-32601, "nonces_off"),
            Refusal::ReservationEnded => (-32000, "reservation_ended"),
            Refusal::NodeUnreachable(_) => (-32002, "node_unreachable"),
            Refusal::BadReply(_) => (-32002, "bad_reply"),
            Refusal::OutcomeUnknown { .. } => (-32050, "outcome_unknown"),
        }
    }

    fn next_step(&self) -> &'static str {
        match self {
            Refusal::Parse(_) | Refusal::InvalidRequest(_) => "send a JSON-RPC 2.0 call",
            Refusal::MethodDenied(_) => "ask a node that offers this method",
            Refusal::BadParams(_) => "send the parameters that the method takes",
            Refusal::Undecodable(_) => "send one signed transaction as a 0x-prefixed hex string",
            Refusal::NoncesOff => "start the relay with --nonces on, or ask another one",
            Refusal::ReservationEnded => "do not send with it; reserve a nonce anew",
            Refusal::Internal(_) => "look at the log of the relay",
            Refusal::NonceTooLow { .. } => "sign it again with the expected nonce",
            Refusal::NonceGap { .. } => {
                "send the transactions before it first, then this one again"
            }
            Refusal::NonceMax => "use another account",
            Refusal::FeeTooLow { .. } | Refusal::TipAboveFee { .. } => {
                "sign it again with a higher fee"
            }
            Refusal::GasTooLow { .. } => "sign it again with a higher gas limit",
            Refusal::InsufficientFunds { .. } | Refusal::NoAccount(_) => {
                "fund the sender, then send it again"
            }
            Refusal::AlreadyKnown(_) => "wait for its receipt",
            Refusal::TypeRefused(_) => "sign it as a type that this relay takes",
            Refusal::ChainId { .. } => "sign it for this chain, or send it to a relay of its own",
            Refusal::Unprotected => "sign it with the chain id (EIP-155)",
            Refusal::HighS => "sign it with the lower s (EIP-2)",
            Refusal::TooLarge { .. } => "make it shorter, or split it",
            Refusal::LineFull { .. }
            | Refusal::Busy(_)
            | Refusal::RateLimited { .. }
            | Refusal::EngineDown(_) => "send it again later",
            Refusal::BatchTooLong { .. } | Refusal::BodyTooLarge { .. } => "split it",
            Refusal::ShuttingDown | Refusal::NodeUnreachable(_) | Refusal::BadReply(_) => {
                "try again, here or at another relay"
            }
            Refusal::OutcomeUnknown { .. } => {
                "look it up by its hash; you may send the same transaction again, but no other one with \
                 its nonce until the outcome is known"
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Parse(why) => write!(f, "parse error: {why}"),
            Refusal::InvalidRequest(why) => write!(f, "invalid request: {why}"),
            Refusal::MethodDenied(method) => {
                // The name comes from the client: cut it, and escape control characters.
                let method: String = method.chars().take(64).flat_map(char::escape_default).collect();
                write!(f, "the method {method} does not exist/is not available")
            }
            Refusal::BadParams(why) => write!(f, "invalid params: {why}"),
            Refusal::Undecodable(why) => write!(f, "invalid transaction: {why}"),
            Refusal::Internal(why) => write!(f, "internal error: {why}"),
            Refusal::TypeRefused(number) => {
                write!(f, "transaction type not supported: {number:#04x} is not accepted here")
            }
            Refusal::ChainId { have, want } => {
                write!(f, "invalid chain id for signer: have {have} want {want}")
            }
            Refusal::Unprotected => {
                f.write_str("only replay-protected (EIP-155) transactions allowed over RPC")
            }
            Refusal::HighS => f.write_str(
                "invalid transaction v, r, s values: s is above half the order of the curve (EIP-2)",
            ),
            Refusal::TooLarge { size, limit } => {
                write!(f, "oversized data: transaction size {size}, limit {limit}")
            }
            Refusal::NodeUnreachable(why) => write!(f, "node not reachable: {why}"),
            Refusal::BadReply(why) => write!(f, "node gave no usable answer: {why}"),
            Refusal::OutcomeUnknown { hash, why } => write!(f, "outcome of {hash:#x} unknown: {why}"),
            _ => self.fmt_state(f),
        }
    }
}

impl Refusal {
    /// The texts of refusals that depend on the state of the chain or of the relay.
    fn fmt_state(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NonceTooLow { next, nonce } => {
                write!(f, "nonce too low: next nonce {next}, tx nonce {nonce}")
            }
            Refusal::NonceGap { next, nonce, waited, because } => {
                fmt_gap(f, *next, *nonce, *waited, because.as_deref())
            }
            Refusal::NonceMax => f.write_str("nonce has max value"),
            Refusal::FeeTooLow { max_fee, base_fee } => write!(
                f,
                "max fee per gas less than block base fee: maxFeePerGas: {max_fee}, baseFee: {base_fee}"
            ),
            Refusal::TipAboveFee { tip, max_fee } => write!(
                f,
                "max priority fee per gas higher than max fee per gas: maxPriorityFeePerGas: {tip}, \
                 maxFeePerGas: {max_fee}"
            ),
            Refusal::GasTooLow { limit, needed } => {
                write!(f, "intrinsic gas too low: gas {limit}, minimum needed {needed}")
            }
            Refusal::InsufficientFunds { balance, cost } => {
                f.write_str("insufficient funds for gas * price + value")?;
                match (balance, cost) {
                    (Some(balance), Some(cost)) => write!(f, ": balance {balance}, tx cost {cost}"),
                    (_, Some(cost)) => write!(f, ": tx cost {cost}"),
                    (_, None) => f.write_str(": tx cost is above 2^256-1"),
                }
            }
            // geth's words for an account without funds, which libraries know.
            Refusal::NoAccount(sender) => write!(
                f,
                "insufficient funds for gas * price + value: account {sender:#x} has never been seen"
            ),
            Refusal::AlreadyKnown(_) => f.write_str("already known"),
            Refusal::LineFull { limit } => {
                write!(f, "limit exceeded: {limit} transactions of this sender are already waiting")
            }
            Refusal::EngineDown(why) => write!(f, "order not available: {why}"),
            Refusal::BatchTooLong { items, limit } => {
                write!(f, "batch too large: {items} items, limit {limit}")
            }
            Refusal::BodyTooLarge { limit } => write!(f, "content length too large: limit {limit}"),
            Refusal::Busy(why) => write!(f, "limit exceeded: {why}"),
            Refusal::RateLimited { wait } => {
                write!(f, "limit exceeded: too many calls, try again in {} ms", wait.as_millis())
            }
            Refusal::NoncesOff => f.write_str("this relay does not reserve nonces"),
            Refusal::ReservationEnded => {
                f.write_str("the reservation has ended, and someone else may have the nonce")
            }
            Refusal::ShuttingDown => f.write_str("the relay is shutting down"),
            _ => f.write_str(self.name()),
        }
    }
}

fn fmt_gap(
    f: &mut fmt::Formatter<'_>,
    next: u64,
    nonce: u64,
    waited: Duration,
    because: Option<&str>,
) -> fmt::Result {
    write!(f, "nonce too high: next nonce {next}, tx nonce {nonce}")?;
    if !waited.is_zero() {
        write!(f, ", and the ones between did not arrive within {waited:?}")?;
    }
    match because {
        Some(because) => write!(f, "; nonce {next} was refused: {because}"),
        None => Ok(()),
    }
}

impl std::error::Error for Refusal {}
