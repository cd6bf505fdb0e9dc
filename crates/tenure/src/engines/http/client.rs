//! One HTTP/1.1 connection, which is made again when it is needed.

use std::pin::Pin;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::shared::Shared;
use crate::model::error::{Error, ErrorKind, Result};

/// The largest number of bytes in an answer.
const MOST_BYTES: usize = 64 << 20;

trait Io: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Io for T {}

#[derive(Default)]
pub(super) struct Client {
    sender: Option<SendRequest<Full<Bytes>>>,
}

/// A request that is not sent yet.
pub(super) struct Outgoing<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) body: Bytes,
    /// Secrets are here or in the body: proxies log paths.
    pub(super) header: Option<(&'static str, String)>,
}

impl Client {
    /// Sends a request and reads the head of its answer. If an error is in doubt, the request had been sent.
    pub(super) async fn send(
        &mut self,
        shared: &Shared,
        outgoing: Outgoing<'_>,
    ) -> Result<Response<Incoming>> {
        let kept = match self.sender.take().filter(|sender| !sender.is_closed()) {
            Some(mut sender) => sender.ready().await.is_ok().then_some(sender),
            None => None,
        };
        let mut sender = match kept {
            Some(sender) => sender,
            None => connect(shared).await?,
        };
        let request = request(shared, outgoing)?;
        let sent = timeout(shared.config.answer_within, sender.send_request(request)).await;
        match sent {
            Ok(Ok(response)) => {
                if let Some(engine) =
                    response.headers().get("tenure-engine").and_then(|id| id.to_str().ok())
                {
                    shared.heard_from(engine);
                }
                self.sender = Some(sender);
                Ok(response)
            }
            Ok(Err(error)) if error.is_canceled() => {
                Err(unreachable_server(shared, "it closed the connection"))
            }
            Ok(Err(error)) => Err(unreachable_server(shared, &error.to_string()).in_doubt()),
            Err(_) => {
                let after = shared.config.answer_within;
                Err(unreachable_server(shared, &format!("no answer within {after:?}")).in_doubt())
            }
        }
    }

    /// Sends a request and reads its whole answer.
    pub(super) async fn ask(&mut self, shared: &Shared, outgoing: Outgoing<'_>) -> Result<Bytes> {
        let response = self.send(shared, outgoing).await?;
        let status = response.status();
        let body = http_body_util::Limited::new(response.into_body(), MOST_BYTES);
        let body = timeout(shared.config.answer_within, body.collect()).await;
        let Ok(Ok(body)) = body else {
            self.sender = None;
            return Err(unreachable_server(shared, "the answer broke off").in_doubt());
        };
        let bytes = body.to_bytes();
        match status {
            StatusCode::OK => Ok(bytes),
            status => Err(refused(shared, status, &bytes)),
        }
    }

    pub(super) fn drop_connection(&mut self) {
        self.sender = None;
    }
}

async fn connect(shared: &Shared) -> Result<SendRequest<Full<Bytes>>> {
    let config = &shared.config;
    let connecting = async {
        let io = open(shared).await?;
        let made = handshake(TokioIo::new(io)).await;
        made.map_err(|error| unreachable_server(shared, &error.to_string()))
    };
    let made = timeout(config.connect_within, connecting).await;
    let (sender, connection) = made.unwrap_or_else(|_| {
        let within = config.connect_within;
        Err(unreachable_server(shared, &format!("no connection within {within:?}")))
    })?;
    tokio::spawn(async move {
        // Whoever uses the connection gets the error.
        let _ = connection.await;
    });
    Ok(sender)
}

async fn open(shared: &Shared) -> Result<Pin<Box<dyn Io>>> {
    let config = &shared.config;
    if config.tls {
        return open_tls(shared).await;
    }
    if let Some(socket) = &config.socket {
        let stream = UnixStream::connect(socket).await;
        let stream = stream.map_err(|error| unreachable_server(shared, &error.to_string()))?;
        return Ok(Box::pin(stream));
    }
    let stream = TcpStream::connect((config.host.as_str(), config.port)).await;
    let stream = stream.map_err(|error| unreachable_server(shared, &error.to_string()))?;
    let _ = stream.set_nodelay(true);
    Ok(Box::pin(stream))
}

#[cfg(feature = "tls")]
async fn open_tls(shared: &Shared) -> Result<Pin<Box<dyn Io>>> {
    use crate::engines::redis::{Address, Stream, Tls, TlsSetup};

    let config = &shared.config;
    let tls = Tls { ca: config.ca.clone(), ..Tls::default() };
    let address = Address::Tcp { host: config.host.clone(), port: config.port };
    let setup = TlsSetup::new(&tls)?;
    Ok(Box::pin(Stream::connect(&address, Some(&setup)).await?))
}

#[cfg(not(feature = "tls"))]
async fn open_tls(_: &Shared) -> Result<Pin<Box<dyn Io>>> {
    let reason = "this program was built without the feature \"tls\" of the crate tenure";
    Err(Error::new(ErrorKind::Unsupported, reason).next("add the feature in Cargo.toml"))
}

fn request(shared: &Shared, outgoing: Outgoing<'_>) -> Result<Request<Full<Bytes>>> {
    let mut request = Request::builder()
        .method(outgoing.method)
        .uri(outgoing.path)
        .header(header::HOST, shared.config.authority())
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(authorization) = &shared.authorization {
        request = request.header(header::AUTHORIZATION, authorization.clone());
    }
    if let Some((name, value)) = outgoing.header {
        request = request.header(name, value);
    }
    let request = request.body(Full::new(outgoing.body));
    request.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))
}

pub(super) fn unreachable_server(shared: &Shared, why: &str) -> Error {
    let reason = format!("the server {} cannot be reached: {why}", shared.label);
    Error::new(ErrorKind::Unavailable, reason)
        .next("is `tenure serve` up, and reachable from here?")
}

/// What a status other than 200 means.
fn refused(shared: &Shared, status: StatusCode, body: &[u8]) -> Error {
    #[derive(serde::Deserialize)]
    struct Problem {
        detail: String,
    }
    let detail = serde_json::from_slice::<Problem>(body).map(|problem| problem.detail);
    let is_server = detail.is_ok();
    let reason = match detail {
        Ok(detail) => format!("{} answers {}: {detail}", shared.label, status.as_u16()),
        Err(_) if status.is_server_error() => format!(
            "{} answers {}, as a proxy does that does not reach its server",
            shared.label,
            status.as_u16()
        ),
        Err(_) => {
            format!("{} answers {}, and is not a tenure server", shared.label, status.as_u16())
        }
    };
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Error::new(ErrorKind::Denied, reason)
            .next("a token with the role engine is needed: see docs/http.md"),
        // A 503 from a proxy says nothing about what the server did.
        StatusCode::SERVICE_UNAVAILABLE if is_server => Error::new(ErrorKind::Unavailable, reason),
        StatusCode::TOO_MANY_REQUESTS => Error::new(ErrorKind::Unavailable, reason).not_now(),
        status if status.is_server_error() => Error::new(ErrorKind::Unavailable, reason).in_doubt(),
        _ => Error::new(ErrorKind::Unsupported, reason),
    }
}
