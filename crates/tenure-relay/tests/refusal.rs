//! Every refusal has a code that the docs name, a text, and data to go by.

#![cfg(feature = "relay")]

use std::collections::BTreeSet;
use std::time::Duration;

use alloy_primitives::{Address, B256, U256};
use tenure_relay::refusal::{Class, Refusal};

fn all() -> Vec<Refusal> {
    let why = || "why".to_owned();
    vec![
        Refusal::Parse(why()),
        Refusal::InvalidRequest("why"),
        Refusal::MethodDenied("admin_stopRPC".to_owned()),
        Refusal::BadParams(why()),
        Refusal::Undecodable(why()),
        Refusal::Internal(why()),
        Refusal::NonceTooLow { next: 5, nonce: 3 },
        Refusal::NonceGap { next: 5, nonce: 7, waited: Duration::from_secs(2), because: None },
        Refusal::NonceMax,
        Refusal::FeeTooLow { max_fee: 1, base_fee: 7 },
        Refusal::TipAboveFee { tip: 2, max_fee: 1 },
        Refusal::GasTooLow { limit: 1, needed: 21_000 },
        Refusal::InsufficientFunds { balance: Some(U256::from(1)), cost: Some(U256::from(2)) },
        Refusal::NoAccount(Address::ZERO),
        Refusal::AlreadyKnown(B256::ZERO),
        Refusal::TypeRefused(5),
        Refusal::ChainId { have: 5, want: 1 },
        Refusal::Unprotected,
        Refusal::HighS,
        Refusal::TooLarge { size: 2, limit: 1 },
        Refusal::LineFull { limit: 64 },
        Refusal::EngineDown(why()),
        Refusal::BatchTooLong { items: 2, limit: 1 },
        Refusal::BodyTooLarge { limit: 1 },
        Refusal::Busy("why"),
        Refusal::RateLimited { wait: Duration::from_millis(250) },
        Refusal::ShuttingDown,
        Refusal::NoncesOff,
        Refusal::ReservationEnded,
        Refusal::NodeUnreachable(why()),
        Refusal::BadReply(why()),
        Refusal::OutcomeUnknown { hash: B256::repeat_byte(7), why: why() },
    ]
}

/// The reasons and codes in a table of the docs.
fn table(text: &str) -> BTreeSet<(i64, String)> {
    let mut rows = BTreeSet::new();
    for line in text.lines().map(|line| line.trim_start_matches("/// ")) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let Some(code) = cells.get(1).and_then(|cell| cell.parse().ok()) else { continue };
        rows.extend(cells[2].split(", ").map(|reason| (code, reason.replace('`', ""))));
    }
    rows
}

#[test]
fn the_docs_name_every_code_and_reason_and_no_other() {
    let said = all().iter().map(|one| (one.code(), one.name().to_owned())).collect();
    assert_eq!(table(include_str!("../src/refusal.rs")), said);
    assert_eq!(table(include_str!("../../../docs/relay.md")), said);
}

#[test]
fn texts_begin_as_those_that_wallets_match_on() {
    let begins = [
        ("nonce_too_low", "nonce too low: next nonce 5, tx nonce 3"),
        (
            "nonce_gap",
            "nonce too high: next nonce 5, tx nonce 7, and the ones between did not arrive",
        ),
        ("nonce_max", "nonce has max value"),
        ("fee_too_low", "max fee per gas less than block base fee"),
        ("tip_above_fee", "max priority fee per gas higher than max fee per gas"),
        ("gas_too_low", "intrinsic gas too low"),
        ("insufficient_funds", "insufficient funds for gas * price + value: balance 1, tx cost 2"),
        ("already_known", "already known"),
        ("type_refused", "transaction type not supported"),
        ("chain_id", "invalid chain id for signer: have 5 want 1"),
        ("unprotected", "only replay-protected (EIP-155) transactions allowed over RPC"),
        ("too_large", "oversized data"),
        ("method_denied", "the method admin_stopRPC does not exist/is not available"),
    ];
    for (name, begin) in begins {
        let refusal = all().into_iter().find(|one| one.name() == name).unwrap();
        assert!(refusal.message().starts_with(begin), "{refusal}");
    }
}

#[test]
fn each_says_what_and_why_and_what_next() {
    let mut texts = BTreeSet::new();
    for refusal in all() {
        let text = refusal.message();
        assert!(text.len() > 8 && !text.contains('\n') && text != refusal.name(), "{text}");
        assert!(texts.insert(text.clone()), "{text} is said twice");
        let error = refusal.error(None);
        assert_eq!(error["code"], refusal.code());
        assert_eq!(error["message"], text);
        assert_eq!(error["data"]["reason"], refusal.name());
        assert!(error["data"]["next_step"].as_str().unwrap().len() > 4);
        let class = refusal.class().map(Class::as_str);
        assert_eq!(error["data"].get("class").and_then(|class| class.as_str()), class);
    }
}

#[test]
fn only_an_unknown_outcome_leaves_it_open_whether_the_nonce_is_used() {
    for refusal in all() {
        let open = refusal.class() == Some(Class::Unknown);
        assert_eq!(open, refusal.code() == -32050, "{refusal}");
    }
    let hash = B256::repeat_byte(7);
    let unknown = Refusal::OutcomeUnknown { hash, why: "no answer".to_owned() };
    assert_eq!(unknown.data(None)["hash"], format!("{hash:#x}"));
    let gap = Refusal::NonceGap { next: 5, nonce: 7, waited: Duration::ZERO, because: None };
    let data = gap.data(Some(&hash));
    assert_eq!(data["hash"], format!("{hash:#x}"));
    assert_eq!((&data["expected_nonce"], &data["nonce"]), (&"0x5".into(), &"0x7".into()));
}

#[test]
fn what_callers_choose_is_cut_and_escaped() {
    let refusal = Refusal::MethodDenied("\u{1b}[2J\n".repeat(10_000));
    assert!(refusal.message().len() < 1_000);
    assert!(!refusal.message().contains(['\u{1b}', '\n']));
}
