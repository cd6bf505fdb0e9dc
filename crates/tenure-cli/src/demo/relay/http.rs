//! As much HTTP as the proof needs, on both sides.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::Trouble;

/// Sends a call, and waits for the answer.
pub(super) async fn ask(at: SocketAddr, method: &str, params: &str) -> Result<String, Trouble> {
    read(write(at, method, params).await?).await
}

/// Writes a complete call.
pub(super) async fn write(
    at: SocketAddr,
    method: &str,
    params: &str,
) -> Result<TcpStream, Trouble> {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(at).await?;
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

/// The body of the answer.
pub(super) async fn read(stream: TcpStream) -> Result<String, Trouble> {
    Ok(message(&mut BufReader::new(stream)).await?.ok_or("no answer")?)
}

/// The body of the next message on a connection.
pub(super) async fn message(stream: &mut BufReader<TcpStream>) -> Result<Option<String>, Trouble> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        if line.trim().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Some(String::from_utf8(body)?))
}

/// Answers a message.
pub(super) async fn answer(stream: &mut BufReader<TcpStream>, body: &[u8]) -> Result<(), Trouble> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length:";
    let mut whole = format!("{head} {}\r\n\r\n", body.len()).into_bytes();
    whole.extend_from_slice(body);
    // In one piece: the second of two would wait until the first is acknowledged.
    stream.write_all(&whole).await?;
    Ok(stream.flush().await?)
}
