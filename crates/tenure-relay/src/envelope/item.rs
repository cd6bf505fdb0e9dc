//! One call of a body: its members, and whether all readers would understand them alike.

use std::fmt;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Bad, Call, Json};
use crate::refusal::Refusal;

/// Parses one item, which is known to be JSON.
pub(super) fn read(body: &Bytes, item: &RawValue) -> Result<Call, Bad> {
    let nameless = |why| Bad { id: Json::null(), refusal: Refusal::InvalidRequest(why) };
    if !item.get().starts_with('{') {
        return Err(nameless("a call must be an object"));
    }
    let members: Members<'_> = serde_json::from_str(item.get())
        .map_err(|_| nameless("the names of its members cannot be read"))?;
    if members.doubtful {
        return Err(nameless("a member is repeated, or written in another case"));
    }
    let id = members.id.map(|id| Json::part(body, id));
    if id.as_ref().is_some_and(|id| !is_id(id)) {
        return Err(nameless("the id is neither a string nor a number"));
    }
    let bad = |why| Bad {
        id: id.clone().unwrap_or_else(Json::null),
        refusal: Refusal::InvalidRequest(why),
    };
    // geth requires the version, too.
    if text(members.jsonrpc).as_deref() != Some("2.0") {
        return Err(bad("jsonrpc is not \"2.0\""));
    }
    let method = text(members.method).ok_or_else(|| bad("the method is not a string"))?;
    if method.is_empty() {
        return Err(bad("the method is empty"));
    }
    let params = members.params.map(|params| Json::part(body, params));
    Ok(Call { id, method, params, raw: Json::part(body, item) })
}

fn text(value: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(value?.get()).ok()
}

fn is_id(id: &Json) -> bool {
    matches!(id.as_bytes().first(), Some(b'"' | b'-' | b'0'..=b'9' | b'n'))
}

/// The members of an object that make it a call.
#[derive(Default)]
struct Members<'a> {
    jsonrpc: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
    /// Readers would differ about it. Go, for example, takes the last of two, and ignores the case: for
    /// `"method":"eth_call","Method":"admin_stopRPC"` geth runs the latter.
    doubtful: bool,
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Members::default();
                while let Some(member) = map.next_key()? {
                    let place = match member {
                        Member::Jsonrpc => &mut members.jsonrpc,
                        Member::Id => &mut members.id,
                        Member::Method => &mut members.method,
                        Member::Params => &mut members.params,
                        Member::Alike | Member::Other => {
                            members.doubtful |= matches!(member, Member::Alike);
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    let before = place.replace(map.next_value()?);
                    members.doubtful |= before.is_some();
                }
                Ok(members)
            }
        }

        json.deserialize_map(Object)
    }
}

enum Member {
    Jsonrpc,
    Id,
    Method,
    Params,
    /// The same as one of these for a reader that ignores the case.
    Alike,
    Other,
}

impl Member {
    fn named(name: &str) -> Member {
        match name {
            "jsonrpc" => Member::Jsonrpc,
            "id" => Member::Id,
            "method" => Member::Method,
            "params" => Member::Params,
            // Unicode's upper case: for Go, ſ is an s, too.
            _ => match name.to_uppercase().as_str() {
                "JSONRPC" | "ID" | "METHOD" | "PARAMS" => Member::Alike,
                _ => Member::Other,
            },
        }
    }
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Name;

        impl Visitor<'_> for Name {
            type Value = Member;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E>(self, name: &str) -> Result<Member, E> {
                Ok(Member::named(name))
            }
        }

        json.deserialize_str(Name)
    }
}
