//! Requests that are wrong, too long or hostile: refused, with a reason, and never with 500.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::probe::Site;

#[tokio::test]
async fn wrong_requests_are_refused_with_a_reason() {
    let site = Site::memory().await;
    let deep = format!(r#"{{"name":"x","meta":{}1{}}}"#, "[".repeat(30_000), "]".repeat(30_000));
    let claim = "0".repeat(32);
    let good = "1".repeat(32);
    for (path, body) in [
        ("/v1/holds", ""),
        ("/v1/holds", "[]"),
        ("/v1/holds", "{}"),
        ("/v1/holds", r#"{"name":""}"#),
        ("/v1/holds", r#"{"name":"a\u0000b"}"#),
        ("/v1/holds", r#"{"name":"a\u001b[31mb"}"#),
        ("/v1/holds", r#"{"name":7}"#),
        ("/v1/holds", r#"{"name":"x","nmae":"y"}"#),
        ("/v1/holds", r#"{"name":"x","ttl":"0s"}"#),
        ("/v1/holds", r#"{"name":"x","ttl":"25h"}"#),
        ("/v1/holds", r#"{"name":"x","ttl":"30"}"#),
        ("/v1/holds", r#"{"name":"x","ttl":-1}"#),
        ("/v1/holds", r#"{"name":"x","ttl":1e3}"#),
        ("/v1/holds", r#"{"name":"x","ttl":99999999999999999999}"#),
        ("/v1/holds", r#"{"name":"x","claim":"xyz"}"#),
        ("/v1/holds", &format!(r#"{{"name":"x","claim":"{claim}"}}"#)),
        ("/v1/holds", r#"{"name":"x","kind":"mutex"}"#),
        ("/v1/holds", r#"{"name":"x","permits":3}"#),
        ("/v1/holds", r#"{"name":"x","kind":"semaphore"}"#),
        ("/v1/holds", r#"{"name":"x","kind":"semaphore","permits":0}"#),
        ("/v1/holds", r#"{"name":"x","kind":"semaphore","permits":2,"weight":3}"#),
        ("/v1/holds", r#"{"name":"x","kind":"semaphore","permits":4294967295}"#),
        ("/v1/holds", r#"{"name":"x","owner":"a\nb"}"#),
        ("/v1/holds", r#"{"name":"x","meta":{"k":"a\u0007"}}"#),
        ("/v1/holds", r#"{"name":"x","value":"v"}"#),
        ("/v1/holds", &deep),
        ("/v1/tethers", r#"{"name":"x"}"#),
        ("/v1/holds/renew", r#"{"name":"x"}"#),
        ("/v1/holds/renew", &format!(r#"{{"name":"x","claim":"{good}"}}"#)),
        ("/v1/holds/release", r#"{"name":"x"}"#),
        (
            "/v1/once/settle",
            &format!(
                r#"{{"name":"x","claim":"{good}","fence":1,"outcome":"{}"}}"#,
                "x".repeat(40_000)
            ),
        ),
        ("/v1/break", r#"{"reason":"r"}"#),
        ("/v1/break", r#"{"name":"x","reason":"r"}"#),
        ("/v1/resize", r#"{"name":"x","permits":0}"#),
        ("/v1/steps", r#"{"v":2}"#),
    ] {
        let answer = site.post(path, body).await.is(400, "invalid");
        assert!(answer.head.contains("application/problem+json"), "{body}");
        assert!(!answer.text("detail").is_empty() && !answer.text("title").is_empty());
    }
    for path in [
        "/v1/names?sort=x",
        "/v1/names?limit=0",
        "/v1/names?nmae=x",
        "/v1/name",
        "/v1/name?name=%ff",
        "/v1/turns",
    ] {
        site.get(path).await.is(400, "invalid");
    }
    site.post("/v1/holds", &format!(r#"{{"name":"{}"}}"#, "x".repeat(70_000)))
        .await
        .is(413, "too_large");
    site.post("/v1/holds", &format!(r#"{{"name":"{}"}}"#, "x".repeat(1_025)))
        .await
        .is(400, "invalid");
    site.get("/v1/holds").await.is(405, "invalid");
    site.post("/v1/names", "{}").await.is(405, "invalid");
    site.get("/v2/holds").await.is(404, "not_found");
    site.get("/v1/holds/..%2f").await.is(404, "not_found");
    for (path, body, why) in [
        (
            "/v1/holds/renew",
            r#"{"name":"x","claim":"11111111111111111111111111111111","fence":-1}"#,
            "integer `-1`",
        ),
        ("/v1/holds/renew", r#"{"name":"x","clam":"y"}"#, "unknown field `clam`"),
        ("/v1/holds/renew", r#"{"holds":[{"name":"x","clam":"y"}]}"#, "unknown field `clam`"),
        ("/v1/holds/renew", r#"{"holds":[],"name":"x"}"#, "no other fields"),
        ("/v1/holds/renew", "{}", "missing field `name`"),
        // An array of the values of all fields is not a body.
        ("/v1/resize", r#"["x",3]"#, "a JSON object"),
        ("/v1/holds", "null", "a JSON object"),
    ] {
        let detail = site.post(path, body).await.is(400, "invalid").text("detail");
        assert!(detail.contains(why), "{path} {body}: {detail}");
    }
    // After all of it, nothing is held.
    assert_eq!(site.get("/v1/names").await.body["names"].as_array().unwrap().len(), 0);
}

async fn raw(site: &Site, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", site.port)).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn requests_that_are_not_for_this_server_are_refused() {
    let site = Site::memory().await;
    let body = r#"{"name":"x"}"#;
    let form = format!(
        "POST /v1/holds HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    assert!(raw(&site, &form).await.starts_with("HTTP/1.1 415"));
    let host = "GET /healthz HTTP/1.1\r\nhost: rebound.example\r\nconnection: close\r\n\r\n";
    assert!(raw(&site, host).await.starts_with("HTTP/1.1 421"));
    let long =
        format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(20_000));
    assert!(raw(&site, &long).await.starts_with("HTTP/1.1 431"), "a head of 20 kB");
    // A body without end is not read to its end.
    let chunk = format!("2000\r\n{}\r\n", "z".repeat(0x2000)).repeat(20);
    let endless = format!(
        "POST /v1/holds HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{chunk}"
    );
    assert!(raw(&site, &endless).await.starts_with("HTTP/1.1 413"));
}

/// What a name, an owner or a reason contains stays text.
#[tokio::test]
async fn markup_stays_text() {
    let site = Site::memory().await;
    let body = r#"{"name":"<script>alert(1)</script>","owner":"\"><img src=x>"}"#;
    site.post("/v1/holds", body).await.is(201, "");
    let busy = site.post("/v1/holds", body).await.is(409, "busy");
    assert_eq!(busy.body["holder"]["owner"], "\"><img src=x>");
    assert!(busy.head.contains("application/problem+json") && busy.head.contains("nosniff"));
}
