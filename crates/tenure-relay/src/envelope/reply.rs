//! Parses the answers of a node.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Json, starts_with};
use crate::refusal::Refusal;

/// An answer of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It succeeded.
    Result(Json),
    /// The node returned an error.
    Error {
        /// The code.
        code: i64,
        /// The text.
        message: String,
        /// The whole error object, to be passed on.
        raw: Json,
    },
}

/// Parses the answer to one call; anything else is [`Refusal::BadReply`].
///
/// An error whose id is `null` is accepted as the answer, too: a proxy in front of a node may refuse a call without
/// parsing it.
pub fn read_reply(body: &Bytes, id: &Json) -> Result<Reply, Refusal> {
    let whole = parse(body)?;
    if whole.get().starts_with('[') {
        return Err(bad("an array where one answer was expected"));
    }
    let answer = Answer::read(body, whole)?;
    let for_us = canonical(&answer.id) == canonical(id);
    let for_nobody = answer.id == Json::null() && matches!(answer.reply, Reply::Error { .. });
    if for_us || for_nobody { Ok(answer.reply) } else { Err(bad("its id does not match")) }
}

/// Parses the answer to a batch: one for each of these ids, in their order, no matter how the node ordered
/// them. Ids may repeat; their answers are then taken in order of arrival.
///
/// If the node refused the batch with one error, that is the answer to each call.
pub fn read_replies(body: &Bytes, ids: &[Json]) -> Result<Vec<Result<Reply, Refusal>>, Refusal> {
    let whole = parse(body)?;
    if !whole.get().starts_with('[') {
        let answer = Answer::read(body, whole)?;
        return match answer.reply {
            Reply::Error { .. } => Ok(vec![Ok(answer.reply); ids.len()]),
            Reply::Result(_) => Err(bad("one answer where an array was expected")),
        };
    }
    let items: Vec<&RawValue> =
        serde_json::from_str(whole.get()).map_err(|_| bad("it is not JSON"))?;
    let mut open: HashMap<String, VecDeque<usize>> = HashMap::new();
    for (index, id) in ids.iter().enumerate() {
        open.entry(canonical(id)).or_default().push_back(index);
    }
    let mut replies = vec![Err(bad("the answer to this call is missing")); ids.len()];
    for item in items {
        // Unreadable items and unknown ids are ignored.
        let Ok(answer) = Answer::read(body, item) else { continue };
        let index = open.get_mut(&canonical(&answer.id)).and_then(VecDeque::pop_front);
        if let Some(place) = index.and_then(|index| replies.get_mut(index)) {
            *place = Ok(answer.reply);
        }
    }
    Ok(replies)
}

fn bad(why: &str) -> Refusal {
    Refusal::BadReply(why.to_owned())
}

fn parse(body: &Bytes) -> Result<&RawValue, Refusal> {
    serde_json::from_slice(body).map_err(|_| {
        bad(match body {
            empty if empty.is_empty() => "it is empty",
            page if starts_with(page, b'<') => "it is a web page",
            _ => "it is not JSON",
        })
    })
}

/// An id in canonical form: nodes parse ids and write them again.
fn canonical(id: &Json) -> String {
    match serde_json::from_slice(id.as_bytes()) {
        Ok(Value::Number(number)) => match number.as_f64() {
            Some(whole) if whole.fract() == 0.0 && whole.abs() < 2_f64.powi(53) => {
                format!("{whole:.0}")
            }
            _ => id.as_str().to_owned(),
        },
        Ok(value) => value.to_string(),
        Err(_) => id.as_str().to_owned(),
    }
}

struct Answer {
    id: Json,
    reply: Reply,
}

impl Answer {
    fn read(body: &Bytes, item: &RawValue) -> Result<Answer, Refusal> {
        let members: Members<'_> =
            object(item).ok_or_else(|| bad("it is not a JSON-RPC answer"))?;
        let id = members.id.map_or_else(Json::null, |id| Json::part(body, id));
        // Some write `"error":null` beside the result.
        let error = members.error.filter(|error| error.get() != "null");
        let reply = match (members.result, error) {
            (Some(result), None) => Reply::Result(Json::part(body, result)),
            (_, Some(error)) if members.result.is_none_or(|result| result.get() == "null") => {
                let said: Said =
                    object(error).ok_or_else(|| bad("its error has no code and message"))?;
                let raw = Json::part(body, error);
                Reply::Error { code: said.code, message: said.message, raw }
            }
            (Some(_), Some(_)) => return Err(bad("it has both a result and an error")),
            (None, _) => return Err(bad("it has neither a result nor an error")),
        };
        Ok(Answer { id, reply })
    }
}

#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Parses an object; a derived `Deserialize` would also accept an array of the same values.
fn object<'a, T: Deserialize<'a>>(value: &'a RawValue) -> Option<T> {
    let text = value.get();
    text.starts_with('{').then(|| serde_json::from_str(text).ok()).flatten()
}

/// An explicit `null` counts as present.
fn present<'de, D: Deserializer<'de>>(json: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(json).map(Some)
}

#[derive(Deserialize)]
struct Said {
    code: i64,
    message: String,
}
