//! A small HTTP implementation: requests with a length, and arbitrary answers.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The limit for requests; no test exceeds it.
const LONGEST: usize = 32 << 20;

/// A complete request.
pub(super) struct Request {
    pub(super) path: String,
    /// The lines after the first.
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

/// A connection, and the bytes that were read but not used yet.
pub(super) struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Wire {
        let _ = stream.set_nodelay(true);
        Wire { stream, read: Vec::new() }
    }

    /// The next request; `None` if the connection ends before it.
    pub(super) async fn request(&mut self) -> io::Result<Option<Request>> {
        let head_ends = loop {
            if let Some(at) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at;
            }
            if !self.more().await? {
                return Ok(None);
            }
        };
        let head = String::from_utf8_lossy(&self.read[..head_ends]).into_owned();
        let (first, head) = head.split_once("\r\n").unwrap_or((&head, ""));
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let head = head.to_owned();
        self.read.drain(..head_ends + 4);
        let body = match field(&head, "content-length") {
            Some(length) => {
                let length = length.parse().map_err(io::Error::other)?;
                self.take(length).await?
            }
            None if field(&head, "transfer-encoding").is_some() => self.chunks().await?,
            None => Some(Vec::new()),
        };
        Ok(body.map(|body| Request { path, head, body }))
    }

    /// A chunked body.
    async fn chunks(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut body = Vec::new();
        loop {
            let Some(size) = self.line().await? else { return Ok(None) };
            let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
            let Some(chunk) = self.take(size).await? else { return Ok(None) };
            body.extend(chunk);
            if self.line().await?.is_none() || size == 0 {
                return Ok(Some(body));
            }
        }
    }

    async fn line(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(at) = self.read.windows(2).position(|two| two == b"\r\n") {
                let line = self.read.drain(..at + 2).collect::<Vec<_>>();
                return Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()));
            }
            if !self.more().await? {
                return Ok(None);
            }
        }
    }

    async fn take(&mut self, length: usize) -> io::Result<Option<Vec<u8>>> {
        while self.read.len() < length {
            if !self.more().await? {
                return Ok(None);
            }
        }
        Ok(Some(self.read.drain(..length).collect()))
    }

    async fn more(&mut self) -> io::Result<bool> {
        if self.read.len() > LONGEST {
            return Err(io::Error::other("a request that no test sends"));
        }
        Ok(self.stream.read_buf(&mut self.read).await? > 0)
    }

    /// Returns when the other side has closed the connection.
    pub(super) async fn hung_up(&mut self) {
        while self.more().await.unwrap_or(false) {}
    }

    /// An answer with its length.
    pub(super) async fn answer(&mut self, status: u16, more: &str, body: &[u8]) -> io::Result<()> {
        self.stream.write_all(head(status, more, body.len()).as_bytes()).await?;
        self.stream.write_all(body).await
    }

    /// An answer that ends before its announced length.
    pub(super) async fn answer_in_part(&mut self, body: &[u8]) -> io::Result<()> {
        self.stream.write_all(head(200, JSON, body.len()).as_bytes()).await?;
        self.stream.write_all(&body[..body.len() / 2]).await
    }

    /// An answer whose body arrives one byte at a time.
    pub(super) async fn drip(&mut self, body: &[u8], pause: Duration) -> io::Result<()> {
        self.stream.write_all(head(200, JSON, body.len()).as_bytes()).await?;
        for byte in body {
            tokio::time::sleep(pause).await;
            self.stream.write_all(&[*byte]).await?;
        }
        Ok(())
    }

    /// An answer with a result of this many bytes, which is never in memory as a whole.
    pub(super) async fn pour(&mut self, many: usize) -> io::Result<()> {
        let (before, after) = (br#"{"jsonrpc":"2.0","id":1,"result":""#, br#""}"#);
        let length = before.len() + many + after.len();
        self.stream.write_all(head(200, JSON, length).as_bytes()).await?;
        self.stream.write_all(before).await?;
        let part = vec![b'a'; many.min(1 << 16)];
        let mut left = many;
        while left > 0 {
            let size = left.min(part.len());
            self.stream.write_all(&part[..size]).await?;
            left -= size;
        }
        self.stream.write_all(after).await
    }
}

/// The headers of an answer in JSON.
pub(super) const JSON: &str = "content-type: application/json\r\n";

fn head(status: u16, more: &str, length: usize) -> String {
    format!("HTTP/1.1 {status} Scripted\r\n{more}content-length: {length}\r\n\r\n")
}

/// A field of a head; the name is in lower case.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}
