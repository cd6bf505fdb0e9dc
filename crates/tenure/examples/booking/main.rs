//! A service that books tables, each at most once, however many guests ask at the same moment and
//! however many instances there are.
//!
//! ```console
//! $ cargo run -p tenure --example booking --features fence-sqlite
//! $ curl -i -d '{"table": 12, "time": "19:00", "guest": "Ann"}' http://127.0.0.1:3000/book
//! ```
//!
//! Whoever finds the table being booked hears 409 at once. While the engine cannot be reached a booking
//! and `/health` are answered with 503, also if it was never there. SIGTERM and Ctrl-C end the service
//! when the bookings that have begun are done.
//!
//! | variable | default | |
//! |---|---|---|
//! | `TENURE_URL` | `memory:` | the engine that all instances share, such as `redis://127.0.0.1:6379` |
//! | `TENURE_TTL` | `30s` | how long the lock of a process that died lasts |
//! | `PORT` | 3000 | where to listen on 127.0.0.1; 0 is any free port |
//! | `BOOKING_DB` | in memory | the file of bookings, which all instances share, too |
//!
//! What can happen to such a lock, played one by one (without `TENURE_URL`, on a file):
//!
//! ```console
//! $ cargo run -p tenure --example booking --features fence-sqlite -- sequential
//! $ cargo run -p tenure --example booking --features fence-sqlite -- race
//! $ cargo run -p tenure --example booking --features fence-sqlite -- crash
//! $ cargo run -p tenure --example booking --features fence-sqlite -- stolen
//! ```

#[path = "../log/mod.rs"]
mod log;
mod scenarios;
mod service;
mod shop;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    log::start();
    match std::env::args().nth(1).as_deref() {
        None | Some("serve") => service::serve().await,
        Some("sequential") => scenarios::sequential().await,
        Some("race") => scenarios::race().await,
        Some("crash") => scenarios::crash().await,
        Some("stolen") => scenarios::stolen().await,
        Some(scenarios::HOLD) => scenarios::hold_for_ever().await,
        Some(other) => Err(format!(
            "there is no {other:?}: serve (default), sequential, race, crash or stolen"
        )
        .into()),
    }
}
