//! Error replies of a server.

use crate::engines::redis::config::Address;
use crate::model::claim::Claim;
use crate::model::error::{Error, ErrorKind};

/// The kinds of error replies, by how to handle them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The script must be sent as text: it is not loaded, or the user may not run scripts by their hash.
    NoScript,
    /// Another server keeps the slot.
    Moved(Address),
    /// The slot is moving to another server, and this key has arrived there.
    Ask(Address),
    /// The slot is moving, and its keys are not all in one place.
    TryAgain,
    /// The server is not the primary, or not one that accepts writes.
    NotPrimary,
    /// The server has lost its replicas, so it may be the old primary.
    Lonely,
    /// The server cannot serve now, and will recover on its own.
    NotNow,
    /// The user lacks the permission.
    Denied,
    /// A key has content that is not ours.
    Foreign,
    /// There are no numbers left.
    Exhausted,
    /// Anything else.
    Other,
}

impl Refusal {
    pub(crate) fn read(text: &str) -> Refusal {
        let mut words = text.split(' ');
        let code = words.next().unwrap_or_default();
        let mut address = || address(words.nth(1)?);
        match code {
            "NOSCRIPT" => Refusal::NoScript,
            // The user may run scripts by their text, but not by their hash.
            "NOPERM" if text.contains("'evalsha'") => Refusal::NoScript,
            "MOVED" => address().map_or(Refusal::Other, Refusal::Moved),
            "ASK" => address().map_or(Refusal::Other, Refusal::Ask),
            "TRYAGAIN" => Refusal::TryAgain,
            "READONLY" | "MASTERDOWN" => Refusal::NotPrimary,
            "NOREPLICAS" => Refusal::Lonely,
            "LOADING" | "BUSY" | "CLUSTERDOWN" | "OOM" | "MISCONF" => Refusal::NotNow,
            "NOPERM" | "NOAUTH" | "WRONGPASS" => Refusal::Denied,
            "WRONGTYPE" | "FOREIGN" => Refusal::Foreign,
            "NUMBERS" => Refusal::Exhausted,
            _ if text.contains("max number of clients") => Refusal::NotNow,
            _ if text.contains("The user executing the script") => Refusal::Denied,
            // When a script fails, the server wraps the error that stopped it.
            _ => wrapped(text).unwrap_or(Refusal::Other),
        }
    }

    /// Converts the refusal to an error. The server's text may quote what it was sent, so only its first
    /// word is shown.
    pub(crate) fn into_error(self, text: &str) -> Error {
        let shown = shown(text);
        let error = |kind, what: &str| Error::new(kind, format!("{what} ({shown})"));
        match self {
            Refusal::NoScript | Refusal::Moved(_) | Refusal::Ask(_) | Refusal::TryAgain => {
                error(ErrorKind::Unavailable, "the servers are being reconfigured").not_now()
            }
            Refusal::NotPrimary | Refusal::Lonely => {
                error(ErrorKind::Unavailable, "the server does not accept writes").not_now()
            }
            Refusal::NotNow => {
                error(ErrorKind::Unavailable, "the server cannot serve requests now").not_now()
            }
            Refusal::Denied => error(ErrorKind::Denied, "the server refuses this user").next(
                "check the password and the rights; ACL LOG on the server names what is missing",
            ),
            Refusal::Foreign => {
                error(ErrorKind::Conflict, "a key under the namespace is not tenure's")
                    .next("give tenure a namespace of its own")
            }
            Refusal::Exhausted => Claim::no_numbers(),
            // It is not known whether the step ran.
            Refusal::Other => error(ErrorKind::Internal, "the server returned an error").in_doubt(),
        }
    }
}

/// Scripts of older servers report `ERR Error running script (...): @user_script: N: -CODE ...`, newer
/// ones `CODE ... script: ...`.
fn wrapped(text: &str) -> Option<Refusal> {
    let inner = text.split(['-', ' ', '@']).find(|word| {
        matches!(
            *word,
            "READONLY" | "NOREPLICAS" | "MASTERDOWN" | "OOM" | "MISCONF" | "WRONGTYPE" | "NOPERM"
        )
    })?;
    Some(Refusal::read(inner))
}

fn shown(text: &str) -> String {
    let text = text.split(", with args").next().unwrap_or_default();
    match text.char_indices().nth(120) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// `host:port`, where the host may be an IPv6 address without brackets, or missing.
fn address(text: &str) -> Option<Address> {
    let (host, port) = text.trim_end().rsplit_once(':')?;
    Some(Address::Tcp { host: host.to_owned(), port: port.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_apart() {
        for (text, refusal) in [
            ("NOSCRIPT No matching script. Please use EVAL.", Refusal::NoScript),
            (
                "MOVED 3999 127.0.0.1:6381",
                Refusal::Moved(Address::Tcp { host: "127.0.0.1".into(), port: 6381 }),
            ),
            ("ASK 3999 ::1:6381", Refusal::Ask(Address::Tcp { host: "::1".into(), port: 6381 })),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Refusal::TryAgain),
            ("READONLY You can't write against a read only replica.", Refusal::NotPrimary),
            (
                "ERR Error running script (call to f_12): @user_script:3: @user_script: 3: -READONLY \
                 You can't write against a read only replica.",
                Refusal::NotPrimary,
            ),
            (
                "ERR Error running script (call to f_12): @user_script:3: @user_script: 3: -OOM \
                 command not allowed when used memory > 'maxmemory'.",
                Refusal::NotNow,
            ),
            ("NOREPLICAS Not enough good replicas to write.", Refusal::Lonely),
            ("LOADING Redis is loading the dataset in memory", Refusal::NotNow),
            ("NOPERM this user has no permissions", Refusal::Denied),
            (
                "NOPERM User locks has no permissions to run the 'evalsha' command",
                Refusal::NoScript,
            ),
            ("NOPERM User locks has no permissions to run the 'eval' command", Refusal::Denied),
            ("ERR max number of clients reached", Refusal::NotNow),
            (
                "ERR The user executing the script can't run this command or subcommand script: f_1",
                Refusal::Denied,
            ),
            ("WRONGTYPE Operation against a key holding the wrong kind", Refusal::Foreign),
            ("ERR unknown command 'X', with args beginning with: 'secret'", Refusal::Other),
        ] {
            assert_eq!(Refusal::read(text), refusal, "{text}");
            assert!(!Refusal::read(text).into_error(text).to_string().contains("secret"));
        }
    }
}
