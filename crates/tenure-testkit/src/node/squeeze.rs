//! A small gzip encoder, for compressed answers that nobody asked for.

/// Wraps bytes in gzip without making them smaller.
pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = HEAD.to_vec();
    let mut parts = bytes.chunks(usize::from(u16::MAX)).peekable();
    while let Some(part) = parts.next() {
        let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
        packed.push(u8::from(parts.peek().is_none()));
        packed.extend(length.to_le_bytes());
        packed.extend((!length).to_le_bytes());
        packed.extend(part);
    }
    finish(packed, bytes.iter().copied(), bytes.len())
}

/// An archive of a quarter of a per cent of this size, which decompresses to this many spaces.
pub(super) fn bomb(size: usize) -> Vec<u8> {
    let mut bits = Bits { bytes: HEAD.to_vec(), held: 0, many: 0 };
    // The last block, with the fixed codes.
    bits.put(0b011, 3);
    bits.code(0x30 + u32::from(b' '), 8);
    let repeats = size.saturating_sub(1) / 258;
    for _ in 0..repeats {
        // 258 bytes again, from a distance of 1.
        bits.code(0b1100_0101, 8);
        bits.code(0, 5);
    }
    bits.code(0, 7);
    let size = 1 + repeats * 258;
    finish(bits.done(), std::iter::repeat_n(b' ', size), size)
}

const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

fn finish(mut packed: Vec<u8>, plain: impl Iterator<Item = u8>, length: usize) -> Vec<u8> {
    let sum = plain.fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| (sum >> 1) ^ (0xEDB8_8320 * (sum & 1)))
    });
    packed.extend((!sum).to_le_bytes());
    packed.extend((length as u32).to_le_bytes());
    packed
}

struct Bits {
    bytes: Vec<u8>,
    held: u64,
    many: u32,
}

impl Bits {
    /// Appends a number, lowest bit first.
    fn put(&mut self, bits: u32, many: u32) {
        self.held |= u64::from(bits) << self.many;
        self.many += many;
        while self.many >= 8 {
            self.bytes.push(self.held as u8);
            self.held >>= 8;
            self.many -= 8;
        }
    }

    /// Appends a code, highest bit first.
    fn code(&mut self, code: u32, many: u32) {
        self.put(code.reverse_bits() >> (32 - many), many);
    }

    fn done(mut self) -> Vec<u8> {
        if self.many > 0 {
            self.bytes.push(self.held as u8);
        }
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of the system's own tool.
    fn unpacked(bytes: &[u8]) -> Vec<u8> {
        use std::io::Write;
        use std::process::{Command, Stdio};
        let mut tool = Command::new("gzip");
        tool.args(["-d", "-c"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut tool = tool.spawn().unwrap();
        let mut input = tool.stdin.take().unwrap();
        let bytes = bytes.to_vec();
        let writer = std::thread::spawn(move || input.write_all(&bytes).unwrap());
        let output = tool.wait_with_output().unwrap();
        writer.join().unwrap();
        assert!(output.status.success());
        output.stdout
    }

    #[test]
    fn what_is_packed_by_hand_unpacks() {
        let long = vec![b'x'; 200_000];
        for text in [b"{}".as_slice(), &long] {
            assert_eq!(unpacked(&gzip(text)), text);
        }
        let bomb = bomb(1_000_000);
        assert!(bomb.len() < 7_000);
        let unpacked = unpacked(&bomb);
        assert!(unpacked.len() > 999_000 && unpacked.iter().all(|byte| *byte == b' '));
    }
}
