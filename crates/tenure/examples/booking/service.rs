//! The service: `POST /book` and `GET /health`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use tenure::Tenure;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info};

use crate::Failure;
use crate::shop::{Booked, Order, Shop};

const REQUEST_ID: &str = "x-request-id";
/// A health check should answer quickly.
const HEALTH_WITHIN: Duration = Duration::from_secs(1);

type Answer = (StatusCode, [(&'static str, String); 1], String);

/// Serves until it is told to stop, and then finishes the requests that have begun.
pub(crate) async fn serve() -> Result<(), Failure> {
    // If the engine is not there, requests are answered with 503 until it is.
    let tenure = Tenure::from_env().await?;
    let file = std::env::var("BOOKING_DB").ok();
    let shop = Shop::open(tenure.clone(), file.as_deref())?;
    let app =
        Router::new().route("/book", post(book)).route("/health", get(health)).with_state(shop);

    let port = std::env::var("PORT").map_or(Ok(3000), |port| port.parse::<u16>())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (locks, ttl) = (&tenure.profile().label, tenure.defaults().ttl);
    info!(locks, ?ttl, pid = std::process::id(), "listening on {}", listener.local_addr()?);
    let told = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        info!("told to end: bookings that have begun are finished, new ones are not taken");
    };
    axum::serve(listener, app).with_graceful_shutdown(told).await?;
    // Waits until the engine has confirmed every release.
    tenure.close().await;
    info!("ended");
    Ok(())
}

async fn book(State(shop): State<Shop>, headers: HeaderMap, body: Bytes) -> Answer {
    let request = request_id(&headers);
    let answer = |status, text: &str| (status, [(REQUEST_ID, request.clone())], text.to_owned());
    let order: Order = match serde_json::from_slice(&body) {
        Ok(order) => order,
        Err(error) => return answer(StatusCode::BAD_REQUEST, &format!("{error}\n")),
    };
    match shop.book(&order, &request).await {
        Booked::Yes => answer(StatusCode::CREATED, "booked\n"),
        Booked::Taken => answer(StatusCode::CONFLICT, "taken\n"),
        Booked::Busy => answer(StatusCode::CONFLICT, "somebody is booking this table, try again\n"),
        Booked::TooLate => answer(StatusCode::PRECONDITION_FAILED, "too late, try again\n"),
        Booked::NoEngine(reason) => {
            error!(request, %reason, "cannot lock");
            answer(StatusCode::SERVICE_UNAVAILABLE, "try again later\n")
        }
        Booked::NoDatabase(reason) => {
            error!(request, %reason, "cannot write");
            answer(StatusCode::INTERNAL_SERVER_ERROR, "try again later\n")
        }
    }
}

async fn health(State(shop): State<Shop>) -> (StatusCode, String) {
    match tokio::time::timeout(HEALTH_WITHIN, shop.tenure.health()).await {
        Ok(Ok(took)) => (StatusCode::OK, format!("the engine answered in {took:?}\n")),
        Ok(Err(error)) => {
            error!(%error, "not healthy");
            (StatusCode::SERVICE_UNAVAILABLE, "the engine cannot be reached\n".into())
        }
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the engine does not answer\n".into()),
    }
}

/// The caller's request id if it is valid, or a new one.
fn request_id(headers: &HeaderMap) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let is_plain = |id: &&str| {
        (1..=64).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let new = || format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    given.filter(is_plain).map_or_else(new, str::to_owned)
}
