//! A server for one trial, and its statistics.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use redis::{Client, Connection};
use tenure_testkit::servers::Redis;

use super::clock;
use super::failure::Failure;

/// A separate server, on the CPU of the run. Dropping it ends the server.
pub(crate) struct Server {
    server: Redis,
    connection: Connection,
}

impl Server {
    /// Starts a server that keeps nothing on disk.
    pub(crate) fn start(cpu: Option<usize>) -> Result<Server, Failure> {
        let server = Redis::build().start()?;
        if let Some(cpu) = cpu {
            clock::pin(Some(i32::try_from(server.pid())?), cpu)?;
        }
        let connection = Client::open(server.url())?.get_connection()?;
        Ok(Server { server, connection })
    }

    /// Host and port.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.server.port())
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// A number from `INFO`.
    pub(crate) fn figure(&mut self, section: &str, field: &str) -> Result<f64, Failure> {
        let info: String = redis::cmd("INFO").arg(section).query(&mut self.connection)?;
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(value.ok_or_else(|| format!("INFO {section} has no {field}"))?.parse()?)
    }

    /// Microseconds of CPU used by the thread that runs the commands.
    pub(crate) fn cpu(&mut self) -> Result<f64, Failure> {
        let user = self.figure("cpu", "used_cpu_user_main_thread")?;
        Ok((user + self.figure("cpu", "used_cpu_sys_main_thread")?) * 1e6)
    }

    /// The number of keys.
    pub(crate) fn keys(&mut self) -> Result<u64, Failure> {
        Ok(redis::cmd("DBSIZE").query(&mut self.connection)?)
    }

    /// Records every command from now on.
    pub(crate) fn watch(&self) -> Result<Watch, Failure> {
        let mut stream = TcpStream::connect(self.address())?;
        stream.write_all(b"MONITOR\r\n")?;
        let mut lines = BufReader::new(stream.try_clone()?);
        lines.read_line(&mut String::new())?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = seen.clone();
        // Ends when the stream ends.
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                if let Some(moment) = sent(&line) {
                    into.lock().unwrap_or_else(PoisonError::into_inner).push(moment);
                }
            }
        });
        Ok(Watch { stream, seen })
    }
}

/// `MONITOR`: the commands and their times, by the wall clock. Commands inside scripts are not counted.
pub(crate) struct Watch {
    stream: TcpStream,
    seen: Arc<Mutex<Vec<f64>>>,
}

impl Watch {
    /// The number of commands between two moments; the second must be now.
    pub(crate) fn count(&self, from: SystemTime, to: SystemTime) -> usize {
        // Some of the commands are still on their way to us.
        std::thread::sleep(Duration::from_millis(300));
        let seconds = |time: SystemTime| {
            time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
        };
        let window = seconds(from)..=seconds(to);
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter(|moment| window.contains(moment)).count()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// The time of a command that a client sent: `+1794752644.123456 [0 127.0.0.1:43296] "get" "a"`.
fn sent(line: &str) -> Option<f64> {
    let (moment, rest) = line.strip_prefix('+')?.split_once(" [")?;
    let (from, _) = rest.split_once("] ")?;
    (!from.ends_with(" lua")).then(|| moment.parse().ok())?
}
