//! From an address to a server that is fit to be asked.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Shared;
use super::config::{Address, Secret, Topology};
use super::link::{Duty, Target};
use super::refusal::Refusal;
use super::resp::{self, Frame, Parser, Value};
use super::stream::{self, Stream};
use crate::error::{Error, ErrorKind, Result};

/// What the server said of itself, and what of its words is not read yet.
pub(super) struct Greeting {
    pub(super) run_id: String,
    pub(super) parser: Parser,
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

    async fn greet(&self, address: &Address, duty: Duty) -> Result<(Stream, Greeting)> {
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
        Ok((talk.stream, Greeting { run_id, parser: talk.parser }))
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

    /// The primary, where the first sentinel says whose word is good: one that is cut off may name a
    /// server that is none any more.
    async fn greet_primary(&self, duty: Duty) -> Result<(Stream, Greeting)> {
        let Topology::Sentinel { sentinels, service } = &self.config.topology else {
            return Err(Error::new(ErrorKind::Internal, "there are no sentinels"));
        };
        let mut failure = Error::invalid("no sentinel is named");
        for sentinel in sentinels {
            let greeted = match self.ask_sentinel(sentinel, service).await {
                Ok(Some(primary)) => self.greet(&primary, duty).await,
                Ok(None) => {
                    let reason = format!("the sentinel {sentinel} does not know {service:?}");
                    Err(Error::new(ErrorKind::Unavailable, reason))
                }
                Err(error) => Err(error),
            };
            match greeted {
                Ok(greeted) => return Ok(greeted),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    pub(super) async fn ask_sentinel(
        &self,
        sentinel: &Address,
        service: &str,
    ) -> Result<Option<Address>> {
        let config = &self.config;
        // One sentinel that hangs must not use up the time for the others.
        let limit = config.connect_timeout / 4;
        let asked = async {
            let mut talk = self.talk(sentinel).await?;
            let (user, password) = (&config.sentinel_user, &config.sentinel_password);
            talk.log_in(user.as_deref(), password.as_ref(), &config.client_name).await?;
            let parts: [&[u8]; 3] = [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", service.as_bytes()];
            talk.ask(&parts).await
        };
        let answer = tokio::time::timeout(limit, asked).await.map_err(|_| {
            let reason = format!("the sentinel {sentinel} did not answer within {limit:?}");
            Error::new(ErrorKind::Unavailable, reason)
        })??;
        let Some([host, port]) = answer.as_list() else { return Ok(None) };
        let port = port.as_int().and_then(|port| port.try_into().ok());
        Ok(host.as_str().zip(port).map(|(host, port)| Address::Tcp { host: host.to_owned(), port }))
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
        let mut command = Vec::new();
        resp::command(&mut command, parts);
        let broke = |error| stream::explain(self.address, &error);
        self.stream.write_all(&command).await.map_err(broke)?;
        self.stream.flush().await.map_err(broke)?;
        loop {
            let malformed = |what: resp::Malformed| {
                let reason = format!("{}: {what}", self.address);
                Error::new(ErrorKind::Unavailable, reason).next("is this a Redis?")
            };
            match self.parser.next().map_err(malformed)? {
                Some(Frame::Reply(value)) => return Ok(value),
                // The confirmation of a subscription.
                Some(Frame::Push(_)) => return Ok(Value::Nil),
                None => {}
            }
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
