//! `tenure relay`: stands in front of a node until it is told to stop.

use std::io::Write;

use tenure_relay::{Relay, Server};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::args;
use crate::engine;
use crate::failure::{CANNOT_CREATE, Exit, Failure, INTERNAL, OK, Stop, UNREACHABLE};
use crate::output::json::Object;
use crate::settings::Settings;

/// Serves, and says where as soon as it does.
pub(crate) async fn run(
    asked: args::Relay,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    let metrics = tenure_relay::meters::install().map_err(internal)?;
    let tenure = engine::connect(settings).await?;
    let chain_id = match asked.chain_id {
        Some(chain_id) => chain_id,
        None => tenure_relay::chain_id(&asked.nodes, asked.answer_within())
            .await
            .map_err(|refusal| no_node(&refusal.message()))?,
    };
    let listen = asked.listen;
    let ns = settings.ns.as_ref().map(|ns| ns.value.clone());
    let config = asked.config(chain_id, ns);
    let longest = config.max_hold;
    let relay = Relay::new(config, &tenure).map_err(internal)?;
    let server = Server::bind(relay.clone(), listen).await.map_err(|error| {
        let help = "choose another with `--listen`";
        Failure::new(CANNOT_CREATE, format!("cannot listen on {listen}"), error.to_string(), help)
    })?;
    let address = server.address()?;
    match settings.json.value {
        true => {
            let object = Object::versioned().text("listening", &address.to_string());
            writeln!(out, "{}", object.text("chain_id", &chain_id.to_string()).end())?;
        }
        false => writeln!(out, "listening on http://{address}, chain {chain_id}")?,
    }
    out.flush()?;
    let (told, stop) = oneshot::channel();
    let serves = async {
        // It ends when the sender is gone, too.
        server.with_metrics(metrics).run(async { drop(stop.await) }).await;
        // What has a place in a lane is finished: whoever sent it may have had its answer.
        let _ = tokio::time::timeout(longest, relay.finished()).await;
        tenure.close().await;
    };
    let told_twice = async {
        let (interrupt, terminate) =
            (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
        let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else {
            return std::future::pending().await;
        };
        told_to_stop(&mut interrupt, &mut terminate).await;
        let _ = told.send(());
        told_to_stop(&mut interrupt, &mut terminate).await;
    };
    tokio::select! {
        () = serves => {}
        () = told_twice => settings.notes().say("stopped before everything was finished"),
    }
    Ok(OK)
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
        "the node does not say which chain it is of",
        why,
        "start it first, or say `--chain-id`",
    )
}

fn internal(why: String) -> Failure {
    Failure::new(INTERNAL, "the relay cannot be started", why, "please report it")
}
