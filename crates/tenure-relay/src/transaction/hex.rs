//! The parameter of `eth_sendRawTransaction`: bytes as a hex string, parsed as geth does.

use alloy_primitives::hex;
use bytes::Bytes;
use serde::de::DeserializeSeed;
use serde_json::value::RawValue;

use crate::envelope::{Json, UpTo};
use crate::refusal::Refusal;

/// The bytes in `["0x…"]`, at most `limit` of them.
///
/// As in geth: with the prefix, an even number of digits in either case, without escapes or white space.
pub(super) fn read(params: Option<&Json>, limit: usize) -> Result<Bytes, Refusal> {
    let params = params.map_or("null", Json::as_str);
    let text = only(params)?.get();
    let Some(text) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
        return Err(bad("argument 0 is not a string"));
    };
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let digits = digits.ok_or_else(|| bad("hex string without 0x prefix"))?;
    if digits.len() % 2 != 0 {
        return Err(bad("hex string of odd length"));
    }
    let size = digits.len() / 2;
    if size > limit {
        return Err(Refusal::TooLarge { size, limit });
    }
    // The decoder would skip another prefix.
    if digits.starts_with("0x") {
        return Err(bad("invalid hex string"));
    }
    hex::decode(digits).map(Bytes::from).map_err(|_| bad("invalid hex string"))
}

fn only(params: &str) -> Result<&RawValue, Refusal> {
    match params.as_bytes().first() {
        Some(b'[') => {}
        Some(b'n') => return Err(bad("missing value for required argument 0")),
        _ => return Err(bad("non-array args")),
    }
    let mut json = serde_json::Deserializer::from_str(params);
    let (items, count) = UpTo(1).deserialize(&mut json).map_err(|_| bad("non-array args"))?;
    match (items.first(), count) {
        (Some(item), 1) => Ok(item),
        (None, _) => Err(bad("missing value for required argument 0")),
        (Some(_), _) => Err(bad("too many arguments, want at most 1")),
    }
}

fn bad(why: &str) -> Refusal {
    Refusal::BadParams(why.to_owned())
}
