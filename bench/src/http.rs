//! The lock server compared with a server that only echoes JSON, in one run over the same kind of connections:
//! what a lock costs on top of a request. `load` measures what many clients cost, and what hostile ones do to others.

mod load;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use tenure::engines::memory::Memory;
use tenure_measure::figures::median;
use tenure_server::{Key, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const CONNECTIONS: usize = 8;
const ROUNDS: usize = 5;
const REQUESTS: usize = 2_000;

/// Prints requests a second: echo, acquire, release, the median of several rounds; then what `load` measures.
pub(crate) fn run() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        measure().await;
        load::waiting().await;
        load::hostile().await;
    });
}

async fn measure() {
    let echo = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let echo_port = echo.local_addr().expect("an address").port();
    tokio::spawn(async move { axum::serve(echo, Router::new().route("/echo", post(back))).await });
    let key = Key::random().expect("random numbers");
    let listen = "127.0.0.1:0".parse().expect("an address");
    let server = Server::bind(Arc::new(Memory::new()), listen, key).await.expect("a port");
    let port = server.address().expect("an address").port();
    tokio::spawn(server.run(std::future::pending()));
    let mut rates: [Vec<f64>; 3] = Default::default();
    for round in 0..ROUNDS {
        let claim = move |worker: usize, at: usize| {
            format!("{:032x}", (round * 1000 + worker) * 1_000_000 + at + 1)
        };
        let body = move |worker: usize, at: usize| {
            format!(
                r#"{{"name":"bench:{worker}:{at}","ttl":"60s","claim":"{}"}}"#,
                claim(worker, at)
            )
        };
        let release = move |worker: usize, at: usize| {
            format!(r#"{{"name":"bench:{worker}:{at}","claim":"{}"}}"#, claim(worker, at))
        };
        rates[0].push(rate(echo_port, "/echo", "200", body).await);
        rates[1].push(rate(port, "/v1/holds", "201", body).await);
        rates[2].push(rate(port, "/v1/holds/release", "204", release).await);
    }
    let ratio = |kind: usize| {
        median(rates[kind].iter().zip(&rates[0]).map(|(own, echo)| own / echo).collect())
    };
    let (acquire, release) = (ratio(1), ratio(2));
    let [echo, acquires, releases] = rates.clone().map(median);
    println!("echo    {echo:>9.0} requests/s");
    println!("acquire {acquires:>9.0} requests/s, {acquire:.2} of the echo");
    println!("release {releases:>9.0} requests/s, {release:.2} of the echo");
}

/// Parses the JSON and serializes it again.
async fn back(body: Bytes) -> ([(&'static str, &'static str); 1], String) {
    let value: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    ([("content-type", "application/json")], value.to_string())
}

/// Requests a second, over some connections, one request at a time on each.
async fn rate(
    port: u16,
    path: &'static str,
    status: &'static str,
    body: impl Fn(usize, usize) -> String + Copy + Send + 'static,
) -> f64 {
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        streams.push(stream);
    }
    let began = Instant::now();
    let workers: Vec<_> = streams
        .into_iter()
        .enumerate()
        .map(|(worker, mut stream)| {
            tokio::spawn(async move {
                let mut answer = vec![0; 8192];
                for at in 0..REQUESTS {
                    let body = body(worker, at);
                    let request = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                    stream.write_all(request.as_bytes()).await.expect("a server");
                    let count = stream.read(&mut answer).await.expect("an answer");
                    let begin = String::from_utf8_lossy(&answer[..count.min(12)]).into_owned();
                    assert!(begin.ends_with(status), "{begin}");
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.expect("no panic");
    }
    (CONNECTIONS * REQUESTS) as f64 / began.elapsed().max(Duration::from_nanos(1)).as_secs_f64()
}
