//! `tenure serve`: offers the locks of the engine over HTTP until it is told to stop.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use tenure::engine::Engine;
use tenure::engines::memory::Memory;
use tenure_server::{Access, Config, Credentials, Key, Listen, Server};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::args::{self, Listening, SERVE_TOKEN_LINES};
use crate::engine;
use crate::failure::{CANNOT_CREATE, CONFIGURATION, Exit, Failure, INTERNAL, OK, Stop, USAGE};
use crate::output::json::Object;
use crate::settings::Settings;

/// How long a restarted server of `memory:` grants nothing, and the longest ttl of every such server: a client may hold what
/// the last run granted for its ttl without asking anyone.
const QUIET_START: Duration = Duration::from_secs(60);

/// Serves, and prints the address as soon as it does.
pub(crate) async fn run(
    asked: args::Serve,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    check_names(settings)?;
    let metrics = tenure_server::meters::install().map_err(internal)?;
    raise_limit();
    let (engine, close) = open(&asked, settings).await?;
    let access = asked.listening.access(Access::from_lines, SERVE_TOKEN_LINES)?;
    let tls = asked.listening.tls()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let credentials = Credentials::new(access, tls);
    let mut config = Config::default();
    if asked.memory {
        config.longest_ttl = QUIET_START;
        config.quiet_start = if asked.fresh { Duration::ZERO } else { QUIET_START };
    }
    config.pages_may_change = asked.ui_may_break;
    // Before anyone knows that it listens, and may tell it to stop.
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let hangup = signal(SignalKind::hangup());
    let listen = asked.listening.listen.clone();
    let server = Server::listen(engine, &listen, key(&asked)?).await.map_err(|error| {
        let what = format!("cannot listen on {listen}");
        Failure::new(CANNOT_CREATE, what, error.to_string(), "choose another place with `--listen`")
    })?;
    let server = server
        .with_config(config)
        .with_credentials(credentials.clone())
        .with_hosts(asked.listening.hosts.clone())
        .with_metrics(metrics);
    let server = match &asked.engine_name {
        Some(name) => server.with_engine_name(name),
        None => server,
    };
    let reads_again = read_again(hangup.ok(), &asked.listening, credentials);
    let (place, url) = match listen {
        Listen::Address(_) => {
            let address = server.address()?.to_string();
            let url = format!("{scheme}://{address}");
            (address, url)
        }
        socket @ Listen::Socket { .. } => (socket.to_string(), socket.to_string()),
    };
    match settings.json.value {
        true => writeln!(out, "{}", Object::versioned().text("listening", &place).end())?,
        false => writeln!(out, "listening on {url}")?,
    }
    out.flush()?;
    tokio::select! {
        () = serve(server, close, signals, settings) => {}
        () = reads_again => {}
    }
    Ok(OK)
}

/// Serves until it is told to stop, and does not finish if it is told twice.
async fn serve(
    server: Server,
    close: Option<tenure::Tenure>,
    signals: (io::Result<Signal>, io::Result<Signal>),
    settings: &Settings,
) {
    let (told, stop) = oneshot::channel();
    let serves = async {
        // It also ends when the sender is dropped.
        server.run(async { drop(stop.await) }).await;
        if let Some(tenure) = close {
            tenure.close().await;
        }
    };
    let told_twice = async {
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
            return std::future::pending().await;
        };
        told_to_stop(&mut interrupt, &mut terminate).await;
        let _ = told.send(());
        told_to_stop(&mut interrupt, &mut terminate).await;
    };
    tokio::select! {
        () = serves => {}
        () = told_twice => settings.notes().say("stopped before all requests were answered"),
    }
}

/// Names come from clients, who would not know of a namespace.
fn check_names(settings: &Settings) -> Result<(), Failure> {
    if settings.ns.is_none() {
        return Ok(());
    }
    Err(Failure::new(
        USAGE,
        "a server has no namespace",
        "its clients name what they lock in full",
        "leave out --ns, and write the namespace before the names: prod/backup",
    ))
}

/// The engine, and what closes it.
async fn open(
    asked: &args::Serve,
    settings: &Settings,
) -> Result<(Arc<dyn Engine>, Option<tenure::Tenure>), Failure> {
    if asked.memory {
        return Ok((Arc::new(Memory::new()), None));
    }
    if settings.address.scheme() == Some("memory") {
        return Err(Failure::new(
            USAGE,
            "memory: is served only on purpose",
            "a restart of the server forgets who holds what",
            "use --memory in place of the URL, or serve a file or a Redis server",
        ));
    }
    let tenure = engine::connect_alone(settings).await?;
    Ok((tenure.engine(), Some(tenure)))
}

/// Each connection takes a descriptor.
fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

fn key(asked: &args::Serve) -> Result<Key, Failure> {
    let made = match asked.key_file.clone().or_else(default_key_file) {
        _ if asked.memory && asked.key_file.is_none() => Key::random(),
        Some(path) => Key::from_file(&path),
        None => Key::random(),
    };
    made.map_err(|error| {
        let help = "name a file that this user can read and write with `--key-file`";
        Failure::new(CONFIGURATION, "cannot read the server's key", error.to_string(), help)
    })
}

/// Beside the file of the default engine.
fn default_key_file() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(home)?;
    Some(state.join("tenure/server.key"))
}

/// Reloads the files with tokens and certificates on each SIGHUP. Without such files, or if one cannot be read, nothing changes.
async fn read_again(hangup: Option<Signal>, listening: &Listening, credentials: Credentials) {
    let Some(mut hangup) = hangup else { return std::future::pending().await };
    while hangup.recv().await.is_some() {
        if !listening.has_files() {
            tracing::info!(event = "server.credentials", "there are no files to read again");
            continue;
        }
        let read = listening.access(Access::from_lines, SERVE_TOKEN_LINES);
        match read.and_then(|access| Ok((access, listening.tls()?))) {
            Ok((access, tls)) => {
                credentials.replace(access, tls);
                tracing::info!(event = "server.credentials");
            }
            Err(Failure { what, why, .. }) => {
                tracing::error!(event = "server.credentials", reason = format!("{what}: {why}"));
            }
        }
    }
}

async fn told_to_stop(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

fn internal(why: String) -> Failure {
    Failure::new(INTERNAL, "cannot start the server", why, "please report it")
}
