//! Bearer tokens, kept as digests.

use hyper::header::{AUTHORIZATION, HeaderMap};
use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq;

/// The shortest token that is accepted: 128 bits in base64.
const SHORTEST: usize = 22;
const HASHED: &str = "sha256:";

/// The SHA-256 of a token: all that is kept of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// The digest of this token.
    #[must_use]
    pub fn of(token: &[u8]) -> TokenDigest {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, token).as_ref());
        TokenDigest(bytes)
    }

    /// Reads a token, or `sha256:` and its digest in hex.
    ///
    /// # Errors
    /// Why it is not a token. Never quotes it.
    pub fn read(text: &str) -> Result<TokenDigest, String> {
        let Some(hex) = text.strip_prefix(HASHED) else {
            return match text.len() < SHORTEST {
                true => Err(format!("a token has at least {SHORTEST} characters")),
                false => Ok(TokenDigest::of(text.as_bytes())),
            };
        };
        let wrong = || "a digest of SHA-256 is 64 hex digits".to_owned();
        let mut bytes = [0; 32];
        if hex.len() != 64 || !hex.is_ascii() {
            return Err(wrong());
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            let digits = hex.get(2 * at..2 * at + 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(TokenDigest(bytes))
    }

    /// The digest as [`read`](TokenDigest::read) accepts it.
    #[must_use]
    pub fn to_text(&self) -> String {
        let hex: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{HASHED}{hex}")
    }

    /// Finds the one of `known` that has this token. Compares with all of them, so that the time taken reveals
    /// nothing.
    pub fn find<'a, T>(
        token: &[u8],
        known: &'a [T],
        digest_of: impl Fn(&T) -> TokenDigest,
    ) -> Option<&'a T> {
        let digest = TokenDigest::of(token);
        let mut found = None;
        for one in known {
            if bool::from(digest_of(one).0.ct_eq(&digest.0)) {
                found = Some(one);
            }
        }
        found
    }
}

/// The token of an `Authorization` header, if there is one.
#[must_use]
pub fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}
