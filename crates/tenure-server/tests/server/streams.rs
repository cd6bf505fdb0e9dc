//! Tethers and events.

use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::probe::{Site, claim};

/// The events of a stream, one after the other.
struct Events {
    stream: TcpStream,
    text: String,
}

impl Events {
    async fn open(site: &Site, method: &str, path: &str, headers: &str, body: &str) -> Events {
        Events { stream: site.begin(method, path, headers, body).await, text: String::new() }
    }

    /// The data of the next event of this kind; `None` if the stream ends before.
    async fn next(&mut self, kind: &str) -> Option<Value> {
        loop {
            let begin = self.text.find(&format!("event: {kind}\n"));
            if let Some(begin) = begin
                && let Some(length) = self.text[begin..].find("\n\n")
            {
                let event: String = self.text.drain(..begin + length + 2).skip(begin).collect();
                let data = event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
                return Some(serde_json::from_str(data).unwrap());
            }
            let mut bytes = [0; 4096];
            let read = tokio::time::timeout(Duration::from_secs(20), self.stream.read(&mut bytes));
            match read.await.expect("a word within 20 s") {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.text.push_str(&String::from_utf8_lossy(&bytes[..count])),
            }
        }
    }
}

#[tokio::test]
async fn a_tether_brings_the_turn_and_the_loss() {
    let site = Site::memory().await;
    site.post("/v1/holds", &format!(r#"{{"name":"x","claim":"{}"}}"#, claim(1))).await.is(201, "");
    let body = format!(r#"{{"name":"x","claim":"{}"}}"#, claim(2));
    let mut tether = Events::open(&site, "POST", "/v1/tethers", "", &body).await;
    tether.next("hello").await.unwrap();
    // It comes at once, not with the first ping.
    let began = std::time::Instant::now();
    assert_eq!(tether.next("place").await.unwrap()["position"], 1);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    site.post("/v1/holds/release", &format!(r#"{{"name":"x","claim":"{}"}}"#, claim(1))).await;
    let granted = tether.next("granted").await.unwrap();
    assert_eq!(
        (granted["confirm"].as_bool(), granted["ttl_ms"].as_u64()),
        (Some(true), Some(6_000))
    );
    let fence = granted["fence"].as_u64().unwrap();
    let renew = format!(r#"{{"name":"x","claim":"{}","fence":{fence},"ttl":"6s"}}"#, claim(2));
    site.post("/v1/holds/renew", &renew).await.is(200, "");
    site.post("/v1/break", &format!(r#"{{"name":"x","fence":{fence},"reason":"stuck"}}"#))
        .await
        .is(200, "");
    let lost = tether.next("lost").await.unwrap();
    assert_eq!((lost["ended"].as_str(), lost["reason"].as_str()), (Some("broken"), Some("stuck")));
    site.post("/v1/holds/renew", &renew).await.is(410, "gone");
}

#[tokio::test]
async fn a_tether_that_is_cut_frees_nothing_while_its_client_pulses() {
    let site = Site::memory().await;
    let body = format!(r#"{{"name":"x","owner":"me","claim":"{}"}}"#, claim(1));
    let mut tether = Events::open(&site, "POST", "/v1/tethers", "", &body).await;
    let fence = tether.next("granted").await.unwrap()["fence"].as_u64().unwrap();
    drop(tether);
    let renew = format!(r#"{{"name":"x","claim":"{}","fence":{fence},"ttl":"6s"}}"#, claim(1));
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        site.post("/v1/holds/renew", &renew).await.is(200, "");
    }
    assert_eq!(site.line("x").await.0, ["me"]);
    // When opened again with the same claim, it finds the hold.
    let mut tether = Events::open(&site, "POST", "/v1/tethers", "", &body).await;
    assert_eq!(tether.next("granted").await.unwrap()["fence"].as_u64(), Some(fence));
}

#[tokio::test]
async fn events_continue_where_the_client_left_off() {
    let site = Site::memory().await;
    let mut events = Events::open(&site, "GET", "/v1/events?prefix=a", "", "").await;
    events.next("hello").await.unwrap();
    for name in ["a1", "b1", "a2"] {
        site.post("/v1/holds", &format!(r#"{{"name":"{name}"}}"#)).await.is(201, "");
    }
    let first = events.next("granted").await.unwrap();
    assert_eq!(first["name"], "a1");
    assert_eq!(events.next("granted").await.unwrap()["name"], "a2");
    let header = format!("last-event-id: {}\r\n", first["id"]);
    let mut events = Events::open(&site, "GET", "/v1/events", &header, "").await;
    assert_eq!(events.next("granted").await.unwrap()["name"], "b1");
    let mut events = Events::open(&site, "GET", "/v1/events", "last-event-id: 5\r\n", "").await;
    events.next("gap").await.unwrap();
}

#[tokio::test]
async fn a_stream_is_told_when_its_server_stops() {
    let site = Site::memory().await;
    let body = format!(r#"{{"name":"x","claim":"{}"}}"#, claim(1));
    let mut tether = Events::open(&site, "POST", "/v1/tethers", "", &body).await;
    tether.next("granted").await.unwrap();
    site.stop().await;
    assert!(tether.next("moving").await.is_some());
}
