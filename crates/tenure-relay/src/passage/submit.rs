//! The submission: a transaction is handed to a node, again if need be, until it is known what became of
//! it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{Passage, Visit};
use crate::config::Gap;
use crate::envelope::{Json, Reply};
use crate::lane::Outcome;
use crate::meters;
use crate::node::Want;
use crate::refusal::Refusal;
use crate::transaction::Transaction;
use crate::upstream::{NoAnswer, Node};
use crate::verdict::Verdict;

/// The first pause before an unknown outcome is looked into, and the longest.
const FIRST_LOOK: Duration = Duration::from_millis(50);
const LAST_LOOK: Duration = Duration::from_secs(2);
/// So many times no, with a look for the hash after each, is no.
const SURE_AFTER: u32 = 3;

/// What came of one attempt.
enum Attempt {
    Over(Outcome),
    /// The node cannot have it from this attempt; why, if it was tried.
    Unsent(Option<Refusal>),
    /// The node may have it.
    Unheard,
    /// The node said something other than yes.
    No(No),
}

/// What a node said, and what it means by it.
struct No {
    message: String,
    raw: Json,
    verdict: Verdict,
}

impl Passage {
    /// Hands it to a node that will take it as the next, as far as is known, and asks in the same request whether it was.
    /// Nothing if that did not tell what became of it: then it goes the usual way.
    pub(super) async fn submit_as_expected(&mut self, node: &Arc<Node>) -> Option<Visit> {
        let Transaction { sender, nonce, hash, .. } = self.transaction;
        let lanes = self.lanes.clone();
        self.is_submitted = true;
        let (reply, is_its_own, count) =
            match lanes.nodes.submit_and_count(node, &self.transaction).await {
                Ok(answered) => answered,
                Err(NoAnswer::NotSent(_)) => {
                    self.is_submitted = false;
                    return None;
                }
                Err(NoAnswer::Unknown(_)) => {
                    self.is_unheard = true;
                    return None;
                }
            };
        match (reply, count) {
            (Reply::Result(own), Some(count)) if self.is_own(&own) => {
                if count >= nonce {
                    lanes.expected.taken(sender, nonce, node);
                    return Some(Visit::Over(Outcome::Accepted(hash)));
                }
                // The node has lost what it had, and keeps this one until it has that again.
                lanes.expected.forget(sender);
                self.is_unheard = true;
                Some(Visit::TooEarly(count))
            }
            (Reply::Result(_), _) => {
                self.is_unheard = true;
                None
            }
            (Reply::Error { code, message, raw }, _) => {
                lanes.expected.forget(sender);
                let verdict = Verdict::of(code, &message, data_of(&raw).as_deref());
                let is_a_no = match verdict {
                    Verdict::Known | Verdict::NonceUsed => true,
                    Verdict::No => is_its_own,
                    Verdict::Unlisted | Verdict::Trouble => false,
                };
                self.is_submitted = !is_a_no;
                None
            }
        }
    }

    /// Hands it to the node that was asked whether it is next, until it is known what became of it. An error
    /// says that the node could not be reached, and that nobody has it from here.
    pub(super) async fn submit(&mut self, node: &Arc<Node>) -> Result<Outcome, Refusal> {
        let (mut pause, mut unheard, mut refused) = (FIRST_LOOK, self.is_unheard, 0);
        let (mut node, mut has_those_before) = (node.clone(), true);
        let mut is_first = true;
        loop {
            let was_submitted = self.is_submitted;
            if !std::mem::take(&mut is_first) {
                node = self.lanes.nodes.after(&node);
                has_those_before = self.has_those_before(&node).await;
            }
            let attempt = match has_those_before {
                true => self.attempt(&node, unheard).await,
                false => Attempt::Unsent(None),
            };
            let no = match attempt {
                Attempt::Over(outcome) => return Ok(outcome),
                Attempt::Unsent(Some(refusal)) if !was_submitted => return Err(refusal),
                Attempt::Unsent(_) => None,
                Attempt::Unheard => {
                    unheard = true;
                    None
                }
                Attempt::No(no) => Some(no),
            };
            // At once where the node has decided: the transaction is there by now, or will not be.
            let verdict = no.as_ref().map(|no| no.verdict);
            if refused > 0 || matches!(verdict, None | Some(Verdict::Trouble | Verdict::No)) {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LAST_LOOK);
            }
            let known = self.lanes.nodes.knows(self.transaction.hash).await;
            if known == Ok(true) {
                return Ok(match no {
                    Some(no) if no.had_before() && !self.is_new && !was_submitted => {
                        self.had_before(no.raw).await
                    }
                    _ => Outcome::Accepted(self.transaction.hash),
                });
            }
            let Some(no) = no else { continue };
            refused += 1;
            if known == Ok(false) && !unheard {
                let is_final = match no.verdict {
                    Verdict::NonceUsed => true,
                    // A used nonce may be its own, where the node finds transactions later than it counts.
                    Verdict::Unlisted => self.nonce_is_free().await,
                    Verdict::Known | Verdict::Trouble | Verdict::No => false,
                };
                if is_final || refused >= SURE_AFTER {
                    return Ok(self.rejected(no));
                }
            }
            // An attempt that was not heard of may still arrive.
            if unheard && refused >= SURE_AFTER {
                let hash = self.transaction.hash;
                return Ok(Outcome::Refused(Refusal::OutcomeUnknown { hash, why: no.message }));
            }
        }
    }

    /// Hands it to a node once. `unheard`: an earlier attempt was not answered.
    async fn attempt(&mut self, node: &Arc<Node>, unheard: bool) -> Attempt {
        let was_submitted = std::mem::replace(&mut self.is_submitted, true);
        match self.lanes.nodes.submit(node, &self.transaction).await {
            Ok((Reply::Result(hash), _)) if self.is_own(&hash) => {
                let Transaction { sender, nonce, .. } = self.transaction;
                self.lanes.expected.taken(sender, nonce, node);
                Attempt::Over(Outcome::Accepted(self.transaction.hash))
            }
            Ok((Reply::Result(_), _)) => Attempt::Unheard,
            Ok((Reply::Error { code, message, raw }, is_its_own)) => {
                let verdict = match Verdict::of(code, &message, data_of(&raw).as_deref()) {
                    Verdict::No | Verdict::Unlisted if !is_its_own => Verdict::Trouble,
                    verdict => verdict,
                };
                let no = No { message, raw, verdict };
                match verdict {
                    Verdict::No if !unheard => Attempt::Over(self.rejected(no)),
                    _ => Attempt::No(no),
                }
            }
            Err(NoAnswer::NotSent(refusal)) => {
                self.is_submitted = was_submitted;
                Attempt::Unsent(Some(refusal))
            }
            Err(NoAnswer::Unknown(refusal)) => {
                let reason = refusal.message();
                tracing::debug!(event = "relay.unknown", hash = %self.transaction.hash, reason);
                Attempt::Unheard
            }
        }
    }

    /// The node has it from an earlier request, and said this.
    async fn had_before(&self, said: Json) -> Outcome {
        match self.is_same_client().await {
            Ok(true) => Outcome::Repeated(self.transaction.hash),
            Ok(false) => Outcome::Collided(said),
            Err(refusal) => Outcome::Refused(refusal),
        }
    }

    /// Whether it would not be behind a gap there.
    async fn has_those_before(&self, node: &Arc<Node>) -> bool {
        let Transaction { sender, nonce, .. } = self.transaction;
        let count = self.lanes.nodes.count_at(node, sender).await;
        self.lanes.config.gap == Gap::Forward || count.is_ok_and(|count| count >= nonce)
    }

    async fn nonce_is_free(&self) -> bool {
        let Transaction { sender, nonce, .. } = self.transaction;
        let account = self.lanes.nodes.account(sender, Want::default()).await;
        account.is_ok_and(|(account, _)| account.count <= nonce)
    }

    fn is_own(&self, hash: &Json) -> bool {
        let own = format!("\"{:#x}\"", self.transaction.hash);
        hash.as_str().eq_ignore_ascii_case(&own)
    }

    fn rejected(&self, no: No) -> Outcome {
        if no.message.to_lowercase().contains("nonce") {
            meters::wrong_nonce(self.chain_id());
        }
        Outcome::Rejected(no.raw)
    }
}

impl No {
    /// Whether it says that the node has the transaction, or that another has its nonce.
    fn had_before(&self) -> bool {
        matches!(self.verdict, Verdict::Known | Verdict::NonceUsed)
    }
}

/// What an error object says beside its message.
fn data_of(error: &Json) -> Option<String> {
    let error: Value = serde_json::from_slice(error.as_bytes()).ok()?;
    Some(error.get("data")?.as_str()?.to_owned())
}
