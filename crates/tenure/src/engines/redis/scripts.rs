//! The steps, as scripts that the server runs atomically.
//!
//! A script is known by the SHA-1 of its text. Each begins with what can be done while a name has one
//! holder alone; only then comes the rule in full, so that the common case pays nothing for it.

use std::sync::LazyLock;

/// One kind of step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Script {
    Claim,
    Renew,
    Leave,
    Break,
    Forget,
    Resize,
    Tick,
    View,
    Hello,
}

/// The rule, in the order in which its parts need each other.
macro_rules! rule {
    () => {
        concat!(
            include_str!("lua/line/kept.lua"),
            include_str!("lua/line/numbers.lua"),
            include_str!("lua/line/reach.lua"),
            include_str!("lua/line/grants.lua"),
            include_str!("lua/line/admission.lua")
        )
    };
}

/// A step: what can be done while a name has one holder alone, if there is such a part, then the rule, then
/// what this step asks of it.
macro_rules! step {
    ($step:literal) => {
        concat!("local last\n", rule!(), include_str!(concat!("lua/", $step, ".lua")))
    };
    ($alone:literal, $step:literal) => {
        concat!(
            "local last\n",
            include_str!(concat!("lua/", $alone, ".lua")),
            rule!(),
            include_str!(concat!("lua/", $step, ".lua"))
        )
    };
}

const TEXTS: [&str; 9] = [
    step!("claim_alone", "claim"),
    step!("renew_alone", "renew"),
    step!("leave_alone", "leave"),
    step!("break"),
    step!("forget"),
    step!("resize"),
    step!("tick"),
    include_str!("lua/view.lua"),
    include_str!("lua/hello.lua"),
];

static HASHES: LazyLock<[[u8; 40]; 9]> = LazyLock::new(|| TEXTS.map(|text| sha1(text.as_bytes())));

impl Script {
    /// What the step does, for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Script::Claim => "claim",
            Script::Renew => "renewal",
            Script::Leave => "leave",
            Script::Break => "break",
            Script::Forget => "forget",
            Script::Resize => "resize",
            Script::Tick => "tick",
            Script::View => "view",
            Script::Hello => "hello",
        }
    }

    pub(super) fn text(self) -> &'static str {
        TEXTS[self as usize]
    }

    /// The name under which the server knows it once it was loaded.
    pub(super) fn hash(self) -> &'static [u8; 40] {
        &HASHES[self as usize]
    }
}

/// SHA-1 in hexadecimal: Redis names scripts by it. It protects nothing here.
fn sha1(bytes: &[u8]) -> [u8; 40] {
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend((bytes.len() as u64 * 8).to_be_bytes());
    let mut state: [u32; 5] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476, 0xC3D2_E1F0];
    for block in padded.chunks_exact(64) {
        mix(&mut state, block);
    }
    let mut hex = [0; 40];
    for (at, digit) in hex.iter_mut().enumerate() {
        let nibble = state[at / 8] >> (28 - 4 * (at % 8)) & 15;
        *digit = b"0123456789abcdef"[nibble as usize];
    }
    hex
}

fn mix(state: &mut [u32; 5], block: &[u8]) {
    let mut words = [0u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    for at in 16..80 {
        words[at] =
            (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (at, word) in words.iter().enumerate() {
        let (choice, constant) = match at / 20 {
            0 => (b & c | !b & d, 0x5A82_7999),
            1 => (b ^ c ^ d, 0x6ED9_EBA1),
            2 => (b & c | b & d | c & d, 0x8F1B_BCDC),
            _ => (b ^ c ^ d, 0xCA62_C1D6_u32),
        };
        let next = a.rotate_left(5).wrapping_add(choice).wrapping_add(e);
        let next = next.wrapping_add(constant).wrapping_add(*word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d, e]) {
        *word = word.wrapping_add(add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha1_is_sha1() {
        for (text, hash) in [
            ("", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            ("abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            ),
        ] {
            assert_eq!(sha1(text.as_bytes()), hash.as_bytes());
        }
    }
}
