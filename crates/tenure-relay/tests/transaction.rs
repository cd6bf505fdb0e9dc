//! Which transactions are accepted, and the errors for the others.

#![cfg(feature = "relay")]

use crate::vectors;

use alloy_consensus::{SignableTransaction, TxEip4844WithSidecar, TxLegacy};
use alloy_eips::eip2930::{AccessList, AccessListItem};
use alloy_eips::eip7594::BlobTransactionSidecarVariant;
use alloy_primitives::{B256, Bytes, Signature, TxKind, U256, b256, hex, keccak256};
use tenure_relay::envelope::Json;
use tenure_relay::refusal::Refusal;
use tenure_relay::transaction::{
    Decoded, Gas, Kind, Kinds, Rules, Transaction, UnknownTypes, Unprotected, decode, decode_raw,
};
use vectors::{CHAIN, SENDER, list, signed, signed_as, text};

fn rules() -> Rules {
    Rules::new(CHAIN)
}

fn with(change: impl FnOnce(&mut Rules)) -> Rules {
    let mut rules = rules();
    change(&mut rules);
    rules
}

fn taken(raw: Vec<u8>, rules: &Rules) -> Transaction {
    match decode_raw(raw.into(), rules) {
        Ok(Decoded::Ordered(transaction)) => transaction,
        other => panic!("not taken: {other:?}"),
    }
}

fn refused(raw: Vec<u8>, rules: &Rules) -> Refusal {
    decode_raw(raw.into(), rules).expect_err("it was taken")
}

fn flipped(signature: Signature) -> Signature {
    // The order of the curve: s and order - s both verify, with the other parity.
    let order = U256::from_be_bytes(hex!(
        "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141"
    ));
    Signature::new(signature.r(), order - signature.s(), !signature.v())
}

#[test]
fn each_kind_is_read_as_what_it_is() {
    let blob_hash = vectors::blob(vectors::sidecar_4844(1)).tx;
    for (kind, raw) in vectors::each() {
        let transaction = taken(raw.clone(), &rules());
        assert_eq!((transaction.kind, transaction.sender), (kind, SENDER));
        assert_eq!(transaction.raw, raw);
        let own = if kind == Kind::Blob { signed(&blob_hash) } else { raw };
        assert_eq!(transaction.hash, keccak256(own), "{}", kind.as_str());
    }
}

#[test]
fn the_example_of_eip_155_is_read() {
    let raw = hex!(
        "f86c098504a817c800825208943535353535353535353535353535353535353535880de0b6b3a7640000802\
         5a028ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276a067cbe9d8997f761aec\
         b703304b3800ccf555c9f3dc64214b297fb1966a3b6d83"
    );
    let transaction = taken(raw.to_vec(), &Rules::new(1));
    assert_eq!(transaction.sender, SENDER);
    let hash = b256!("33469b22e9f636356c4160a87eb19df52b7412e8eac32a4a55ffe88ea8350788");
    assert_eq!(transaction.hash, hash);
    assert_eq!((transaction.nonce, transaction.gas_limit), (9, 21_000));
    assert_eq!(transaction.max_fee_per_gas, 20_000_000_000);
    let cost = U256::from(1_000_000_000_000_000_000_u64 + 21_000 * 20_000_000_000);
    assert_eq!(transaction.most_it_can_cost, cost);
}

#[test]
fn the_most_it_can_cost_counts_value_gas_and_blobs() {
    let cost = |raw| taken(raw, &rules()).most_it_can_cost;
    assert_eq!(cost(signed(&vectors::dynamic_fee())), U256::from(5 + 60_000 * 30));
    let blobs = signed(&vectors::blob(vectors::sidecar_4844(2)));
    assert_eq!(cost(blobs), U256::from(1 + 21_000 * 30 + 2 * 131_072 * 3));
}

#[test]
fn every_first_byte_has_its_answer() {
    let body = signed(&vectors::dynamic_fee()).split_off(1);
    for byte in 0..=0xff_u8 {
        let raw: Bytes = [&[byte], &body[..]].concat().into();
        let passing = with(|rules| rules.unknown_types = UnknownTypes::Pass);
        let strict = decode_raw(raw.clone().0, &rules());
        let lenient = decode_raw(raw.0, &passing);
        match byte {
            2 => assert!(matches!(strict, Ok(Decoded::Ordered(_)))),
            0 | 5..=0x7f => {
                assert_eq!(strict, Err(Refusal::TypeRefused(byte)));
                assert_eq!(lenient, Ok(Decoded::Passed));
            }
            // Known, but this is not what they look like; or neither a type nor a list; or a list
            // of something else.
            _ => {
                assert!(matches!(strict, Err(Refusal::Undecodable(_))), "{byte:#x}: {strict:?}");
                assert_eq!(strict, lenient, "{byte:#x}");
            }
        }
    }
    assert_eq!(refused(Vec::new(), &rules()).code(), -32602);
}

#[test]
fn a_kind_that_the_rules_leave_out_is_refused() {
    for (kind, raw) in vectors::each() {
        let others = Kind::ALL.into_iter().filter(|other| *other != kind);
        let without = with(|rules| rules.kinds = Kinds::only(others));
        assert_eq!(refused(raw.clone(), &without), Refusal::TypeRefused(kind.number()));
        taken(raw, &with(|rules| rules.kinds = Kinds::only([kind])));
    }
}

#[test]
fn another_chain_is_refused_for_each_kind() {
    for (_, raw) in vectors::each() {
        let refusal = refused(raw, &Rules::new(1));
        assert_eq!(refusal, Refusal::ChainId { have: CHAIN, want: 1 });
        assert_eq!(refusal.code(), -32003);
    }
}

#[test]
fn a_transaction_without_a_chain_is_taken_only_where_the_rules_say_so() {
    let raw = signed(&TxLegacy { chain_id: None, ..vectors::legacy() });
    assert_eq!(refused(raw.clone(), &rules()), Refusal::Unprotected);
    let lenient = with(|rules| rules.unprotected = Unprotected::Take);
    assert_eq!(taken(raw, &lenient).sender, SENDER);
}

#[test]
fn the_other_signature_of_two_is_refused_for_each_kind() {
    let others = [
        signed_as(&vectors::legacy(), flipped),
        signed_as(&vectors::access_list(), flipped),
        signed_as(&vectors::dynamic_fee(), flipped),
        signed_as(&vectors::blob(vectors::sidecar_4844(1)), flipped),
        signed_as(&vectors::set_code(), flipped),
    ];
    for raw in others {
        assert_eq!(refused(raw, &rules()), Refusal::HighS);
    }
}

#[test]
fn a_signature_that_nobody_can_have_made_is_refused() {
    for (r, s) in [(0_u64, 1_u64), (1, 0), (0, 0), (5, 1)] {
        let change = |_| Signature::new(U256::from(r), U256::from(s), false);
        let refusal = refused(signed_as(&vectors::dynamic_fee(), change), &rules());
        assert!(matches!(refusal, Refusal::Undecodable(_)), "{r} {s}: {refusal:?}");
    }
    let above = |signature: Signature| Signature::new(U256::MAX, signature.s(), false);
    let refusal = refused(signed_as(&vectors::dynamic_fee(), above), &rules());
    assert!(matches!(refusal, Refusal::Undecodable(_)), "{refusal:?}");
}

/// The fields of a legacy transaction that is well encoded, as RLP, with any signature.
fn fields() -> Vec<Vec<u8>> {
    let [nonce, price, gas, to] = [text(&[9]), text(&[7]), text(&[0x52, 0x08]), text(&[0x35; 20])];
    let [value, input, v] = [text(&[1]), text(&[]), text(&[0x0a, 0x95])];
    vec![nonce, price, gas, to, value, input, v, text(&[1; 32]), text(&[1; 32])]
}

#[test]
fn rlp_is_read_strictly() {
    let whole = list(&fields());
    let with = |index: usize, field: Vec<u8>| {
        let mut fields = fields();
        fields[index] = field;
        list(&fields)
    };
    let cases = [
        ("a byte after its end", [&whole[..], &[0]].concat()),
        ("a zero in front of the nonce", with(0, text(&[0, 9]))),
        ("a zero in front of the value", with(4, text(&[0, 0, 1]))),
        ("a zero byte for the nonce", with(0, vec![0])),
        ("a short number in the long form", with(0, vec![0x81, 9])),
        ("a nonce of nine bytes", with(0, text(&[1; 9]))),
        ("a gas limit of nine bytes", with(2, text(&[1; 9]))),
        ("a value of 33 bytes", with(4, text(&[1; 33]))),
        ("an address of 19 bytes", with(3, text(&[0x35; 19]))),
        ("an address of 21 bytes", with(3, text(&[0x35; 21]))),
        ("a list for the nonce", with(0, list(&[]))),
        ("a list for the input", with(5, list(&[text(&[1])]))),
        ("an r of 33 bytes", with(7, text(&[1; 33]))),
        ("v neither 27, 28 nor of EIP-155", with(6, text(&[29]))),
        ("v 0", with(6, text(&[]))),
        ("v above any chain", with(6, text(&[0xff; 16]))),
        ("v longer than that", with(6, text(&[0xff; 17]))),
        ("one field more", list(&[fields(), vec![text(&[1])]].concat())),
        ("one field less", list(&fields()[..8])),
        ("a text in place of the list", text(&whole)),
        ("an empty list", list(&[])),
        ("a length that overflows", [&[0xff; 9][..], &whole].concat()),
        ("a length that is not there", vec![0xf8]),
        ("a length with a zero in front", [&[0xf9, 0][..], &whole[1..]].concat()),
        ("lists in lists", vec![0xc1; 100_000]),
        ("long lists in lists", [0xfa, 0xff, 0xff, 0xff].repeat(30_000)),
    ];
    for (name, raw) in cases {
        let refusal = refused(raw, &rules());
        assert!(matches!(refusal, Refusal::Undecodable(_)), "{name}: {refusal:?}");
        assert_eq!(refusal.code(), -32602, "{name}");
    }
    let trailing = refused([&whole[..], &[0, 0]].concat(), &rules());
    assert!(trailing.message().contains("2 bytes after its end"), "{trailing}");
    // The changed transactions are encoded correctly, and could have been signed.
    taken(whole, &rules());
}

#[test]
fn what_is_cut_short_is_refused_at_every_length() {
    for (kind, raw) in vectors::each() {
        let step = if kind == Kind::Blob { 1_009 } else { 1 };
        for length in (0..raw.len()).step_by(step) {
            let refusal = refused(raw[..length].to_vec(), &rules());
            assert_eq!(refusal.code(), -32602, "{} {length}", kind.as_str());
        }
    }
}

#[test]
fn what_is_too_long_is_refused() {
    let exact = |size: usize| {
        let gas_limit = 30_000_000;
        let sized = |input: usize| {
            let input = vec![1; input].into();
            signed(&TxLegacy { gas_limit, input, ..vectors::legacy() })
        };
        let around = sized(size).len() - size;
        sized(size - around)
    };
    let limit = 128 << 10;
    taken(exact(limit), &rules());
    let refusal = refused(exact(limit + 1), &rules());
    assert_eq!(refusal, Refusal::TooLarge { size: limit + 1, limit });
    // Seven blobs are longer than a transaction without blobs may be, and eight are longer than any may be.
    taken(signed(&vectors::blob(vectors::sidecar_4844(7))), &rules());
    let eight = signed(&vectors::blob(vectors::sidecar_4844(8)));
    assert_eq!(refused(eight, &rules()).name(), "too_large");
    let unknown = with(|rules| rules.unknown_types = UnknownTypes::Pass);
    assert_eq!(refused(vec![5; (1 << 20) + 1], &unknown).name(), "too_large");
}

#[test]
fn gas_is_counted_in_full() {
    let intrinsic = |raw| taken(raw, &rules()).intrinsic_gas;
    let call = |input: &[u8]| TxLegacy {
        gas_limit: 1_000_000,
        input: input.to_vec().into(),
        ..vectors::legacy()
    };
    let create = |input: &[u8]| TxLegacy { to: TxKind::Create, ..call(input) };
    assert_eq!(intrinsic(signed(&call(&[]))), 21_000);
    // The floor is above the cost of the bytes: 10 instead of 4, 40 instead of 16.
    assert_eq!(intrinsic(signed(&call(&[0, 0, 7]))), 21_000 + 10 + 10 + 40);
    assert_eq!(intrinsic(signed(&create(&[]))), 53_000);
    assert_eq!(intrinsic(signed(&create(&[7; 33]))), 53_000 + 33 * 16 + 2 * 2);
    let slots = vec![B256::ZERO; 3];
    let item = AccessListItem { address: SENDER, storage_keys: slots };
    let mut listed = vectors::access_list();
    listed.access_list = AccessList(vec![item, AccessListItem::default()]);
    // Two zeros, two others.
    assert_eq!(intrinsic(signed(&listed)), 21_000 + 2 * 4 + 2 * 16 + 2 * 2_400 + 3 * 1_900);
    let mut authorized = vectors::set_code();
    authorized.authorization_list = vectors::authorizations(2);
    assert_eq!(intrinsic(signed(&authorized)), 21_000 + 2 * 25_000);

    let shanghai = with(|rules| rules.gas = Gas::Shanghai);
    assert_eq!(taken(signed(&call(&[0, 0, 7])), &shanghai).intrinsic_gas, 21_000 + 4 + 4 + 16);
}

#[test]
fn a_gas_limit_that_is_too_low_is_refused_at_the_last_unit() {
    let limited = |gas_limit| {
        signed(&TxLegacy { gas_limit, input: vec![7; 100].into(), ..vectors::legacy() })
    };
    let needed = 21_000 + 100 * 40;
    taken(limited(needed), &rules());
    let refusal = refused(limited(needed - 1), &rules());
    assert_eq!(refusal, Refusal::GasTooLow { limit: needed - 1, needed });
    assert!(refusal.message().starts_with("intrinsic gas too low"));
    taken(limited(needed - 1), &with(|rules| rules.gas = Gas::Shanghai));
    taken(limited(0), &with(|rules| rules.gas = Gas::Unchecked));
}

#[test]
fn what_no_chain_would_take_is_refused() {
    let mut tip = vectors::dynamic_fee();
    tip.max_priority_fee_per_gas = tip.max_fee_per_gas;
    taken(signed(&tip), &rules());
    tip.max_priority_fee_per_gas += 1;
    assert_eq!(refused(signed(&tip), &rules()), Refusal::TipAboveFee { tip: 31, max_fee: 30 });

    let nonce = |nonce| signed(&TxLegacy { nonce, ..vectors::legacy() });
    taken(nonce(u64::MAX - 1), &rules());
    assert_eq!(refused(nonce(u64::MAX), &rules()), Refusal::NonceMax);

    // What gas costs always fits; with the value it may not.
    let mut costly = vectors::dynamic_fee();
    (costly.gas_limit, costly.max_fee_per_gas) = (u64::MAX, u128::MAX);
    taken(signed(&costly), &rules());
    costly.value = U256::MAX;
    let refusal = refused(signed(&costly), &rules());
    assert_eq!(refusal, Refusal::InsufficientFunds { balance: None, cost: None });
    assert!(refusal.message().starts_with("insufficient funds for gas * price + value"));

    let mut empty = vectors::set_code();
    empty.authorization_list.clear();
    assert_eq!(refused(signed(&empty), &rules()).name(), "undecodable");
}

#[test]
fn blobs_come_with_a_sidecar_of_either_form() {
    for blobs in [1, 6] {
        for sidecar in [vectors::sidecar_4844(blobs), vectors::sidecar_7594(blobs)] {
            let whole = vectors::blob(sidecar);
            let hash = keccak256(signed(&whole.tx));
            assert_eq!(taken(signed(&whole), &rules()).hash, hash);
        }
    }
    let refusal = refused(signed(&vectors::bare_blob()), &rules());
    assert!(refusal.message().contains("missing sidecar"), "{refusal}");
}

#[test]
fn a_sidecar_that_does_not_belong_to_its_transaction_is_refused() {
    let whole = || vectors::blob(vectors::sidecar_4844(2));
    let says = |whole: TxEip4844WithSidecar<BlobTransactionSidecarVariant>| {
        refused(signed(&whole), &rules()).message()
    };
    let mut other = whole();
    other.tx.blob_versioned_hashes[1] = B256::repeat_byte(1);
    assert!(says(other).contains("does not match"));
    let mut fewer = whole();
    fewer.tx.blob_versioned_hashes.pop();
    assert!(says(fewer).contains("1 blob hashes, 2 blobs"));
    assert!(says(vectors::blob(vectors::sidecar_4844(0))).contains("blobless"));
    let mut unproven = whole();
    if let BlobTransactionSidecarVariant::Eip4844(sidecar) = &mut unproven.sidecar {
        sidecar.proofs.pop();
    }
    assert!(says(unproven).contains("proofs for 1"));
    let mut half = vectors::blob(vectors::sidecar_7594(1));
    if let BlobTransactionSidecarVariant::Eip7594(sidecar) = &mut half.sidecar {
        sidecar.cell_proofs.pop();
    }
    assert!(says(half).contains("proofs for 0"));
}

#[test]
fn the_parameter_is_one_hex_string() {
    let digits = hex::encode(signed(&vectors::legacy()));
    let take = |params: &str| {
        let params: Box<serde_json::value::RawValue> = serde_json::from_str(params).unwrap();
        decode(Some(&Json::of(&params)), &rules())
    };
    for good in [
        format!(r#"["0x{digits}"]"#),
        format!(r#" [ "0X{digits}" ] "#),
        format!(r#"["0x{}"]"#, digits.to_uppercase()),
    ] {
        assert!(matches!(take(&good), Ok(Decoded::Ordered(_))), "{good}");
    }
    let cases = [
        (format!(r#"["{digits}"]"#), "without 0x prefix"),
        (format!(r#"[" 0x{digits}"]"#), "without 0x prefix"),
        (r#"[""]"#.to_owned(), "without 0x prefix"),
        (format!(r#"["0x{digits} "]"#), "odd length"),
        (format!(r#"["0x{digits}f"]"#), "odd length"),
        (format!(r#"["0x{digits}  "]"#), "invalid hex"),
        (format!(r#"["0x0x{digits}"]"#), "invalid hex"),
        (format!(r#"["0x{digits}0g"]"#), "invalid hex"),
        (format!(r#"["\u0030x{digits}"]"#), "without 0x prefix"),
        (format!(r#"["0x\u0066{}"]"#, &digits[2..]), "invalid hex"),
        (r#"["0xéé"]"#.to_owned(), "invalid hex"),
        (format!(r#"["0x{digits}","0x{digits}"]"#), "too many arguments"),
        (format!(r#"["0x{digits}",null]"#), "too many arguments"),
        ("[]".to_owned(), "missing value"),
        ("null".to_owned(), "missing value"),
        ("[null]".to_owned(), "not a string"),
        ("[7]".to_owned(), "not a string"),
        (format!(r#"[["0x{digits}"]]"#), "not a string"),
        (format!(r#"{{"tx":"0x{digits}"}}"#), "non-array"),
        (format!(r#""0x{digits}""#), "non-array"),
        ("7".to_owned(), "non-array"),
    ];
    for (params, says) in cases {
        let refusal = take(&params).expect_err(&params);
        assert_eq!(refusal.code(), -32602, "{params}");
        assert!(refusal.message().contains(says), "{params}: {refusal}");
    }
    assert_eq!(decode(None, &rules()).map_err(|refusal| refusal.code()), Err(-32602));
    assert_eq!(take(r#"["0x"]"#).map_err(|refusal| refusal.name()), Err("undecodable"));
    let long = format!(r#"["0x{}"]"#, "00".repeat((1 << 20) + 1));
    assert_eq!(take(&long).map_err(|refusal| refusal.name()), Err("too_large"));
}

#[test]
fn what_was_signed_for_another_chain_has_another_sender_than_what_names_none() {
    // A signature says nothing of the chain unless the chain was signed: the same one with the chain
    // left out is somebody else's, and must not be taken as the same sender's.
    let protected = vectors::legacy();
    let hash = protected.signature_hash();
    let bare = TxLegacy { chain_id: None, ..protected };
    assert_ne!(hash, bare.signature_hash());
    let signature =
        alloy_consensus::crypto::secp256k1::sign_message(vectors::SECRET, hash).unwrap();
    let raw = signed_as(&bare, |_| signature);
    let lenient = with(|rules| rules.unprotected = Unprotected::Take);
    assert_ne!(taken(raw, &lenient).sender, SENDER);
}
