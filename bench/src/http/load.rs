//! Very many requests that wait, and what bad clients cost the others; against the real `tenure serve`, as a process of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};
use tenure_measure::figures::{median, percentile};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

const WAITERS: u32 = 10_000;
/// How many clients of each kind are bad at the same time.
const SLOW: usize = 1_000;
const SILENT: usize = 100;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(4);
/// The clients whose answers are timed, and how often each asks.
const CLIENTS: usize = 8;
const EVERY: Duration = Duration::from_millis(5);

/// `tenure serve --memory`, which ends with this.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Needs `cargo build --release -p tenure-cli` before.
    fn start() -> Server {
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        let _ = setrlimit(Resource::Nofile, limit);
        let tenure = std::env::current_exe().expect("a path").with_file_name("tenure");
        assert!(tenure.exists(), "run `cargo build --release -p tenure-cli` first");
        let mut command = Command::new(tenure);
        command.args(["serve", "--memory", "--fresh", "--listen", "127.0.0.1:0"]);
        command.env("TENURE_LOG_LEVEL", "error").stdout(Stdio::piped());
        let mut child = command.spawn().expect("a server");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("where it listens");
        let port = line.trim_end().rsplit(':').next().and_then(|port| port.parse().ok());
        Server { child, port: port.expect("a port") }
    }

    /// The memory of its process, in MiB.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("kB") / 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// 10,000 requests wait at once for one name: memory, and how soon the next one has it.
pub(super) async fn waiting() {
    let server = Server::start();
    let before = server.resident();
    let mut first = connect(server.port, 1).await;
    let claim = |number: u32| format!("{number:032x}");
    let held = format!(r#"{{"name":"x","ttl":"60s","claim":"{}"}}"#, claim(1));
    assert_eq!(ask(&mut first, "POST /v1/holds", &held).await.0, 201);
    let began = Instant::now();
    let mut waits = JoinSet::new();
    for number in 0..WAITERS {
        // One address may have 10,000 connections: these have four.
        let mut stream = connect(server.port, 2 + (number % 4) as u8).await;
        let body =
            format!(r#"{{"name":"x","ttl":"60s","wait":"60s","claim":"{}"}}"#, claim(number + 2));
        send(&mut stream, "POST /v1/holds", &body).await;
        waits.spawn(async move {
            let answered = read(&mut stream).await;
            (number, answered.0, Instant::now(), stream)
        });
    }
    let in_line = async || {
        let mut stream = connect(server.port, 1).await;
        let (_, body) = ask(&mut stream, "GET /metrics", "").await;
        let line = body.lines().find_map(|line| line.strip_prefix("tenure_server_waiting "));
        line.and_then(|count| count.parse::<f64>().ok()).unwrap_or_default() as u32
    };
    while in_line().await < WAITERS {
        assert!(began.elapsed() < Duration::from_secs(18), "the first polls end after 20 s");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (took, resident) = (began.elapsed(), server.resident());
    let release = format!(r#"{{"name":"x","claim":"{}"}}"#, claim(1));
    let released = Instant::now();
    assert_eq!(ask(&mut first, "POST /v1/holds/release", &release).await.0, 204);
    let (number, status, at, _) = waits.join_next().await.expect("a waiter").expect("no panic");
    println!("{WAITERS} requests wait after {took:.1?}: {resident} MiB (before: {before} MiB)");
    let after = at.saturating_duration_since(released);
    println!(
        "the next one, number {number}, was answered {status} {after:.1?} after the release was sent"
    );
}

/// Requests of well-behaved clients, alone and beside bad ones of each kind, in turn: the 99th percentile.
pub(super) async fn hostile() {
    let server = Server::start();
    let kinds = ["slow heads", "silent readers", "clients that send nonsense"];
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        times[0].push(slowest_of_a_hundred(server.port).await);
        for (kind, times) in times.iter_mut().skip(1).enumerate() {
            let over = Arc::new(AtomicBool::new(false));
            let mut bad = JoinSet::new();
            let (port, stop) = (server.port, || over.clone());
            match kind {
                0 => (0..SLOW).for_each(|_| drop(bad.spawn(trickle(port, stop())))),
                1 => (0..SILENT).for_each(|_| drop(bad.spawn(listen_to_nothing(port, stop())))),
                _ => drop(bad.spawn(nonsense(port, stop()))),
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            times.push(slowest_of_a_hundred(port).await);
            over.store(true, Relaxed);
            while bad.join_next().await.is_some() {}
        }
    }
    println!("p99 of a request alone {:.2} ms", median(times[0].clone()));
    for ((kind, many), beside) in kinds.iter().zip([SLOW, SILENT, 1]).zip(&times[1..]) {
        let ratio = median(beside.iter().zip(&times[0]).map(|(own, alone)| own / alone).collect());
        println!("beside {many} {kind} {:.2} ms, {ratio:.2} times", median(beside.clone()));
    }
    println!("memory of the server: {} MiB", server.resident());
}

/// The 99th percentile of acquires and releases, in milliseconds.
async fn slowest_of_a_hundred(port: u16) -> f64 {
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        clients.spawn(async move {
            let mut stream = connect(port, 100).await;
            let (began, mut times, mut tick) =
                (Instant::now(), Vec::new(), tokio::time::interval(EVERY));
            while began.elapsed() < ROUND {
                tick.tick().await;
                let body =
                    format!(r#"{{"name":"p99:{client}","claim":"{:032x}"}}"#, times.len() + 1);
                for (path, status) in [("POST /v1/holds", 201), ("POST /v1/holds/release", 204)] {
                    let sent = Instant::now();
                    assert_eq!(ask(&mut stream, path, &body).await.0, status);
                    times.push(sent.elapsed().as_nanos() as u64);
                }
            }
            times
        });
    }
    let mut all: Vec<u64> = clients.join_all().await.into_iter().flatten().collect();
    all.sort_unstable();
    percentile(&all, 0.99) as f64 / 1e6
}

/// A byte of a head a second, on a new connection whenever the server has had enough.
async fn trickle(port: u16, over: Arc<AtomicBool>) {
    while !over.load(Relaxed) {
        let mut stream = connect(port, 101).await;
        let _ = stream.write_all(b"POST /v1/holds HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await;
        while !over.load(Relaxed) && stream.write_all(b"y").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// A stream of events that is not read.
async fn listen_to_nothing(port: u16, over: Arc<AtomicBool>) {
    let mut stream = connect(port, 102).await;
    send(&mut stream, "GET /v1/events", "").await;
    while !over.load(Relaxed) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// JSON that is nested and long, and wrong in the end, as fast as one connection takes it.
async fn nonsense(port: u16, over: Arc<AtomicBool>) {
    let body = format!(r#"{{"name":"x","meta":{{{}"#, r#""a":"b","#.repeat(7_000));
    let mut stream = connect(port, 103).await;
    while !over.load(Relaxed) {
        assert_eq!(ask(&mut stream, "POST /v1/holds", &body).await.0, 400);
    }
}

/// From the address of this machine with this last number.
async fn connect(port: u16, from: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from(([127, 0, 0, from], 0))).expect("an address");
    let stream = socket.connect(SocketAddr::from(([127, 0, 0, 1], port))).await;
    let stream = stream.expect("a connection");
    stream.set_nodelay(true).expect("a socket");
    stream
}

async fn send(stream: &mut TcpStream, what: &str, body: &str) {
    let length = body.len();
    let request = format!(
        "{what} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.expect("a server");
}

/// The status and the body.
async fn read(stream: &mut TcpStream) -> (u16, String) {
    let mut bytes = Vec::with_capacity(512);
    loop {
        let count = stream.read_buf(&mut bytes).await.expect("an answer");
        let text = String::from_utf8_lossy(&bytes);
        let head = text.split_once("\r\n\r\n");
        if let Some((head, body)) = head {
            let head = head.to_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap_or("0");
            let length = length.split("\r\n").next().and_then(|length| length.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                let status = head.get(9..12).and_then(|status| status.parse().ok());
                return (status.expect("a status"), body.to_owned());
            }
        }
        assert!(count > 0, "the server has closed the connection: {text}");
    }
}

async fn ask(stream: &mut TcpStream, what: &str, body: &str) -> (u16, String) {
    send(stream, what, body).await;
    read(stream).await
}
