//! `tenure serve` and `tenure token`.

use std::path::PathBuf;

use clap::Command;
use tenure_server::{Listen, Role};

use super::define::{flag, option, word};
use super::given::Given;
use super::listening::{self, Listening};
use crate::failure::{Failure, USAGE};

const MORE: &str = "\
Programs in any language then lock over HTTP: docs/http.md has the requests, GET /docs shows them. The locks
are kept by the engine: several servers may serve the same engine, clients may use any of them, and a restart
releases nothing. Servers of one engine must have the same --key-file. --listen takes an address, or unix:PATH.

Other machines can only connect with TLS and a token (`tenure token new`), or with --insecure. Everyone
who can connect may do everything, unless there is a --tokens-file. SIGHUP reads tokens and certificates again.

  tenure serve --url redis://127.0.0.1:6379
  tenure serve --listen 0.0.0.0:7117 --tokens-file tokens --tls-cert cert.pem --tls-key key.pem
  tenure serve --listen unix:/run/tenure/tenure.sock --socket-mode 660";

const TOKEN_MORE: &str = "\
`new` prints the token once; only its hash is kept. Roles: read (see who holds what), lock (acquire and release), admin (break,
resize), engine (use the server as http:// engine of a program or of this command). A server reads the file again on SIGHUP.

  tenure token new shop --role lock,read --prefix shop/ --tokens-file tokens
  tenure token ls --tokens-file tokens
  tenure token revoke shop --tokens-file tokens";

/// The form of the file of clients.
pub(crate) const SERVE_TOKEN_LINES: &str =
    "each line is: NAME sha256:HEX role=ROLES prefix=TEXT; `tenure token new` makes one";

/// The arguments of a server.
#[derive(Debug)]
pub(crate) struct Serve {
    pub(crate) listening: Listening,
    pub(crate) key_file: Option<PathBuf>,
    /// Serve locks that are in this process alone.
    pub(crate) memory: bool,
    /// Nobody holds anything from an earlier run of a server of `memory:`.
    pub(crate) fresh: bool,
    /// What the engine is called, in place of its address.
    pub(crate) engine_name: Option<String>,
    /// Pages may change something without a token.
    pub(crate) ui_may_break: bool,
}

/// What `token` is to do.
#[derive(Debug)]
pub(crate) enum TokenAction {
    New(NewToken),
    /// List the clients of this file.
    List(PathBuf),
    /// Remove the client with this name from this file.
    Revoke(String, PathBuf),
}

/// The arguments of `token new`.
#[derive(Debug)]
pub(crate) struct NewToken {
    pub(crate) name: String,
    pub(crate) roles: String,
    pub(crate) prefix: String,
    pub(crate) file: Option<PathBuf>,
}

pub(super) fn define_commands() -> [Command; 2] {
    let serve = Command::new("serve")
        .about("Serve the locks of the engine over HTTP, for programs in any language")
        .after_help(MORE)
        .arg(option("listen", None, "ADDRESS", "Address to listen on, or unix:PATH [default: 127.0.0.1:7117]"))
        .arg(option("socket-mode", None, "MODE", "Permissions of the unix socket: 660 is for the group, too, 666 for all users of this machine [default: 600]"))
        .arg(tokens_file())
        .arg(option("key-file", None, "FILE", "Secret that servers of the same locks share; made if it does not exist [default: server.key beside the default engine's file]"))
        .arg(flag("memory", None, "Serve locks in the memory of this process, on loopback only: a restart forgets them"))
        .arg(flag("fresh", None, "With --memory: grant at once, because no client holds anything from before a restart"));
    let serve = serve
        .arg(option("engine-name", None, "TEXT", "Name of the engine, the same at all servers of it if they reach it by different URLs [default: the URL]"))
        .arg(flag("ui-may-break", None, "Without --tokens-file, on loopback: the dashboard may break holds"));
    let token = Command::new("token")
        .about("Create, list and revoke tokens for clients of `tenure serve`")
        .after_help(TOKEN_MORE)
        .arg(word("action", "ACTION", "What to do: new, ls or revoke").required(true))
        .arg(word("name", "NAME", "Name of the client, shown to others"))
        .arg(option(
            "role",
            None,
            "ROLES",
            "Roles, comma-separated: read, lock, admin, engine [default: lock]",
        ))
        .arg(option(
            "prefix",
            None,
            "TEXT",
            "Beginning of the names that it may lock [default: any name]",
        ))
        .arg(tokens_file());
    [listening::define(serve), token]
}

fn tokens_file() -> clap::Arg {
    option(
        "tokens-file",
        None,
        "FILE",
        "File of clients, one per line: name, hash of the token, roles",
    )
}

impl Serve {
    pub(super) fn read(given: &Given<'_>) -> Result<Serve, Failure> {
        let mut listening = Listening::read(given, 7117)?;
        listening.check(given)?;
        read_mode(given, &mut listening)?;
        let serve = Serve {
            key_file: given.bytes("key-file").map(|found| PathBuf::from(found.value)),
            memory: given.flag("memory")?.value,
            fresh: given.flag("fresh")?.value,
            engine_name: given.text("engine-name")?.map(|found| found.value),
            ui_may_break: given.flag("ui-may-break")?.value,
            listening,
        };
        if serve.memory && !serve.listening.listen.is_local() {
            return Err(Failure::new(
                USAGE,
                "--memory is for this machine only",
                "a restart would forget locks that other machines hold",
                "serve a Redis server, with --url redis://…",
            ));
        }
        if serve.ui_may_break && !serve.listening.listen.is_local() {
            return Err(Failure::new(
                USAGE,
                "--ui-may-break is for this machine only",
                "anyone who can reach the page could break holds",
                "use --tokens-file: whoever has a token of an admin may break",
            ));
        }
        Ok(serve)
    }
}

/// Who may connect to a unix socket.
fn read_mode(given: &Given<'_>, listening: &mut Listening) -> Result<(), Failure> {
    let said = given.text("socket-mode")?;
    match (&mut listening.listen, said) {
        (_, None) => Ok(()),
        (Listen::Address(_), Some(_)) => Err(Failure::new(
            USAGE,
            "--socket-mode is for a unix socket",
            "the server listens on an address",
            "use --listen unix:PATH, or leave out --socket-mode",
        )),
        (Listen::Socket { mode, .. }, Some(said)) => {
            let is_octal = said.value.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
            let read = u32::from_str_radix(&said.value, 8).ok();
            *mode = read.filter(|mode| is_octal && *mode <= 0o777).ok_or_else(|| {
                let why = "expected octal permissions";
                given.unreadable("socket-mode", said.value.as_ref(), why, "660")
            })?;
            Ok(())
        }
    }
}

impl TokenAction {
    pub(super) fn read(given: &Given<'_>) -> Result<TokenAction, Failure> {
        let file = given.bytes("tokens-file").map(|found| PathBuf::from(found.value));
        let need_file = || {
            let why = "it says which clients there are";
            Failure::new(USAGE, "--tokens-file is missing", why, "name the file of the server")
        };
        match given.word("action")?.as_deref() {
            Some("new") => NewToken::read(given).map(TokenAction::New),
            Some("ls") => file.map(TokenAction::List).ok_or_else(need_file),
            Some("revoke") => Ok(TokenAction::Revoke(given.name()?, file.ok_or_else(need_file)?)),
            _ => {
                let why = "the actions are new, ls and revoke";
                Err(Failure::new(USAGE, "unknown action", why, "see `tenure token --help`"))
            }
        }
    }
}

impl NewToken {
    fn read(given: &Given<'_>) -> Result<NewToken, Failure> {
        let text = |name| given.text(name).map(|found| found.map(|found| found.value));
        let usage = |what: &str, why: String| {
            Failure::new(USAGE, what.to_owned(), why, "see `tenure token --help`")
        };
        let name = given.name()?;
        if name.contains(|c: char| c.is_whitespace() || c == '#' || c.is_control()) {
            return Err(usage("bad name", "a name has no spaces and no #".to_owned()));
        }
        let roles = text("role")?.unwrap_or_else(|| "lock".to_owned());
        for role in roles.split(',') {
            Role::from_name(role).map_err(|why| usage("unknown role", why))?;
        }
        let prefix = text("prefix")?.unwrap_or_default();
        if prefix.contains(|c: char| c.is_whitespace() || c == '#' || c.is_control()) {
            return Err(usage(
                "bad prefix",
                "a prefix in the file has no spaces and no #".to_owned(),
            ));
        }
        let file = given.bytes("tokens-file").map(|found| PathBuf::from(found.value));
        Ok(NewToken { name, roles, prefix, file })
    }
}
