//! `tenure token`: makes a token, shows it once, and keeps its hash; lists the clients of a file, and removes one.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use tenure_server::{Access, new_token};

use crate::args::{NewToken, SERVE_TOKEN_LINES, TokenAction};
use crate::failure::{CANNOT_CREATE, CONFIGURATION, Exit, Failure, INTERNAL, NO, OK, Stop};
use crate::output::json::Object;
use crate::output::table;
use crate::settings::Settings;

pub(crate) fn run(
    asked: &TokenAction,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    match asked {
        TokenAction::New(asked) => make(asked, settings, out),
        TokenAction::List(path) => list(path, settings, out),
        TokenAction::Revoke(name, path) => revoke(name, path, settings),
    }
}

fn make(asked: &NewToken, settings: &Settings, out: &mut dyn Write) -> Result<Exit, Stop> {
    let token = new_token().map_err(|error| {
        Failure::new(INTERNAL, "cannot make a token", error.to_string(), "please report it")
    })?;
    let line = Access::line(&asked.name, &token, &asked.roles, &asked.prefix);
    if let Some(path) = &asked.file {
        let shown = path.display();
        let mut lines = match std::fs::read_to_string(path) {
            Ok(lines) => lines,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                let help = "name a file that this user can read and write";
                return Err(Failure::new(
                    CANNOT_CREATE,
                    format!("cannot read {shown}"),
                    error.to_string(),
                    help,
                )
                .into());
            }
        };
        if !lines.is_empty() && !lines.ends_with('\n') {
            lines.push('\n');
        }
        let all = format!("{lines}{line}\n");
        Access::from_lines(&all).map_err(|why| {
            Failure::new(
                CONFIGURATION,
                format!("{shown} would not be readable"),
                why,
                "choose another name",
            )
        })?;
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let begin =
            if lines.is_empty() || std::fs::read(path)?.ends_with(b"\n") { "" } else { "\n" };
        writeln!(file, "{begin}{line}")?;
    }
    match settings.json.value {
        true => writeln!(
            out,
            "{}",
            Object::versioned().text("token", &token).text("line", &line).end()
        )?,
        false => writeln!(out, "{token}")?,
    }
    if asked.file.is_none() && !settings.json.value {
        settings.notes().say(&format!("add this line to the server's --tokens-file: {line}"));
    }
    Ok(OK)
}

/// The lines of a file, parsed.
fn read(path: &Path) -> Result<(String, Access), Failure> {
    let lines = fs::read_to_string(path).map_err(|error| error.to_string());
    let read = lines.and_then(|lines| Ok((Access::from_lines(&lines)?, lines)));
    let what = || format!("cannot read {}", path.display());
    let (access, lines) =
        read.map_err(|why| Failure::new(CONFIGURATION, what(), why, SERVE_TOKEN_LINES))?;
    Ok((lines, access))
}

fn list(path: &Path, settings: &Settings, out: &mut dyn Write) -> Result<Exit, Stop> {
    let (_, access) = read(path)?;
    if settings.json.value {
        for (name, roles, prefix) in access.clients() {
            let object = Object::versioned().text("name", name).text("roles", &roles.join(","));
            writeln!(out, "{}", object.text("prefix", prefix).end())?;
        }
        return Ok(OK);
    }
    let rows = access.clients().map(|(name, roles, prefix)| {
        let prefix = if prefix.is_empty() { "any name" } else { prefix };
        [name.to_owned(), roles.join(","), prefix.to_owned()]
    });
    let heading = ["NAME", "ROLES", "PREFIX"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(heading).chain(rows).collect();
    table::print(&rows, settings.paint(), out)?;
    Ok(OK)
}

fn revoke(name: &str, path: &Path, settings: &Settings) -> Result<Exit, Stop> {
    let (lines, access) = read(path)?;
    if !access.clients().any(|(known, ..)| known == name) {
        let what = format!("{} has no client with this name", path.display());
        return Err(
            Failure::new(NO, what, "nothing was changed", "`tenure token ls` lists them").into()
        );
    }
    // When a server reloads a file without tokens, it refuses the file and keeps the tokens that it has.
    if access.clients().count() == 1 {
        let why = "without tokens, a server would let everyone in, so it would keep this one";
        let help = "make another one first, or stop the server";
        return Err(Failure::new(CONFIGURATION, "this is the last token", why, help).into());
    }
    let keep = |line: &&str| line.split_whitespace().next() != Some(name);
    let kept: String = lines.lines().filter(keep).flat_map(|line| [line, "\n"]).collect();
    // Written beside it and then renamed, so that a server never reads half a file. A symbolic link stays one.
    let path = fs::canonicalize(path)?;
    let mut beside = path.clone().into_os_string();
    beside.push(format!(".new-{}", std::process::id()));
    let mode = fs::metadata(&path)?.permissions().mode();
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(mode & 0o777).open(&beside)?;
    let written = file.write_all(kept.as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| fs::rename(&beside, &path)) {
        let _ = fs::remove_file(&beside);
        let what = format!("cannot write {}", path.display());
        let help = "see that this user can write there";
        return Err(Failure::new(CANNOT_CREATE, what, error.to_string(), help).into());
    }
    settings.notes().say("the token counts until the server reads the file again: send it SIGHUP");
    Ok(OK)
}
