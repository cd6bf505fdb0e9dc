//! Reads a stream of events (`text/event-stream`) as it arrives, in pieces of any size. No IO.

/// The longest event. A server of this protocol never sends one that is longer.
const LONGEST: usize = 1 << 20;

/// What has arrived but is not a whole event yet.
#[derive(Default, Debug)]
pub(super) struct Parser {
    line: Vec<u8>,
    kind: Vec<u8>,
    data: Vec<u8>,
    after_return: bool,
}

/// An event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: String,
    pub(super) data: Vec<u8>,
}

impl Parser {
    /// Takes what has arrived. Returns `None` if an event is too long to be one.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Option<Vec<Message>> {
        let mut messages = Vec::new();
        for &byte in bytes {
            let after_return = std::mem::replace(&mut self.after_return, byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\r' | b'\n' => messages.extend(self.end_line()),
                _ if self.line.len() + self.data.len() >= LONGEST => return None,
                byte => self.line.push(byte),
            }
        }
        Some(messages)
    }

    fn end_line(&mut self) -> Option<Message> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let kind = std::mem::take(&mut self.kind);
            let data = std::mem::take(&mut self.data);
            let has_data = !data.is_empty();
            return has_data
                .then(|| Message { kind: String::from_utf8_lossy(&kind).into_owned(), data });
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => self.kind = value.to_vec(),
            b"data" => {
                if !self.data.is_empty() {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            // A comment, or a field that means nothing here.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: &str, data: &str) -> Message {
        Message { kind: kind.to_owned(), data: data.as_bytes().to_vec() }
    }

    #[test]
    fn events_are_the_same_however_they_are_cut() {
        let text = ": a comment\nevent: hello\ndata: {}\n\nevent:turn\r\nid: 5\r\ndata: {\"a\":1}\r\ndata:more\r\n\r\n\nretry: 9\n\ndata: x\n\n";
        let expected =
            [message("hello", "{}"), message("turn", "{\"a\":1}\nmore"), message("", "x")];
        for size in 1..=text.len() {
            let mut parser = Parser::default();
            let pieces = text.as_bytes().chunks(size);
            let found: Vec<_> = pieces.flat_map(|piece| parser.read(piece).unwrap()).collect();
            assert_eq!(found, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn an_event_without_end_is_given_up() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; 64 << 10];
        assert!((0..100).any(|_| parser.read(&piece).is_none()));
    }
}
