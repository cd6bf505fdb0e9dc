//! What tenure's HTTP servers share: where they listen, connection limits, TLS, clients that do not read, and which
//! `Host` headers they accept. The relay and the lock server are built on this crate; it knows nothing of either.

mod bearer;
mod hosts;
mod listener;
mod socket;
mod stream;
mod tls;

pub use bearer::{TokenDigest, bearer};
pub use hosts::Hosts;
pub use listener::{Accepted, ConnectionPlace, Listener, network_of};
pub use socket::{Bound, Connection, Listen, PeerAddress};
pub use stream::{BoundedStream, HeadWait, WriteWait};
pub use tls::Tls;
