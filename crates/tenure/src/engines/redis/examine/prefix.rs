//! Checks whether anyone else uses keys under our namespace.

use crate::engine::Finding;
use crate::engines::redis::connection::handshake::SerialConnection;
use crate::engines::redis::protocol::layout::{Kind, Layout};
use crate::engines::redis::protocol::refusal::Refusal;
use crate::engines::redis::protocol::resp::{self, Value};
use crate::model::error::Result;

/// How many pages of keys are scanned on a server at most: a large database takes a while.
const MOST_PAGES: usize = 2000;
const PAGE: &[u8] = b"1000";
/// How many keys that look like ours are examined.
const MOST_LOOKS: usize = 500;
/// How many are named in the finding.
const SHOWN: usize = 3;

/// The keys under the namespace.
#[derive(Default)]
struct Found {
    ours: usize,
    /// Keys of others with names that we would use.
    in_the_way: Vec<String>,
    /// Keys of others with any other name.
    beside: Vec<String>,
    /// Not all keys were examined.
    more: bool,
}

/// Scans the keys under the namespace.
pub(super) async fn finding(
    talk: &mut SerialConnection<'_>,
    layout: &Layout,
    namespace: &str,
) -> Result<Option<Finding>> {
    let mut found = Found::default();
    let pattern = format!("{namespace}:*");
    let mut cursor = b"0".to_vec();
    for page in 0.. {
        let parts: [&[u8]; 6] = [b"SCAN", &cursor, b"MATCH", pattern.as_bytes(), b"COUNT", PAGE];
        // A user that may not scan has already been reported.
        let Value::List(items) = talk.reply(&parts).await? else { return Ok(None) };
        let [next, keys] = &items[..] else { return Ok(None) };
        for key in keys.as_list().unwrap_or_default() {
            found.look_at(talk, layout, key.as_bytes().unwrap_or_default()).await?;
        }
        cursor = next.as_bytes().unwrap_or(b"0").to_vec();
        if cursor == b"0" {
            break;
        }
        if page == MOST_PAGES {
            found.more = true;
            break;
        }
    }
    Ok(Some(found.finding(namespace)))
}

impl Found {
    async fn look_at(
        &mut self,
        talk: &mut SerialConnection<'_>,
        layout: &Layout,
        key: &[u8],
    ) -> Result<()> {
        let Some(kind) = layout.kind_of(key) else {
            self.beside.push(shown(key));
            return Ok(());
        };
        self.ours += usize::from(kind != Kind::Trial);
        if self.ours > MOST_LOOKS {
            self.more = true;
            return Ok(());
        }
        // Read the key as its kind demands. A key that has expired in the meantime gives no error either.
        let parts: &[&[u8]] = match kind {
            Kind::Name => &[b"HGET", key, b"#"],
            Kind::Line => &[b"ZCARD", key],
            Kind::Partition => &[b"HGET", key, b"n"],
            Kind::Trial => return Ok(()),
        };
        let answer = talk.reply(parts).await?;
        let foreign = match answer {
            answer if kind != Kind::Name => is_wrong_type(&answer),
            // The plain form, one holder alone, is a string.
            answer if is_wrong_type(&answer) => match talk.reply(&[b"GET", key]).await? {
                Value::Bytes(plain) => !is_plain_hold(&plain),
                answer => is_wrong_type(&answer),
            },
            // Someone else's hash, unless the key has expired in the meantime.
            Value::Nil => talk.reply(&[b"PTTL", key]).await?.as_int() != Some(-2),
            _ => false,
        };
        if foreign {
            self.ours -= 1;
            self.in_the_way.push(shown(key));
        }
        Ok(())
    }

    fn finding(self, namespace: &str) -> Finding {
        let fix = "?namespace=… in the URL, the same for all who share locks";
        let partly = if self.more { "; not all keys were checked" } else { "" };
        if !self.in_the_way.is_empty() {
            let what = format!("not tenure's, at names that it uses: {}", list(&self.in_the_way));
            return Finding::problem("prefix", what)
                .why(format!(
                    "claims of these names fail; keys under {namespace:?} must be tenure's"
                ))
                .fix(format!("give tenure another namespace ({fix}), or remove them"));
        }
        if !self.beside.is_empty() {
            return Finding::warning("prefix", format!("not tenure's: {}", list(&self.beside)))
                .why(format!(
                    "someone else uses keys under {namespace:?}, too, and may clean up there"
                ))
                .fix(format!("give tenure another namespace: {fix}"));
        }
        let what = match self.ours {
            0 => format!("nothing is kept under {namespace:?} yet{partly}"),
            1 => format!("all under {namespace:?} is tenure's: 1 key{partly}"),
            many => format!("all under {namespace:?} is tenure's: {many} keys{partly}"),
        };
        Finding::good("prefix", what)
    }
}

fn is_wrong_type(answer: &Value) -> bool {
    matches!(answer, Value::Error(text) if Refusal::read(text) == Refusal::Foreign)
}

/// A plain hold is an id of 16 bytes, then numbers.
fn is_plain_hold(value: &[u8]) -> bool {
    let numbers = value.get(16..).unwrap_or_default();
    let first = numbers.split(|byte| *byte == b' ').next().unwrap_or_default();
    resp::integer(first).is_some()
}

fn shown(key: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(key).escape_debug().collect();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn list(keys: &[String]) -> String {
    let mut keys = keys.to_vec();
    keys.sort();
    let more = keys.len().saturating_sub(SHOWN);
    keys.truncate(SHOWN);
    let keys = keys.join(", ");
    if more == 0 { keys } else { format!("{keys} and {more} more") }
}
