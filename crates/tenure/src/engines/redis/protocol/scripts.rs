//! The steps, as scripts that the server runs atomically.
//!
//! A script is known by the SHA-1 of its text. Each begins with what can be done while a name has one
//! holder alone; only then comes the rule in full, so that the common case pays nothing for it.

use std::sync::LazyLock;

use sha1::{Digest, Sha1};

/// One kind of step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Script {
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
            include_str!("../lua/line/layout.lua"),
            include_str!("../lua/line/numbers.lua"),
            include_str!("../lua/line/reach.lua"),
            include_str!("../lua/line/grants.lua"),
            include_str!("../lua/line/admission.lua")
        )
    };
}

/// A step: what can be done while a name has one holder alone, if there is such a part, then the rule, then
/// what this step asks of it.
macro_rules! step {
    ($step:literal) => {
        concat!("local last\n", rule!(), include_str!(concat!("../lua/", $step, ".lua")))
    };
    ($alone:literal, $step:literal) => {
        concat!(
            "local last\n",
            include_str!(concat!("../lua/", $alone, ".lua")),
            rule!(),
            include_str!(concat!("../lua/", $step, ".lua"))
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
    include_str!("../lua/view.lua"),
    include_str!("../lua/hello.lua"),
];

static HASHES: LazyLock<[[u8; 40]; 9]> = LazyLock::new(|| TEXTS.map(sha1));

impl Script {
    /// What the step does, for error messages.
    pub(crate) fn name(self) -> &'static str {
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

    pub(crate) fn text(self) -> &'static str {
        TEXTS[self as usize]
    }

    /// The name under which the server knows it once it was loaded.
    pub(crate) fn hash(self) -> &'static [u8; 40] {
        &HASHES[self as usize]
    }
}

/// SHA-1 in hexadecimal: Redis names scripts by it. It protects nothing here.
fn sha1(text: &str) -> [u8; 40] {
    let mut hex = [0; 40];
    for (digits, byte) in hex.chunks_exact_mut(2).zip(Sha1::digest(text)) {
        let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
        digits.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_named_by_the_sha1_of_their_text() {
        for (text, hash) in [
            ("", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            ("abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            ),
        ] {
            assert_eq!(sha1(text), hash.as_bytes());
        }
    }
}
