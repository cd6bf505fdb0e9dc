//! The rule as scripts: requests, answers, what others hear, and what is left.
//!
//! Each line of an expected text is one step: the answer, then what others hear. `=` is the state: holders by fence,
//! then waiters by ticket, and for how long an idle name remembers something. The numbers of a name begin at 1; a
//! claim takes one as its ticket and, when granted, one as its fence. `ledger_scripts/language.rs` explains the
//! steps.

mod bounds;
mod capacity;
mod endings;
mod language;
mod once;
mod order;
mod reach;
mod time;
