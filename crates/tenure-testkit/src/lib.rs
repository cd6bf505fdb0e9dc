//! What every tenure engine must pass, and what the core itself is tested with.
//!
//! # Layout
//!
//! - [`conformance`]: the facts about an engine, as cases that any engine can be checked against.
//! - [`broken`]: engines that are wrong on purpose; the suite catches every one.
//! - [`judge`]: the history judge, for records of many tasks and processes.
//! - [`runtime`]: time and tasks, real or virtual, so that one test body runs on both; [`sim`] is the
//!   virtual one, and runs the production code of the core.
//! - [`faulty`]: an engine behind a bad network.
//! - [`servers`]: real servers, started for a test; [`proxy`] is a bad network in front of one.
//! - [`node`]: a node of Ethereum that misbehaves on command.
//! - [`scenario`]: seeded scenarios that put all of these together; [`rng`] repeats them.

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
