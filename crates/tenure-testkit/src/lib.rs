//! x
pub mod broken;
pub mod conformance;
pub mod faulty;
pub mod judge;
pub mod rng;
pub mod scenario;
pub mod sim;
pub mod stage;
