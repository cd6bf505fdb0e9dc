//! One file a command. Each is given its arguments, the settings and where to write.

pub(crate) mod explain;
pub(crate) mod ls;
