//! The engines.

pub mod file;
pub mod memory;
pub mod redis;
mod words;
