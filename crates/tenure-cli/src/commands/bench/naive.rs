//! The usual hand-written lock: `SET NX PX`, a script that deletes by owner, another try after 100 ms. No line,
//! no fence, no renewal. It is here for comparison, over the simplest possible connection.
//!
//! The benchmarks in `bench/` use the `redis` crate for their baselines. This file does not: the crate would
//! add about fifty crates to every build of the command, for the four commands that are sent here.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::engines::redis::{Address, RedisConfig, Topology};
use tenure_measure::clock;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

/// The time between two tries.
const PAUSE: Duration = Duration::from_millis(100);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer that is read: INFO has some kilobytes.
const LONGEST: usize = 1 << 20;

/// A connection, and a prefix for owners.
pub(super) struct Naive {
    connection: Mutex<Connection>,
    ttl: Duration,
    count: AtomicU64,
}

impl Naive {
    /// Connects to the server of the URL.
    pub(super) async fn connect(url: &str, ttl: Duration) -> Result<Naive, Trouble> {
        let connection = timeout(PATIENCE, Connection::open(url)).await.map_err(|_| slow())??;
        Ok(Naive { connection: Mutex::new(connection), ttl, count: AtomicU64::new(0) })
    }

    /// Tries until it is free. Returns the owner.
    pub(super) async fn acquire(&self, name: &str) -> Result<String, Trouble> {
        loop {
            if let Some(owner) = self.try_acquire(name).await? {
                return Ok(owner);
            }
            sleep(PAUSE).await;
        }
    }

    pub(super) async fn try_acquire(&self, name: &str) -> Result<Option<String>, Trouble> {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let owner = format!("{}:{}:{count}", std::process::id(), clock::now());
        let ttl = self.ttl.as_millis().to_string();
        let said = self.ask(&["SET", name, &owner, "NX", "PX", &ttl]).await?;
        Ok(said.is_some().then_some(owner))
    }

    pub(super) async fn release(&self, name: &str, owner: &str) -> Result<(), Trouble> {
        self.ask(&["EVAL", include_str!("naive.lua"), "1", name, owner]).await.map(drop)
    }

    /// How many commands the server has executed, from all of its clients.
    pub(super) async fn commands(&self) -> Result<u64, Trouble> {
        let info = self.ask(&["INFO", "stats"]).await?.unwrap_or_default();
        let mut lines = info.lines();
        let count = lines.find_map(|line| line.strip_prefix("total_commands_processed:"));
        let count = count.and_then(|count| count.trim().parse().ok());
        count.ok_or_else(|| Trouble("INFO does not say how many commands there were".into()))
    }

    async fn ask(&self, words: &[&str]) -> Result<Option<String>, Trouble> {
        let mut connection = self.connection.lock().await;
        timeout(PATIENCE, connection.ask(words)).await.map_err(|_| slow())?
    }
}

/// Why there is no naive lock.
#[derive(Debug)]
pub(super) struct Trouble(String);

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble(format!("its connection failed: {error}"))
    }
}

fn slow() -> Trouble {
    Trouble(format!("no answer within {PATIENCE:?}"))
}

struct Connection(BufReader<TcpStream>);

impl Connection {
    async fn open(url: &str) -> Result<Connection, Trouble> {
        let unfit = || Trouble("it speaks only to one server, over TCP and without TLS".into());
        let (config, _) = RedisConfig::from_url(url).map_err(|_| unfit())?;
        let Topology::Single(Address::Tcp { host, port }) = &config.topology else {
            return Err(unfit());
        };
        if config.tls.is_some() {
            return Err(unfit());
        }
        let stream = TcpStream::connect((&**host, *port)).await?;
        stream.set_nodelay(true)?;
        let mut connection = Connection(BufReader::new(stream));
        if let Some(password) = password(url) {
            let user = config.user.as_deref();
            let words: Vec<_> = ["AUTH"].into_iter().chain(user).chain([&*password]).collect();
            connection.ask(&words).await?;
        }
        if config.db > 0 {
            connection.ask(&["SELECT", &config.db.to_string()]).await?;
        }
        Ok(connection)
    }

    /// Sends a command. Only parses the kinds of replies that its few commands have.
    async fn ask(&mut self, words: &[&str]) -> Result<Option<String>, Trouble> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        self.0.get_mut().write_all(&request).await?;
        let mut line = String::new();
        if (&mut self.0).take(LONGEST as u64).read_line(&mut line).await? == 0 {
            return Err(Trouble("the server hung up".into()));
        }
        let line = line.trim_end();
        match line.split_at_checked(1) {
            Some(("+" | ":", said)) => Ok(Some(said.to_owned())),
            Some(("$", "-1")) | Some(("_", _)) => Ok(None),
            Some(("$", length)) => self.bulk(length).await.map(Some),
            Some(("-", said)) => Err(Trouble(format!("the server said {said}"))),
            _ => Err(Trouble("the server said something else".into())),
        }
    }

    async fn bulk(&mut self, length: &str) -> Result<String, Trouble> {
        let length = length.parse().ok().filter(|length| *length <= LONGEST);
        let length = length.ok_or_else(|| Trouble("the answer is too long".into()))?;
        let mut bytes = vec![0; length + 2];
        self.0.read_exact(&mut bytes).await?;
        bytes.truncate(length);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The password in a URL, decoded. The library does not expose the one it has read.
fn password(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (login, _) = authority.rsplit_once('@')?;
    let (_, password) = login.split_once(':')?;
    let mut decoded = Vec::with_capacity(password.len());
    let mut bytes = password.bytes();
    while let Some(byte) = bytes.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        match byte {
            b'%' => {
                let value = digit(bytes.next())? * 16 + digit(bytes.next())?;
                decoded.push(u8::try_from(value).ok()?);
            }
            byte => decoded.push(byte),
        }
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_found_where_there_is_one() {
        for (url, found) in [
            ("redis://h", None),
            ("redis://user@h", None),
            ("redis://:p@h:1/2?x=a:b@c", Some("p")),
            ("redis://u:p%40%3A:x@h", Some("p@::x")),
            ("redis://h/?x=a:b@c", None),
        ] {
            assert_eq!(password(url).as_deref(), found, "{url}");
        }
    }
}
