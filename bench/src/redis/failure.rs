//! Why something could not be measured.

/// The reason; the table shows it instead of figures.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
