//! A server to ask, and a client that asks as a program in any language would: over a socket, with text.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tenure::engine::Engine;
use tenure::engines::memory::Memory;
use tenure_server::{Config, Credentials, Key, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, oneshot};
use tokio::task::JoinHandle;

pub(crate) struct Site {
    pub(crate) port: u16,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    document: OnceCell<Arc<Value>>,
}

/// An answer: its status, its head, its body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Value,
}

/// Polls that end soon, with a place.
pub(crate) fn short_polls() -> Config {
    let mut config = Config::default();
    config.longest_poll = Duration::from_millis(400);
    config
}

impl Site {
    pub(crate) async fn memory() -> Site {
        let key = Key::random().unwrap();
        Site::start(Arc::new(Memory::new()), key, Config::default(), Credentials::default()).await
    }

    pub(crate) async fn with_short_polls() -> Site {
        let key = Key::random().unwrap();
        Site::start(Arc::new(Memory::new()), key, short_polls(), Credentials::default()).await
    }

    pub(crate) async fn start(
        engine: Arc<dyn Engine>,
        key: Key,
        config: Config,
        credentials: Credentials,
    ) -> Site {
        let server = Server::bind(engine, "127.0.0.1:0".parse().unwrap(), key).await.unwrap();
        Site::run(server.with_config(config).with_credentials(credentials))
    }

    /// A server that gives its engine this name.
    pub(crate) async fn start_named(engine: Arc<dyn Engine>, key: Key, name: Option<&str>) -> Site {
        let server = Server::bind(engine, "127.0.0.1:0".parse().unwrap(), key).await.unwrap();
        Site::run(match name {
            Some(name) => server.with_engine_name(name),
            None => server,
        })
    }

    fn run(server: Server) -> Site {
        let port = server.address().unwrap().port();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async { drop(stopped.await) }));
        Site { port, stop: Some(stop), task, document: OnceCell::new() }
    }

    /// Tells it to stop, as SIGTERM does.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        let _ = (&mut self.task).await;
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.send("POST", path, "", body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", "").await
    }

    /// One request on a connection of its own. `headers` end with a line break each.
    pub(crate) async fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let answer = self.ask(method, path, headers, body).await;
        let document = self
            .document
            .get_or_init(async || Arc::new(self.ask("GET", "/openapi.json", "", "").await.body));
        super::description::check(document.await, method, path, &answer);
        answer
    }

    async fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let mut stream = self.begin(method, path, headers, body).await;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        read(&bytes)
    }

    /// A request whose answer is not read yet.
    pub(crate) async fn begin(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// Who holds a name and who waits for it, by owner.
    pub(crate) async fn line(&self, name: &str) -> (Vec<String>, Vec<String>) {
        let answer = self.get(&format!("/v1/name?name={name}")).await;
        let owners = |field: &str| -> Vec<String> {
            let all = answer.body[field].as_array().cloned().unwrap_or_default();
            all.iter().map(|one| one["owner"].as_str().unwrap().to_owned()).collect()
        };
        (owners("holders"), owners("waiters"))
    }

    /// Waits until this many wait.
    pub(crate) async fn line_of(&self, name: &str, count: usize) {
        for _ in 0..1000 {
            if self.line(name).await.1.len() == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{name}: {:?} wait, not {count}", self.line(name).await);
    }
}

pub(crate) fn read(bytes: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = serde_json::from_str(body).unwrap_or(Value::Null);
    Answer { status, head: head.to_lowercase(), body }
}

impl Answer {
    #[track_caller]
    pub(crate) fn is(self, status: u16, code: &str) -> Answer {
        let found = self.body["code"].as_str().unwrap_or_default();
        assert_eq!((self.status, found), (status, code), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn number(&self, field: &str) -> u64 {
        self.body[field].as_u64().unwrap_or_else(|| panic!("no {field}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn text(&self, field: &str) -> String {
        self.body[field].as_str().unwrap_or_else(|| panic!("no {field}: {self:?}")).to_owned()
    }
}

/// A claim id that nobody else has in this test.
pub(crate) fn claim(number: u32) -> String {
    format!("{number:032x}")
}
