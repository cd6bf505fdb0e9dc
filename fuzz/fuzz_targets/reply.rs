//! Any answer of a node: no panic, and one answer for each id that was asked for.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tenure_relay::envelope::{Json, Reply, answer, fail, read_replies, read_reply};

fuzz_target!(|data: &[u8]| {
    let body = Bytes::copy_from_slice(data);
    let ids = [Json::of(&1), Json::of("a"), Json::of(&1), Json::null()];
    for id in &ids {
        if let Ok(reply) = read_reply(&body, id) {
            again(id, reply);
        }
    }
    if let Ok(replies) = read_replies(&body, &ids) {
        assert_eq!(replies.len(), ids.len());
        for (id, reply) in ids.iter().zip(replies) {
            let _ = reply.map(|reply| again(id, reply));
        }
    }
});

/// What is passed on says the same.
fn again(id: &Json, reply: Reply) {
    let written = match &reply {
        Reply::Result(result) => answer(id, result),
        Reply::Error { raw, .. } => fail(id, raw),
    };
    assert_eq!(read_reply(&written, id), Ok(reply));
}
