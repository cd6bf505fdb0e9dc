//! Names, claims, answers, options and errors: plain data that every other layer speaks in.

pub(crate) mod claim;
pub(crate) mod error;
pub(crate) mod finding;
pub(crate) mod moment;
pub(crate) mod name;
pub(crate) mod options;
pub(crate) mod profile;
pub(crate) mod request;
pub(crate) mod view;
