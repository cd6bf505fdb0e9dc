//! Sends a transaction to a node, repeatedly if necessary, until its outcome is known.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::Submission;
use crate::config::Gap;
use crate::envelope::{Json, Reply};
use crate::lane::Outcome;
use crate::meters;
use crate::node::Want;
use crate::node_error::NodeError;
use crate::refusal::Refusal;
use crate::transaction::Transaction;
use crate::upstream::{NoAnswer, Node};

/// The first and the longest pause before looking for a transaction whose outcome is unknown.
const FIRST_LOOK: Duration = Duration::from_millis(50);
const LAST_LOOK: Duration = Duration::from_secs(2);
/// A refusal is final when the node has repeated it this often and never found the hash.
const SURE_AFTER: u32 = 3;

/// How one attempt ended.
enum Attempt {
    Done(Outcome),
    /// The node cannot have it from this attempt; the reason, if there was an attempt.
    NotSent(Option<Refusal>),
    /// The node may have it.
    Unanswered,
    /// The node answered with an error.
    Refused(NodeRefusal),
}

/// An error that a node answered with, and what it means.
struct NodeRefusal {
    message: String,
    raw: Json,
    meaning: NodeError,
}

impl Submission {
    /// Sends it, first to the node that was asked for the count, until its outcome is known. An error means that the node
    /// could not be reached and that no node has the transaction from this relay.
    pub(super) async fn submit(&mut self, node: &Arc<Node>) -> Result<Outcome, Refusal> {
        let (mut pause, mut unanswered, mut refused) = (FIRST_LOOK, false, 0);
        let (mut node, mut has_those_before) = (node.clone(), true);
        let mut is_first = true;
        loop {
            let was_submitted = self.is_submitted;
            if !std::mem::take(&mut is_first) {
                node = self.lanes.nodes.after(&node);
                has_those_before = self.has_those_before(&node).await;
            }
            let attempt = match has_those_before {
                true => self.attempt(&node, unanswered).await,
                false => Attempt::NotSent(None),
            };
            let no = match attempt {
                Attempt::Done(outcome) => return Ok(outcome),
                Attempt::NotSent(Some(refusal)) if !was_submitted => return Err(refusal),
                Attempt::NotSent(_) => None,
                Attempt::Unanswered => {
                    unanswered = true;
                    None
                }
                Attempt::Refused(no) => Some(no),
            };
            // No pause where the node has decided: either it has the transaction by now, or it never will.
            let meaning = no.as_ref().map(|no| no.meaning);
            if refused > 0
                || matches!(meaning, None | Some(NodeError::Unavailable | NodeError::Rejected))
            {
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
            let is_absent = known == Ok(false) && !unanswered;
            if is_absent && (refused >= SURE_AFTER || self.is_final(no.meaning).await) {
                return Ok(self.rejected(no));
            }
            // An attempt that was not answered may still reach a node.
            if unanswered && refused >= SURE_AFTER {
                let hash = self.transaction.hash;
                return Ok(Outcome::Refused(Refusal::OutcomeUnknown { hash, why: no.message }));
            }
        }
    }

    /// Whether an error of a node that does not have the transaction needs no repetition.
    async fn is_final(&self, meaning: NodeError) -> bool {
        match meaning {
            NodeError::NonceUsed => true,
            // If the nonce is used, this transaction may have used it: some nodes count it before they find it.
            NodeError::Unlisted => self.nonce_is_free().await,
            NodeError::AlreadyKnown | NodeError::Unavailable | NodeError::Rejected => false,
        }
    }

    /// Sends it to a node once. `unanswered`: an earlier attempt was not answered.
    async fn attempt(&mut self, node: &Arc<Node>, unanswered: bool) -> Attempt {
        let was_submitted = std::mem::replace(&mut self.is_submitted, true);
        match self.lanes.nodes.submit(node, &self.transaction).await {
            Ok((Reply::Result(hash), _)) if self.is_own(&hash) => {
                Attempt::Done(Outcome::Accepted(self.transaction.hash))
            }
            Ok((Reply::Result(_), _)) => Attempt::Unanswered,
            Ok((Reply::Error { code, message, raw }, is_its_own)) => {
                let meaning = match NodeError::of(code, &message, data_of(&raw).as_deref()) {
                    NodeError::Rejected | NodeError::Unlisted if !is_its_own => {
                        NodeError::Unavailable
                    }
                    meaning => meaning,
                };
                let no = NodeRefusal { message, raw, meaning };
                match meaning {
                    NodeError::Rejected if !unanswered => Attempt::Done(self.rejected(no)),
                    _ => Attempt::Refused(no),
                }
            }
            Err(NoAnswer::NotSent(refusal)) => {
                self.is_submitted = was_submitted;
                Attempt::NotSent(Some(refusal))
            }
            Err(NoAnswer::Unknown(refusal)) => {
                let reason = refusal.message();
                tracing::debug!(event = "relay.unknown", hash = %self.transaction.hash, reason);
                Attempt::Unanswered
            }
        }
    }

    /// The node has it from an earlier request, and answered with this error.
    async fn had_before(&self, said: Json) -> Outcome {
        match self.is_same_client().await {
            Ok(true) => Outcome::Repeated(self.transaction.hash),
            Ok(false) => Outcome::Collided(said),
            Err(refusal) => Outcome::Refused(refusal),
        }
    }

    /// Whether this node has all transactions before it.
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

    fn rejected(&self, no: NodeRefusal) -> Outcome {
        if no.message.to_lowercase().contains("nonce") {
            meters::wrong_nonce(self.chain_id());
        }
        Outcome::Rejected(no.raw)
    }
}

impl NodeRefusal {
    /// Whether it says that the node has the transaction, or that its nonce is used.
    fn had_before(&self) -> bool {
        matches!(self.meaning, NodeError::AlreadyKnown | NodeError::NonceUsed)
    }
}

/// The text in the `data` of an error object.
fn data_of(error: &Json) -> Option<String> {
    let error: Value = serde_json::from_slice(error.as_bytes()).ok()?;
    Some(error.get("data")?.as_str()?.to_owned())
}
