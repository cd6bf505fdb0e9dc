//! Connects to the engine, and translates its errors for people.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tenure::{Error, ErrorKind, Finding, OnOutage, Tenure};
use tokio::runtime::{Builder, Runtime};

use crate::args::{Source, is_bare, no_unit};
use crate::failure::{
    BUSY, CANNOT_CREATE, CONFIGURATION, DENIED, Failure, INTERNAL, NO, UNREACHABLE, USAGE,
};
use crate::output::{clean_sentence, precise, quoted};
use crate::settings::{Address, Settings};

/// The schemes of URLs.
const SCHEMES: [&str; 12] = [
    "file",
    "http",
    "https",
    "http+unix",
    "memory",
    "postgres",
    "postgresql",
    "redis",
    "rediss",
    "redis+unix",
    "redis-sentinel",
    "redis-cluster",
];

/// A runtime on this thread. Commands that need none start none, so that they start quickly, and because `run`
/// forks before there is a thread.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    has_room().map_err(not_started)?;
    Builder::new_current_thread().enable_all().build().map_err(not_started)
}

/// A runtime on all cores, for serving others.
#[cfg(any(feature = "relay", feature = "serve"))]
pub(crate) fn runtime_on_all_cores() -> Result<Runtime, Failure> {
    has_room().map_err(not_started)?;
    Builder::new_multi_thread().enable_all().build().map_err(not_started)
}

/// A runtime panics if it has no descriptor for the signals of its process; this returns an error instead.
fn has_room() -> io::Result<()> {
    let _as_many_as_it_takes: [File; 8] = {
        let open = || File::open("/dev/null");
        [open()?, open()?, open()?, open()?, open()?, open()?, open()?, open()?]
    };
    Ok(())
}

fn not_started(error: io::Error) -> Failure {
    Failure::new(
        INTERNAL,
        "cannot start the runtime",
        error.to_string(),
        "check the limits of this process (`ulimit -a`)",
    )
}

/// Connects to the engine of the settings. It must be reachable, and shared by processes.
pub(crate) async fn connect(settings: &Settings) -> Result<Tenure, Failure> {
    check_shared(settings)?;
    connect_alone(settings).await
}

/// The same for a command that may be alone: one that measures, or serves others from a single process.
pub(crate) async fn connect_alone(settings: &Settings) -> Result<Tenure, Failure> {
    prepare(settings)?;
    connect_quietly(settings).await
}

/// The same for a service that can continue without the engine, which then need not be reachable yet.
#[cfg(feature = "relay")]
pub(crate) async fn connect_to_serve(
    settings: &Settings,
    needs_the_engine: bool,
) -> Result<Tenure, Failure> {
    if needs_the_engine {
        return connect_alone(settings).await;
    }
    prepare(settings)?;
    let began = Instant::now();
    let connected = Tenure::connect(settings.address.url()?).await.and_then(closed);
    connected.map_err(|error| not_connected(&error, settings, began.elapsed()))
}

/// Connects for a claim, which waits for an engine that is not reachable yet for as long as for its turn.
pub(crate) async fn connect_to_claim(settings: &Settings) -> Result<Tenure, Failure> {
    check_shared(settings)?;
    connect_at(settings, settings.address.url()?).await
}

/// A lock in the memory of a process that is about to exit would protect nothing.
fn check_shared(settings: &Settings) -> Result<(), Failure> {
    if settings.address.scheme() != Some("memory") {
        return Ok(());
    }
    let exit = if settings.address.source == Source::Flag { USAGE } else { CONFIGURATION };
    Err(Failure::new(
        exit,
        "memory: protects nothing on the command line",
        "its locks exist within one process, and every `tenure` command is a process of its own",
        "omit the URL to use a file on this host, or name a server, such as redis://localhost:6379",
    ))
}

/// The same for a process with a guard: if the engine ends the claims of a process that has exited, `guard` must
/// have exited, too.
pub(crate) async fn connect_guarded(settings: &Settings, guard: Pid) -> Result<Tenure, Failure> {
    check_shared(settings)?;
    let url = settings.address.url()?;
    match settings.address.scheme() {
        Some("file") => {
            let sign = if url.contains('?') { '&' } else { '?' };
            connect_at(settings, &format!("{url}{sign}guard={guard}")).await
        }
        _ => connect_at(settings, url).await,
    }
}

/// Examines the engine of the settings, even one that refuses connections.
pub(crate) async fn examine(settings: &Settings) -> Result<Vec<Finding>, Failure> {
    let url = settings.address.url()?;
    prepare(settings)?;
    let began = Instant::now();
    Tenure::examine_at(url).await.map_err(|error| {
        let failure = not_connected(&error, settings, began.elapsed());
        match failure.code {
            // The usual help is to run the doctor, which this is.
            Some("T003") => Failure { help: not_examined_help(), ..failure },
            _ => failure,
        }
    })
}

async fn connect_at(settings: &Settings, url: &str) -> Result<Tenure, Failure> {
    prepare(settings)?;
    let began = Instant::now();
    let connected = Tenure::connect_lazily(url).await.and_then(closed);
    connected.map_err(|error| not_connected(&error, settings, began.elapsed()))
}

/// Connects without printing notes: the user has seen them.
pub(crate) async fn connect_quietly(settings: &Settings) -> Result<Tenure, Failure> {
    let (began, url) = (Instant::now(), settings.address.url()?);
    let connected = async {
        let tenure = Tenure::connect_lazily(url).await.and_then(closed)?;
        tenure.health().await.map(|_| tenure)
    };
    connected.await.map_err(|error| not_connected(&error, settings, began.elapsed()))
}

/// Ignores the URL's outage policy: a command runs with its lock, and never without.
fn closed(tenure: Tenure) -> tenure::Result<Tenure> {
    let mut options = tenure.defaults();
    options.on_outage = OnOutage::Closed;
    tenure.with_defaults(options)
}

/// Checks the address before connecting, and prints notes about it.
fn prepare(settings: &Settings) -> Result<(), Failure> {
    let Settings { address, .. } = settings;
    check_scheme(address)?;
    check_units(address)?;
    let notes = settings.notes();
    if address.is_seen_by_others() {
        notes.say(
            "other users can see the password of the URL in the process list; set TENURE_URL instead",
        );
    }
    if io::stderr().is_terminal() && address.is_new_default() {
        let engine = address.shown();
        notes.say(&format!("engine: {engine} (this host only; set TENURE_URL to use another)"));
    }
    Ok(())
}

/// Why the engine cannot be connected to.
fn not_connected(error: &Error, settings: &Settings, took: Duration) -> Failure {
    let (engine, why) = (settings.address.shown(), reason(error));
    let file = settings.address.scheme() == Some("file");
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::Denied if file => {
            let what = format!("cannot use the state file: {engine}");
            let help = format!("{} (set TENURE_URL=file:PATH)", advice(error, "use another file"));
            Failure::new(CANNOT_CREATE, what, why, help)
        }
        ErrorKind::Unsupported | ErrorKind::Conflict if file => {
            let what = format!("the state file cannot be kept there: {engine}");
            let help = format!("{} (set TENURE_URL=file:PATH)", advice(error, "use another file"));
            Failure::new(CONFIGURATION, what, why, help)
        }
        ErrorKind::Unavailable => {
            let what = format!("engine unreachable: {engine} (after {})", precise(took));
            Failure::new(UNREACHABLE, what, why, unreachable_help()).code("T003")
        }
        ErrorKind::Invalid => {
            let help = advice(error, "docs/engines describes all forms");
            let help = format!("{help}; `tenure config` shows where the URL comes from");
            Failure::new(CONFIGURATION, "invalid URL", why, help)
        }
        _ => failure(error, settings),
    }
}

/// The failure for an error of the library that has no better explanation.
pub(crate) fn failure(error: &Error, settings: &Settings) -> Failure {
    let (engine, why) = (settings.address.shown(), reason(error));
    match error.kind() {
        // A file that was deleted while it was in use is closed for good.
        ErrorKind::Unavailable | ErrorKind::Closed => {
            let what = format!("engine unreachable: {engine}");
            Failure::new(UNREACHABLE, what, why, unreachable_help()).code("T003")
        }
        ErrorKind::Invalid => {
            let help = advice(error, "see `tenure --help`");
            Failure::new(USAGE, "invalid request", why, help)
        }
        ErrorKind::Conflict => {
            let help = advice(error, "see `tenure ls`");
            Failure::new(USAGE, "others use this name in a different way", why, help)
        }
        ErrorKind::Denied => {
            let help = "`tenure doctor` lists the permissions that are needed";
            Failure::new(DENIED, format!("permission denied by {engine}"), why, help)
        }
        ErrorKind::WaitOver | ErrorKind::Full => {
            Failure::new(BUSY, "busy", why, "wait longer, or see `tenure ls`").code("T010")
        }
        ErrorKind::Lost => Failure::new(
            NO,
            "the lock is no longer held",
            why,
            "protect your writes with the fence",
        ),
        ErrorKind::Unsupported => {
            let help = advice(error, "use another engine");
            Failure::new(USAGE, format!("{engine} does not support this"), why, help)
        }
        _ => Failure::new(INTERNAL, "internal error", why, advice(error, "please report it")),
    }
}

/// Why it failed, without the operation and the engine, which the user knows.
pub(crate) fn reason(error: &Error) -> String {
    clean_sentence(error.reason())
}

/// The library's advice, or `otherwise`.
fn advice(error: &Error, otherwise: &str) -> String {
    clean_sentence(error.advice().unwrap_or(otherwise))
}

/// Whether another variable, which is not read, has the address of a server.
pub(crate) fn has_another_address() -> bool {
    std::env::var_os("REDIS_URL").is_some() && std::env::var_os("TENURE_URL").is_none()
}

const ANOTHER_ADDRESS: &str = "REDIS_URL is set: did you mean TENURE_URL=$REDIS_URL?";

fn not_examined_help() -> String {
    match has_another_address() {
        true => ANOTHER_ADDRESS.into(),
        false => {
            "cannot connect or log in: check that it is running, the address (`tenure config` shows \
                  where it comes from) and the network in between"
                .into()
        }
    }
}

fn unreachable_help() -> String {
    match has_another_address() {
        true => ANOTHER_ADDRESS.into(),
        false => {
            "check that it is running and that the address is right; `tenure doctor` looks closer"
                .into()
        }
    }
}

/// Refuses an unknown scheme, and suggests the most similar one.
fn check_scheme(address: &Address) -> Result<(), Failure> {
    let scheme = address.scheme();
    if scheme.is_some_and(|scheme| SCHEMES.contains(&scheme)) {
        return Ok(());
    }
    // Without a scheme, any of it may be a password.
    let what = match scheme {
        Some(scheme) => format!("unknown engine {}", quoted(scheme)),
        None => "the URL does not name an engine".to_owned(),
    };
    let near = scheme.and_then(nearest);
    let help = match near {
        Some(near) => format!("did you mean {near}:?"),
        None => "for example, file:/var/lib/tenure/tenure.db or redis://localhost:6379".to_owned(),
    };
    Err(Failure::new(USAGE, what, format!("engines: {}", SCHEMES.join(", ")), help).code("T004"))
}

/// Checks that durations in the URL have a unit: the library's error for that has no code.
fn check_units(address: &Address) -> Result<(), Failure> {
    let spans = ["ttl", "wait", "renew_every", "max_hold", "hold_for"];
    let fields = address.fields().into_iter();
    match fields.into_iter().find(|(field, value)| spans.contains(&&**field) && is_bare(value)) {
        Some((field, value)) => Err(no_unit(&field, &value)),
        None => Ok(()),
    }
}

fn nearest(scheme: &str) -> Option<&'static str> {
    let near = SCHEMES.iter().map(|known| (strsim::damerau_levenshtein(known, scheme), *known));
    near.min().filter(|(distance, _)| *distance <= 2).map(|(_, known)| known)
}
