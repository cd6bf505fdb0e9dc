//! A blocking client for tests, which shares no code with the tested one.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::ServerError;

/// The time-out of a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nil.
    Nil,
    /// A number.
    Int(i64),
    /// A string or a status; invalid UTF-8 is replaced.
    Text(String),
    /// A list.
    List(Vec<Reply>),
    /// An error, with its code: `WRONGTYPE ...`.
    Error(String),
}

impl Reply {
    /// The text, or the message of an error.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Reply::Text(text) | Reply::Error(text) => Some(text),
            _ => None,
        }
    }

    /// The number, also if it is a text.
    #[must_use]
    pub fn int(&self) -> Option<i64> {
        match self {
            Reply::Int(int) => Some(*int),
            Reply::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// The elements; empty if it is no list.
    #[must_use]
    pub fn list(&self) -> &[Reply] {
        match self {
            Reply::List(list) => list,
            _ => &[],
        }
    }

    /// Whether it is nil.
    #[must_use]
    pub fn is_nil(&self) -> bool {
        *self == Reply::Nil
    }

    /// Whether it is an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }

    /// The reply; an error of the server becomes an `Err`.
    pub fn accepted(self) -> Result<Reply, ServerError> {
        match self {
            Reply::Error(error) => Err(ServerError::new(format!("the server refused: {error}"))),
            reply => Ok(reply),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Nil => f.write_str("nil"),
            Reply::Int(int) => write!(f, "{int}"),
            Reply::Text(text) => f.write_str(text),
            Reply::Error(error) => write!(f, "({error})"),
            Reply::List(list) => {
                f.write_str("[")?;
                for (index, reply) in list.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{reply}")?;
                }
                f.write_str("]")
            }
        }
    }
}

/// A connection of the test itself, for `MULTI`, `SUBSCRIBE`, `CLIENT` and the like. It uses the server's Unix
/// socket, so it also works where clients must use TLS.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    pub(crate) fn open(socket: &Path) -> Result<Connection, ServerError> {
        let open = || -> io::Result<UnixStream> {
            let stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let what = format_args!("cannot connect to {}", socket.display());
        let stream = open().map_err(ServerError::during(what))?;
        Ok(Connection { stream: BufReader::new(stream) })
    }

    /// Sends a command and returns its reply, which may be an error. Gives up after 10 s.
    pub fn command<T: AsRef<str>>(&mut self, words: &[T]) -> Result<Reply, ServerError> {
        self.send(words)?;
        self.receive()
    }

    /// Sends a command, and leaves its reply for [`receive`](Connection::receive).
    pub fn send<T: AsRef<str>>(&mut self, words: &[T]) -> Result<(), ServerError> {
        let mut bytes = format!("*{}\r\n", words.len());
        for word in words.iter().map(AsRef::as_ref) {
            bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        let sent = self.stream.get_mut().write_all(bytes.as_bytes());
        sent.map_err(ServerError::during("cannot send a command"))
    }

    /// Waits for the next reply or message. Gives up after 10 s.
    pub fn receive(&mut self) -> Result<Reply, ServerError> {
        read(&mut self.stream).map_err(ServerError::during("no reply from the server"))
    }
}

fn read(from: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server hung up"));
    }
    let line = line.trim_end();
    let odd = || io::Error::new(io::ErrorKind::InvalidData, format!("odd reply {line:?}"));
    let (kind, rest) = line.split_at_checked(1).ok_or_else(odd)?;
    let number = || rest.parse::<i64>().map_err(|_| odd());
    match kind {
        "+" => Ok(Reply::Text(rest.to_owned())),
        "-" => Ok(Reply::Error(rest.to_owned())),
        ":" => Ok(Reply::Int(number()?)),
        "$" | "*" => {
            let Ok(length) = usize::try_from(number()?) else { return Ok(Reply::Nil) };
            if kind == "*" {
                return (0..length).map(|_| read(from)).collect::<io::Result<_>>().map(Reply::List);
            }
            let mut bytes = vec![0; length + 2];
            from.read_exact(&mut bytes)?;
            bytes.truncate(length);
            Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
        }
        _ => Err(odd()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_all_kinds_are_read() {
        let mut wire = &b"*6\r\n+OK\r\n:-3\r\n$-1\r\n$4\r\na\r\nb\r\n*-1\r\n-ERR no\r\n"[..];
        let reply = read(&mut wire).unwrap();
        assert_eq!(reply.to_string(), "[OK, -3, nil, a\r\nb, nil, (ERR no)]");
        assert!(read(&mut wire).is_err());
    }
}
