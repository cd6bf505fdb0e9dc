//! The steps, as scripts that the server runs atomically.
//!
//! The server knows a script by the SHA-1 of its text. Each script begins with a short path for a name with a
//! single holder; the full rule follows, so the common case does not pay for it.

use std::sync::LazyLock;

use sha1::{Digest, Sha1};

use super::resp;

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
    Group,
    RenewGroup,
    Keep,
}

/// How the script of a step is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptForm {
    Hash,
    Text,
}

/// The rule, in the order in which its parts depend on each other.
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

/// A step: the short path for a name with a single holder, if there is one, then the rule, then what is
/// particular to this step.
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

const TEXTS: [&str; 12] = [
    step!("claim_alone", "claim"),
    step!("renew_alone", "renew"),
    step!("leave_alone", "leave"),
    step!("break"),
    step!("forget"),
    step!("resize"),
    step!("tick"),
    include_str!("../lua/view.lua"),
    include_str!("../lua/hello.lua"),
    include_str!("../lua/group.lua"),
    include_str!("../lua/renew_group.lua"),
    step!("keep_alone", "keep"),
];

static HASHES: LazyLock<[[u8; 40]; 12]> = LazyLock::new(|| TEXTS.map(sha1));

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
            Script::Group => "group of claims and leaves",
            Script::RenewGroup => "group of renewals",
            Script::Keep => "renewal that hands over",
        }
    }

    /// Encodes the first two parts of a step.
    pub(super) fn encode(self, form: ScriptForm, out: &mut Vec<u8>) {
        match form {
            ScriptForm::Hash => {
                resp::bulk(out, b"EVALSHA");
                resp::bulk(out, self.hash());
            }
            ScriptForm::Text => {
                resp::bulk(out, b"EVAL");
                resp::bulk(out, self.text().as_bytes());
            }
        }
    }

    pub(crate) fn text(self) -> &'static str {
        TEXTS[self as usize]
    }

    /// The hash by which the server knows the script once it is loaded.
    pub(crate) fn hash(self) -> &'static [u8; 40] {
        &HASHES[self as usize]
    }
}

/// SHA-1 in hexadecimal, which Redis uses as the name of a script. Nothing's security depends on it.
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
