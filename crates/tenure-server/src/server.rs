//! Listening, and shutting down: nothing is released, and clients are told to go elsewhere.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::PrometheusHandle;
use tenure::engine::{Engine, Moment, SystemWorld, Turns, World};
use tenure_http::{Accepted, Bound, BoundedStream, HeadWait, Hosts, Listen, Listener, WriteWait};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::app::{App, Clients, Peer};
use crate::config::Config;
use crate::credentials::Credentials;
use crate::events::Events;
use crate::failures::Failures;
use crate::fitness::Fitness;
use crate::routes::Routes;
use crate::sessions::Sessions;
use crate::signing::Key;
use crate::waiting::Waiting;

/// How long the TLS handshake and the head of its request may take on a reserve connection.
const HEAD_WITHIN_RESERVE: Duration = Duration::from_secs(5);
/// The read buffer of a connection, which limits the head of a request.
const MOST_BUFFERED: usize = 16 << 10;
/// How long requests may still take when the server shuts down.
const DRAIN: Duration = Duration::from_secs(5);
/// How often metrics and sessions are tidied up.
const UPKEEP: Duration = Duration::from_secs(5);

/// A server that listens.
pub struct Server {
    engine: Arc<dyn Engine>,
    listener: Bound,
    config: Config,
    key: Key,
    credentials: Credentials,
    hosts: Vec<String>,
    metrics: Option<PrometheusHandle>,
    name: Option<String>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl Server {
    /// Serves the locks of this engine here. Servers of the same locks must have the same key.
    ///
    /// # Errors
    /// If it cannot listen there.
    ///
    /// # Cancel safety
    /// May be dropped at any await point.
    pub async fn bind(
        engine: Arc<dyn Engine>,
        listen: SocketAddr,
        key: Key,
    ) -> std::io::Result<Server> {
        Server::listen(engine, &listen.into(), key).await
    }

    /// The same at an address or a unix socket.
    ///
    /// # Errors
    /// If it cannot listen there.
    ///
    /// # Cancel safety
    /// May be dropped at any await point.
    pub async fn listen(
        engine: Arc<dyn Engine>,
        listen: &Listen,
        key: Key,
    ) -> std::io::Result<Server> {
        let listener = Bound::new(listen).await?;
        let (config, credentials) = (Config::default(), Credentials::default());
        let (hosts, metrics, name) = (Vec::new(), None, None);
        Ok(Server { engine, listener, config, key, credentials, hosts, metrics, name })
    }

    /// Sets the limits.
    #[must_use]
    pub fn with_config(mut self, config: Config) -> Server {
        self.config = config;
        self
    }

    /// Requires tokens and TLS.
    #[must_use]
    pub fn with_credentials(mut self, credentials: Credentials) -> Server {
        self.credentials = credentials;
        self
    }

    /// Host names that requests may use besides IP addresses; `*` allows any. Ignored where tokens are required.
    #[must_use]
    pub fn with_hosts(mut self, hosts: Vec<String>) -> Server {
        self.hosts = hosts;
        self
    }

    /// Serves these metrics at `/metrics`.
    #[must_use]
    pub fn with_metrics(mut self, metrics: PrometheusHandle) -> Server {
        self.metrics = Some(metrics);
        self
    }

    /// Calls the engine by this name, in place of its address. Clients give up what they hold when another engine
    /// than before answers, so servers that reach the same engine by different addresses must use the same name.
    #[must_use]
    pub fn with_engine_name(mut self, name: impl Into<String>) -> Server {
        self.name = Some(name.into());
        self
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// If it listens on a unix socket, or the system does not say.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.address()
    }

    /// Serves until `stop` resolves. Then it accepts no more connections, tells waiting clients and streams to go to
    /// another server, finishes the requests it has, and returns. Nothing is released.
    ///
    /// # Cancel safety
    /// Dropping it closes all connections.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Server { engine, listener, config, key, credentials, hosts, metrics, name } = self;
        let (stopping, stopped) = watch::channel(false);
        // A unix socket has no address: only this machine can reach it.
        let address = listener.address().unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
        let hosts = if credentials.ask() { Hosts::Any } else { Hosts::new(hosts, address) };
        let waiting = Waiting::new(engine.clone(), stopped.clone());
        let turns: Arc<dyn Turns> = waiting.clone();
        engine.attach(Arc::downgrade(&turns));
        let lifeline = engine.lifeline().unwrap_or_else(|| engine.clone());
        let mut profile = engine.profile().clone();
        profile.longest_ttl = profile.longest_ttl.min(config.longest_ttl);
        let engine_id = engine_id(name.as_deref(), &profile.label, &key);
        let tls = credentials.clone();
        let main = Listener::new(listener, config.max_connections, move || tls.tls())
            .with_most_of_one(config.max_connections_of_one);
        let limits = Limits::new(&config);
        let events = Arc::new(Events::default());
        let app = Arc::new(App {
            lifeline: lifeline.clone(),
            profile,
            engine,
            waiting,
            sessions: Sessions::new(events.clone()),
            events,
            key,
            grants_from: grants_from(config.quiet_start),
            fitness: Fitness::new(config.unready_after),
            config,
            credentials,
            engine_id,
            stopping: stopped.clone(),
            clients: Clients::default(),
            failures: Failures::default(),
            metrics,
        });
        let routes = Routes::new(app.clone(), hosts);
        let mut connections = JoinSet::new();
        let mut upkeep = tokio::time::interval(UPKEEP);
        tokio::pin!(stop);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                _ = connections.join_next(), if !connections.is_empty() => {}
                _ = upkeep.tick() => app.tidy_up(),
                accepted = main.accept() => {
                    connections.spawn(serve(routes.clone(), accepted, limits, stopped.clone()));
                }
            }
        }
        drop(main);
        stopping.send_replace(true);
        // Do not wait for a client that does not read its response.
        let ended = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(DRAIN, ended).await;
        let _ = tokio::time::timeout(DRAIN, lifeline.health()).await;
    }
}

fn grants_from(quiet: Duration) -> Moment {
    if quiet.is_zero() { Moment::ORIGIN } else { SystemWorld.now() + quiet }
}

/// Identifies the engine, so that clients know whether two answers come from the same one. Lines in memory end with
/// this process, so their id is new each time.
fn engine_id(name: Option<&str>, label: &str, key: &Key) -> String {
    let run = match label == "memory" {
        true => SystemWorld.mint().map(|id| id.to_bytes()).unwrap_or_default(),
        false => [0; 16],
    };
    key.fingerprint(&[b"engine", name.unwrap_or(label).as_bytes(), &run])
}

/// How long each part of a connection may take.
#[derive(Clone, Copy)]
struct Limits {
    head_within: Duration,
    idle_within: Duration,
    client_within: Duration,
}

impl Limits {
    fn new(config: &Config) -> Limits {
        let Config { head_within, idle_within, client_within, .. } = *config;
        Limits { head_within, idle_within, client_within }
    }
}

async fn serve(
    routes: Routes,
    accepted: Accepted,
    mut limits: Limits,
    stopped: watch::Receiver<bool>,
) {
    let Accepted { stream, from, tls, is_in_reserve, place: _place } = accepted;
    if is_in_reserve {
        limits.head_within = limits.head_within.min(HEAD_WITHIN_RESERVE);
    }
    stream.set_nodelay();
    let peer = Peer { from: from.to_string().into(), network: from.network(), is_in_reserve };
    let waits = (WriteWait::default(), HeadWait::default());
    let stream = BoundedStream::new(stream, limits.client_within, waits.0.clone())
        .with_head_within(limits.head_within, waits.1.clone());
    let Some(tls) = tls else {
        return connection(routes, peer, stream, waits, limits, stopped).await;
    };
    match tokio::time::timeout(limits.head_within, tls.acceptor().accept(stream)).await {
        Ok(Ok(stream)) => connection(routes, peer, stream, waits, limits, stopped).await,
        Ok(Err(error)) => tracing::debug!(event = "server.tls", from = %peer.from, %error),
        Err(_) => tracing::debug!(event = "server.tls", from = %peer.from, error = "too slow"),
    }
}

async fn connection(
    routes: Routes,
    peer: Peer,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    (waited, head): (WriteWait, HeadWait),
    limits: Limits,
    mut stopped: watch::Receiver<bool>,
) {
    let is_in_reserve = peer.is_in_reserve;
    let service = service_fn(|request| {
        let (routes, peer, head) = (routes.clone(), peer.clone(), head.clone());
        waited.restart();
        head.arrived();
        async move {
            let answer = routes.answer(request, peer).await;
            head.answered();
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        // Counted from the last answer, so this limits idle connections. Heads have a limit of their own.
        .header_read_timeout(limits.idle_within.max(limits.head_within))
        .keep_alive(!is_in_reserve)
        .max_buf_size(MOST_BUFFERED)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let told = async { stopped.wait_for(|stopped| *stopped).await.is_ok() };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = told => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::trace!(event = "server.hung_up", %error);
    }
}
