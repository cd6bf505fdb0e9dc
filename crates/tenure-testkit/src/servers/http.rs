//! A minimal HTTP request, for tests of our own servers.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use super::ServerError;

/// The time-out of an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Posts JSON and returns the body, whatever the status is.
pub(crate) fn post(port: u16, path: &str, body: &str) -> Result<String, ServerError> {
    let length = body.len();
    // An answer to HTTP/1.0 is never chunked, and ends with the connection.
    exchange(
        port,
        &format!(
            "POST {path} HTTP/1.0\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        ),
    )
}

fn exchange(port: u16, ask: &str) -> Result<String, ServerError> {
    let talk = || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(ask.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    let answer = talk().map_err(ServerError::during(format_args!("asking on port {port}")))?;
    let answer = String::from_utf8_lossy(&answer);
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    body.ok_or_else(|| ServerError::new(format!("port {port} answered {answer:?}")))
}
