//! The engines.

pub mod memory;
