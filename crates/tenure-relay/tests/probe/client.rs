//! A client that keeps its connection, and can write without reading.

use std::io::{Error, Result};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// One connection to a relay or a node.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    host: SocketAddr,
    /// The `Idempotency-Key` that identifies it.
    key: Option<String>,
    path: &'static str,
}

/// The response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The lines after the first, as they were.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("{error}: {} {}", self.status, String::from_utf8_lossy(&self.body))
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    pub(crate) async fn connect(host: SocketAddr) -> Client {
        Client::try_connect(host).await.unwrap()
    }

    /// The same, where nobody may listen.
    pub(crate) async fn try_connect(host: SocketAddr) -> Result<Client> {
        let stream = TcpStream::connect(host).await?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: BufReader::new(stream), host, key: None, path: "/" })
    }

    /// The same, with an `Idempotency-Key` on every request.
    pub(crate) fn known_by(mut self, key: &str) -> Client {
        self.key = Some(key.to_owned());
        self
    }

    /// The same, with nonces that it has reserved.
    pub(crate) fn reserving(mut self) -> Client {
        self.path = "/?nonces=reserve";
        self
    }

    /// Writes a request and returns before it is answered.
    pub(crate) async fn write(&mut self, body: &str) -> Result<()> {
        let (host, path, length) = (self.host, self.path, body.len());
        let key = self.key.as_ref().map(|key| format!("idempotency-key: {key}\r\n"));
        let key = key.unwrap_or_default();
        // In one write, so that it arrives as one.
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\n{key}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(request.as_bytes()).await
    }

    /// Reads the answer; no test waits longer for one.
    pub(crate) async fn read(&mut self) -> Result<Answer> {
        tokio::time::timeout(Duration::from_secs(90), self.read_on()).await?
    }

    async fn read_on(&mut self) -> Result<Answer> {
        let first = self.line().await?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| Error::other(format!("no status in {first:?}")))?;
        let mut head = String::new();
        let (mut length, mut in_chunks) = (0, false);
        loop {
            let line = self.line().await?;
            let Some((name, value)) = line.split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().map_err(Error::other)?,
                "transfer-encoding" => in_chunks = value.contains("chunked"),
                _ => {}
            }
            head.push_str(&line);
            head.push('\n');
        }
        let mut body = Vec::new();
        if in_chunks {
            loop {
                let size = self.line().await?;
                let size = usize::from_str_radix(&size, 16).map_err(Error::other)?;
                self.append(&mut body, size).await?;
                self.line().await?;
                if size == 0 {
                    break;
                }
            }
        } else {
            self.append(&mut body, length).await?;
        }
        Ok(Answer { status, head, body })
    }

    async fn append(&mut self, body: &mut Vec<u8>, size: usize) -> Result<()> {
        let at = body.len();
        body.resize(at + size, 0);
        self.stream.read_exact(&mut body[at..]).await.map(drop)
    }

    async fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }

    /// A request and its answer.
    pub(crate) async fn ask(&mut self, body: &Value) -> Value {
        self.write(&body.to_string()).await.unwrap();
        self.read().await.unwrap().json()
    }

    /// A call and its answer: with `result` or with `error`.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        self.ask(&call(1, method, params)).await
    }

    /// Something to look at.
    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.host);
        self.stream.get_mut().write_all(request.as_bytes()).await.unwrap();
        self.read().await.unwrap()
    }
}

/// A call of JSON-RPC.
pub(crate) fn call(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// A call that sends a transaction.
pub(crate) fn send(id: u64, raw: &str) -> Value {
    call(id, "eth_sendRawTransaction", json!([raw]))
}
