//! The bodies of requests, and what goes into answers. Authors of clients find them in docs/http.md.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tenure::engine::{
    Claim, ClaimId, Details, Fence, Grant, Holder, Moment, Name, OnceRecord, Place, Space, View,
    Waiter,
};

use crate::problem::Problem;
use crate::signing::{Key, from_hex, hex};

/// The units of a read-write lock: a writer takes all of them.
const ALL_UNITS: u32 = 1 << 20;

/// What kind of name a request is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    #[default]
    Lock,
    Semaphore,
    Read,
    Write,
    Election,
    Once,
}

impl Kind {
    pub(crate) fn space(self) -> Space {
        match self {
            Kind::Election => Space::Election,
            Kind::Once => Space::Once,
            _ => Space::Lock,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::Lock => "lock",
            Kind::Semaphore => "semaphore",
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Election => "election",
            Kind::Once => "once",
        }
    }

    pub(crate) fn from_str(text: &str) -> Result<Kind, Problem> {
        let all =
            [Kind::Lock, Kind::Semaphore, Kind::Read, Kind::Write, Kind::Election, Kind::Once];
        let known = all.into_iter().find(|kind| kind.as_str() == text);
        known.ok_or_else(|| Problem::invalid("there is no such kind"))
    }

    /// The kind of a name that was found.
    pub(crate) fn of(name: &Name) -> Kind {
        match name.space() {
            Space::Election => Kind::Election,
            Space::Once => Kind::Once,
            _ => Kind::Lock,
        }
    }
}

/// A duration: a text with a unit, or milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl Span {
    pub(crate) fn from_text(text: &str) -> Result<Span, Problem> {
        let read = humantime::parse_duration(text).ok();
        let bare = || text.parse().ok().map(Duration::from_millis);
        read.or_else(bare).map(Span).ok_or_else(|| {
            Problem::invalid("a duration is a number with its unit, such as 30s, 500ms or 2h")
        })
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
        struct Reads;
        impl Visitor<'_> for Reads {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"30s\", or a number of milliseconds")
            }

            fn visit_u64<E: de::Error>(self, millis: u64) -> Result<Span, E> {
                Ok(Span(Duration::from_millis(millis)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                let read = humantime::parse_duration(text);
                read.map(Span)
                    .map_err(|_| E::invalid_value(de::Unexpected::Other("another text"), &self))
            }
        }
        from.deserialize_any(Reads)
    }
}

/// A claim id in hex. A secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) ClaimId);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Secret, D::Error> {
        // The text itself must not get into an error.
        let text =
            <&str>::deserialize(from).map_err(|_| de::Error::custom("a claim is 32 hex digits"))?;
        let read = from_hex(text).filter(|bytes| *bytes != [0; 16]);
        let read = read.map(ClaimId::from_bytes).map(Secret);
        read.ok_or_else(|| de::Error::custom("a claim is 32 hex digits"))
    }
}

pub(crate) fn claim_text(id: &ClaimId) -> String {
    hex(&id.to_bytes())
}

/// `POST /v1/holds` and `POST /v1/tethers`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Acquire {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) kind: Kind,
    permits: Option<u32>,
    weight: Option<u32>,
    value: Option<String>,
    pub(crate) ttl: Option<Span>,
    pub(crate) wait: Option<Span>,
    pub(crate) claim: Option<Secret>,
    pub(crate) ticket: Option<String>,
    owner: Option<String>,
    reason: Option<String>,
    #[serde(default)]
    meta: BTreeMap<String, String>,
    max_waiters: Option<u32>,
    pub(crate) confirm: Option<bool>,
}

/// `POST /v1/once`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Begin {
    pub(crate) name: String,
    pub(crate) keep: Option<Span>,
    #[serde(default)]
    pub(crate) rerun: bool,
    pub(crate) content: Option<String>,
    ttl: Option<Span>,
    wait: Option<Span>,
    claim: Option<Secret>,
    ticket: Option<String>,
    owner: Option<String>,
    reason: Option<String>,
    #[serde(default)]
    meta: BTreeMap<String, String>,
    max_waiters: Option<u32>,
    confirm: Option<bool>,
}

impl Begin {
    /// The same as a claim for a hold.
    pub(crate) fn acquire(&mut self) -> Acquire {
        Acquire {
            name: self.name.clone(),
            kind: Kind::Once,
            permits: None,
            weight: None,
            value: None,
            ttl: self.ttl,
            wait: self.wait,
            claim: self.claim,
            ticket: self.ticket.take(),
            owner: self.owner.take(),
            reason: self.reason.take(),
            meta: std::mem::take(&mut self.meta),
            max_waiters: self.max_waiters,
            confirm: self.confirm,
        }
    }
}

impl Acquire {
    /// The claim that it asks for. `owner` is shown if the request names none.
    pub(crate) fn claim(self, id: ClaimId, owner: String, ttl: Duration) -> Result<Claim, Problem> {
        let name = Name::new(self.kind.space(), &self.name)?;
        let mut claim = Claim::new(name, id);
        let needs = |field: &str| Problem::invalid(format!("{field} is for another kind"));
        match (self.kind, self.permits, self.weight) {
            (Kind::Semaphore, None, _) => return Err(Problem::invalid("permits is missing")),
            (Kind::Semaphore, Some(permits), weight) => {
                (claim.capacity, claim.weight, claim.fixed) = (permits, weight.unwrap_or(1), false);
            }
            (_, Some(_), _) => return Err(needs("permits")),
            (_, _, Some(_)) => return Err(needs("weight")),
            (Kind::Read, ..) => claim.capacity = ALL_UNITS,
            (Kind::Write, ..) => (claim.capacity, claim.weight) = (ALL_UNITS, ALL_UNITS),
            _ => {}
        }
        if self.value.is_some() && self.kind != Kind::Election {
            return Err(needs("value"));
        }
        (claim.ttl, claim.on_behalf) = (ttl, true);
        claim.max_waiters = self.max_waiters.unwrap_or(u32::MAX);
        let mut details = Details::default();
        details.owner = self.owner.unwrap_or(owner);
        (details.reason, details.value) = (self.reason, self.value);
        details.meta = self.meta.into_iter().collect();
        claim.details = Arc::new(details);
        Ok(claim)
    }
}

/// A hold that a request is about.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Held {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) kind: Kind,
    pub(crate) claim: Option<Secret>,
    pub(crate) fence: Option<u64>,
    pub(crate) ttl: Option<Span>,
}

/// `POST /v1/holds/release`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Release {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) kind: Kind,
    pub(crate) claim: Option<Secret>,
    pub(crate) fence: Option<u64>,
    #[serde(default)]
    pub(crate) in_doubt: bool,
}

/// `POST /v1/once/settle`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettleOnce {
    pub(crate) name: String,
    pub(crate) claim: Option<Secret>,
    pub(crate) fence: u64,
    /// `null` is an outcome like any other; without the field, the work has not happened.
    #[serde(default, deserialize_with = "present")]
    pub(crate) outcome: Option<Box<RawValue>>,
}

/// Reads a field that is present, even if it is `null`: a plain `Option` would treat that as missing.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

/// `POST /v1/break`: one, or many.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Break {
    #[serde(default)]
    pub(crate) kind: Kind,
    pub(crate) name: Option<String>,
    pub(crate) fence: Option<u64>,
    pub(crate) holds: Option<Vec<Target>>,
    pub(crate) reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) fence: u64,
}

/// `POST /v1/resize`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resize {
    pub(crate) name: String,
    pub(crate) permits: u32,
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// How long a hold lasts from `arrival`.
pub(crate) fn left_ms(arrival: Moment, grant: &Grant) -> u64 {
    millis(arrival.until(grant.good_until))
}

pub(crate) fn renew_ms(ttl: Duration) -> u64 {
    millis(ttl) / 3
}

/// A grant, as its claimant may see it.
pub(crate) fn granted(
    claim: &Claim,
    kind: Kind,
    grant: &Grant,
    arrival: Moment,
    now: Moment,
) -> Map<String, Value> {
    let fields = [
        ("name", json!(claim.name.as_str())),
        ("kind", json!(kind.as_str())),
        ("claim", json!(claim_text(&claim.id))),
        ("fence", json!(grant.fence.get())),
        ("ttl_ms", json!(millis(claim.ttl))),
        ("left_ms", json!(left_ms(arrival, grant))),
        ("renew_ms", json!(renew_ms(claim.ttl))),
        ("waited_ms", json!(millis(arrival.until(now)))),
    ];
    fields.into_iter().map(|(field, value)| (field.to_owned(), value)).collect()
}

/// A place in line, as its claimant may see it.
pub(crate) fn place(
    claim: &Claim,
    kind: Kind,
    place: &Place,
    key: &Key,
    waited: Duration,
) -> Value {
    json!({
        "name": claim.name.as_str(),
        "kind": kind.as_str(),
        "claim": claim_text(&claim.id),
        "ticket": key.ticket(&claim.name, &claim.id, place.ticket),
        "position": place.ahead + 1,
        "poll_within_ms": millis(crate::waiting::ABSENT_FOR),
        "waited_ms": millis(waited),
        "holder": place.holder.as_ref().map(holder),
    })
}

fn details(details: &Details, into: &mut Map<String, Value>) {
    into.insert("owner".to_owned(), json!(details.owner));
    for (field, value) in
        [("reason", &details.reason), ("value", &details.value), ("trace", &details.trace)]
    {
        if let Some(value) = value {
            into.insert(field.to_owned(), json!(value));
        }
    }
    if !details.meta.is_empty() {
        let meta: Map<_, _> = details.meta.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
        into.insert("meta".to_owned(), Value::Object(meta));
    }
}

/// A holder, as others may see it.
pub(crate) fn holder(holder: &Holder) -> Value {
    let mut fields = Map::new();
    details(&holder.details, &mut fields);
    fields.insert("fence".to_owned(), json!(holder.fence.get()));
    fields.insert("weight".to_owned(), json!(holder.weight));
    fields.insert("held_ms".to_owned(), json!(millis(holder.held_for)));
    fields.insert("left_ms".to_owned(), json!(millis(holder.remaining)));
    Value::Object(fields)
}

fn waiter(waiter: &Waiter) -> Value {
    let mut fields = Map::new();
    details(&waiter.details, &mut fields);
    fields.insert("ticket".to_owned(), json!(waiter.ticket.get()));
    fields.insert("weight".to_owned(), json!(waiter.weight));
    fields.insert("waited_ms".to_owned(), json!(millis(waiter.waited)));
    Value::Object(fields)
}

/// A name, as others may see it.
pub(crate) fn view(view: &View) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("name".to_owned(), json!(view.name.as_str()));
    fields.insert("kind".to_owned(), json!(Kind::of(&view.name).as_str()));
    fields.insert("capacity".to_owned(), json!(view.capacity));
    fields.insert("holders".to_owned(), view.holders.iter().map(holder).collect());
    fields.insert("waiters".to_owned(), view.waiters.iter().map(waiter).collect());
    if let Some(record) = &view.record {
        fields.insert("record".to_owned(), Value::Object(known_once(record)));
    }
    fields
}

fn known_once(record: &OnceRecord) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("settled".to_owned(), json!(record.outcome.is_some()));
    fields.insert("fence".to_owned(), json!(record.fence.get()));
    fields.insert("age_ms".to_owned(), json!(millis(record.age)));
    fields.insert("remaining_ms".to_owned(), json!(millis(record.remaining)));
    if let Some(bytes) = &record.outcome {
        outcome(bytes, &mut fields);
    }
    fields
}

/// The outcome of a once: JSON as it is, anything else in base64.
pub(crate) fn outcome(bytes: &[u8], into: &mut Map<String, Value>) {
    match serde_json::from_slice::<Value>(bytes) {
        Ok(value) => into.insert("outcome".to_owned(), value),
        Err(_) => into.insert("outcome_base64".to_owned(), json!(base64(bytes))),
    };
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            match at <= chunk.len() {
                true => text.push(char::from(LETTERS[(bits >> (18 - 6 * at) & 63) as usize])),
                false => text.push('='),
            }
        }
    }
    text
}

pub(crate) fn fence(number: Option<u64>) -> Result<Fence, Problem> {
    number.map(Fence::new).ok_or_else(|| Problem::invalid("fence is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_what_others_read() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xFF, 0xFE]), "//4=");
    }

    #[test]
    fn a_duration_has_a_unit_or_is_in_milliseconds() {
        let read = |text: &str| serde_json::from_str::<Span>(text).ok().map(|span| span.0);
        assert_eq!(read("1500"), Some(Duration::from_millis(1500)));
        assert_eq!(read("\"1500ms\""), read("1500"));
        assert_eq!(read("\"2m\""), Some(Duration::from_secs(120)));
        for bad in ["\"30\"", "-1", "1.5", "null", "\"\"", "\"soon\"", "[1]"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_bad_claim_is_not_shown_in_the_error() {
        let text = r#"{"name":"x","claim":"5ec2e7"}"#;
        let error = serde_json::from_str::<Held>(text).unwrap_err().to_string();
        assert!(error.contains("32 hex digits") && !error.contains("5ec2e7"), "{error}");
    }
}
