//! The public API: `Tenure`, the primitives, holds, and the same for programs without a runtime.

pub mod blocking;
pub(crate) mod detached;
mod examine;
pub(crate) mod hold;
pub(crate) mod primitives;
mod setters;
mod telemetry;
pub(crate) mod tenure;
