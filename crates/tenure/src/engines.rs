//! The engines.

pub mod memory;
pub mod redis;
