//! The test kit: the suite that every tenure engine must pass, and the tools that test the core.
//!
//! # Layout
//!
//! - [`conformance`]: the suite, as cases that any engine can be checked against.
//! - [`broken`]: engines with deliberate faults; the suite detects every one.
//! - [`judge`]: the history judge, for records of many tasks and processes.
//! - [`runtime`]: time and tasks, real or virtual, so that one test body runs on both; [`sim`] is the
//!   virtual one, and runs the production code of the core.
//! - [`faulty`]: an engine behind a bad network.
//! - [`servers`]: real servers, started for a test; [`proxy`] is a bad network in front of one.
//! - [`node`]: an Ethereum node that misbehaves on command.
//! - [`scenario`]: seeded scenarios that combine all of these; [`rng`] makes them repeatable.

pub mod broken;
pub mod conformance;
pub mod faulty;
pub mod judge;
pub mod node;
pub mod proxy;
pub mod rng;
pub mod runtime;
pub mod scenario;
pub mod servers;
pub mod sim;
