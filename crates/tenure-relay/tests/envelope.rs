//! Which bodies are calls, the errors for the others, and what counts as a node's answer.

#![cfg(feature = "relay")]

use alloy_primitives::B256;
use bytes::Bytes;
use serde_json::{Value, json};
use tenure_relay::envelope::{
    self, Bad, Call, Incoming, Json, Limits, Reply, read_replies, read_reply,
};
use tenure_relay::refusal::Refusal;

fn read(body: &str) -> Result<Incoming, Refusal> {
    envelope::read(&Bytes::copy_from_slice(body.as_bytes()), &Limits::default())
}

fn one(body: &str) -> Result<Call, Bad> {
    match read(body) {
        Ok(Incoming::One(item)) => item,
        other => panic!("not one: {body} is {other:?}"),
    }
}

fn many(body: &str) -> Vec<Result<Call, Bad>> {
    match read(body) {
        Ok(Incoming::Batch(items)) => items,
        other => panic!("not a batch: {body} is {other:?}"),
    }
}

fn value(bytes: &Bytes) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

const GOOD: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#;

#[test]
fn a_call_is_passed_on_byte_for_byte() {
    let body = " {\t\"params\": [ 1.0e2 , {\"b\":1,\"a\":\"\\u0041\"} ],\n \"id\" : \"x\\ny\", \
                \"extra\":{}, \"method\":\"eth_\\u0063all\", \"jsonrpc\":\"2.0\" } ";
    let call = one(body).unwrap();
    assert_eq!(call.method, "eth_call");
    assert_eq!(call.id.unwrap().as_str(), r#""x\ny""#);
    assert_eq!(call.params.unwrap().as_str(), r#"[ 1.0e2 , {"b":1,"a":"\u0041"} ]"#);
    assert_eq!(call.raw.as_str(), body.trim());
}

#[test]
fn nothing_is_copied_to_read_a_call() {
    let body = Bytes::from(format!("[{GOOD},{GOOD}]"));
    let Ok(Incoming::Batch(items)) = envelope::read(&body, &Limits::default()) else { panic!() };
    let within = body.as_ptr_range();
    for call in items.into_iter().map(Result::unwrap) {
        for part in [call.raw, call.id.unwrap(), call.params.unwrap()] {
            assert!(within.contains(&part.as_bytes().as_ptr()));
        }
    }
}

#[test]
fn an_id_is_a_text_a_number_or_null() {
    for id in [r#""""#, r#""a""#, "0", "-7", "1.5", "1e400", "12345678901234567890123", "null"] {
        let call = one(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#)).unwrap();
        assert_eq!(call.id.unwrap().as_str(), id);
        assert_eq!(call.params, None);
    }
    for id in ["true", "false", "{}", "[]", "[1]"] {
        let bad = one(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#)).unwrap_err();
        assert_eq!((bad.id, bad.refusal.code()), (Json::null(), -32600), "{id}");
    }
    let call = one(r#"{"jsonrpc":"2.0","method":"m"}"#).unwrap();
    assert_eq!(call.id, None, "a notification has none, which is not the same as null");
}

#[test]
fn what_is_json_but_no_call_is_told_so_with_its_id() {
    let cases = [
        (r#"{"id":1,"method":"m"}"#, "1"),
        (r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, "1"),
        (r#"{"jsonrpc":2.0,"id":1,"method":"m"}"#, "1"),
        (r#"{"jsonrpc":null,"id":"a","method":"m"}"#, r#""a""#),
        (r#"{"jsonrpc":"2.0","id":1}"#, "1"),
        (r#"{"jsonrpc":"2.0","id":1,"method":""}"#, "1"),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, "1"),
        (r#"{"jsonrpc":"2.0","id":1,"method":["m"]}"#, "1"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#, "1"),
        (r#"{"jsonrpc":"2.0","id":1,"method":null}"#, "1"),
        ("{}", "null"),
        ("1", "null"),
        ("null", "null"),
        (r#""text""#, "null"),
    ];
    for (body, id) in cases {
        let bad = one(body).unwrap_err();
        assert_eq!((bad.id.as_str(), bad.refusal.code()), (id, -32600), "{body}");
    }
}

#[test]
fn a_call_that_two_readers_could_read_differently_is_refused() {
    let members = [
        r#""method":"eth_sendRawTransaction""#,
        r#""Method":"eth_sendRawTransaction""#,
        r#""METHOD":"eth_sendRawTransaction""#,
        r#""\u004dethod":"eth_sendRawTransaction""#,
        r#""m\u0065thod":"eth_sendRawTransaction""#,
        r#""params":["0x"]"#,
        r#""Params":["0x"]"#,
        r#""param\u017f":["0x"]"#,
        r#""paramſ":["0x"]"#,
        r#""jſonrpc":"2.0""#,
        r#""JSONRPC":"2.0""#,
        r#""id":2"#,
        r#""ID":2"#,
        r#""iD":null"#,
    ];
    for member in members {
        for body in [
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[],{member}}}"#),
            format!(r#"{{{member},"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}}"#),
        ] {
            assert_eq!(one(&body).unwrap_err().refusal.code(), -32600, "{body}");
        }
    }
    // With no exact one beside it, it is missing.
    let body = r#"{"jsonrpc":"2.0","id":1,"Method":"eth_sendRawTransaction","params":["0x"]}"#;
    assert_eq!(one(body).unwrap_err().refusal.code(), -32600);
    // Members that are only similar do not matter.
    one(r#"{"jsonrpc":"2.0","id":1,"method":"m","methods":1,"param":2,"ids":3}"#).unwrap();
}

#[test]
fn what_is_not_json_is_told_so() {
    let deep = "[".repeat(60);
    let bodies = [
        "",
        " ",
        "{",
        "[",
        "nonsense",
        "{\"jsonrpc\":\"2.0\",}",
        "[1,]",
        "[1",
        "{}{}",
        "[1] x",
        "{\"a\":\"\u{1}\"}",
        "'a'",
        "{\"id\":01}",
        "\u{feff}{}",
        "<html>",
        &deep,
    ];
    for body in bodies {
        assert_eq!(read(body).expect_err(body).code(), -32700, "{body:?}");
    }
    let broken: [&[u8]; 4] = [b"{\"a\":\"\xff\"}", b"[\"\xc3\"]", b"\xff", b"\0"];
    for body in broken {
        let refusal = envelope::read(&Bytes::from_static(body), &Limits::default()).unwrap_err();
        assert_eq!(refusal.code(), -32700, "{body:?}");
    }
    let two = format!("{GOOD}\n{GOOD}");
    assert_eq!(read(&two).unwrap_err().code(), -32700, "one body, one call");
}

#[test]
fn a_batch_has_an_answer_for_each_item() {
    let body = format!(
        r#"[{GOOD},{GOOD}, 1, null, [], [{GOOD}], "x", {{"jsonrpc":"2.0","method":"n"}},
           {{"id":7}}, {{"jsonrpc":"2.0","id":"a","method":"last"}}]"#
    );
    let items = many(&body);
    let told: Vec<_> = items
        .iter()
        .map(|item| match item {
            Ok(Call { id, method, .. }) => {
                format!("{method} {}", id.as_ref().map_or("-", Json::as_str))
            }
            Err(bad) => format!("{} {}", bad.refusal.code(), bad.id.as_str()),
        })
        .collect();
    let expected = [
        "eth_chainId 1",
        "eth_chainId 1",
        "-32600 null",
        "-32600 null",
        "-32600 null",
        "-32600 null",
        "-32600 null",
        "n -",
        "-32600 7",
        "last \"a\"",
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_batch_is_neither_empty_nor_too_long() {
    for empty in ["[]", " [ ] "] {
        assert_eq!(read(empty).unwrap_err().code(), -32600);
    }
    let of = |items: usize| format!("[{}]", vec![GOOD; items].join(","));
    assert_eq!(many(&of(1)).len(), 1);
    assert_eq!(many(&of(1000)).len(), 1000);
    let refusal = read(&of(1001)).unwrap_err();
    assert_eq!(refusal, Refusal::BatchTooLong { items: 1001, limit: 1000 });
    assert_eq!(refusal.code(), -32005);
    // Invalid bytes after the last item that counts are invalid.
    assert_eq!(read(&of(1001).replace("]}]", "]}")).unwrap_err().code(), -32700);
}

#[test]
fn bodies_are_bounded_in_length_and_depth() {
    let mut limits = Limits::default();
    limits.bytes = GOOD.len();
    envelope::read(&Bytes::from(GOOD), &limits).unwrap();
    limits.bytes -= 1;
    let refusal = envelope::read(&Bytes::from(GOOD), &limits).unwrap_err();
    assert_eq!(refusal, Refusal::BodyTooLarge { limit: GOOD.len() - 1 });

    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{open}{close}}}"#)
    };
    one(&nested(63)).unwrap();
    assert_eq!(read(&nested(64)).unwrap_err(), Refusal::InvalidRequest("nested too deep"));
    // Brackets in strings nest nothing, whatever is escaped there.
    let texts =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":["\"{}\\"]}}"#, "[{".repeat(99));
    one(&texts).unwrap();
    for endless in ["[", "{\"a\":", "[[{\"a\":"] {
        assert!(read(&endless.repeat(500_000)).is_err());
    }
    // With the limit out of the way nothing overflows either.
    (limits.bytes, limits.depth) = (usize::MAX, usize::MAX);
    envelope::read(&Bytes::from(nested(1_000_000)), &limits).unwrap();
    envelope::read(&Bytes::from("[".repeat(1_000_000)), &limits).unwrap_err();
}

#[test]
fn answers_carry_the_id_as_it_came() {
    let id = one(r#"{"jsonrpc":"2.0","id":"\u0041","method":"m"}"#).unwrap().id.unwrap();
    let answer = envelope::answer(&id, &Json::of("0x1"));
    assert_eq!(answer, r#"{"jsonrpc":"2.0","id":"\u0041","result":"0x1"}"#);
    let error = Json::of(&json!({ "code": -1, "message": "no" }));
    let failed = envelope::fail(&Json::of(&7), &error);
    assert_eq!(failed, r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"no"}}"#);
    let refusal = Refusal::MethodDenied("admin_\"\n".to_owned());
    let refused = value(&envelope::refuse(&Json::null(), &refusal));
    assert_eq!(refused["id"], Value::Null);
    assert_eq!(refused["error"]["code"], -32601);
    assert_eq!(refused["error"]["data"]["reason"], "method_denied");
    let hash = B256::repeat_byte(7);
    let refused = value(&envelope::refuse_transaction(&id, &Refusal::NonceMax, &hash));
    assert_eq!(refused["error"]["data"]["hash"], format!("{hash:#x}"));
    assert_eq!(refused["error"]["data"]["class"], "rejected");

    assert_eq!(
        envelope::batch([&answer, &failed]),
        format!("[{},{}]", text(&answer), text(&failed))
    );
    assert_eq!(envelope::batch(Vec::<Bytes>::new()), "");
    let call = envelope::call(&Json::of(&1), "eth_\"", &Json::of(&["0x"]));
    let read = one(&text(&call)).unwrap();
    assert_eq!((read.method.as_str(), read.params.unwrap().as_str()), ("eth_\"", r#"["0x"]"#));
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn reply(body: &str, id: &Json) -> Result<Reply, Refusal> {
    read_reply(&Bytes::copy_from_slice(body.as_bytes()), id)
}

#[test]
fn an_answer_is_told_from_everything_else() {
    let id = Json::of(&7);
    let good = [
        (r#"{"jsonrpc":"2.0","id":7,"result":"0x1"}"#, r#""0x1""#),
        (r#" {"result": {"a":[ ]} ,"id":7} "#, r#"{"a":[ ]}"#),
        (r#"{"id":7,"result":null}"#, "null"),
        (r#"{"id":7,"result":1,"error":null}"#, "1"),
        (r#"{"id":7,"result":null,"error":null}"#, "null"),
        (r#"{"id":7.0,"result":1}"#, "1"),
    ];
    for (body, result) in good {
        let Ok(Reply::Result(raw)) = reply(body, &id) else { panic!("{body}") };
        assert_eq!(raw.as_str(), result);
    }
    for body in [
        r#"{"id":7,"error":{"code":-32000,"message":"nonce too low","data":"x"}}"#,
        r#"{"id":7,"result":null,"error":{"code":-32000,"message":"nonce too low","data":"x"}}"#,
        r#"{"id":null,"error":{"code":-32000,"message":"nonce too low","data":"x"}}"#,
        r#"{"error":{"code":-32000,"message":"nonce too low","data":"x"}}"#,
    ] {
        let Ok(Reply::Error { code, message, raw }) = reply(body, &id) else { panic!("{body}") };
        assert_eq!((code, message.as_str()), (-32000, "nonce too low"));
        assert_eq!(raw.as_str(), r#"{"code":-32000,"message":"nonce too low","data":"x"}"#);
    }
    let bad = [
        "",
        "<html>429</html>",
        "\n<!DOCTYPE html>",
        "Too Many Requests",
        "7",
        "null",
        "{}",
        "[]",
        r#"[{"id":7,"result":1}]"#,
        r#"{"id":8,"result":1}"#,
        r#"{"id":"7","result":1}"#,
        r#"{"id":null,"result":1}"#,
        r#"{"result":1}"#,
        r#"{"id":8,"error":{"code":1,"message":"m"}}"#,
        r#"{"id":7}"#,
        r#"{"id":7,"error":null}"#,
        r#"{"id":7,"error":"busy"}"#,
        r#"{"id":7,"error":[1,"m"]}"#,
        r#"{"id":7,"error":{"code":"x","message":"m"}}"#,
        r#"{"id":7,"error":{"message":"m"}}"#,
        r#"{"id":7,"result":1,"error":{"code":1,"message":"m"}}"#,
        r#"{"id":7,"result":1,"result":2}"#,
        r#"{"id":7,"result":1"#,
        r#"{"id":7,"result":1}{"id":7,"result":2}"#,
    ];
    for body in bad {
        let refusal = reply(body, &id).expect_err(body);
        assert_eq!((refusal.name(), refusal.code()), ("bad_reply", -32002), "{body}");
    }
    assert!(reply("<p>", &id).unwrap_err().message().contains("web page"));
    assert!(reply(r#"{"id":"\u0061","result":1}"#, &Json::of("a")).is_ok());
}

#[test]
fn the_answers_to_a_batch_are_found_by_their_ids() {
    let ids = [Json::of(&1), Json::of("a"), Json::of(&1), Json::of(&2), Json::null()];
    let body = Bytes::from(
        r#"[{"id":2,"error":{"code":3,"message":"m"}}, 7, {"id":9,"result":0}, {"id":1,"result":"x"},
            {"id":"\u0061","result":"y"}, {"id":1,"result":"z"}, {"id":1,"result":"more"}]"#,
    );
    let replies = read_replies(&body, &ids).unwrap();
    let told: Vec<_> = replies
        .iter()
        .map(|reply| match reply {
            Ok(Reply::Result(raw)) => raw.as_str().to_owned(),
            Ok(Reply::Error { code, .. }) => code.to_string(),
            Err(refusal) => refusal.name().to_owned(),
        })
        .collect();
    assert_eq!(told, [r#""x""#, r#""y""#, r#""z""#, "3", "bad_reply"]);

    let whole =
        Bytes::from(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32005,"message":"no"}}"#);
    let replies = read_replies(&whole, &ids).unwrap();
    assert_eq!(replies.len(), ids.len());
    assert!(replies.iter().all(|reply| matches!(reply, Ok(Reply::Error { code: -32005, .. }))));
    for bad in ["", "<html>", r#"{"id":1,"result":1}"#, "[", "null"] {
        assert!(read_replies(&Bytes::from(bad), &ids).is_err(), "{bad}");
    }
    // One array for another's answer.
    let replies = read_replies(&Bytes::from(r#"[["1",2,null]]"#), &ids).unwrap();
    assert!(replies.iter().all(Result::is_err));
}
