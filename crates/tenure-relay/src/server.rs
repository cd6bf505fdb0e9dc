//! HTTP server: who may connect, how many at a time, and how it ends. What is answered is in `desk`.

mod bodies;
mod credentials;
mod desk;
mod origin;
mod stream;
mod tls;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::PrometheusHandle;
use ring::digest::{SHA256, digest};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use self::bodies::Bodies;
pub use self::credentials::Credentials;
use self::desk::{Desk, Door};
use self::origin::{Hosts, Origins};
use self::stream::{Impatient, Waited};
pub use self::tls::Tls;
use crate::access::Access;
use crate::relay::Relay;

/// How long a client may take for the head of a request, and so how long it may be idle.
const HEAD_WITHIN: Duration = Duration::from_secs(120);
/// The same for those who come when all connections are taken.
const HEAD_WITHIN_RESERVE: Duration = Duration::from_secs(5);
/// How long a client may take to agree on TLS.
const TLS_WITHIN: Duration = Duration::from_secs(10);
/// So many more are let in when all connections are taken: they may ask how the relay is.
const RESERVE: usize = 16;
/// The most connections to the address for health and metrics.
const ADMIN_CONNECTIONS: usize = 64;
/// The most that is kept of a request while it is read, beside its body; so the longest head.
const MOST_BUFFERED: usize = 64 << 10;
/// How often old numbers are tidied up, and the engine is looked at.
const UPKEEP: Duration = Duration::from_secs(5);

/// A relay that listens.
pub struct Server {
    relay: Relay,
    listener: TcpListener,
    admin: Option<TcpListener>,
    metrics: Option<PrometheusHandle>,
    credentials: Credentials,
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Server {
    /// Listens here.
    ///
    /// # Errors
    /// If the address cannot be had.
    ///
    /// # Cancel safety
    /// May be dropped at any await point.
    pub async fn bind(relay: Relay, listen: SocketAddr) -> std::io::Result<Server> {
        let listener = TcpListener::bind(listen).await?;
        let (hosts, origins, credentials) = (Vec::new(), Vec::new(), Credentials::default());
        Ok(Server { relay, listener, admin: None, metrics: None, credentials, hosts, origins })
    }

    /// Answers `/healthz`, `/readyz` and `/metrics` here, over plain HTTP and without asking for a token.
    /// The other address has JSON-RPC and `/healthz` then.
    ///
    /// # Errors
    /// If the address cannot be had.
    ///
    /// # Cancel safety
    /// May be dropped at any await point.
    pub async fn with_admin(mut self, listen: SocketAddr) -> std::io::Result<Server> {
        self.admin = Some(TcpListener::bind(listen).await?);
        Ok(self)
    }

    /// Shows these numbers at `/metrics`.
    #[must_use]
    pub fn with_metrics(mut self, metrics: PrometheusHandle) -> Server {
        self.metrics = Some(metrics);
        self
    }

    /// Only these may ask, and, if it is given, over TLS.
    #[must_use]
    pub fn with_access(mut self, access: Access, tls: Option<Tls>) -> Server {
        self.credentials = Credentials::new(access, tls);
        self
    }

    /// What was said by [`with_access`](Server::with_access), to be changed while it runs.
    #[must_use]
    pub fn credentials(&self) -> Credentials {
        self.credentials.clone()
    }

    /// Names by which clients call the relay, beside addresses; `*` is any. It does not matter where tokens
    /// or certificates are asked for.
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

    /// Where it answers for health and metrics, if that is an address of its own.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn admin_address(&self) -> std::io::Result<Option<SocketAddr>> {
        self.admin.as_ref().map(TcpListener::local_addr).transpose()
    }

    /// Serves until `stop` ends; then accepts nobody, finishes what was begun, and returns.
    ///
    /// # Cancel safety
    /// Dropping it hangs up on everyone. Transactions that have a place in a lane go on.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Server { relay, listener, admin, metrics, credentials, hosts, origins } = self;
        let config = relay.lanes.config.clone();
        let hosts_of = |listener: &TcpListener| match listener.local_addr() {
            Ok(address) => Hosts::new(hosts.clone(), address),
            Err(_) => Hosts::new(Vec::new(), SocketAddr::from(([127, 0, 0, 1], 0))),
        };
        let desk = Arc::new(Desk {
            door: if admin.is_some() { Door::Calls } else { Door::All },
            hosts: if credentials.ask() { Hosts::Any } else { hosts_of(&listener) },
            bodies: Bodies::new(config.max_bodies, config.limits.bytes, config.client_within),
            origins: Origins::new(origins),
            metrics: metrics.clone(),
            relay: relay.clone(),
            credentials: credentials.clone(),
        });
        let main = Entrance::new(listener, config.max_connections, credentials);
        let admin = admin.map(|listener| {
            let desk = Desk {
                door: Door::Admin,
                hosts: hosts_of(&listener),
                bodies: Bodies::new(0, 0, config.client_within),
                origins: Origins::new(Vec::new()),
                metrics: metrics.clone(),
                relay: relay.clone(),
                credentials: Credentials::default(),
            };
            let open = Credentials::default();
            (Entrance::new(listener, ADMIN_CONNECTIONS, open), Arc::new(desk))
        });
        let (stopping, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut upkeep = tokio::time::interval(UPKEEP);
        tokio::pin!(stop);
        loop {
            let (guest, desk) = tokio::select! {
                biased;
                () = &mut stop => break,
                _ = connections.join_next(), if !connections.is_empty() => continue,
                _ = upkeep.tick() => {
                    metrics.iter().for_each(PrometheusHandle::run_upkeep);
                    // So that an outage shows also while nobody sends anything.
                    relay.lanes.tenure.probe();
                    continue;
                }
                accepted = accept_admin(admin.as_ref()) => accepted,
                guest = main.accept() => (guest, desk.clone()),
            };
            let stopped = stopped.clone();
            connections.spawn(serve(desk, guest, stopped));
        }
        drop((main, admin));
        stopping.send_replace(true);
        // Whoever does not read its answer is not waited for.
        let ended = async { while connections.join_next().await.is_some() {} };
        let longest = config.max_hold + config.answer_within;
        let _ = tokio::time::timeout(longest, ended).await;
    }
}

/// A listening socket, and how many may come in.
struct Entrance {
    listener: TcpListener,
    room: Arc<Semaphore>,
    /// For those who find no room.
    reserve: Arc<Semaphore>,
    credentials: Credentials,
}

/// A connection that was accepted, and its place.
struct Guest {
    stream: TcpStream,
    from: SocketAddr,
    tls: Option<Tls>,
    is_in_reserve: bool,
    _place: Option<OwnedSemaphorePermit>,
}

impl Entrance {
    fn new(listener: TcpListener, room: usize, credentials: Credentials) -> Entrance {
        let [room, reserve] = [room, RESERVE].map(|places| Arc::new(Semaphore::new(places)));
        Entrance { listener, room, reserve, credentials }
    }

    /// The next connection, with a place or with one of the reserve.
    async fn accept(&self) -> Guest {
        // It is never closed.
        let spare = self.reserve.clone().acquire_owned().await.ok();
        let (stream, from) = loop {
            match self.listener.accept().await {
                Ok(accepted) => break accepted,
                // Out of descriptors, most likely: there will be some again.
                Err(error) => {
                    tracing::warn!(event = "relay.accept", %error);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        };
        let place = self.room.clone().try_acquire_owned().ok();
        let (is_in_reserve, tls) = (place.is_none(), self.credentials.tls());
        Guest { stream, from, tls, is_in_reserve, _place: place.or(spare) }
    }
}

async fn accept_admin(admin: Option<&(Entrance, Arc<Desk>)>) -> (Guest, Arc<Desk>) {
    match admin {
        Some((entrance, desk)) => (entrance.accept().await, desk.clone()),
        None => std::future::pending().await,
    }
}

async fn serve(desk: Arc<Desk>, guest: Guest, stopped: watch::Receiver<bool>) {
    let Guest { stream, from, tls, is_in_reserve, _place } = guest;
    // It only costs time if it does not work.
    let _ = stream.set_nodelay(true);
    let from: Arc<str> = from.ip().to_canonical().to_string().into();
    let waited = Waited::default();
    let stream = Impatient::new(stream, desk.relay.lanes.config.client_within, waited.clone());
    let session = Session { desk, from, is_in_reserve, waited, stopped };
    let Some(tls) = tls else { return session.run(stream).await };
    match tokio::time::timeout(TLS_WITHIN, tls.acceptor.accept(stream)).await {
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

/// What a client is called that shows a certificate: the beginning of its SHA-256 fingerprint.
fn named(certificate: &[u8]) -> Arc<str> {
    let digest = digest(&SHA256, certificate);
    let begins = digest.as_ref().get(..8).unwrap_or_default();
    format!("cert:{}", alloy_primitives::hex::encode(begins)).into()
}

/// One connection.
struct Session {
    desk: Arc<Desk>,
    /// Who is at the other end.
    from: Arc<str>,
    is_in_reserve: bool,
    waited: Waited,
    stopped: watch::Receiver<bool>,
}

impl Session {
    async fn run(self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let Session { desk, from, is_in_reserve, waited, mut stopped } = self;
        let service = service_fn(|request| {
            let (desk, from) = (desk.clone(), from.clone());
            waited.restart();
            async move { Ok::<_, Infallible>(desk.answer(request, &from, is_in_reserve).await) }
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
