//! HTTP requests to the nodes: which node is asked, what is sent, and which answers are accepted.
//!
//! Only the operator names nodes: nothing in a request can add one, and redirects are not followed. The URL of a node
//! may contain a password or a key, so only its host and port are ever shown.

mod address;
mod body;
mod node;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};

pub use self::address::Address;
pub(crate) use self::body::Bounded;
pub(crate) use self::node::Node;
use crate::config::Config;
use crate::envelope::{Json, Reply, read_reply};
use crate::meters;
use crate::node::{BaseFee, quantity};
use crate::refusal::Refusal;

/// The size limit for answers to the relay's own questions.
const MOST_OF_AN_ANSWER: usize = 1 << 20;

/// The longest time to connect.
const LONGEST_CONNECT: Duration = Duration::from_secs(3);

type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// All nodes of a relay.
pub(crate) struct Nodes {
    http: Http,
    nodes: Vec<Arc<Node>>,
    chain_id: u64,
    answer_within: Duration,
    max_answer: usize,
    pub(crate) base_fee: BaseFee,
}

/// A node's answer to a submission.
pub(crate) struct NodeResponse {
    pub(crate) body: Bytes,
    /// The status is 5xx or 429: the answer may come from a proxy instead of the node.
    pub(crate) is_unavailable: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The request did not reach a node.
    NotSent(Refusal),
    /// The request may have reached a node.
    Unknown(Refusal),
}

impl NoAnswer {
    pub(crate) fn into_refusal(self) -> Refusal {
        match self {
            NoAnswer::NotSent(refusal) | NoAnswer::Unknown(refusal) => refusal,
        }
    }
}

impl Nodes {
    pub(crate) fn new(config: &Config) -> Result<Nodes, String> {
        let nodes = config.nodes.iter().cloned().map(|to| Arc::new(Node::new(to))).collect();
        Ok(Nodes {
            http: http(config.answer_within)?,
            nodes,
            chain_id: config.rules.chain_id,
            answer_within: config.answer_within,
            max_answer: config.max_answer,
            base_fee: BaseFee::default(),
        })
    }

    /// The host and port of each node, and whether it answered its last request.
    pub(crate) fn seen(&self) -> impl Iterator<Item = (&str, bool)> {
        self.nodes.iter().map(|node| (node.address.host(), node.answers()))
    }

    /// Whether any node answers now and is of this chain.
    pub(crate) async fn answer(&self) -> bool {
        for node in &self.nodes {
            if self.ask_chain_id(node).await == Ok(self.chain_id) {
                node.answered();
                return true;
            }
        }
        false
    }

    /// Forwards a request unchanged, and streams the answer back.
    pub(crate) async fn pass(
        &self,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Bounded>, Refusal> {
        let (node, response) = self.send(headers, body).await.map_err(NoAnswer::into_refusal)?;
        let status = response.status();
        if status.is_redirection() {
            let why = "it answers with a redirect";
            node.failed(why);
            return Err(unusable(&node, why));
        }
        match is_unavailable(status) {
            true => node.failed(&format!("HTTP {}", status.as_u16())),
            false => node.answered(),
        }
        Ok(response.map(|body| Bounded::new(body, self.max_answer, self.answer_within)))
    }

    /// Posts to this node and no other.
    pub(crate) async fn post_to(
        &self,
        node: &Arc<Node>,
        body: Bytes,
    ) -> Result<NodeResponse, NoAnswer> {
        self.is_of_this_chain(node).await.map_err(NoAnswer::NotSent)?;
        let response = self.post(node, &HeaderMap::new(), body).await?;
        let heard = self.read_response(node, response, MOST_OF_AN_ANSWER).await?;
        match heard.is_unavailable {
            true => node.failed("HTTP 5xx or 429"),
            false => node.answered(),
        }
        Ok(heard)
    }

    /// Asks one of the relay's own questions. Repeating it does no harm, so the nodes are asked in turn until one gives an
    /// answer that can be read. Returns the answer and that node.
    pub(crate) async fn ask<T>(
        &self,
        body: Bytes,
        read: impl Fn(&Bytes) -> Result<T, Refusal>,
    ) -> Result<(T, Arc<Node>), Refusal> {
        let mut last = nobody();
        for node in self.in_order() {
            match self.ask_one(&node, body.clone(), &read).await {
                Ok(read) => {
                    self.count_failover(&node);
                    return Ok((read, node));
                }
                Err(refusal) => last = refusal,
            }
        }
        Err(last)
    }

    /// Asks this node and no other.
    pub(crate) async fn ask_one<T>(
        &self,
        node: &Arc<Node>,
        body: Bytes,
        read: impl Fn(&Bytes) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let asked = async {
            self.is_of_this_chain(node).await.map_err(NoAnswer::NotSent)?;
            let response = self.post(node, &HeaderMap::new(), body).await?;
            self.read(node, response, MOST_OF_AN_ANSWER).await
        };
        let answer = asked.await.map_err(NoAnswer::into_refusal)?;
        let answer = read(&answer).inspect_err(|refusal| node.failed(&refusal.message()))?;
        node.answered();
        Ok(answer)
    }

    /// The node that is asked after this one.
    pub(crate) fn after(&self, node: &Arc<Node>) -> Arc<Node> {
        let mut others = self.nodes.iter().skip_while(|other| !Arc::ptr_eq(other, node)).skip(1);
        others.next().or(self.nodes.first()).unwrap_or(node).clone()
    }

    /// Forwards the rest of a client's batch, whose answer may be as long as any.
    pub(crate) async fn ask_for(&self, body: Bytes) -> Result<Bytes, Refusal> {
        let asked = async {
            let (node, response) = self.send(&HeaderMap::new(), body).await?;
            let answer = self.read(&node, response, self.max_answer).await?;
            node.answered();
            Ok(answer)
        };
        asked.await.map_err(NoAnswer::into_refusal)
    }

    /// Sends to the first node that can be reached. If that connection breaks, no other node is tried, because the request
    /// may have been processed.
    async fn send(
        &self,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<(Arc<Node>, Response<hyper::body::Incoming>), NoAnswer> {
        let mut last = nobody();
        for node in self.in_order() {
            if let Err(refusal) = self.is_of_this_chain(&node).await {
                last = refusal;
                continue;
            }
            match self.post(&node, headers, body.clone()).await {
                Ok(response) => {
                    self.count_failover(&node);
                    return Ok((node, response));
                }
                Err(NoAnswer::NotSent(refusal)) => last = refusal,
                Err(unknown) => return Err(unknown),
            }
        }
        Err(NoAnswer::NotSent(last))
    }

    /// Counts a request that did not go to the first node.
    fn count_failover(&self, node: &Node) {
        let host = node.address.host();
        if self.nodes.first().is_some_and(|first| first.address.host() != host) {
            meters::failover(host);
        }
    }

    /// The nodes in the order to ask them: those that rest after failures come last.
    fn in_order(&self) -> Vec<Arc<Node>> {
        let mut nodes = self.nodes.clone();
        nodes.sort_by_key(|node| !node.may_be_asked());
        nodes
    }

    async fn post(
        &self,
        node: &Arc<Node>,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<hyper::body::Incoming>, NoAnswer> {
        let request = request(node, headers, body);
        let began = Instant::now();
        match tokio::time::timeout(self.answer_within, self.http.request(request)).await {
            Ok(Ok(response)) => {
                meters::node_answered(node.address.host(), began.elapsed());
                Ok(response)
            }
            Ok(Err(error)) => {
                let refusal = unreachable(node, &error);
                node.failed(&refusal.message());
                // Nothing was sent if the connection was never established.
                if error.is_connect() {
                    return Err(NoAnswer::NotSent(refusal));
                }
                Err(NoAnswer::Unknown(refusal))
            }
            Err(_) => {
                let refusal = self.too_slow(node);
                node.failed(&refusal.message());
                Err(NoAnswer::Unknown(refusal))
            }
        }
    }

    async fn read(
        &self,
        node: &Node,
        response: Response<hyper::body::Incoming>,
        most: usize,
    ) -> Result<Bytes, NoAnswer> {
        let status = response.status();
        let heard = self.read_response(node, response, most).await?;
        if heard.is_unavailable {
            let refusal = says_http(node, status);
            node.failed(&refusal.message());
            return Err(NoAnswer::Unknown(refusal));
        }
        Ok(heard.body)
    }

    async fn read_response(
        &self,
        node: &Node,
        response: Response<hyper::body::Incoming>,
        most: usize,
    ) -> Result<NodeResponse, NoAnswer> {
        let status = response.status();
        let is_packed = response.headers().contains_key(hyper::header::CONTENT_ENCODING);
        let body = Limited::new(response.into_body(), most).collect();
        let body = match tokio::time::timeout(self.answer_within, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) => {
                let why = "the answer was cut off or is too long";
                node.failed(why);
                return Err(NoAnswer::Unknown(unusable(node, why)));
            }
            Err(_) => {
                let refusal = self.too_slow(node);
                node.failed(&refusal.message());
                return Err(NoAnswer::Unknown(refusal));
            }
        };
        // Nobody asked for compression, so it is not decoded. Some nodes answer errors with 4xx, which is fine if the body
        // is JSON.
        let is_json = body.first().is_some_and(|first| matches!(first, b'{' | b'['));
        if is_packed || !is_json || status.is_redirection() {
            let refusal = says_http(node, status);
            node.failed(&refusal.message());
            return Err(NoAnswer::Unknown(refusal));
        }
        Ok(NodeResponse { body, is_unavailable: is_unavailable(status) })
    }

    fn too_slow(&self, node: &Node) -> Refusal {
        unusable(node, &format!("no answer within {:?}", self.answer_within))
    }

    /// Asks a node for its chain once, before anything else: transactions of one chain must not reach another.
    async fn is_of_this_chain(&self, node: &Arc<Node>) -> Result<(), Refusal> {
        if node.is_of_chain(self.chain_id) {
            return Ok(());
        }
        let chain_id = self.ask_chain_id(node).await?;
        if chain_id == self.chain_id {
            node.has_shown_its_chain(chain_id);
            return Ok(());
        }
        // It is asked again later, in case someone corrects it.
        let reason = format!("it serves chain {chain_id}, not chain {}", self.chain_id);
        node.failed(&reason);
        Err(unusable(node, &reason))
    }

    async fn ask_chain_id(&self, node: &Arc<Node>) -> Result<u64, Refusal> {
        let body = Bytes::from_static(CHAIN_ID);
        let response = self.post(node, &HeaderMap::new(), body).await;
        let response = response.map_err(NoAnswer::into_refusal)?;
        let answer =
            self.read(node, response, MOST_OF_AN_ANSWER).await.map_err(NoAnswer::into_refusal)?;
        let chain_id = match read_reply(&answer, &Json::of(&1)) {
            Ok(Reply::Result(chain_id)) => quantity(&chain_id),
            Ok(Reply::Error { message, .. }) => Err(unusable(node, &message)),
            Err(refusal) => Err(refusal),
        };
        // A node that answers this may still fail at other requests, so it is not marked as up.
        chain_id.inspect_err(|refusal| node.failed(&refusal.message()))
    }
}

const CHAIN_ID: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#;

/// Asks the first of the nodes that answers which chain it is of.
///
/// # Errors
/// If none answers, why the last did not.
///
/// # Cancel safety
/// May be dropped at any await point.
pub async fn chain_id(nodes: &[Address], within: Duration) -> Result<u64, Refusal> {
    let config = Config { answer_within: within, ..Config::new(nodes.to_vec(), 0) };
    let all = Nodes::new(&config).map_err(Refusal::NodeUnreachable)?;
    let mut last = nobody();
    for node in &all.nodes {
        match all.ask_chain_id(node).await {
            Ok(chain_id) => return Ok(chain_id),
            Err(refusal) => last = refusal,
        }
    }
    Err(last)
}

fn http(within: Duration) -> Result<Http, String> {
    let mut plain = HttpConnector::new();
    plain.enforce_http(false);
    plain.set_nodelay(true);
    // Shorter than the time for the whole answer, so that there is time to ask another node.
    plain.set_connect_timeout(Some((within / 2).min(LONGEST_CONNECT)));
    let provider = rustls::crypto::ring::default_provider();
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(provider)
        .map_err(|error| format!("certificates cannot be read: {error}"))?
        .https_or_http()
        .enable_http1()
        .wrap_connector(plain);
    let mut client = Client::builder(TokioExecutor::new());
    client.pool_timer(TokioTimer::new()).pool_idle_timeout(Duration::from_secs(30));
    // Retries a request if the node had closed the idle connection before it was sent.
    Ok(client.retry_canceled_requests(true).build(connector))
}

fn request(node: &Node, headers: &HeaderMap, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = node.address.uri().clone();
    *request.headers_mut() = headers.clone();
    let json = HeaderValue::from_static("application/json");
    request.headers_mut().entry(CONTENT_TYPE).or_insert(json);
    if let Some(credentials) = node.address.credentials() {
        request.headers_mut().insert(hyper::header::AUTHORIZATION, credentials.clone());
    }
    request
}

fn nobody() -> Refusal {
    Refusal::NodeUnreachable("no node is configured".into())
}

fn unreachable(node: &Node, error: &Error) -> Refusal {
    // The error of the client may contain the URL; its source does not.
    let why = std::error::Error::source(error).map_or_else(
        || "the connection broke off".to_owned(),
        |source| innermost(source).to_string(),
    );
    Refusal::NodeUnreachable(format!("{}: {why}", node.address.host()))
}

fn innermost<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> &'a (dyn std::error::Error + 'static) {
    std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error)
}

fn unusable(node: &Node, why: &str) -> Refusal {
    Refusal::BadReply(format!("{}: {why}", node.address.host()))
}

fn says_http(node: &Node, status: StatusCode) -> Refusal {
    unusable(node, &format!("HTTP {}", status.as_u16()))
}

/// Whether the status says that the node, not the request, is at fault.
fn is_unavailable(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}
