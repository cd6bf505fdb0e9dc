//! One file for each command. Each command gets its arguments, the settings and a writer.

pub(crate) mod acquire;
pub(crate) mod bench;
pub(crate) mod break_hold;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod forget;
pub(crate) mod leader;
pub(crate) mod ls;
pub(crate) mod man;
#[cfg(feature = "relay")]
pub(crate) mod relay;
pub(crate) mod release;
pub(crate) mod renew;
#[cfg(feature = "serve")]
pub(crate) mod serve;
pub(crate) mod setup;
pub(crate) mod show;
#[cfg(feature = "serve")]
pub(crate) mod token;
#[cfg(feature = "top")]
pub(crate) mod top;
pub(crate) mod wait;
pub(crate) mod watch;
