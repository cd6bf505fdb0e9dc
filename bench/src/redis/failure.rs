//! Why something could not be measured.

/// Whatever went wrong; the table shows it in the place of figures.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
