//! Who may do what: bearer tokens, each with a name, roles and a prefix of the names that it is for.
//!
//! A token is a secret. Only its SHA-256 digest is kept, all digests are compared in constant time, and nothing here shows
//! or logs one.

use std::fmt;
use std::sync::Arc;

use hyper::header::HeaderMap;
use tenure::engine::Name;
use tenure_http::{TokenDigest, bearer};

use crate::problem::Problem;

/// What a token allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// To see who holds what.
    Read,
    /// To acquire, renew and release names.
    Lock,
    /// To break holds, and to change sizes.
    Admin,
    /// To use this server as an engine (`http://`). Such a client sends tickets and fences of its own, which nobody
    /// else may.
    Engine,
}

impl Role {
    const ALL: [(&'static str, Role); 4] = [
        ("read", Role::Read),
        ("lock", Role::Lock),
        ("admin", Role::Admin),
        ("engine", Role::Engine),
    ];

    /// The role with this name.
    ///
    /// # Errors
    /// The names that there are.
    pub fn from_name(name: &str) -> Result<Role, String> {
        let found = Role::ALL.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, role)| *role)
            .ok_or_else(|| "the roles are read, lock, admin, engine".to_owned())
    }
}

/// The accepted tokens. If there are none, no token is required, and everyone may do everything.
#[derive(Clone, Debug, Default)]
pub struct Access(Vec<Arc<Token>>);

struct Token {
    name: Arc<str>,
    digest: TokenDigest,
    roles: Vec<Role>,
    prefix: String,
}

/// The sender of a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The name of the token, or the address of the client.
    pub(crate) name: Arc<str>,
    token: Option<Arc<Token>>,
}

impl Access {
    /// Reads tokens, one on each line: a name, the token or `sha256:` and its digest in hex, `role=` with one or more
    /// of `read`, `lock`, `admin` and `engine`, and `prefix=` with the prefix of the names that it may lock. A word
    /// that starts with `#` begins a comment.
    ///
    /// ```
    /// let lines = "shop 4f7d0a1e9b6c4c1f8a52d3e6b7f80911 role=lock,read prefix=shop/ # the web shop\n";
    /// assert!(tenure_server::Access::from_lines(lines).is_ok());
    /// ```
    ///
    /// # Errors
    /// Which line cannot be read, and why. Never quotes it.
    pub fn from_lines(lines: &str) -> Result<Access, String> {
        let mut tokens: Vec<Arc<Token>> = Vec::new();
        for (number, line) in (1..).zip(lines.lines()) {
            // A `#` within a word begins no comment: a prefix that was cut off could allow every name.
            let mut words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
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

    /// The line for a new token.
    #[must_use]
    pub fn line(name: &str, token: &str, roles: &str, prefix: &str) -> String {
        let digest = TokenDigest::of(token.as_bytes()).to_text();
        let prefix = if prefix.is_empty() { String::new() } else { format!(" prefix={prefix}") };
        format!("{name} {digest} role={roles}{prefix}")
    }

    /// The clients, each with its name, its roles and the prefix of the names that it may lock.
    pub fn clients(&self) -> impl Iterator<Item = (&str, Vec<&'static str>, &str)> {
        self.0.iter().map(|token| {
            let has = |(_, role): &&(&str, Role)| token.roles.contains(role);
            let roles = Role::ALL.iter().filter(has).map(|(name, _)| *name).collect();
            (&*token.name, roles, token.prefix.as_str())
        })
    }

    /// Whether no token is required.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.is_empty()
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
        let secret = words.next().ok_or("a name and a token are required")?;
        let digest = TokenDigest::read(secret)?;
        let (mut roles, mut prefix) = (Vec::new(), String::new());
        for word in words {
            match word.split_once('=').ok_or("after the token come role=… and prefix=…")? {
                ("role", names) => {
                    roles = names.split(',').map(Role::from_name).collect::<Result<_, _>>()?;
                }
                ("prefix", "") => {
                    return Err("prefix= is empty: leave it out for all names".to_owned());
                }
                ("prefix", text) => prefix = text.to_owned(),
                _ => return Err("after the token come role=… and prefix=…".to_owned()),
            }
        }
        match roles.is_empty() {
            true => Err("role= is missing".to_owned()),
            false => Ok(Token { name: name.into(), digest, roles, prefix }),
        }
    }
}

impl Caller {
    /// Whether it has this role. An admin may also read.
    pub(crate) fn has(&self, role: Role) -> bool {
        let Some(token) = &self.token else { return true };
        token.roles.contains(&role) || role == Role::Read && token.roles.contains(&Role::Admin)
    }

    pub(crate) fn must(&self, role: Role) -> Result<(), Problem> {
        match self.has(role) {
            true => Ok(()),
            false => Err(Problem::forbidden("this token does not have the role that is needed")),
        }
    }

    /// Whether it may lock this name.
    pub(crate) fn may_lock(&self, name: &str) -> Result<(), Problem> {
        self.must(Role::Lock)?;
        self.begins(name)
    }

    /// Whether this name is one that its token is for.
    pub(crate) fn has_name(&self, name: &Name) -> Result<(), Problem> {
        self.begins(name.as_str())
    }

    fn begins(&self, name: &str) -> Result<(), Problem> {
        match name.starts_with(self.prefix()) {
            true => Ok(()),
            false => Err(Problem::forbidden("this token is for names with another beginning")),
        }
    }

    /// The prefix of the names that it may lock.
    pub(crate) fn prefix(&self) -> &str {
        self.token.as_ref().map_or("", |token| &token.prefix)
    }

    /// What it may do.
    pub(crate) fn roles(&self) -> Vec<&'static str> {
        let all = Role::ALL.iter().filter(|(_, role)| self.has(*role));
        all.map(|(name, _)| *name).collect()
    }

    /// Whether it has proved who it is.
    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("name", &self.name)
            .field("roles", &self.roles)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::AUTHORIZATION;

    use super::*;

    const TOKEN: &str = "4f7d0a1e9b6c4c1f8a52d3e6b7f80911";

    #[test]
    fn a_token_allows_what_its_line_says() {
        let line = Access::line("shop", TOKEN, "lock,engine", "shop/");
        assert!(!line.contains(TOKEN));
        let access = Access::from_lines(&line).unwrap();
        let from: Arc<str> = "127.0.0.1".into();
        let headers = |token: &str| {
            HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {token}").parse().unwrap())])
        };
        let shop = access.caller(&headers(TOKEN), &from).unwrap();
        assert!(shop.has(Role::Lock) && shop.has(Role::Engine) && !shop.has(Role::Read));
        assert!(!shop.has(Role::Admin));
        assert!(shop.may_lock("shop/x").is_ok() && shop.may_lock("pay/x").is_err());
        assert!(access.caller(&headers(&format!("{TOKEN}1")), &from).is_none());
        assert!(access.caller(&HeaderMap::new(), &from).is_none());
        assert!(!format!("{access:?} {shop:?}").contains(TOKEN));
        let open = Access::default().caller(&HeaderMap::new(), &from).unwrap();
        assert!(open.has(Role::Admin) && &*open.name == "127.0.0.1");
    }

    #[test]
    fn a_hash_sign_within_a_prefix_does_not_cut_it_off() {
        let line = format!("# clients\nshop {TOKEN} role=lock prefix=#x # all of them\n");
        let access = Access::from_lines(&line).unwrap();
        let headers =
            HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {TOKEN}").parse().unwrap())]);
        let shop = access.caller(&headers, &"127.0.0.1".into()).unwrap();
        assert!(shop.may_lock("#x1").is_ok() && shop.may_lock("y").is_err());
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named_and_not_shown() {
        for (lines, why) in [
            (String::new(), "no token"),
            ("shop".to_owned(), "line 1"),
            ("shop short role=read".to_owned(), "at least 22"),
            (format!("shop {TOKEN}"), "role= is missing"),
            (format!("shop {TOKEN} role=root"), "the roles are"),
            (format!("shop {TOKEN} rolle=read"), "role=…"),
            (format!("shop {TOKEN} role=lock prefix="), "prefix= is empty"),
            (format!("shop {TOKEN} role=lock prefix= #x"), "prefix= is empty"),
            (format!("shop {TOKEN} role=read\nshop {TOKEN}1 role=read"), "line 2"),
        ] {
            let error = Access::from_lines(&lines).unwrap_err();
            assert!(error.contains(why) && !error.contains(TOKEN), "{lines}: {error}");
        }
    }
}
