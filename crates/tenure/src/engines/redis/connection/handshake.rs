//! Connects to a server, logs in, and checks that it can keep locks.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::stream::{self, Stream};
use super::{Purpose, Target};
use crate::engines::redis::config::{Address, RedisConfig, Secret};
use crate::engines::redis::protocol::refusal::Refusal;
use crate::engines::redis::protocol::resp::{self, Frame, Parser, Value};
use crate::engines::redis::setup::Setup;
use crate::engines::redis::shared::Shared;
use crate::model::error::{Error, ErrorKind, Result};

/// What the server said about itself, and the parser, which may have read beyond that.
pub(crate) struct Greeting {
    pub(crate) run_id: String,
    pub(crate) parser: Parser,
    /// The server's address, if it came from the sentinels.
    pub(crate) primary: Option<Address>,
}

/// A connection that sends one command at a time and waits for its answer.
pub(crate) struct SerialConnection<'a> {
    address: &'a Address,
    stream: Stream,
    parser: Parser,
}

/// Connects to the server, logs in, and checks that it can keep locks.
///
/// # Cancel safety
/// Safe: if the future is dropped, the connection is closed.
pub(super) async fn reach(
    shared: &Shared,
    target: &Target,
    purpose: Purpose,
) -> Result<(Stream, Greeting)> {
    match target {
        Target::Fixed(address) => greet(&shared.setup, address, purpose).await,
        Target::Sentinels => shared.sentinels.greet_primary(purpose).await,
    }
}

pub(crate) async fn greet(
    setup: &Setup,
    address: &Address,
    purpose: Purpose,
) -> Result<(Stream, Greeting)> {
    let config = &setup.config;
    let mut talk = SerialConnection::open(setup, address).await?;
    let (db, channel) = (config.db.to_string(), setup.layout.channel(0));
    let mut commands =
        vec![hello(config.user.as_deref(), config.password.as_ref(), &config.client_name)];
    if config.db != 0 {
        commands.push(vec![b"SELECT", db.as_bytes()]);
    }
    commands.push(vec![b"INFO"]);
    let info_at = commands.len() - 1;
    if purpose == Purpose::Turns && !setup.is_cluster {
        commands.push(vec![b"SUBSCRIBE", channel.as_bytes()]);
    }
    // All in one go: where an answer takes long, four of them one after another would take too long.
    let answers = talk.ask_all(&commands).await?;
    let info = String::from_utf8_lossy(answers[info_at].as_bytes().unwrap_or_default());
    check_server(setup, &info)?;
    let run_id = field(&info, "run_id").to_owned();
    Ok((talk.stream, Greeting { run_id, parser: talk.parser, primary: None }))
}

fn check_server(setup: &Setup, info: &str) -> Result<()> {
    let not_now = |reason: &str| Err(Error::new(ErrorKind::Unavailable, reason).not_now());
    if field(info, "loading") == "1" {
        return not_now("the server is loading its data");
    }
    if field(info, "role") != "master" {
        return not_now("the server is a replica, which grants nothing");
    }
    let unsupported =
        |reason: String, next| Err(Error::new(ErrorKind::Unsupported, reason).next(next));
    if field(info, "arch_bits") == "32" {
        // Its scripts cannot print all digits of a fence.
        return unsupported("the server is a 32-bit build".into(), "use a 64-bit build");
    }
    let version = field(info, "redis_version");
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    let version_pair: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let is_cluster = field(info, "cluster_enabled") == "1";
    match (setup.is_cluster, is_cluster) {
        (true, false) => {
            return unsupported("the server is not part of a cluster".into(), "use redis://");
        }
        (false, true) => {
            return unsupported("the server is part of a cluster".into(), "use redis-cluster://");
        }
        _ => {}
    }
    let needed = if is_cluster { (7, 0) } else { (6, 2) };
    if version_pair < needed {
        let reason = format!(
            "the server is version {version}; {}.{} or later is required",
            needed.0, needed.1
        );
        return unsupported(reason, "upgrade it");
    }
    let policy = field(info, "maxmemory_policy");
    if field(info, "maxmemory") != "0" && policy != "noeviction" {
        if setup.config.require_noeviction {
            let reason = format!("the server may evict locks when it is full ({policy})");
            return unsupported(reason, "set maxmemory-policy to noeviction");
        }
        setup.warn_of_eviction(policy);
    }
    Ok(())
}

/// The command that logs in and names the connection.
fn hello<'a>(
    user: Option<&'a str>,
    password: Option<&'a Secret>,
    client_name: &'a str,
) -> Vec<&'a [u8]> {
    let mut parts: Vec<&[u8]> = vec![b"HELLO", b"3"];
    if user.is_some() || password.is_some() {
        let user = user.unwrap_or("default");
        let password = password.map(Secret::expose).unwrap_or_default();
        parts.extend([b"AUTH" as &[u8], user.as_bytes(), password.as_bytes()]);
    }
    parts.extend([b"SETNAME" as &[u8], client_name.as_bytes()]);
    parts
}

/// An error reply is an `Err`.
fn good(value: Value) -> Result<Value> {
    match value {
        Value::Error(text) => Err(Refusal::read(&text).into_error(&text)),
        value => Ok(value),
    }
}

impl<'a> SerialConnection<'a> {
    pub(crate) async fn open(setup: &Setup, address: &'a Address) -> Result<SerialConnection<'a>> {
        let stream = Stream::connect(address, setup.tls.as_ref()).await?;
        Ok(SerialConnection { address, stream, parser: Parser::new() })
    }

    /// Logs in as the user of the configuration.
    pub(crate) async fn log_in_to_server(&mut self, config: &RedisConfig) -> Result<()> {
        self.log_in(config.user.as_deref(), config.password.as_ref(), &config.client_name).await
    }

    pub(crate) async fn log_in(
        &mut self,
        user: Option<&str>,
        password: Option<&Secret>,
        client_name: &str,
    ) -> Result<()> {
        self.ask(&hello(user, password, client_name)).await.map(drop)
    }

    /// Sends several commands at once and waits for all answers. The first error reply is an `Err`.
    async fn ask_all(&mut self, commands: &[Vec<&[u8]>]) -> Result<Vec<Value>> {
        self.send(commands).await?;
        let mut answers = Vec::with_capacity(commands.len());
        for _ in commands {
            answers.push(good(self.answer().await?)?);
        }
        Ok(answers)
    }

    /// Sends a command and waits for its answer. An error reply is an `Err`.
    pub(crate) async fn ask(&mut self, parts: &[&[u8]]) -> Result<Value> {
        good(self.reply(parts).await?)
    }

    /// Sends a command and waits for its answer, which may be an error reply.
    pub(crate) async fn reply(&mut self, parts: &[&[u8]]) -> Result<Value> {
        self.send(&[parts]).await?;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<Value> {
        match self.frame().await? {
            Frame::Reply(value) => Ok(value),
            // The confirmation of a subscription.
            Frame::Push(_) => Ok(Value::Nil),
        }
    }

    /// Sends a command on a connection with subscriptions and waits for its answer. Pushes that arrive
    /// first are dropped: they are older than the answer.
    pub(crate) async fn ask_between_pushes(&mut self, parts: &[&[u8]]) -> Result<Value> {
        self.send(&[parts]).await?;
        loop {
            if let Frame::Reply(value) = self.frame().await? {
                return good(value);
            }
        }
    }

    /// Waits for a push.
    pub(crate) async fn push(&mut self) -> Result<()> {
        while let Frame::Reply(_) = self.frame().await? {}
        Ok(())
    }

    async fn send(&mut self, commands: &[impl AsRef<[&[u8]]>]) -> Result<()> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|parts| resp::command(&mut bytes, parts.as_ref()));
        let broke = |error| stream::explain(self.address, &error);
        self.stream.write_all(&bytes).await.map_err(broke)?;
        self.stream.flush().await.map_err(broke)
    }

    async fn frame(&mut self) -> Result<Frame> {
        loop {
            let malformed = |what: resp::Malformed| {
                let reason = format!("{}: {what}", self.address);
                Error::new(ErrorKind::Unavailable, reason).next("is this a Redis server?")
            };
            if let Some(frame) = self.parser.next().map_err(malformed)? {
                return Ok(frame);
            }
            let broke = |error| stream::explain(self.address, &error);
            if self.stream.read_buf(self.parser.buffer()).await.map_err(broke)? == 0 {
                let reason = format!("{} closed the connection", self.address);
                return Err(Error::new(ErrorKind::Unavailable, reason));
            }
        }
    }
}

pub(crate) fn field<'a>(info: &'a str, name: &str) -> &'a str {
    let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_default().trim_end()
}
