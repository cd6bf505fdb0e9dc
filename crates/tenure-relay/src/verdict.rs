//! What a node means by the error that it answers a transaction with. There are no codes for it: every
//! node has its own words.

/// What is known of a transaction after a node has said no.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The node has this very transaction.
    Known,
    /// Its nonce is used, perhaps by itself.
    NonceUsed,
    /// The node's own fault, or that of something between: nothing was said about the transaction.
    Unsure,
    /// The node does not want it.
    No,
}

/// What a node, or something before it, says when it could not do its work.
const INTERNAL: i64 = -32603;
const UNAVAILABLE: i64 = -32002;

impl Verdict {
    pub(crate) fn of(code: i64, message: &str) -> Verdict {
        let message = message.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|words| message.contains(words));
        // Not "unknown transaction type".
        let known = message.starts_with("known transaction");
        if known || says(&["already known", "alreadyknown", "already imported", "already exists"]) {
            Verdict::Known
        } else if says(&["nonce too low", "oldnonce", "replacement transaction"]) {
            Verdict::NonceUsed
        } else if [INTERNAL, UNAVAILABLE].contains(&code)
            || says(&["timeout", "timed out", "deadline exceeded"])
        {
            Verdict::Unsure
        } else {
            Verdict::No
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nodes_say_is_understood() {
        for (code, message, verdict) in [
            (-32000, "already known", Verdict::Known),
            (-32000, "ALREADY_EXISTS: already known", Verdict::Known),
            (-32000, "known transaction: 0xab", Verdict::Known),
            (-32010, "Transaction with the same hash was already imported.", Verdict::Known),
            (-32010, "AlreadyKnown", Verdict::Known),
            (-32000, "unknown transaction type", Verdict::No),
            (-32000, "nonce too low: next nonce 5, tx nonce 3", Verdict::NonceUsed),
            (-32603, "Nonce too low", Verdict::NonceUsed),
            (-32010, "OldNonce, Current nonce: 5", Verdict::NonceUsed),
            (-32000, "replacement transaction underpriced", Verdict::NonceUsed),
            (-32002, "request timed out", Verdict::Unsure),
            (-32603, "Internal error", Verdict::Unsure),
            (-32000, "upstream request timeout", Verdict::Unsure),
            (-32000, "context deadline exceeded", Verdict::Unsure),
            (-32000, "insufficient funds for gas * price + value", Verdict::No),
            (-32000, "nonce too high", Verdict::No),
            (0, "", Verdict::No),
        ] {
            assert_eq!(Verdict::of(code, message), verdict, "{code} {message}");
        }
    }
}
