//! RESP3, the wire format of Redis: commands out, replies and pushes in.
//!
//! The parser keeps its position between reads, so it looks at every byte once, no matter how small the
//! pieces of a large reply are. It never panics, and never trusts a length before the bytes have arrived.
//! It refuses what it does not know, because after one misread frame every reply would go to the wrong caller.

use std::fmt;
use std::mem;

/// The deepest nesting of lists. Our own replies have three levels.
const DEEPEST: usize = 16;
/// The longest bulk string: the server's own limit.
const LONGEST_BULK: i64 = 512 << 20;
/// The longest line: a simple string, an error or a number.
const LONGEST_LINE: usize = 64 << 10;
/// The largest number of items in a list.
const MOST_ITEMS: i64 = 1 << 24;
/// The largest number of items for which room is reserved before they arrive.
const BELIEVED_ITEMS: usize = 128;
/// The room for the next read. For a longer bulk string it may be up to `MOST_ROOM`.
const ROOM: usize = 8 << 10;
const MOST_ROOM: usize = 1 << 20;

/// A reply, reduced to what we use: maps are lists of 2n items, sets are lists, booleans are 0 and 1, every
/// kind of text is bytes (doubles and big numbers too), attributes are dropped.
#[derive(Clone, PartialEq)]
pub(crate) enum Value {
    Nil,
    Int(i64),
    Bytes(Box<[u8]>),
    List(Vec<Value>),
    /// An error reply. It may quote the command's arguments, so it must not be logged as it is.
    Error(Box<str>),
}

impl Value {
    /// An integer, or a text that is one.
    pub(crate) fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(int) => Some(*int),
            Value::Bytes(bytes) => integer(bytes),
            _ => None,
        }
    }

    pub(crate) fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Text, if it is UTF-8.
    pub(crate) fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()?).ok()
    }

    pub(crate) fn as_list(&self) -> Option<&[Value]> {
        match self {
            Value::List(items) => Some(items),
            _ => None,
        }
    }
}

/// Shows only the shape: replies contain claim ids, which are secrets.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Nil => f.write_str("Nil"),
            Value::Int(int) => write!(f, "Int({int})"),
            Value::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
            Value::List(items) => f.debug_list().entries(items).finish(),
            Value::Error(text) => {
                write!(f, "Error({})", text.split(' ').next().unwrap_or_default())
            }
        }
    }
}

/// What a server sends: the answer to the oldest open command, or a push.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Frame {
    Reply(Value),
    Push(Vec<Value>),
}

/// The bytes are not RESP3, and nothing after them can be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed(&'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server does not speak RESP3: {}", self.0)
    }
}

/// Turns bytes into frames. After an error it only repeats that error.
#[derive(Default)]
pub(crate) struct Parser {
    bytes: Vec<u8>,
    /// Where the unparsed bytes begin.
    start: usize,
    /// How many unparsed bytes there must be before it is worth parsing again.
    need: usize,
    /// How many unparsed bytes are known to contain no end of line.
    scanned: usize,
    /// The incomplete lists, the outermost first.
    open: Vec<Open>,
    broken: Option<Malformed>,
}

struct Open {
    kind: Kind,
    left: usize,
    items: Vec<Value>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    List,
    Push,
    Attribute,
}

enum Piece {
    Value(Value),
    Open(Kind, usize),
}

impl Parser {
    pub(crate) fn new() -> Parser {
        Parser::default()
    }

    /// The buffer that a socket appends to. It has room for more, and what was parsed is dropped. The
    /// caller may only append.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
            // Do not keep the memory of one huge reply.
            if self.bytes.capacity() > 2 * MOST_ROOM {
                self.bytes.shrink_to(ROOM);
            }
        } else if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        let missing = self.need.saturating_sub(self.bytes.len() - self.start);
        self.bytes.reserve(missing.clamp(ROOM, MOST_ROOM));
        &mut self.bytes
    }

    /// The same for bytes that are in memory.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.buffer().extend_from_slice(bytes);
    }

    /// The next frame; `None` if it has not arrived completely.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, Malformed> {
        if let Some(malformed) = self.broken {
            return Err(malformed);
        }
        let frame = self.frame();
        if let Err(malformed) = frame {
            *self = Parser { broken: Some(malformed), ..Parser::default() };
        }
        frame
    }

    fn frame(&mut self) -> Result<Option<Frame>, Malformed> {
        while let Some(piece) = self.piece()? {
            match piece {
                Piece::Value(value) => {
                    if let Some(frame) = self.deliver(value) {
                        return Ok(Some(frame));
                    }
                }
                Piece::Open(Kind::Push, _) if !self.open.is_empty() => {
                    return Err(Malformed("a push inside a reply"));
                }
                Piece::Open(Kind::Push, 0) => return Ok(Some(Frame::Push(Vec::new()))),
                Piece::Open(Kind::Attribute, 0) => {}
                Piece::Open(..) if self.open.len() == DEEPEST => {
                    return Err(Malformed("lists are nested too deep"));
                }
                Piece::Open(kind, left) => {
                    let items = Vec::with_capacity(left.min(BELIEVED_ITEMS));
                    self.open.push(Open { kind, left, items });
                }
            }
        }
        Ok(None)
    }

    /// Adds a value to the list it belongs to. Returns a frame if that completes one.
    fn deliver(&mut self, mut value: Value) -> Option<Frame> {
        loop {
            let Some(top) = self.open.last_mut() else {
                return Some(Frame::Reply(value));
            };
            top.left -= 1;
            if top.kind != Kind::Attribute {
                top.items.push(value);
            }
            if top.left > 0 {
                return None;
            }
            let (kind, items) = (top.kind, mem::take(&mut top.items));
            self.open.pop();
            match kind {
                Kind::List => value = Value::List(items),
                Kind::Push => return Some(Frame::Push(items)),
                // An attribute annotates the value that follows, and is not a value itself.
                Kind::Attribute => return None,
            }
        }
    }

    /// Reads one value that is not a list, or the beginning of a list.
    fn piece(&mut self) -> Result<Option<Piece>, Malformed> {
        let unread = &self.bytes[self.start..];
        if unread.len() < self.need {
            return Ok(None);
        }
        let Some(&first) = unread.first() else {
            return Ok(None);
        };
        if !is_type(first) {
            return Err(Malformed("an unknown type of value"));
        }
        let end = unread[self.scanned..].iter().position(|&byte| byte == b'\n');
        let Some(end) = end.map(|end| self.scanned + end) else {
            self.scanned = unread.len();
            self.need = unread.len() + 1;
            return if unread.len() > LONGEST_LINE { Err(TOO_LONG_A_LINE) } else { Ok(None) };
        };
        if end > LONGEST_LINE {
            return Err(TOO_LONG_A_LINE);
        }
        let Some(line) = unread[1..end].strip_suffix(b"\r") else {
            return Err(Malformed("a line that does not end with CR LF"));
        };
        let mut used = end + 1;
        let piece = match first {
            b'$' | b'=' | b'!' => match length(line, LONGEST_BULK)? {
                None => Piece::Value(Value::Nil),
                Some(length) => {
                    let body = used;
                    used += length + 2;
                    let Some(text) = unread.get(body..used) else {
                        self.need = used;
                        return Ok(None);
                    };
                    let text = text.strip_suffix(b"\r\n");
                    let text = text.ok_or(Malformed("a bulk string longer than it says"))?;
                    Piece::Value(bulk_string(first, text)?)
                }
            },
            _ => one_line(first, line)?,
        };
        self.start += used;
        (self.need, self.scanned) = (0, 0);
        Ok(Some(piece))
    }
}

const TOO_LONG_A_LINE: Malformed = Malformed("a line without end");

#[rustfmt::skip]
fn is_type(first: u8) -> bool {
    matches!(first, b'+' | b'-' | b':' | b'$' | b'*' | b'_' | b'#' | b',' | b'(' | b'!' | b'=' | b'%'
        | b'~' | b'>' | b'|')
}

/// Parses a value that consists of one line.
fn one_line(first: u8, line: &[u8]) -> Result<Piece, Malformed> {
    let value = match (first, line) {
        (b':', _) => Value::Int(integer(line).ok_or(Malformed("a malformed integer"))?),
        (b'+' | b',' | b'(', _) => Value::Bytes(line.into()),
        (b'-', _) => error(line),
        (b'_', b"") => Value::Nil,
        (b'#', b"t") => Value::Int(1),
        (b'#', b"f") => Value::Int(0),
        (b'*' | b'~' | b'%', _) => match length(line, MOST_ITEMS)? {
            None => Value::Nil,
            Some(0) => Value::List(Vec::new()),
            Some(items) => return Ok(Piece::Open(Kind::List, items << (first == b'%') as u32)),
        },
        (b'>' | b'|', _) => {
            let items = length(line, MOST_ITEMS)?.ok_or(Malformed("a length below zero"))?;
            return Ok(match first {
                b'>' => Piece::Open(Kind::Push, items),
                _ => Piece::Open(Kind::Attribute, items * 2),
            });
        }
        _ => return Err(Malformed("a malformed null or boolean")),
    };
    Ok(Piece::Value(value))
}

fn bulk_string(first: u8, text: &[u8]) -> Result<Value, Malformed> {
    match (first, text) {
        (b'$', text) => Ok(Value::Bytes(text.into())),
        (b'!', text) => Ok(error(text)),
        // The first three letters of a verbatim string name its format.
        (_, [_, _, _, b':', text @ ..]) => Ok(Value::Bytes(text.into())),
        _ => Err(Malformed("a verbatim string without its format")),
    }
}

fn error(text: &[u8]) -> Value {
    Value::Error(String::from_utf8_lossy(text).into())
}

/// Parses a length; `None` for -1, which is how RESP2 writes nil.
fn length(line: &[u8], longest: i64) -> Result<Option<usize>, Malformed> {
    if line == b"?" {
        return Err(Malformed("a streamed value, which we never ask for"));
    }
    match integer(line) {
        Some(-1) => Ok(None),
        Some(length) if (0..=longest).contains(&length) => Ok(Some(length as usize)),
        _ => Err(Malformed("a length out of range")),
    }
}

pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    // Accumulated as a negative number, because there is one more of those.
    let mut number: i64 = 0;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_sub(digit.into())?;
    }
    if negative { Some(number) } else { number.checked_neg() }
}

/// Begins a command with `len` parts.
pub(crate) fn array(out: &mut Vec<u8>, len: usize) {
    header(out, b'*', len);
}

/// Adds a part.
pub(crate) fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    bulk_of(out, &[bytes]);
}

/// Adds a part that is given in pieces.
pub(crate) fn bulk_of(out: &mut Vec<u8>, pieces: &[&[u8]]) {
    header(out, b'$', pieces.iter().map(|piece| piece.len()).sum());
    pieces.iter().for_each(|piece| out.extend_from_slice(piece));
    out.extend_from_slice(b"\r\n");
}

/// Adds a part that is a number.
pub(crate) fn bulk_number(out: &mut Vec<u8>, n: u64) {
    bulk(out, decimal(n, &mut [0; 20]));
}

/// Adds a whole command.
pub(crate) fn command(out: &mut Vec<u8>, parts: &[&[u8]]) {
    // A part has up to 13 bytes around it, unless it is huge.
    out.reserve(parts.iter().map(|part| part.len() + 13).sum::<usize>() + 13);
    array(out, parts.len());
    parts.iter().for_each(|part| bulk(out, part));
}

fn header(out: &mut Vec<u8>, first: u8, len: usize) {
    if len < 10 {
        out.extend_from_slice(&[first, b'0' + len as u8, b'\r', b'\n']);
        return;
    }
    out.push(first);
    out.extend_from_slice(decimal(len as u64, &mut [0; 20]));
    out.extend_from_slice(b"\r\n");
}

/// Writes a number from its last digit, two digits for each division.
pub(super) fn decimal(mut n: u64, room: &mut [u8; 20]) -> &[u8] {
    let mut at = room.len();
    while n >= 10 {
        let pair = (n % 100) as u8;
        n /= 100;
        at -= 2;
        (room[at], room[at + 1]) = (b'0' + pair / 10, b'0' + pair % 10);
    }
    if n > 0 || at == room.len() {
        at -= 1;
        room[at] = b'0' + n as u8;
    }
    &room[at..]
}

#[cfg(test)]
mod tests;
