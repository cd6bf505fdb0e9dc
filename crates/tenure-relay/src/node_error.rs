//! What a node's error says about a transaction.
//!
//! Nodes do not agree on error codes, so the text decides. `phrases.tsv` lists known phrases, each with the node that
//! uses it and a source. A phrase that is not in the list decides nothing: the caller looks the transaction up.

use std::sync::LazyLock;

/// The meaning of an error that a node answers a transaction with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum NodeError {
    /// The node says that it already has this transaction.
    AlreadyKnown,
    /// Its nonce is used, perhaps by this same transaction.
    NonceUsed,
    /// The node or a proxy failed; this says nothing about the transaction.
    Unavailable,
    /// The node refuses it.
    Rejected,
    /// The phrase is not in the list.
    Unlisted,
}

/// Codes of a node or proxy that failed: internal error, resource unavailable.
const TROUBLE: [i64; 2] = [-32603, -32002];

const PHRASES: &str = include_str!("node_error/phrases.tsv");

/// The phrases in lower case, in the order in which meanings take precedence.
static WORDS: LazyLock<Vec<(NodeError, &'static str)>> = LazyLock::new(|| {
    let mut words: Vec<_> = rows().map(|row| (row.meaning, row.words)).collect();
    words.sort_unstable();
    words.dedup();
    words
});

struct Row {
    meaning: NodeError,
    words: &'static str,
    #[cfg(test)]
    rest: [&'static str; 4],
}

fn rows() -> impl Iterator<Item = Row> {
    PHRASES.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut columns = line.split('\t');
        let meaning = match columns.next()? {
            "known" => NodeError::AlreadyKnown,
            "used" => NodeError::NonceUsed,
            "trouble" => NodeError::Unavailable,
            "no" => NodeError::Rejected,
            _ => return None,
        };
        let words = columns.next()?;
        #[cfg(test)]
        let rest = [columns.next()?, columns.next()?, columns.next()?, columns.next()?];
        Some(Row {
            meaning,
            words,
            #[cfg(test)]
            rest,
        })
    })
}

impl NodeError {
    /// Reads an error object. Some nodes put the reason into `data`.
    pub(crate) fn of(code: i64, message: &str, data: Option<&str>) -> NodeError {
        let said = format!("{message} {}", data.unwrap_or_default()).to_lowercase();
        match WORDS.iter().find(|(_, words)| contains(&said, words)) {
            Some((meaning, _)) => *meaning,
            None if TROUBLE.contains(&code) => NodeError::Unavailable,
            None => NodeError::Unlisted,
        }
    }
}

/// Whether `said` has these words as words: "unknown transaction" is not a known transaction.
fn contains(said: &str, words: &str) -> bool {
    let is_edge = |neighbour: Option<char>| !neighbour.is_some_and(char::is_alphanumeric);
    said.match_indices(words).any(|(at, _)| {
        let (before, after) = (said[..at].chars().next_back(), said[at + words.len()..].chars());
        is_edge(before) && is_edge(after.clone().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_phrase_is_read_as_it_is_meant() {
        let lines = PHRASES.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(rows().count(), lines, "a row has another form than the first line says");
        for row in rows() {
            let [code, message, node, source] = row.rest;
            let code: i64 = code.parse().unwrap();
            assert!(!node.is_empty() && !source.is_empty(), "{message}");
            assert!(contains(&message.to_lowercase(), row.words), "{message}");
            // As the node says it, as a proxy passes it on, and as the reason in `data`.
            let passed_on = format!("call failed: {message}");
            assert_eq!(NodeError::of(code, message, None), row.meaning, "{node}: {message}");
            assert_eq!(NodeError::of(code, &passed_on, None), row.meaning, "{node}: {passed_on}");
            let (data, outer) = (format!("\"{message}\""), "Invalid parameters: tx");
            assert_eq!(NodeError::of(-32602, outer, Some(&data)), row.meaning, "{node}: {message}");
        }
    }

    #[test]
    fn words_that_are_not_listed_say_nothing() {
        for (code, message, meaning) in [
            (-32000, "something else", NodeError::Unlisted),
            (0, "", NodeError::Unlisted),
            (-32603, "something else", NodeError::Unavailable),
            (-32000, "proof of failure", NodeError::Unlisted),
        ] {
            assert_eq!(NodeError::of(code, message, None), meaning, "{code} {message}");
        }
    }
}
