//! The record of a command that ran once: how it ended, and what it wrote.
//!
//! As bytes: a first line that marks the format, how the command ended, how many bytes it wrote in total, and the
//! pieces in order. If it is too long, only the last part is kept.

use std::collections::VecDeque;

use tenure::LONGEST_OUTCOME;

use super::command::Ending;

/// The beginning of the bytes.
const MARK: &[u8] = b"tenure-cli/1\n";
/// The mark, how it ended (2), how many bytes it wrote (8).
const HEAD: usize = MARK.len() + 10;
/// The overhead of a piece: the stream (1) and the length (4).
const PIECE: usize = 5;
/// A longer piece is not extended, so that the oldest can be dropped cheaply.
const LONGEST_PIECE: usize = 16 * 1024;

/// The stream that something was written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Error,
}

/// Consecutive bytes of one stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) stream: Stream,
    pub(super) bytes: Vec<u8>,
}

/// What a command wrote, as much as there is room for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Written {
    pieces: VecDeque<Piece>,
    /// The number of bytes written in total.
    whole: u64,
    /// The size of the pieces in the record.
    size: usize,
}

/// The record of a command that has exited.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) ending: Ending,
    pub(super) written: Written,
}

impl Written {
    /// Adds what was written last, and drops the oldest if it is too much.
    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8]) {
        self.whole += bytes.len() as u64;
        match self.pieces.back_mut() {
            Some(last) if last.stream == stream && last.bytes.len() < LONGEST_PIECE => {
                last.bytes.extend_from_slice(bytes);
                self.size += bytes.len();
            }
            _ => {
                self.pieces.push_back(Piece { stream, bytes: bytes.to_vec() });
                self.size += PIECE + bytes.len();
            }
        }
        while let Some(excess) = self.size.checked_sub(LONGEST_OUTCOME - HEAD + 1)
            && let Some(first) = self.pieces.front_mut()
        {
            let gone = first.bytes.len().min(excess + 1);
            first.bytes.drain(..gone);
            self.size -= gone;
            if first.bytes.is_empty() {
                self.pieces.pop_front();
                self.size -= PIECE;
            }
        }
    }

    /// The number of bytes written in total.
    pub(super) fn whole(&self) -> u64 {
        self.whole
    }

    /// What is left of it, in order.
    pub(super) fn into_pieces(self) -> VecDeque<Piece> {
        self.pieces
    }

    /// The number of bytes that are left, and the total, if they differ.
    pub(super) fn cut(&self) -> Option<(u64, u64)> {
        let left = self.pieces.iter().map(|piece| piece.bytes.len() as u64).sum();
        (left < self.whole).then_some((left, self.whole))
    }
}

impl Record {
    /// The bytes to keep.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Record { ending, written } = self;
        let mut bytes = MARK.to_vec();
        bytes.extend(match ending {
            Ending::Code(code) => [0, *code],
            Ending::Signal(signal) => [1, u8::try_from(*signal).unwrap_or(u8::MAX)],
        });
        bytes.extend(written.whole.to_be_bytes());
        for Piece { stream, bytes: piece } in &written.pieces {
            bytes.push(u8::from(*stream == Stream::Error));
            bytes.extend(u32::try_from(piece.len()).unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend(piece);
        }
        bytes
    }

    /// Parses what was kept. An outcome that does not come from this command is taken as its output.
    pub(super) fn from_bytes(bytes: &[u8]) -> Record {
        Record::read(bytes).unwrap_or_else(|| {
            let piece = Piece { stream: Stream::Out, bytes: bytes.to_vec() };
            let (whole, size) = (bytes.len() as u64, PIECE + bytes.len());
            let written = Written { pieces: [piece].into(), whole, size };
            Record { ending: Ending::Code(0), written }
        })
    }

    /// Parses what this command has kept.
    pub(super) fn read(bytes: &[u8]) -> Option<Record> {
        let (&[kind, number], rest) = bytes.strip_prefix(MARK)?.split_first_chunk()?;
        let ending = match kind {
            0 => Ending::Code(number),
            _ => Ending::Signal(number.into()),
        };
        let (whole, mut rest) = rest.split_first_chunk()?;
        let mut written = Written { whole: u64::from_be_bytes(*whole), ..Written::default() };
        while let Some((stream, after)) = rest.split_first() {
            let (length, after) = after.split_first_chunk()?;
            let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
            let (bytes, after) = after.split_at_checked(length)?;
            let stream = if *stream == 0 { Stream::Out } else { Stream::Error };
            written.pieces.push_back(Piece { stream, bytes: bytes.to_vec() });
            written.size += PIECE + length;
            rest = after;
        }
        Some(Record { ending, written })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_what_is_read_in_its_order() {
        let mut written = Written::default();
        for (stream, bytes) in [
            (Stream::Out, &b"a\n"[..]),
            (Stream::Out, b"b\0\xff"),
            (Stream::Error, b"oops\n"),
            (Stream::Out, b"c"),
        ] {
            written.push(stream, bytes);
        }
        assert_eq!((written.pieces.len(), written.cut()), (3, None));
        for ending in [Ending::Code(0), Ending::Code(255), Ending::Signal(9)] {
            let record = Record { ending, written: written.clone() };
            assert_eq!(Record::from_bytes(&record.to_bytes()), record);
        }
    }

    #[test]
    fn of_what_is_too_long_the_end_is_kept_and_the_limit_is_not_passed() {
        for step in [1, 7, 4096, 100_000] {
            let (mut written, mut all) = (Written::default(), Vec::new());
            while all.len() < 200_000 {
                let bytes: Vec<_> = (0..step).map(|at| (all.len() + at) as u8).collect();
                // Now and then to the other stream.
                let stream = if all.len() % 30_000 < step { Stream::Error } else { Stream::Out };
                written.push(stream, &bytes);
                all.extend(bytes);
            }
            let record = Record { ending: Ending::Code(3), written };
            let bytes = record.to_bytes();
            assert!(bytes.len() <= LONGEST_OUTCOME, "{}", bytes.len());
            assert!(bytes.len() > LONGEST_OUTCOME - 20_000 || step > 4096, "{}", bytes.len());
            let read = Record::from_bytes(&bytes);
            assert_eq!(read, record);
            let (left, whole) = read.written.cut().unwrap();
            assert_eq!(whole, all.len() as u64);
            let pieces = read.written.into_pieces();
            let kept: Vec<_> = pieces.into_iter().flat_map(|piece| piece.bytes).collect();
            assert_eq!(kept.len() as u64, left);
            assert!(all.ends_with(&kept), "the last part");
        }
    }

    #[test]
    fn an_outcome_of_a_program_is_what_it_wrote() {
        for foreign in
            [&b"paid 42"[..], b"", b"tenure-cli/1\n\0", b"tenure-cli/1\n\0\0\0\0\0\0\0\0\0\0\0\0"]
        {
            let record = Record::from_bytes(foreign);
            assert_eq!(record.ending, Ending::Code(0));
            let pieces = record.written.into_pieces();
            assert_eq!(
                pieces.into_iter().flat_map(|piece| piece.bytes).collect::<Vec<_>>(),
                foreign
            );
        }
    }
}
