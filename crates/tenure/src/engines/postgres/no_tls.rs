//! Replaces `tls.rs` in a build without the feature `tls`.

use super::config::PostgresConfig;
use crate::model::error::{Error, ErrorKind, Result};

pub(super) use tokio_postgres::NoTls as Tls;

/// Fails if TLS was asked for, and names the missing feature.
pub(super) fn setup(config: &PostgresConfig) -> Result<Tls> {
    if !config.uses_tls() {
        return Ok(Tls);
    }
    let reason = "this program was built without the feature \"tls\" of the crate tenure";
    Err(Error::new(ErrorKind::Unsupported, reason).next("add the feature, or leave TLS out"))
}
