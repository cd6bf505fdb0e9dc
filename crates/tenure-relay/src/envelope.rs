//! JSON-RPC 2.0 on the wire: parses what comes in, and writes what goes out.
//!
//! A call is only parsed as far as necessary: its values stay slices of the body, so that what is forwarded
//! is byte for byte what arrived. Nothing recurses, no matter how deep values are nested.
//!
//! Nodes are more lenient than the standard, each in its own way. If two readers could see two different calls in
//! the same bytes, the call is refused: otherwise the relay might check one method while the node runs another.

mod item;
mod reply;

use std::fmt;

use alloy_primitives::B256;
use bytes::Bytes;
use serde::Serialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

pub use reply::{Reply, read_replies, read_reply};

use crate::refusal::Refusal;

/// Limits on a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The largest body in bytes: 5 MiB, as in geth.
    pub bytes: usize,
    /// The most items of a batch: 1000, as in geth.
    pub items: usize,
    /// The deepest nesting of arrays and objects, including the batch: 64.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { bytes: 5 << 20, items: 1000, depth: 64 }
    }
}

/// A JSON value, byte for byte as it arrived, in the memory of its body.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Bytes);

impl Json {
    /// `null`.
    pub fn null() -> Json {
        Json(Bytes::from_static(b"null"))
    }

    /// Converts a value to JSON; `null` for a value that has no JSON, such as a map with numbers as keys.
    pub fn of(value: &(impl Serialize + ?Sized)) -> Json {
        serde_json::to_vec(value).map_or_else(|_| Json::null(), |text| Json(text.into()))
    }

    /// The bytes, which are valid JSON and UTF-8.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    fn part(body: &Bytes, part: &RawValue) -> Json {
        Json(body.slice_ref(part.get().as_bytes()))
    }
}

/// Only shows the length: what clients send does not belong in a log.
impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of JSON", self.0.len())
    }
}

/// A call or a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The id for the answer; `None` for a notification, which has no answer.
    pub id: Option<Json>,
    /// The method, unescaped.
    pub method: String,
    /// The parameters, if there are any.
    pub params: Option<Json>,
    /// The whole call.
    pub raw: Json,
}

/// An item that is not a call, and the id for its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Its id, or `null` if none could be read.
    pub id: Json,
    /// What is wrong with it.
    pub refusal: Refusal,
}

/// The contents of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// One call; its answer is one object.
    One(Result<Call, Bad>),
    /// A batch of at least one call; its answer is an array.
    Batch(Vec<Result<Call, Bad>>),
}

/// Parses a body.
///
/// An error is about the whole body, and its answer has the id `null`.
pub fn read(body: &Bytes, limits: &Limits) -> Result<Incoming, Refusal> {
    if body.len() > limits.bytes {
        return Err(Refusal::BodyTooLarge { limit: limits.bytes });
    }
    if is_deeper(body, limits.depth) {
        return Err(Refusal::InvalidRequest("nested too deep"));
    }
    if !starts_with(body, b'[') {
        let whole = serde_json::from_slice(body).map_err(not_json)?;
        return Ok(Incoming::One(item::read(body, whole)));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let (items, count) = UpTo(limits.items).deserialize(&mut json).map_err(not_json)?;
    json.end().map_err(not_json)?;
    if count > limits.items {
        return Err(Refusal::BatchTooLong { items: count, limit: limits.items });
    }
    if items.is_empty() {
        return Err(Refusal::InvalidRequest("empty batch"));
    }
    Ok(Incoming::Batch(items.into_iter().map(|part| item::read(body, part)).collect()))
}

/// The answer to a call that succeeded.
pub fn answer(id: &Json, result: &Json) -> Bytes {
    object(id, "result", result.as_bytes())
}

/// The answer to a call that failed, with the node's own error.
pub fn fail(id: &Json, error: &Json) -> Bytes {
    object(id, "error", error.as_bytes())
}

/// The answer to a call that the relay refused.
pub fn refuse(id: &Json, refusal: &Refusal) -> Bytes {
    object(id, "error", Json::of(&refusal.error(None)).as_bytes())
}

/// The answer to a transaction that the relay refused, with its hash.
pub fn refuse_transaction(id: &Json, refusal: &Refusal, hash: &B256) -> Bytes {
    object(id, "error", Json::of(&refusal.error(Some(hash))).as_bytes())
}

/// The answer to a batch. It is empty if there is nothing to answer, as for a batch of notifications.
pub fn batch<Answer: AsRef<[u8]>>(answers: impl IntoIterator<Item = Answer>) -> Bytes {
    let mut whole = Vec::new();
    for answer in answers {
        whole.push(if whole.is_empty() { b'[' } else { b',' });
        whole.extend_from_slice(answer.as_ref());
    }
    if !whole.is_empty() {
        whole.push(b']');
    }
    whole.into()
}

/// A call that the relay itself makes.
pub fn call(id: &Json, method: &str, params: &Json) -> Bytes {
    let method = Json::of(method);
    let parts: [&[u8]; 7] = [
        br#"{"jsonrpc":"2.0","id":"#,
        id.as_bytes(),
        br#","method":"#,
        method.as_bytes(),
        br#","params":"#,
        params.as_bytes(),
        b"}",
    ];
    parts.concat().into()
}

fn object(id: &Json, member: &str, value: &[u8]) -> Bytes {
    let parts: [&[u8]; 7] = [
        br#"{"jsonrpc":"2.0","id":"#,
        id.as_bytes(),
        br#",""#,
        member.as_bytes(),
        br#"":"#,
        value,
        b"}",
    ];
    parts.concat().into()
}

fn not_json(error: serde_json::Error) -> Refusal {
    Refusal::Parse(error.to_string())
}

/// Whether this is the first byte that is not white space.
fn starts_with(body: &[u8], byte: u8) -> bool {
    body.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) == Some(&byte)
}

/// Whether arrays and objects are nested deeper than this. For invalid JSON the result is arbitrary.
fn is_deeper(body: &[u8], limit: usize) -> bool {
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' if depth == limit => return true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// Parses an array and counts its items, but keeps at most this many.
pub(crate) struct UpTo(pub(crate) usize);

impl<'de> DeserializeSeed<'de> for UpTo {
    type Value = (Vec<&'de RawValue>, usize);

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for UpTo {
    type Value = (Vec<&'de RawValue>, usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < self.0 {
            match array.next_element()? {
                Some(item) => items.push(item),
                None => {
                    let count = items.len();
                    return Ok((items, count));
                }
            }
        }
        let mut count = items.len();
        while array.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok((items, count))
    }
}
