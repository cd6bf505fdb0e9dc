//! `tenure relay`: runs in front of a node until it is told to stop.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use tenure_http::Listen;
use tenure_relay::{Access, Credentials, Relay, Server, Tls};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::args::{self, Listening, TOKEN_LINES};
use crate::engine;
use crate::failure::{
    CANNOT_CREATE, CONFIGURATION, Exit, Failure, INTERNAL, OK, Stop, UNREACHABLE, USAGE,
};
use crate::output::json::Object;
use crate::settings::Settings;

/// How long a node may take to say which chain it belongs to, if one was given.
const NODE_WITHIN: Duration = Duration::from_secs(2);

/// Serves, and prints the address as soon as it does.
pub(crate) async fn run(
    asked: args::Relay,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    let metrics = tenure_relay::meters::install().map_err(internal)?;
    let tenure = engine::connect_to_serve(settings, asked.needs_the_engine()).await?;
    let chain_id = chain_id(&asked).await?;
    let (access, tls) = credentials(&asked.listening)?;
    let ns = settings.ns.as_ref().map(|ns| ns.value.clone());
    let (config, listening) = asked.config(chain_id, ns);
    let longest = config.max_hold;
    config.check().map_err(|why| {
        let help = "change --max-hold or --ttl, or the variables TENURE_MAX_HOLD and TENURE_TTL";
        Failure::new(CONFIGURATION, "these settings contradict each other", why, help)
    })?;
    let relay = Relay::new(config, &tenure).map_err(internal)?;
    // Before anyone knows that it listens, and may tell it to stop.
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let scheme = if tls.is_some() { "https" } else { "http" };
    let hangup = listening.has_files().then(|| signal(SignalKind::hangup()));
    let server = bind(relay.clone(), &listening, access, tls).await?;
    let reads_again = read_again(hangup.and_then(Result::ok), listening, server.credentials());
    let (address, admin) = (server.address()?, server.admin_address()?.map(|at| at.to_string()));
    match settings.json.value {
        true => {
            let object = Object::versioned().text("listening", &address.to_string());
            let object = object.text("chain_id", &chain_id.to_string());
            writeln!(out, "{}", object.maybe_text("admin", admin.as_deref()).end())?;
        }
        false => {
            let admin = admin.map(|at| format!(", health and metrics on http://{at}"));
            let admin = admin.unwrap_or_default();
            writeln!(out, "listening on {scheme}://{address}, chain {chain_id}{admin}")?;
        }
    }
    out.flush()?;
    let (told, stop) = oneshot::channel();
    let serves = async {
        // It also ends when the sender is dropped.
        server.with_metrics(metrics).run(async { drop(stop.await) }).await;
        // Transactions that have a place in a lane are finished: their client may have had its answer.
        let _ = tokio::time::timeout(longest, relay.finished()).await;
        tenure.close().await;
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
        () = told_twice => settings.notes().say("stopped before all transactions were finished"),
        () = reads_again => {}
    }
    Ok(OK)
}

async fn bind(
    relay: Relay,
    listening: &Listening,
    access: Access,
    tls: Option<Tls>,
) -> Result<Server, Failure> {
    let Listen::Address(listen) = listening.listen.clone() else {
        let (what, why) =
            ("cannot listen on a unix socket", "the relay listens on addresses alone");
        return Err(Failure::new(USAGE, what, why, "choose an address with `--listen`"));
    };
    let admin = listening.admin;
    let cannot = |address: SocketAddr, flag: &str| {
        let (what, help) = (
            format!("cannot listen on {address}"),
            format!("choose another address with `{flag}`"),
        );
        move |error: std::io::Error| Failure::new(CANNOT_CREATE, what, error.to_string(), help)
    };
    let server = Server::bind(relay, listen).await.map_err(cannot(listen, "--listen"))?;
    let server = server.with_access(access, tls).with_hosts(listening.hosts.clone());
    let server = server.with_origins(listening.origins.clone());
    match admin {
        Some(at) => server.with_admin(at).await.map_err(cannot(at, "--admin-listen")),
        None => Ok(server),
    }
}

/// Which clients have access, and how connections are encrypted.
fn credentials(listening: &Listening) -> Result<(Access, Option<Tls>), Failure> {
    Ok((listening.access(Access::from_lines, TOKEN_LINES)?, listening.tls()?))
}

/// Reloads the files with tokens and certificates on each SIGHUP. A file that cannot be read changes nothing.
async fn read_again(hangup: Option<Signal>, listening: Listening, credentials: Credentials) {
    let Some(mut hangup) = hangup else { return std::future::pending().await };
    while hangup.recv().await.is_some() {
        match self::credentials(&listening) {
            Ok((access, tls)) => {
                credentials.replace(access, tls);
                tracing::info!(event = "relay.credentials");
            }
            Err(Failure { what, why, .. }) => {
                tracing::error!(event = "relay.credentials", reason = format!("{what}: {why}"));
            }
        }
    }
}

/// The chain that was given, or the node's. A node of another chain is detected here rather than with every
/// transaction; one that does not answer yet may be started later.
async fn chain_id(asked: &args::Relay) -> Result<u64, Failure> {
    let patience = match asked.chain_id {
        Some(_) => asked.answer_within().min(NODE_WITHIN),
        None => asked.answer_within(),
    };
    match (asked.chain_id, tenure_relay::chain_id(&asked.nodes, patience).await) {
        (Some(named), Ok(found)) if named != found => Err(Failure::new(
            CONFIGURATION,
            format!("the node is on chain {found}, not {named}"),
            "every transaction would be refused",
            "correct --chain-id or --upstream",
        )),
        (Some(chain_id), _) | (None, Ok(chain_id)) => Ok(chain_id),
        (None, Err(refusal)) => Err(no_node(&refusal.message())),
    }
}

async fn told_to_stop(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

fn no_node(why: &str) -> Failure {
    Failure::new(
        UNREACHABLE,
        "cannot get the chain id from the node",
        why,
        "start the node first, or set `--chain-id`",
    )
}

fn internal(why: String) -> Failure {
    Failure::new(INTERNAL, "cannot start the relay", why, "please report it")
}
