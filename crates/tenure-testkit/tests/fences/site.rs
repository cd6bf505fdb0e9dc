//! A web server with a guarded page, and a client that speaks to it over a socket.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::Request;
use axum::routing;
use tenure::Fence;
use tenure::fencing::http::{FenceLayer, Fenced, InProcess, Remember};
use tenure::fencing::{Stale, check};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

pub(crate) use crate::http_client::{Answer, ask, send};

/// The page, and what happened to it.
pub(crate) struct Page {
    pub(crate) text: Mutex<String>,
    /// `begins 5`, `ends 5`: the handlers, by their fence.
    pub(crate) log: Mutex<Vec<String>>,
    /// How many handlers may continue.
    pub(crate) may_go_on: Semaphore,
}

impl Page {
    pub(crate) fn said(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

/// A server; it ends with its value.
pub(crate) struct Site {
    pub(crate) port: String,
    pub(crate) page: Arc<Page>,
    serving: tokio::task::JoinHandle<()>,
}

impl Site {
    pub(crate) async fn start() -> Site {
        Site::with(FenceLayer::new(InProcess::new(100))).await
    }

    pub(crate) async fn with<R: Remember>(layer: FenceLayer<R>) -> Site {
        let site = Site::that_waits(layer).await;
        site.page.may_go_on.add_permits(1_000_000);
        site
    }

    /// A server whose handlers wait for the test.
    pub(crate) async fn that_waits<R: Remember>(layer: FenceLayer<R>) -> Site {
        let (text, log) = (Mutex::default(), Mutex::default());
        let page = Arc::new(Page { text, log, may_go_on: Semaphore::new(0) });
        let app = Router::new().route("/page", routing::get(read).put(write)).layer(layer);
        let app = app.with_state(page.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Site { port, page, serving }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn read(State(page): State<Arc<Page>>) -> String {
    page.text.lock().unwrap().clone()
}

async fn write(State(page): State<Arc<Page>>, request: Request<axum::body::Body>) -> String {
    let fenced = request.extensions().get::<Fenced>().cloned();
    let (name, fence) = fenced.map_or_else(Default::default, |it| (it.name, it.fence));
    let text = axum::body::to_bytes(request.into_body(), 1 << 16).await.unwrap();
    page.log.lock().unwrap().push(format!("begins {fence}"));
    page.may_go_on.acquire().await.unwrap().forget();
    // Lower fences are slower, which would expose a server that lets two in at a time.
    let slow = 30_u64.saturating_sub(fence.get());
    tokio::time::sleep(std::time::Duration::from_millis(slow)).await;
    *page.text.lock().unwrap() = String::from_utf8(text.to_vec()).unwrap();
    page.log.lock().unwrap().push(format!("ends {fence}"));
    name
}

/// The body of a refusal.
pub(crate) fn stale(answer: &Answer) -> Stale {
    assert_eq!(answer.status, 412, "{}", answer.body);
    let number = |key: &str| {
        let (_, rest) = answer.body.split_once(&format!("\"{key}\":")).unwrap();
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Fence::new(digits.parse().unwrap())
    };
    check("over HTTP", number("offered"), number("seen")).unwrap_err()
}

pub(crate) async fn get(port: &str) -> Answer {
    ask(port, "GET", &[], "").await
}

pub(crate) async fn put(port: &str, name: &str, fence: u64, text: &str) -> Answer {
    let fence = fence.to_string();
    ask(port, "PUT", &[("Tenure-Name", name), ("Tenure-Fence", &fence)], text).await
}
