//! Failures between a client and one Redis, on real servers behind a real, bad network.
//!
//! Tests carry the number of their scenario. Each has a server of its own.

mod amnesia;
mod asking;
mod clocks;
mod dropping;
mod groups;
mod holding;
mod keeping;
mod losing;
mod outages;
mod passing;
mod processes;
mod rights;
mod states;
mod waiting;
