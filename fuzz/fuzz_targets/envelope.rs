//! Any body: no panic, and what is read as a call is read as the same call again.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tenure_relay::envelope::{self, Incoming, Json, Limits};
use tenure_relay::transaction::{Rules, decode};

fuzz_target!(|data: &[u8]| {
    let body = Bytes::copy_from_slice(data);
    let items = match envelope::read(&body, &Limits::default()) {
        Ok(Incoming::One(item)) => vec![item],
        Ok(Incoming::Batch(items)) => items,
        Err(refusal) => {
            readable(&envelope::refuse(&Json::null(), &refusal));
            return;
        }
    };
    for item in items {
        let call = match item {
            Ok(call) => call,
            Err(bad) => {
                readable(&envelope::refuse(&bad.id, &bad.refusal));
                continue;
            }
        };
        let raw = Bytes::copy_from_slice(call.raw.as_bytes());
        assert_eq!(envelope::read(&raw, &Limits::default()), Ok(Incoming::One(Ok(call.clone()))));
        let id = call.id.clone().unwrap_or_else(Json::null);
        readable(&match decode(call.params.as_ref(), &Rules::new(1)) {
            Ok(_) => envelope::answer(&id, &Json::null()),
            Err(refusal) => envelope::refuse(&id, &refusal),
        });
    }
});

/// What goes out can be read as what it is: an answer that carries the id.
fn readable(answer: &Bytes) {
    let id = Json::null();
    match envelope::read_reply(answer, &id) {
        Ok(_) => {}
        Err(refusal) => assert!(refusal.message().contains("another id"), "{refusal}"),
    }
}
