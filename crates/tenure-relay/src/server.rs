//! The HTTP server: accepting connections, limiting their number, and shutting down. `routes` answers the requests.

mod bodies;
mod credentials;
mod origin;
mod routes;

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::PrometheusHandle;
use ring::digest::{SHA256, digest};
pub use tenure_http::Tls;
use tenure_http::{Accepted, BoundedStream, Hosts, Listener, WriteWait};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::bodies::Bodies;
pub use self::credentials::Credentials;
use self::origin::Origins;
use self::routes::{Endpoints, Routes};
use crate::access::Access;
use crate::relay::Relay;

/// How long a client may take to send the head of a request; also how long a connection may be idle.
const HEAD_WITHIN: Duration = Duration::from_secs(120);
/// The same for reserve connections.
const HEAD_WITHIN_RESERVE: Duration = Duration::from_secs(5);
/// How long the TLS handshake may take.
const TLS_WITHIN: Duration = Duration::from_secs(10);
/// The connection limit of the address for health and metrics.
const ADMIN_CONNECTIONS: usize = 64;
/// The read buffer of a connection, which limits the head of a request.
const MOST_BUFFERED: usize = 64 << 10;
/// How often the metrics are tidied up and the engine is probed.
const UPKEEP: Duration = Duration::from_secs(5);

/// A relay that listens on an address.
pub struct Server {
    relay: Relay,
    listener: TcpListener,
    admin: Option<TcpListener>,
    metrics: Option<PrometheusHandle>,
    credentials: Credentials,
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Server")
    }
}

impl Server {
    /// Listens here.
    ///
    /// # Errors
    /// If the address cannot be bound.
    ///
    /// # Cancel safety
    /// May be dropped at any await point.
    pub async fn bind(relay: Relay, listen: SocketAddr) -> std::io::Result<Server> {
        let listener = TcpListener::bind(listen).await?;
        let (hosts, origins, credentials) = (Vec::new(), Vec::new(), Credentials::default());
        Ok(Server { relay, listener, admin: None, metrics: None, credentials, hosts, origins })
    }

    /// Serves `/healthz`, `/readyz` and `/metrics` at this address, over plain HTTP and without a token. The main
    /// address then serves only JSON-RPC and `/healthz`.
    ///
    /// # Errors
    /// If the address cannot be bound.
    ///
    /// # Cancel safety
    /// May be dropped at any await point.
    pub async fn with_admin(mut self, listen: SocketAddr) -> std::io::Result<Server> {
        self.admin = Some(TcpListener::bind(listen).await?);
        Ok(self)
    }

    /// Serves these metrics at `/metrics`.
    #[must_use]
    pub fn with_metrics(mut self, metrics: PrometheusHandle) -> Server {
        self.metrics = Some(metrics);
        self
    }

    /// Requires one of these tokens, if there are any, and TLS, if it is given.
    #[must_use]
    pub fn with_access(mut self, access: Access, tls: Option<Tls>) -> Server {
        self.credentials = Credentials::new(access, tls);
        self
    }

    /// A handle that changes what [`with_access`](Server::with_access) set, while the server runs.
    #[must_use]
    pub fn credentials(&self) -> Credentials {
        self.credentials.clone()
    }

    /// Host names that requests may use besides IP addresses; `*` allows any. Ignored where tokens or certificates are
    /// required.
    #[must_use]
    pub fn with_hosts(mut self, hosts: Vec<String>) -> Server {
        self.hosts = hosts;
        self
    }

    /// Origins whose pages may use the relay from a browser (CORS), such as `https://app.example`; `*` is
    /// any.
    #[must_use]
    pub fn with_origins(mut self, origins: Vec<String>) -> Server {
        self.origins = origins;
        self
    }

    /// Where it listens.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The address for health and metrics, if it has its own.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn admin_address(&self) -> std::io::Result<Option<SocketAddr>> {
        self.admin.as_ref().map(TcpListener::local_addr).transpose()
    }

    /// Serves until `stop` resolves, then accepts no more connections, finishes the requests it has, and returns.
    ///
    /// # Cancel safety
    /// Dropping it closes all connections. Transactions that have a place in a lane continue.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Server { relay, listener, admin, metrics, credentials, hosts, origins } = self;
        let config = relay.lanes.config.clone();
        let hosts_of = |listener: &TcpListener| match listener.local_addr() {
            Ok(address) => Hosts::new(hosts.clone(), address),
            Err(_) => Hosts::new(Vec::new(), SocketAddr::from(([127, 0, 0, 1], 0))),
        };
        let routes = Arc::new(Routes {
            endpoints: if admin.is_some() { Endpoints::Calls } else { Endpoints::All },
            hosts: if credentials.ask() { Hosts::Any } else { hosts_of(&listener) },
            bodies: Bodies::new(config.max_bodies, config.limits.bytes, config.client_within),
            origins: Origins::new(origins),
            metrics: metrics.clone(),
            relay: relay.clone(),
            credentials: credentials.clone(),
        });
        let main = Listener::new(listener, config.max_connections, move || credentials.tls());
        let admin = admin.map(|listener| {
            let routes = Routes {
                endpoints: Endpoints::Admin,
                hosts: hosts_of(&listener),
                bodies: Bodies::new(0, 0, config.client_within),
                origins: Origins::new(Vec::new()),
                metrics: metrics.clone(),
                relay: relay.clone(),
                credentials: Credentials::default(),
            };
            (Listener::new(listener, ADMIN_CONNECTIONS, || None), Arc::new(routes))
        });
        let (stopping, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut upkeep = tokio::time::interval(UPKEEP);
        tokio::pin!(stop);
        loop {
            let (accepted, routes) = tokio::select! {
                biased;
                () = &mut stop => break,
                _ = connections.join_next(), if !connections.is_empty() => continue,
                _ = upkeep.tick() => {
                    metrics.iter().for_each(PrometheusHandle::run_upkeep);
                    // So that an outage is noticed even while nobody sends anything.
                    relay.lanes.tenure.probe();
                    continue;
                }
                accepted = accept_admin(admin.as_ref()) => accepted,
                accepted = main.accept() => (accepted, routes.clone()),
            };
            let stopped = stopped.clone();
            connections.spawn(serve(routes, accepted, stopped));
        }
        drop((main, admin));
        stopping.send_replace(true);
        // A client that does not read its response is not waited for.
        let ended = async { while connections.join_next().await.is_some() {} };
        let longest = config.max_hold + config.answer_within;
        let _ = tokio::time::timeout(longest, ended).await;
    }
}

async fn accept_admin(admin: Option<&(Listener, Arc<Routes>)>) -> (Accepted, Arc<Routes>) {
    match admin {
        Some((listener, routes)) => (listener.accept().await, routes.clone()),
        None => std::future::pending().await,
    }
}

async fn serve(routes: Arc<Routes>, accepted: Accepted, stopped: watch::Receiver<bool>) {
    let Accepted { stream, from, tls, is_in_reserve, place: _place } = accepted;
    stream.set_nodelay();
    let from: Arc<str> = from.to_string().into();
    let waited = WriteWait::default();
    let stream =
        BoundedStream::new(stream, routes.relay.lanes.config.client_within, waited.clone());
    let session = Session { routes, from, is_in_reserve, waited, stopped };
    let Some(tls) = tls else { return session.run(stream).await };
    match tokio::time::timeout(TLS_WITHIN, tls.acceptor().accept(stream)).await {
        Ok(Ok(stream)) => {
            let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let from = shown.map(|certificate| named(certificate));
            let from = from.unwrap_or_else(|| session.from.clone());
            Session { from, ..session }.run(stream).await;
        }
        Ok(Err(error)) => tracing::debug!(event = "relay.tls", from = %session.from, %error),
        Err(_) => tracing::debug!(event = "relay.tls", from = %session.from, error = "too slow"),
    }
}

/// The name of a client with a certificate: the beginning of its SHA-256 fingerprint.
fn named(certificate: &[u8]) -> Arc<str> {
    let digest = digest(&SHA256, certificate);
    let begins = digest.as_ref().get(..8).unwrap_or_default();
    format!("cert:{}", alloy_primitives::hex::encode(begins)).into()
}

/// One connection.
struct Session {
    routes: Arc<Routes>,
    /// The name of the client.
    from: Arc<str>,
    is_in_reserve: bool,
    waited: WriteWait,
    stopped: watch::Receiver<bool>,
}

impl Session {
    async fn run(self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let Session { routes, from, is_in_reserve, waited, mut stopped } = self;
        let service = service_fn(|request| {
            let (routes, from) = (routes.clone(), from.clone());
            waited.restart();
            async move { Ok::<_, Infallible>(routes.answer(request, &from, is_in_reserve).await) }
        });
        let head_within = if is_in_reserve { HEAD_WITHIN_RESERVE } else { HEAD_WITHIN };
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head_within)
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
            tracing::trace!(event = "relay.hung_up", %error);
        }
    }
}
