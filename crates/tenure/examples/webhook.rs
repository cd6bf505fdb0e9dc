//! Webhooks are delivered twice, even at the same moment; each is processed once.
//!
//! ```console
//! $ cargo run -p tenure --example webhook --features idempotency
//! ```
//!
//! `/webhook/{id}` uses [`Tenure::once`] and reports the outcome; `/pay` has the layer for `Idempotency-Key`
//! around a handler that knows nothing of it. `TENURE_URL` selects an engine that several instances share.
#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Router, routing::post};
use tenure::{Done, ErrorKind, Tenure, idempotency::IdempotencyLayer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

type Answer = (StatusCode, &'static str);

async fn webhook(State(tenure): State<Tenure>, Path(id): Path<String>, body: String) -> Answer {
    let once = tenure.once(format!("webhook:{id}")).content(&body).wait(Duration::ZERO);
    let done = once.run(async |_run| {
        tokio::time::sleep(Duration::from_millis(300)).await;
        println!("processing {id}: {body}");
        Ok::<_, Infallible>("receipt 1")
    });
    match done.await {
        Ok(Ok(Done::Ran(_receipt))) => (StatusCode::OK, "processed"),
        Ok(Ok(Done::Replayed(_receipt))) => (StatusCode::OK, "already processed"),
        // The sender tries again; by then it is done, or can begin.
        Ok(Ok(Done::InProgress(_))) => (StatusCode::CONFLICT, "duplicate: in progress"),
        // An instance died during the work: an operator has to look, unless the work may `rerun`.
        Ok(Ok(Done::Unsettled)) => (StatusCode::CONFLICT, "unsettled"),
        Err(error) if error.kind() == ErrorKind::Conflict => {
            (StatusCode::UNPROCESSABLE_ENTITY, "the same id with another body")
        }
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "try again"),
    }
}

fn app(tenure: Tenure) -> Router {
    let pay = post(async |body: String| format!("paid {body}"));
    Router::new()
        .route("/pay", pay.layer(IdempotencyLayer::new(&tenure, "shop").required()))
        .route("/webhook/{id}", post(webhook))
        .with_state(tenure)
}

/// The sender's side: posts, and reads the status and the body.
async fn send(port: u16, path: &str, body: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let head = "Host: shop\r\nConnection: close\r\nIdempotency-Key: order-1";
    let request =
        format!("POST {path} HTTP/1.1\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    println!("POST {path} {body:?}: {:?}", answer.lines().last().unwrap_or_default());
    Ok(answer)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tenure = Tenure::from_env().await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(axum::serve(listener, app(tenure.clone())).into_future());

    let (one, other) = tokio::try_join!(
        send(port, "/webhook/42", "42 euros"),
        send(port, "/webhook/42", "42 euros")
    )?;
    let processed =
        [&one, &other].iter().filter(|answer| answer.ends_with("\r\nprocessed")).count();
    let later = send(port, "/webhook/42", "42 euros").await?;
    let changed = send(port, "/webhook/42", "43 euros").await?;
    let (paid, again) = (send(port, "/pay", "7").await?, send(port, "/pay", "7").await?);

    // Zero if an earlier run has processed it, because that is remembered for a day.
    let kept = processed <= 1
        && later.ends_with("already processed")
        && changed.starts_with("HTTP/1.1 422")
        && paid.ends_with("paid 7")
        && again.ends_with("paid 7")
        && again.contains("idempotency-replayed: true");
    tenure.close().await;
    if kept { Ok(()) } else { Err("something was processed twice, or not at all".into()) }
}
