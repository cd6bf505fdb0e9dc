//! Valid bytes with something wrong in them, many times over: nothing panics, and what is still taken
//! is what it says it is. The fuzz targets do the same for as long as one likes.

#![cfg(feature = "relay")]

use crate::vectors;

use alloy_consensus::TxEnvelope;
use alloy_consensus::transaction::SignerRecoverable;
use alloy_eips::eip2718::{Decodable2718, Encodable2718};
use alloy_primitives::hex;
use bytes::Bytes;
use tenure_relay::envelope::{self, Incoming, Json, Limits, read_replies, read_reply};
use tenure_relay::transaction::{Decoded, Kind, Rules, Unprotected, decode_raw};

/// How many of each are tried.
const ROUNDS: usize = 200_000;
/// The same every time, so that what fails once fails again.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Numbers that look random: xorshift.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % limit.max(1)
    }

    /// Changes one to three things.
    fn spoil(&mut self, bytes: &mut Vec<u8>, words: &[&[u8]]) {
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            match self.below(7) {
                _ if bytes.is_empty() => bytes.push(0),
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = u8::try_from(self.below(256)).unwrap(),
                2 => bytes.truncate(at),
                3 => bytes.insert(at, u8::try_from(self.below(256)).unwrap()),
                4 => drop(bytes.remove(at)),
                5 => {
                    let word = words[self.below(words.len())];
                    bytes.splice(at..at, word.iter().copied());
                }
                _ => {
                    let until = at + self.below((bytes.len() - at).min(40));
                    let piece = bytes[at..until].to_vec();
                    let to = self.below(bytes.len());
                    bytes.splice(to..to, piece);
                }
            }
        }
    }
}

#[test]
fn no_transaction_makes_it_panic_and_what_is_taken_encodes_to_itself() {
    let words: [&[u8]; 8] = [
        &[0x80],
        &[0xc0],
        &[0x81, 0x80],
        &[0xb8, 0x38],
        &[0xf8, 0xff],
        &[0xff; 9],
        &[0; 3],
        &[0xbf],
    ];
    let mut rules = Rules::new(vectors::CHAIN);
    rules.unprotected = Unprotected::Take;
    let whole = vectors::each();
    let small: Vec<_> = whole.iter().filter(|(kind, _)| *kind != Kind::Blob).collect();
    let blob = whole.iter().find(|(kind, _)| *kind == Kind::Blob).unwrap();
    let (mut dice, mut taken) = (Dice(SEED), 0);
    for round in 0..ROUNDS {
        // One in a thousand is of the kind that takes a thousand times as long to copy.
        let (_, valid) = if round % 1_000 == 0 { blob } else { small[round % small.len()] };
        let mut raw = valid.clone();
        dice.spoil(&mut raw, &words);
        let Ok(Decoded::Ordered(transaction)) = decode_raw(raw.clone().into(), &rules) else {
            continue;
        };
        taken += 1;
        let again = TxEnvelope::decode_2718_exact(&raw).expect("a node takes it too");
        assert_eq!(again.encoded_2718(), raw);
        if taken % 16 == 0 {
            assert_eq!(again.recover_signer().ok(), Some(transaction.sender));
            assert_eq!(*again.hash(), transaction.hash, "{}", hex::encode(&raw));
        }
    }
    assert!(taken > ROUNDS / 100, "only {taken} were taken: the mutations are too wild to tell");
}

#[test]
fn no_body_makes_it_panic_and_what_is_read_is_a_piece_of_it() {
    let words: [&[u8]; 10] = [
        b"{",
        b"[",
        b"]",
        b"\"",
        b"\\u",
        b"null",
        b"1e9",
        b",{}",
        b"\"method\":\"m\",",
        b"\xf0\x9f",
    ];
    let call = r#"{"jsonrpc":"2.0","id":7,"method":"eth_sendRawTransaction","params":["0x02f8"]}"#;
    let answer = r#"{"jsonrpc":"2.0","id":7,"result":"0x1","error":null}"#;
    let error = r#"{"id":"a","error":{"code":-32000,"message":"nonce too low","data":{}}}"#;
    let valid = [
        call.to_owned(),
        format!("[{call},{call}]"),
        answer.to_owned(),
        format!("[{answer},{error}]"),
    ];
    let ids = [Json::of(&7), Json::of("a")];
    let (mut dice, mut read) = (Dice(SEED), 0);
    for round in 0..ROUNDS {
        let mut body = valid[round % valid.len()].clone().into_bytes();
        dice.spoil(&mut body, &words);
        let body = Bytes::from(body);
        let _ = read_reply(&body, &ids[0]);
        let _ = read_replies(&body, &ids);
        let items = match envelope::read(&body, &Limits::default()) {
            Ok(Incoming::One(item)) => vec![item],
            Ok(Incoming::Batch(items)) => items,
            Err(_) => continue,
        };
        for call in items.into_iter().flatten() {
            read += 1;
            // A second reader reads the same.
            let raw = Bytes::copy_from_slice(call.raw.as_bytes());
            let Ok(Incoming::One(Ok(again))) = envelope::read(&raw, &Limits::default()) else {
                panic!("{}", call.raw.as_str());
            };
            assert_eq!(again, call);
        }
    }
    assert!(read > ROUNDS / 100, "only {read} were read: the mutations are too wild to tell");
}
