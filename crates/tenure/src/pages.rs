//! The examples in the README and in docs/ run as tests.

#[doc = include_str!("../../../README.md")]
struct Readme;

#[doc = include_str!("../../../docs/get-started.md")]
struct GetStarted;

#[doc = include_str!("../../../docs/elections.md")]
struct Elections;

#[doc = include_str!("../../../docs/worker.md")]
struct Worker;

#[doc = include_str!("../../../docs/engines/redis.md")]
struct Redis;

#[doc = include_str!("../../../docs/guides/wallet.md")]
struct Wallet;

#[doc = include_str!("../../../docs/guides/webhook.md")]
struct Webhook;

#[doc = include_str!("../../../docs/guides/cron.md")]
struct Cron;

#[cfg(feature = "fence-sqlite")]
#[doc = include_str!("../../../docs/guides/booking.md")]
struct Booking;

#[cfg(feature = "idempotency")]
#[doc = include_str!("../../../docs/once.md")]
struct Once;

#[cfg(feature = "metrics")]
#[doc = include_str!("../../../docs/observability.md")]
struct Observability;

#[cfg(all(
    feature = "fence-file",
    feature = "fence-http",
    feature = "fence-postgres",
    feature = "fence-redis",
    feature = "fence-sqlite"
))]
#[doc = include_str!("../../../docs/fencing.md")]
struct Fencing;
