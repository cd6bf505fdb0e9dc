//! The way to the engine, and what its errors mean to people.

use std::time::Duration;

use rustix::process::Pid;
use tenure::{Error, ErrorKind, Tenure};
use tokio::runtime::{Builder, Runtime};

use crate::failure::{BUSY, CANNOT_CREATE, DENIED, Failure, INTERNAL, NO, UNREACHABLE, USAGE};
use crate::output::{clean, precise, quoted};
use crate::settings::{Address, Settings};

/// What a URL can begin with.
const SCHEMES: [&str; 7] =
    ["file", "memory", "redis", "rediss", "redis+unix", "redis-sentinel", "redis-cluster"];

/// A runtime on this thread. Commands that need none start none: starting must not cost time, and
/// `run` forks before there is a thread.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread().enable_all().build().map_err(|error| {
        Failure::new(
            INTERNAL,
            "the runtime cannot be started",
            error.to_string(),
            "see the limits of this process (`ulimit -a`)",
        )
    })
}

/// Connects to the engine that the settings name.
pub(crate) async fn connect(settings: &Settings) -> Result<Tenure, Failure> {
    connect_at(settings, settings.address.url()?).await
}

/// The same for a process that does not stand alone: where an engine ends what a process holds when
/// that has ended, `guard` must have ended too.
pub(crate) async fn connect_guarded(settings: &Settings, guard: Pid) -> Result<Tenure, Failure> {
    let url = settings.address.url()?;
    match settings.address.scheme() {
        Some("file") => {
            let sign = if url.contains('?') { '&' } else { '?' };
            connect_at(settings, &format!("{url}{sign}guard={guard}")).await
        }
        _ => connect_at(settings, url).await,
    }
}

async fn connect_at(settings: &Settings, url: &str) -> Result<Tenure, Failure> {
    let Settings { address, .. } = settings;
    check_scheme(address)?;
    if address.is_seen_by_others() {
        settings.notes().say(
            "a password in --url can be seen by others in the list of processes; set TENURE_URL",
        );
    }
    let began = std::time::Instant::now();
    let connected = Tenure::connect(url).await;
    connected.map_err(|error| explain(&error, settings, began.elapsed()))
}

/// What an error of the library means, for all that has no better explanation of its own.
pub(crate) fn failure(error: &Error, settings: &Settings) -> Failure {
    explain(error, settings, Duration::ZERO)
}

fn explain(error: &Error, settings: &Settings, took: Duration) -> Failure {
    let why = clean(&error.to_string());
    let engine = settings.address.shown();
    match error.kind() {
        ErrorKind::Unavailable if settings.address.scheme() == Some("file") => Failure::new(
            CANNOT_CREATE,
            format!("the state file cannot be used: {engine}"),
            why,
            "look at the folder and its rights, or name another file with TENURE_URL=file:PATH",
        ),
        ErrorKind::Unavailable => {
            let after = match took {
                Duration::ZERO => String::new(),
                took => format!(" (after {})", precise(took)),
            };
            let what = format!("engine unreachable: {engine}{after}");
            Failure::new(UNREACHABLE, what, why, unreachable_help()).code("T003")
        }
        ErrorKind::Invalid => Failure::new(
            USAGE,
            "the engine cannot do this as it was said",
            why,
            "see `tenure --help`",
        ),
        ErrorKind::Conflict => {
            Failure::new(USAGE, "others use this name in another way", why, "see `tenure ls`")
        }
        ErrorKind::Denied => Failure::new(
            DENIED,
            format!("not allowed on {engine}"),
            why,
            "`tenure doctor` names the rights that are needed",
        ),
        ErrorKind::WaitOver | ErrorKind::Full => {
            Failure::new(BUSY, "busy", why, "wait longer, or see `tenure ls`").code("T010")
        }
        ErrorKind::Lost => {
            Failure::new(NO, "the hold has ended", why, "guard what you write with the fence")
        }
        ErrorKind::Unsupported => {
            Failure::new(USAGE, format!("{engine} cannot do this"), why, "use another engine")
        }
        _ => Failure::new(INTERNAL, "a fault in tenure", why, "please report it"),
    }
}

/// Many have the address of their server in another variable.
fn unreachable_help() -> String {
    match std::env::var_os("REDIS_URL").is_some() && std::env::var_os("TENURE_URL").is_none() {
        true => "REDIS_URL is set: did you mean TENURE_URL=$REDIS_URL?".into(),
        false => "is it running, and is the address right? `tenure doctor` looks closer".into(),
    }
}

/// Refuses what no engine is called, with the nearest that one is.
fn check_scheme(address: &Address) -> Result<(), Failure> {
    let scheme = address.scheme();
    if scheme.is_some_and(|scheme| SCHEMES.contains(&scheme)) {
        return Ok(());
    }
    // Without a scheme anything may be a password.
    let what = match scheme {
        Some(scheme) => format!("unknown engine {}", quoted(scheme)),
        None => "the URL does not say which engine".to_owned(),
    };
    let near = scheme.and_then(nearest);
    let help = match near {
        Some(near) => format!("did you mean {near}:?"),
        None => "such as file:/var/lib/tenure/tenure.db or redis://localhost:6379".to_owned(),
    };
    Err(Failure::new(USAGE, what, format!("known: {}", SCHEMES.join(", ")), help).code("T004"))
}

fn nearest(scheme: &str) -> Option<&'static str> {
    let near = SCHEMES.iter().map(|known| (strsim::damerau_levenshtein(known, scheme), *known));
    near.min().filter(|(distance, _)| *distance <= 2).map(|(_, known)| known)
}
