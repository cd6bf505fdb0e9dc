//! Access control: bearer tokens, each with a name and its own limits.
//!
//! A token is a secret. Only its SHA-256 digest is kept, all digests are compared in constant time, and
//! nothing here shows or logs one.

mod rate;

use std::fmt;
use std::sync::Arc;

use hyper::header::HeaderMap;
use tenure_http::{TokenDigest, bearer};

use self::rate::Rate;
use crate::active::Active;
use crate::meters;
use crate::refusal::Refusal;

/// The accepted tokens. If there are none, no token is required.
#[derive(Clone, Debug, Default)]
pub struct Access(Vec<Arc<Token>>);

struct Token {
    name: Arc<str>,
    digest: TokenDigest,
    rate: Option<Rate>,
    max_in_flight: Option<usize>,
    active: Active,
}

/// The sender of a request. Clones share its limits.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The name of the token, or the address of the client.
    pub(crate) name: Arc<str>,
    token: Option<Arc<Token>>,
}

impl Access {
    /// Parses tokens, one per line: a name, the token or `sha256:` and its digest in hex, and limits: `rate=N`
    /// (calls per second) and `in-flight=N` (concurrent transactions). A comment starts with `#`.
    ///
    /// ```
    /// let lines = "shop 4f7d0a1e9b6c4c1f8a52d3e6b7f80911 rate=50 in-flight=20 # the web shop\n";
    /// assert!(tenure_relay::Access::from_lines(lines).is_ok());
    /// ```
    ///
    /// # Errors
    /// The line that cannot be read, and why. Never quotes it.
    pub fn from_lines(lines: &str) -> Result<Access, String> {
        let mut tokens: Vec<Arc<Token>> = Vec::new();
        for (number, line) in (1..).zip(lines.lines()) {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(name) = words.next() else { continue };
            let token = Token::read(name, words).map_err(|why| format!("line {number}: {why}"))?;
            if tokens.iter().any(|other| other.name == token.name || other.digest == token.digest) {
                return Err(format!("line {number}: this name or token is a duplicate"));
            }
            tokens.push(Arc::new(token));
        }
        match tokens.is_empty() {
            true => Err("it contains no token".to_owned()),
            false => Ok(Access(tokens)),
        }
    }

    /// Whether no token is required.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Carries over the transactions in flight of tokens that are also in `before`.
    pub(crate) fn instead_of(mut self, before: &Access) -> Access {
        for token in self.0.iter_mut().filter_map(Arc::get_mut) {
            if let Some(known) = before.0.iter().find(|known| known.name == token.name) {
                token.active = known.active.clone();
            }
        }
        self
    }

    /// The sender of a request; `None` if it has no known token. `from` is the address of the client.
    pub(crate) fn caller(&self, headers: &HeaderMap, from: &Arc<str>) -> Option<Caller> {
        if self.is_open() {
            return Some(Caller { name: from.clone(), token: None });
        }
        let token = TokenDigest::find(bearer(headers)?, &self.0, |known| known.digest)?.clone();
        Some(Caller { name: token.name.clone(), token: Some(token) })
    }
}

impl Token {
    fn read<'a>(name: &str, mut words: impl Iterator<Item = &'a str>) -> Result<Token, String> {
        let Some(secret) = words.next() else {
            return Err("a name and a token are required".to_owned());
        };
        let digest = TokenDigest::read(secret)?;
        let mut token = Token {
            name: name.into(),
            digest,
            rate: None,
            max_in_flight: None,
            active: Active::default(),
        };
        for limit in words {
            let (kind, most) = limit.split_once('=').ok_or("a limit is rate=N or in-flight=N")?;
            let most: u32 = most.parse().map_err(|_| "a limit is a whole number")?;
            match kind {
                _ if most == 0 => return Err("a limit is at least 1".to_owned()),
                "rate" => token.rate = Some(Rate::new(most)),
                "in-flight" => token.max_in_flight = Some(most as usize),
                _ => return Err("known limits: rate, in-flight".to_owned()),
            }
        }
        Ok(token)
    }
}

impl Caller {
    /// Whether it may make this many calls now.
    pub(crate) fn may_call(&self, calls: usize) -> Result<(), Refusal> {
        let Some(rate) = self.token.as_ref().and_then(|token| token.rate.as_ref()) else {
            return Ok(());
        };
        rate.take(calls, std::time::Instant::now()).map_err(|wait| {
            meters::limited(&self.name, "rate");
            Refusal::RateLimited { wait }
        })
    }

    /// Whether it may have one more transaction in flight.
    pub(crate) fn may_send(&self) -> Result<(), Refusal> {
        let Some(token) = &self.token else { return Ok(()) };
        if token.max_in_flight.is_some_and(|most| token.active.count() >= most) {
            meters::limited(&self.name, "in_flight");
            return Err(Refusal::Busy("this client has as many transactions in flight as it may"));
        }
        Ok(())
    }

    /// Counts its transactions in flight.
    pub(crate) fn active(&self) -> Option<&Active> {
        self.token.as_ref().map(|token| &token.active)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::AUTHORIZATION;
    use ring::digest::{SHA256, digest};

    use super::*;

    const TOKEN: &str = "4f7d0a1e9b6c4c1f8a52d3e6b7f80911";

    fn with(said: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, said.parse().unwrap())])
    }

    #[test]
    fn a_token_is_known_by_its_text_or_by_its_digest() {
        let from: Arc<str> = "127.0.0.1".into();
        let hex = alloy_primitives::hex::encode(digest(&SHA256, TOKEN.as_bytes()));
        for lines in [format!("shop {TOKEN}"), format!("# who\n\nshop sha256:{hex} rate=5 # x\n")] {
            let access = Access::from_lines(&lines).unwrap();
            for said in [format!("Bearer {TOKEN}"), format!("bearer  {TOKEN} ")] {
                assert_eq!(&*access.caller(&with(&said), &from).unwrap().name, "shop");
            }
            let wrong = [
                "Bearer".to_owned(),
                "Bearer ".to_owned(),
                TOKEN.to_owned(),
                format!("Basic {TOKEN}"),
                format!("Bearer {TOKEN}0"),
                format!("Bearer sha256:{hex}"),
            ];
            for said in wrong {
                assert!(access.caller(&with(&said), &from).is_none(), "{said}");
            }
            assert!(access.caller(&HeaderMap::new(), &from).is_none());
            assert!(!format!("{access:?}").contains(TOKEN));
        }
        let open = Access::default();
        assert_eq!(&*open.caller(&HeaderMap::new(), &from).unwrap().name, "127.0.0.1");
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named_and_not_shown() {
        for (lines, why) in [
            ("", "no token"),
            ("shop", "line 1"),
            ("shop short", "at least 22"),
            ("# a\nshop sha256:abcd", "line 2"),
            (&format!("shop {TOKEN} rate"), "rate=N"),
            (&format!("shop {TOKEN} rate=0"), "at least 1"),
            (&format!("shop {TOKEN} rate=x"), "whole number"),
            (&format!("shop {TOKEN} speed=3"), "known limits"),
            (&format!("shop {TOKEN}\nshop {TOKEN}1"), "line 2"),
            (&format!("shop {TOKEN}\npay {TOKEN}"), "line 2"),
        ] {
            let error = Access::from_lines(lines).unwrap_err();
            assert!(error.contains(why) && !error.contains(TOKEN), "{lines}: {error}");
        }
    }
}
