//! What a node means by the error that it answers a transaction with.
//!
//! Nodes agree on no codes for this, so their words decide. `phrases.tsv` lists them, each with the
//! node that says it and where that is written. Words that are not in the list mean nothing by
//! themselves: the caller looks the transaction up before it believes them.

use std::sync::LazyLock;

/// What an error says about a transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Verdict {
    /// The node has this very transaction, or says so.
    Known,
    /// Its nonce is used, perhaps by itself.
    NonceUsed,
    /// The fault of the node or of a proxy: nothing was said about the transaction.
    Trouble,
    /// The node does not want it.
    No,
    /// Words that nobody has listed.
    Unlisted,
}

/// The codes of a node or proxy that could not do its work: internal error, resource unavailable.
const TROUBLE: [i64; 2] = [-32603, -32002];

const PHRASES: &str = include_str!("verdict/phrases.tsv");

/// The words to look for, in lower case, those of the weightier verdicts first.
static WORDS: LazyLock<Vec<(Verdict, &'static str)>> = LazyLock::new(|| {
    let mut words: Vec<_> = rows().map(|row| (row.verdict, row.words)).collect();
    words.sort_unstable();
    words.dedup();
    words
});

struct Row {
    verdict: Verdict,
    words: &'static str,
    #[cfg(test)]
    rest: [&'static str; 4],
}

fn rows() -> impl Iterator<Item = Row> {
    PHRASES.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut columns = line.split('\t');
        let verdict = match columns.next()? {
            "known" => Verdict::Known,
            "used" => Verdict::NonceUsed,
            "trouble" => Verdict::Trouble,
            "no" => Verdict::No,
            _ => return None,
        };
        let words = columns.next()?;
        #[cfg(test)]
        let rest = [columns.next()?, columns.next()?, columns.next()?, columns.next()?];
        Some(Row {
            verdict,
            words,
            #[cfg(test)]
            rest,
        })
    })
}

impl Verdict {
    /// Reads an error object. Some nodes put the reason into `data`.
    pub(crate) fn of(code: i64, message: &str, data: Option<&str>) -> Verdict {
        let said = format!("{message} {}", data.unwrap_or_default()).to_lowercase();
        match WORDS.iter().find(|(_, words)| contains(&said, words)) {
            Some((verdict, _)) => *verdict,
            None if TROUBLE.contains(&code) => Verdict::Trouble,
            None => Verdict::Unlisted,
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
            assert_eq!(Verdict::of(code, message, None), row.verdict, "{node}: {message}");
            assert_eq!(Verdict::of(code, &passed_on, None), row.verdict, "{node}: {passed_on}");
            let (data, outer) = (format!("\"{message}\""), "Invalid parameters: tx");
            assert_eq!(Verdict::of(-32602, outer, Some(&data)), row.verdict, "{node}: {message}");
        }
    }

    #[test]
    fn words_that_are_not_listed_say_nothing() {
        for (code, message, verdict) in [
            (-32000, "something else", Verdict::Unlisted),
            (0, "", Verdict::Unlisted),
            (-32603, "something else", Verdict::Trouble),
            (-32000, "proof of failure", Verdict::Unlisted),
        ] {
            assert_eq!(Verdict::of(code, message, None), verdict, "{code} {message}");
        }
    }
}
