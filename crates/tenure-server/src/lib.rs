//! The locks of an engine over HTTP, for programs in any language. Authors of clients find the protocol in
//! `docs/http.md`.
//!
//! A server stores nothing: holds live in the engine. It is built on `Arc<dyn Engine>`, makes one attempt at each
//! step, and has no guards: nothing is released because a server stops, and nothing that a later request needs lives
//! in one server alone. Claims are made [on behalf](tenure::engine::Claim::on_behalf) of clients.
//!
//! | where | what it owns |
//! |---|---|
//! | `wire`, `problem` | the bodies of requests and answers |
//! | `signing`, `access`, `credentials`, `failures` | tickets and claims that the server signs; tokens, and requests without one |
//! | `app` | what requests share and carry: limits, bodies, queries |
//! | `waiting`, `sessions` | who is told of a turn |
//! | `acquire`, `holds`, `tethers`, `look`, `fitness`, `force`, `events` | the endpoints for clients in any language |
//! | `steps` | the engine trait made remote, for the `http://` engine |
//! | `files` | the dashboard, and the clients as one file each |
//! | `routes`, `openapi`, `sse`, `meters`, `server` | endpoints by path, their description, streams, metrics, connections |

mod access;
mod acquire;
mod app;
mod config;
mod credentials;
mod events;
mod failures;
mod files;
mod fitness;
mod force;
mod holds;
mod look;
pub mod meters;
mod openapi;
mod problem;
mod routes;
mod server;
mod sessions;
mod signing;
mod sse;
mod steps;
mod tethers;
mod waiting;
mod wire;

pub use access::{Access, Role};
pub use config::Config;
pub use credentials::Credentials;
pub use server::Server;
pub use signing::{Key, new_token};
pub use tenure_http::{Listen, Tls};
