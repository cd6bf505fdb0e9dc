//! From an address to a server that is fit to be asked.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Shared;
use super::config::{Address, Secret};
use super::link::{Duty, Target};
use super::refusal::Refusal;
use super::resp::{self, Frame, Parser, Value};
use super::stream::{self, Stream};
use crate::model::error::{Error, ErrorKind, Result};

/// What the server said of itself, and what of its words is not read yet.
pub(super) struct Greeting {
    pub(super) run_id: String,
    pub(super) parser: Parser,
    /// Where it is, if the sentinels say that.
    pub(super) primary: Option<Address>,
}

/// A connection on which one command is asked after the other.
pub(super) struct Talk<'a> {
    address: &'a Address,
    stream: Stream,
    parser: Parser,
}

impl Shared {
    /// Connects to the server, logs in, and checks that it can keep locks.
    ///
    /// # Cancel safety
    /// Safe: a connection that was not returned is closed.
    pub(super) async fn reach(&self, target: &Target, duty: Duty) -> Result<(Stream, Greeting)> {
        match target {
            Target::Fixed(address) => self.greet(address, duty).await,
            Target::Sentinels => self.greet_primary(duty).await,
        }
    }

    pub(super) async fn greet(&self, address: &Address, duty: Duty) -> Result<(Stream, Greeting)> {
        let config = &self.config;
        let mut talk = self.talk(address).await?;
        talk.log_in(config.user.as_deref(), config.password.as_ref(), &config.client_name).await?;
        if config.db != 0 {
            talk.ask(&[b"SELECT", config.db.to_string().as_bytes()]).await?;
        }
        let info = talk.ask(&[b"INFO"]).await?;
        let info = String::from_utf8_lossy(info.as_bytes().unwrap_or_default()).into_owned();
        self.check_server(&info)?;
        if duty == Duty::Data && !self.is_cluster {
            let channel = self.layout.channel(0);
            talk.ask(&[b"SUBSCRIBE", channel.as_bytes()]).await?;
        }
        let run_id = field(&info, "run_id").to_owned();
        Ok((talk.stream, Greeting { run_id, parser: talk.parser, primary: None }))
    }

    pub(super) async fn talk<'a>(&self, address: &'a Address) -> Result<Talk<'a>> {
        let stream = Stream::connect(address, self.tls.as_ref()).await?;
        Ok(Talk { address, stream, parser: Parser::new() })
    }

    fn check_server(&self, info: &str) -> Result<()> {
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
            // Its scripts cannot print a fence to the digit.
            return unsupported("the server is a 32-bit build".into(), "use a 64-bit build");
        }
        let version = field(info, "redis_version");
        let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
        let version_pair: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let is_cluster = field(info, "cluster_enabled") == "1";
        match (self.is_cluster, is_cluster) {
            (true, false) => {
                return unsupported("the server is not part of a cluster".into(), "use redis://");
            }
            (false, true) => {
                return unsupported(
                    "the server is part of a cluster".into(),
                    "use redis-cluster://",
                );
            }
            _ => {}
        }
        let needed = if is_cluster { (7, 0) } else { (6, 2) };
        if version_pair < needed {
            let reason =
                format!("the server is version {version}; needed is {}.{}", needed.0, needed.1);
            return unsupported(reason, "upgrade it");
        }
        let policy = field(info, "maxmemory_policy");
        if field(info, "maxmemory") != "0" && policy != "noeviction" {
            if self.config.require_noeviction {
                let reason = format!("the server may evict locks when it is full ({policy})");
                return unsupported(reason, "set maxmemory-policy to noeviction");
            }
            self.warn_of_eviction(policy);
        }
        Ok(())
    }
}

impl Talk<'_> {
    pub(super) async fn log_in(
        &mut self,
        user: Option<&str>,
        password: Option<&Secret>,
        client_name: &str,
    ) -> Result<()> {
        let mut parts: Vec<&[u8]> = vec![b"HELLO", b"3"];
        if user.is_some() || password.is_some() {
            let user = user.unwrap_or("default");
            let password = password.map(Secret::expose).unwrap_or_default();
            parts.extend([b"AUTH" as &[u8], user.as_bytes(), password.as_bytes()]);
        }
        parts.extend([b"SETNAME" as &[u8], client_name.as_bytes()]);
        self.ask(&parts).await.map(drop)
    }

    /// Asks, and waits for the answer. A refusal is an error.
    pub(super) async fn ask(&mut self, parts: &[&[u8]]) -> Result<Value> {
        match self.reply(parts).await? {
            Value::Error(text) => Err(Refusal::read(&text).into_error(&text)),
            value => Ok(value),
        }
    }

    /// Asks, and waits for the answer, whatever it is.
    pub(super) async fn reply(&mut self, parts: &[&[u8]]) -> Result<Value> {
        self.send(parts).await?;
        match self.frame().await? {
            Frame::Reply(value) => Ok(value),
            // The confirmation of a subscription.
            Frame::Push(_) => Ok(Value::Nil),
        }
    }

    /// Asks where something is subscribed, and waits for the answer. What is pushed before it happened
    /// before it.
    pub(super) async fn ask_between_pushes(&mut self, parts: &[&[u8]]) -> Result<Value> {
        self.send(parts).await?;
        loop {
            match self.frame().await? {
                Frame::Push(_) => {}
                Frame::Reply(Value::Error(text)) => {
                    return Err(Refusal::read(&text).into_error(&text));
                }
                Frame::Reply(value) => return Ok(value),
            }
        }
    }

    /// Waits for a push.
    pub(super) async fn push(&mut self) -> Result<()> {
        while let Frame::Reply(_) = self.frame().await? {}
        Ok(())
    }

    async fn send(&mut self, parts: &[&[u8]]) -> Result<()> {
        let mut command = Vec::new();
        resp::command(&mut command, parts);
        let broke = |error| stream::explain(self.address, &error);
        self.stream.write_all(&command).await.map_err(broke)?;
        self.stream.flush().await.map_err(broke)
    }

    async fn frame(&mut self) -> Result<Frame> {
        loop {
            let malformed = |what: resp::Malformed| {
                let reason = format!("{}: {what}", self.address);
                Error::new(ErrorKind::Unavailable, reason).next("is this a Redis?")
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

pub(super) fn field<'a>(info: &'a str, name: &str) -> &'a str {
    let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_default().trim_end()
}
