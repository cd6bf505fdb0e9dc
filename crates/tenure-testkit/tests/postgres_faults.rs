//! What can go wrong between a client and Postgres, on real servers.

mod connections;
mod fencing;
mod full;
mod refusals;
mod schema;
mod standbys;
mod tls;
mod waiting;
