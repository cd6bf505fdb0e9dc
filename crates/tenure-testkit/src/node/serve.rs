//! Connections and their requests, each treated according to its conduct.

use std::io;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::wire::{JSON, Request, Wire};
use super::{Arrival, Conduct, Shared, squeeze};

/// Serves until the end.
pub(super) async fn run(
    listener: TcpListener,
    shared: Arc<Shared>,
    mut ended: watch::Receiver<bool>,
) {
    let serve = async {
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            let number = {
                let mut state = shared.state();
                state.connections += 1;
                state.connections
            };
            tokio::spawn(connection(stream, number, Arc::clone(&shared)));
        }
    };
    // The runtime ends with this future, and its connections with it.
    tokio::select! {
        () = serve => {}
        _ = ended.wait_for(|ended| *ended) => {}
    }
}

async fn connection(stream: TcpStream, number: u64, shared: Arc<Shared>) {
    let mut cut = shared.cut.subscribe();
    let mut wire = Wire::new(stream);
    let serve = async {
        while let Ok(Some(request)) = wire.request().await {
            let treated = treat(&mut wire, &shared, number, request).await;
            if !treated.unwrap_or(false) {
                return;
            }
        }
    };
    tokio::select! {
        () = serve => {}
        _ = cut.changed() => {}
    }
}

/// Whether the connection continues.
async fn treat(
    wire: &mut Wire,
    shared: &Shared,
    connection: u64,
    request: Request,
) -> io::Result<bool> {
    let Ok(body) = serde_json::from_slice::<Value>(&request.body) else {
        let refused = answer(&Value::Null, Err((-32700, "parse error".to_owned())));
        wire.answer(200, JSON, refused.to_string().as_bytes()).await?;
        return Ok(true);
    };
    let calls = body.as_array().map_or_else(|| vec![&body], |batch| batch.iter().collect());
    let mut conduct = Conduct::Answer;
    let mut in_hand = InHand { shared, methods: Vec::new() };
    for call in &calls {
        let (path, head) = (request.path.clone(), request.head.clone());
        let method = call["method"].as_str().unwrap_or_default().to_owned();
        let params = call["params"].clone();
        in_hand.methods.push(method.clone());
        let told = shared.state().arrived(Arrival { connection, path, head, method, params });
        // A batch has one answer: its conduct is that of its first call with one.
        if conduct == Conduct::Answer {
            conduct = told;
        }
    }
    if let Conduct::Late(most) = conduct {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        let time = shared.state().rng.micros(0, most);
        tokio::time::sleep(time).await;
    }
    let does = |call: &&Value| {
        let method = call["method"].as_str().unwrap_or_default();
        let done = shared.state().chain.call(method, &call["params"]);
        answer(&call["id"], done)
    };
    let mut answers: Vec<Value> = match conduct.does_it() {
        true => calls.iter().map(does).collect(),
        false => Vec::new(),
    };
    if conduct == Conduct::Hang {
        if !hang(wire, shared).await {
            return Ok(false);
        }
        answers = calls.iter().map(does).collect();
    }
    let answers = match body.is_array() {
        true => Value::Array(answers),
        false => answers.pop().unwrap_or_default(),
    };
    reply(wire, shared, conduct, answers, &body["id"]).await
}

fn with_wrong_ids(answers: &mut Value) {
    let all = match answers {
        Value::Array(all) => all.iter_mut().collect(),
        one => vec![one],
    };
    all.into_iter().for_each(|answer| answer["id"] = json!(900_913));
}

async fn reply(
    wire: &mut Wire,
    shared: &Shared,
    conduct: Conduct,
    mut answers: Value,
    id: &Value,
) -> io::Result<bool> {
    if conduct == Conduct::WrongId {
        with_wrong_ids(&mut answers);
    }
    let text = answers.to_string();
    let body = text.as_bytes();
    match conduct {
        Conduct::Answer | Conduct::Late(_) | Conduct::Hang | Conduct::WrongId => {
            wire.answer(200, JSON, body).await?;
        }
        Conduct::AnswerLate(time) => {
            tokio::time::sleep(time).await;
            wire.answer(200, JSON, body).await?;
        }
        Conduct::DoThenHang => {
            if !hang(wire, shared).await {
                return Ok(false);
            }
            wire.answer(200, JSON, body).await?;
        }
        Conduct::DoThenClose | Conduct::Close => return Ok(false),
        Conduct::Html(status) => wire.answer(status, HTML, PAGE).await?,
        Conduct::TooMany(seconds) => {
            wire.answer(429, &format!("{JSON}retry-after: {seconds}\r\n"), b"").await?;
        }
        Conduct::AnswerAndClose => {
            wire.answer(200, &format!("{JSON}connection: close\r\n"), body).await?;
            return Ok(false);
        }
        Conduct::Say(result) => {
            wire.answer(200, JSON, answer(id, Ok(result)).to_string().as_bytes()).await?;
        }
        Conduct::Trouble(status) | Conduct::DoThenTrouble(status) => {
            let refused = answer(id, Err((-32000, "service unavailable".to_owned())));
            wire.answer(status, JSON, refused.to_string().as_bytes()).await?;
        }
        Conduct::Refuse(code, text) | Conduct::DoThenRefuse(code, text) => {
            let refused = answer(id, Err((code, text)));
            wire.answer(200, JSON, refused.to_string().as_bytes()).await?;
        }
        Conduct::Gzip => wire.answer(200, GZIP, &squeeze::gzip(body)).await?,
        Conduct::GzipBomb(size) => wire.answer(200, GZIP, &squeeze::bomb(size)).await?,
        Conduct::Drip(pause) => wire.drip(body, pause).await?,
        Conduct::Enormous(many) => wire.pour(many).await?,
        Conduct::Truncated => wire.answer(200, JSON, &body[..body.len() / 2]).await?,
        Conduct::Short => {
            wire.answer_in_part(body).await?;
            return Ok(false);
        }
        Conduct::Redirect(to) => wire.answer(302, &format!("location: {to}\r\n"), b"").await?,
    }
    Ok(true)
}

const HTML: &str = "content-type: text/html\r\n";
const GZIP: &str = "content-type: application/json\r\ncontent-encoding: gzip\r\n";
const PAGE: &[u8] = b"<!doctype html><title>Bad gateway</title><h1>Something is wrong</h1>";

/// Waits until it is released; returns false if the client gave up before.
async fn hang(wire: &mut Wire, shared: &Shared) -> bool {
    let mut let_go = shared.let_go.subscribe();
    let _hanging = Hanging::new(shared);
    tokio::select! {
        () = wire.hung_up() => {
            shared.state().hung_up += 1;
            false
        }
        changed = let_go.changed() => changed.is_ok(),
    }
}

/// Counts a request as hanging until this is dropped, even if its connection is cut.
struct Hanging<'a>(&'a Shared);

impl Hanging<'_> {
    fn new(shared: &Shared) -> Hanging<'_> {
        shared.state().hanging += 1;
        Hanging(shared)
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.state().hanging -= 1;
    }
}

/// Calls that are being handled, until they are answered or given up.
struct InHand<'a> {
    shared: &'a Shared,
    methods: Vec<String>,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        self.methods.iter().for_each(|method| state.treated(method));
    }
}

fn answer(id: &Value, done: Result<Value, (i64, String)>) -> Value {
    match done {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err((code, message)) => {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
        }
    }
}
