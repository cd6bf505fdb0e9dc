//! Engines that cannot be reached, on real servers and files: what each policy promises when they go away, while they
//! are away, and when they come back.
#![allow(clippy::unwrap_used, reason = "clippy does not see that the helpers of tests are tests")]

#[path = "outage/cluster.rs"]
mod cluster;
#[path = "outage/events.rs"]
mod events;
#[path = "outage/file.rs"]
mod file;
mod file_site;
mod fixtures;
#[path = "outage/life.rs"]
mod life;
#[path = "outage/load.rs"]
mod load;
#[path = "outage/patience.rs"]
mod patience;
#[path = "outage/policies.rs"]
mod policies;
mod redis_site;
#[path = "outage/seeds.rs"]
mod seeds;
#[path = "outage/starved.rs"]
mod starved;
#[path = "outage/told.rs"]
mod told;
