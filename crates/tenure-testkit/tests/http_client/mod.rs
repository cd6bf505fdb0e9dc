//! A client that speaks to a web server over a socket, with one connection for each request.
#![allow(dead_code, reason = "each test uses its part")]

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

pub(crate) async fn ask(port: &str, method: &str, with: &[(&str, &str)], body: &str) -> Answer {
    let answered = async {
        let mut stream = send(port, method, with, body).await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), answered).await.expect("an answer")
}

/// Sends a request without reading the answer.
pub(crate) async fn send(port: &str, method: &str, with: &[(&str, &str)], body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).await.unwrap();
    let length = body.len();
    let with: String = with.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!(
        "{method} /page HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\
         {with}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}
