//! The wire format: commands and scripts out; answers, refusals and pushes in. No IO.

pub(crate) mod answer;
pub(crate) mod group;
pub(crate) mod layout;
pub(crate) mod push;
pub(crate) mod refusal;
pub(crate) mod request;
pub(crate) mod resp;
pub(crate) mod scripts;
pub(crate) mod view;
