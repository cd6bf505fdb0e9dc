//! Clients that are slow, silent, many or unknown: they cost little, and nobody loses a hold for them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::engines::memory::Memory;
use tenure_server::{Access, Config, Credentials, Key};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::probe::{Site, claim};

const LOCK: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
/// A head that never ends.
const BEGUN: &[u8] = b"POST /v1/holds HTTP/1.1\r\nhost: localhost\r\nx-slow: ";

async fn site(config: Config, credentials: Credentials) -> Site {
    Site::start(Arc::new(Memory::new()), Key::random().unwrap(), config, credentials).await
}

/// Connects from another address of this machine.
async fn connect_from(address: &str, port: u16) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(address.parse().unwrap(), 0)).unwrap();
    socket.connect(SocketAddr::from(([127, 0, 0, 1], port))).await.unwrap()
}

/// Sends a piece of a head again and again. Returns how long it took until the server hung up.
async fn trickle(mut stream: TcpStream) -> Duration {
    let began = Instant::now();
    if stream.write_all(BEGUN).await.is_err() {
        return began.elapsed();
    }
    let (mut reader, mut writer) = stream.split();
    let ended = async {
        let mut bytes = Vec::new();
        let _ = reader.read_to_end(&mut bytes).await;
    };
    let writes = async {
        while writer.write_all(b"y").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = ended => {}
        () = writes => {}
    }
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn s121_clients_that_never_finish_a_head_take_nothing_from_others() {
    let mut config = Config::default();
    (config.max_connections, config.max_connections_of_one) = (40, 30);
    config.head_within = Duration::from_secs(2);
    let site = Arc::new(site(config, Credentials::default()).await);
    let port = site.port;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut slow = Vec::new();
    for _ in 0..100 {
        let stopped = stopped.clone();
        slow.push(tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            while !*stopped.borrow() {
                let took = trickle(connect_from("127.0.0.2", port).await).await;
                longest = longest.max(took);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            longest
        }));
    }
    let began = Instant::now();
    let body = format!(r#"{{"name":"x","claim":"{}"}}"#, claim(1));
    let fence = site.post("/v1/holds", &body).await.is(201, "").number("fence");
    let renew = format!(r#"{{"name":"x","claim":"{}","fence":{fence}}}"#, claim(1));
    while began.elapsed() < Duration::from_secs(6) {
        site.post("/v1/holds/renew", &renew).await.is(200, "");
        assert_eq!(site.get("/healthz").await.status, 200);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(site.post("/v1/holds/release", &body).await.status, 204);
    stop.send_replace(true);
    for slow in slow {
        let longest = slow.await.unwrap();
        assert!(longest < Duration::from_secs(20), "a head took {longest:?}");
    }
}

#[tokio::test]
async fn what_is_held_can_be_kept_and_released_when_all_connections_are_taken() {
    let mut config = Config::default();
    config.max_connections = 20;
    let site = site(config, Credentials::default()).await;
    let body = |number| format!(r#"{{"name":"n{number}","claim":"{}"}}"#, claim(number));
    let fence = site.post("/v1/holds", &body(1)).await.is(201, "").number("fence");
    let mut idle = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(("127.0.0.1", site.port)).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        // It is answered, and keeps its connection.
        assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
        idle.push(stream);
    }
    let refused = site.post("/v1/holds", &body(2)).await.is(503, "unavailable");
    assert!(refused.head.contains("retry-after: "), "{refused:?}");
    for _ in 0..30 {
        let renew = format!(r#"{{"name":"n1","claim":"{}","fence":{fence}}}"#, claim(1));
        site.post("/v1/holds/renew", &renew).await.is(200, "");
        site.post("/v1/holds/read", &renew).await.is(200, "");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(site.get(path).await.status, 200, "{path}");
    }
    site.get("/v1/names").await.is(503, "unavailable");
    assert_eq!(site.post("/v1/holds/release", &body(1)).await.status, 204);
    drop(idle);
    for _ in 0..200 {
        if site.post("/v1/holds", &body(2)).await.status == 201 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the places of those who hung up are not given back");
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_an_active_one_is_not() {
    let mut config = Config::default();
    (config.head_within, config.idle_within) = (Duration::from_secs(1), Duration::from_secs(3));
    let site = site(config, Credentials::default()).await;
    let mut stream = TcpStream::connect(("127.0.0.1", site.port)).await.unwrap();
    let began = Instant::now();
    // Longer than a head may take in all, but never idle for long.
    while began.elapsed() < Duration::from_secs(4) {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
        tokio::time::sleep(Duration::from_millis(1_200)).await;
    }
    let idle_since = Instant::now();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(idle_since.elapsed() < Duration::from_secs(20), "{:?}", idle_since.elapsed());
}

#[tokio::test]
async fn s122_a_body_that_never_ends_is_given_up() {
    let site = site(Config::default(), Credentials::default()).await;
    let mut stream = TcpStream::connect(("127.0.0.1", site.port)).await.unwrap();
    let head = b"POST /v1/holds HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 60000\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let (mut reader, mut writer) = stream.split();
    let writes = async {
        while writer.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        std::future::pending::<()>().await;
    };
    let mut answer = [0; 64];
    let began = Instant::now();
    tokio::select! {
        read = reader.read(&mut answer) => assert!(read.unwrap() > 0),
        () = writes => {}
    }
    assert!(answer.starts_with(b"HTTP/1.1 408"), "{:?}", String::from_utf8_lossy(&answer));
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

/// The memory of this process, in kB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Unread events are not kept: without a limit, this would be 400 MB.
#[tokio::test(flavor = "multi_thread")]
async fn s123_readers_that_do_not_read_are_left_behind() {
    let mut config = Config::default();
    // Long enough that they are not cut off for being slow.
    (config.max_waiting, config.client_within) = (40, Duration::from_secs(300));
    let site = site(config, Credentials::default()).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        let mut stream = site.begin("GET", "/v1/events", "", "").await;
        assert!(stream.read(&mut [0; 64]).await.unwrap() > 0);
        silent.push(stream);
    }
    site.get("/v1/events").await.is(429, "too_many");
    let before = resident();
    let name = "n".repeat(1000);
    let mut stream = TcpStream::connect(("127.0.0.1", site.port)).await.unwrap();
    for number in 0..5_000 {
        let (path, id) = match number % 2 {
            0 => ("/v1/holds", claim(number + 1)),
            _ => ("/v1/holds/release", claim(number)),
        };
        let body = format!(r#"{{"name":"{name}","claim":"{id}"}}"#);
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = [0; 4096];
        let read = stream.read(&mut answer).await.unwrap();
        let status = String::from_utf8_lossy(&answer[9..12]).into_owned();
        assert!(read > 0 && ["201", "204"].contains(&status.as_str()), "{status}");
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 150_000, "{grown} kB more");
    // They have lost their places to those who read.
    for _ in 0..400 {
        let mut stream = site.begin("GET", "/v1/events", "", "").await;
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).await.unwrap();
        if begin.ends_with(b"200") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("streams that nobody reads keep their places");
}

#[tokio::test]
async fn a_client_that_guesses_tokens_is_told_to_wait_and_one_that_has_a_token_is_not() {
    let tokens = Access::from_lines(&Access::line("shop", LOCK, "lock", "")).unwrap();
    let site = site(Config::default(), Credentials::new(tokens, None)).await;
    let with = |token: &str| format!("authorization: Bearer {token}\r\n");
    for guess in 0..30 {
        let wrong = with(&format!("{guess:032}"));
        site.send("POST", "/v1/holds", &wrong, r#"{"name":"x"}"#).await.is(401, "unauthorized");
    }
    let refused = site.post("/v1/holds", r#"{"name":"x"}"#).await.is(429, "too_many");
    let after = refused.head.split("retry-after: ").nth(1).unwrap();
    let after: u64 = after.split("\r\n").next().unwrap().parse().unwrap();
    assert!((1..=61).contains(&after));
    site.send("POST", "/v1/holds", &with(LOCK), r#"{"name":"x"}"#).await.is(201, "");
    assert_eq!(site.get("/healthz").await.status, 200);
}
