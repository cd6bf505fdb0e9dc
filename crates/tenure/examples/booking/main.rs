//! A service that books each table at most once, however many guests ask at the same moment and however many
//! instances there are.
//!
//! ```console
//! $ cargo run -p tenure --example booking --features fence-sqlite
//! $ curl -i -d '{"table": 12, "time": "19:00", "guest": "Ann"}' http://127.0.0.1:3000/book
//! ```
//!
//! If another guest is booking the table, the answer is 409, at once. While the engine cannot be reached, even
//! at the start, a booking and `/health` are answered with 503. On SIGTERM and Ctrl-C the service finishes the
//! bookings that have begun, and exits.
//!
//! | variable | default | |
//! |---|---|---|
//! | `TENURE_URL` | `memory:` | the engine that all instances share, such as `redis://127.0.0.1:6379` |
//! | `TENURE_TTL` | `30s` | how long the lock stays taken after its process has died |
//! | `PORT` | 3000 | where to listen on 127.0.0.1; 0 is any free port |
//! | `BOOKING_DB` | in memory | the file of bookings, which all instances share, too |
//!
//! The scenarios of such a lock, one command each (without `TENURE_URL`, on a file):
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
