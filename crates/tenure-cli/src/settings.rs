//! The settings of every command: the engine, the namespace, the output.

use std::fmt;
use std::path::{Path, PathBuf};

use tenure::engines::postgres::PostgresConfig;
use tenure::engines::redis::RedisConfig;
use tracing_subscriber::filter::LevelFilter;

use crate::args::{Found, Given, Source, Variables};
use crate::failure::{CONFIGURATION, Failure};
use crate::output::{Color, Notes, Paint, clean, quoted};

/// The settings of this process.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Where the engine is.
    pub(crate) address: Address,
    /// The namespace of all names, if there is one.
    pub(crate) ns: Option<Found<String>>,
    /// Whether data is printed as JSON.
    pub(crate) json: Found<bool>,
    /// Whether notes are left out.
    pub(crate) quiet: Found<bool>,
    /// When to use colour.
    pub(crate) color: Found<Color>,
    /// How much is logged.
    pub(crate) log_level: Found<LevelFilter>,
    /// The format of the log.
    pub(crate) log_format: Found<LogFormat>,
}

/// The URL of the engine. It may contain a password, so it is never printed as it is.
#[derive(Clone)]
pub(crate) struct Address {
    /// The URL, unless none was given and there is no folder for the default.
    url: Result<String, NoPlace>,
    /// Where the URL comes from.
    pub(crate) source: Source,
}

/// There is no folder for the state file.
#[derive(Clone, Copy, Debug)]
struct NoPlace;

/// The form of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogFormat {
    /// A line of text.
    Text,
    /// A JSON object per line.
    Json,
}

/// The values of `--color`.
pub(crate) const COLORS: [(&str, Color); 3] =
    [("auto", Color::Auto), ("always", Color::Always), ("never", Color::Never)];
/// The values of `--log-level`.
pub(crate) const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];
/// The values of `--log-format`.
pub(crate) const FORMATS: [(&str, LogFormat); 2] =
    [("text", LogFormat::Text), ("json", LogFormat::Json)];

impl Settings {
    /// Reads the settings from arguments and variables.
    pub(crate) fn read(given: &Given<'_>, variables: &Variables) -> Result<Settings, Failure> {
        let color = given.choice("color", &COLORS)?;
        let format = given.choice("log-format", &FORMATS)?;
        Ok(Settings {
            address: Address::read(given, variables)?,
            ns: read_ns(given)?,
            json: given.flag("json")?,
            quiet: given.flag("quiet")?,
            color: color.unwrap_or(Found::default(Color::Auto)),
            log_level: read_level(given)?,
            log_format: format.unwrap_or(Found::default(LogFormat::Text)),
        })
    }

    /// The name as the engine knows it.
    pub(crate) fn full_name(&self, name: &str) -> String {
        match &self.ns {
            Some(ns) => format!("{}/{name}", ns.value),
            None => name.to_owned(),
        }
    }

    /// The name within this namespace.
    pub(crate) fn short_name<'a>(&self, name: &'a str) -> &'a str {
        let Some(ns) = &self.ns else { return name };
        name.strip_prefix(&*ns.value).and_then(|rest| rest.strip_prefix('/')).unwrap_or(name)
    }

    /// The printer of notes.
    pub(crate) fn notes(&self) -> Notes {
        Notes::new(self.quiet.value)
    }

    /// The colours of the output.
    pub(crate) fn paint(&self) -> Paint {
        Paint::for_stdout(self.color.value)
    }

    /// The colours of errors.
    pub(crate) fn error_paint(&self) -> Paint {
        Paint::for_stderr(self.color.value)
    }
}

impl Address {
    /// The address of an engine that this process itself has chosen.
    pub(crate) fn new(url: String) -> Address {
        Address { url: Ok(url), source: Source::Variable }
    }

    fn read(given: &Given<'_>, variables: &Variables) -> Result<Address, Failure> {
        let option = if given.is_on_command_line("engine") { "engine" } else { "url" };
        let Some(Found { value, source }) = given.text(option)? else {
            let url = default_file(variables).ok_or(NoPlace);
            return Ok(Address { url, source: Source::Default });
        };
        if value.is_empty() {
            // Falling back to the default would make this process use a separate set of locks.
            return Err(Failure::new(
                given.exit_of(option),
                format!("{} is empty", given.said(option)),
                "an empty URL is probably a mistake",
                "set it to a URL, such as redis://localhost:6379, or unset it to use a file on this host",
            ));
        }
        let url = whole_path(value, variables).map_err(|NotWhole { why, help }| {
            let what = format!("the path in {} is not absolute", given.said(option));
            Failure::new(given.exit_of(option), what, why, help)
        })?;
        Ok(Address { url: Ok(url), source })
    }

    /// The URL itself, which may be a secret.
    pub(crate) fn url(&self) -> Result<&str, Failure> {
        self.url.as_deref().map_err(|NoPlace| {
            Failure::new(
                CONFIGURATION,
                "no place for the state file",
                "neither XDG_STATE_HOME nor HOME is an absolute path in UTF-8",
                "set one of them, or name the engine with TENURE_URL",
            )
        })
    }

    /// The scheme: the part before the first colon.
    pub(crate) fn scheme(&self) -> Option<&str> {
        let (scheme, _) = self.url.as_deref().ok()?.split_once(':')?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        scheme.chars().all(plain).then_some(scheme)
    }

    /// The URL for printing, without anything that could be a password.
    pub(crate) fn shown(&self) -> String {
        let Ok(url) = self.url.as_deref() else { return "none".into() };
        match self.scheme() {
            Some("file" | "memory") => url.to_owned(),
            Some(scheme) if PostgresConfig::SCHEMES.contains(&scheme) => {
                match PostgresConfig::from_url(url) {
                    Ok((config, _)) => config.label(),
                    Err(_) => format!("{scheme}:…"),
                }
            }
            Some(scheme) => match RedisConfig::from_url(url) {
                Ok((config, _)) => config.label(),
                Err(_) => format!("{scheme}:…"),
            },
            None => "…".into(),
        }
    }

    /// The options in the URL: defaults for all calls.
    pub(crate) fn fields(&self) -> Vec<(String, String)> {
        let Ok(url) = self.url.as_deref() else { return Vec::new() };
        if let Ok((_, fields)) = RedisConfig::from_url(url) {
            return fields;
        }
        if self.scheme().is_some_and(|scheme| PostgresConfig::SCHEMES.contains(&scheme)) {
            return PostgresConfig::from_url(url).map(|(_, fields)| fields).unwrap_or_default();
        }
        let (Some("file" | "memory"), Some((_, query))) = (self.scheme(), url.split_once('?'))
        else {
            return Vec::new();
        };
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.map(|(field, value)| (field.to_owned(), value.to_owned())).collect()
    }

    /// Whether it is the default, used for the first time.
    pub(crate) fn is_new_default(&self) -> bool {
        let path = self.url.as_deref().ok().and_then(|url| url.strip_prefix("file:"));
        self.source == Source::Default && path.is_some_and(|path| !Path::new(path).exists())
    }

    /// Whether a password is visible in the list of processes.
    pub(crate) fn is_seen_by_others(&self) -> bool {
        // A user alone is no secret: the password follows a colon, before the last @ of the authority.
        let has_password = |url: &str| {
            let (_, rest) = url.split_once("://").unwrap_or_default();
            rest.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
        };
        self.source == Source::Flag && self.url.as_deref().is_ok_and(has_password)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({}, {:?})", self.shown(), self.source)
    }
}

/// The error for a file path that depends on the directory or on the user.
struct NotWhole {
    why: String,
    help: String,
}

/// A URL whose file is the same no matter where it is read. Shells do not expand `~` after `file:`.
fn whole_path(url: String, variables: &Variables) -> Result<String, NotWhole> {
    let Some(rest) = url.strip_prefix("file:") else { return Ok(url) };
    let (path, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
    if path.is_empty() || path.starts_with('/') {
        return Ok(url);
    }
    if let Some(below) = path.strip_prefix("~/") {
        let home = variables("HOME").and_then(|home| home.into_string().ok());
        return match home.filter(|home| home.starts_with('/') && !home.contains('?')) {
            Some(home) => Ok(format!("file:{}/{below}{query}", home.trim_end_matches('/'))),
            None => Err(NotWhole {
                why: "`~` stands for HOME, which is not an absolute path".into(),
                help: "write the absolute path, such as file:/var/lib/app/locks.db".into(),
            }),
        };
    }
    if path.starts_with('~') {
        return Err(NotWhole {
            why: "only `~/` is expanded, to the home directory of this user".into(),
            help: "write the absolute path, such as file:/home/ada/locks.db".into(),
        });
    }
    let here = std::env::current_dir().unwrap_or_default();
    let whole = here.join(path.strip_prefix("./").unwrap_or(path));
    Err(NotWhole {
        why: format!(
            "{} is a different file in each directory: processes that start elsewhere would not see these locks",
            quoted(path)
        ),
        help: format!("write the absolute path: file:{}", clean(&whole.to_string_lossy())),
    })
}

/// The URL of the file that all processes of this user on this host share. Root's is always the same: a variable
/// that is set in a shell and not in cron must not lead to two sets of locks.
fn default_file(variables: &Variables) -> Option<String> {
    let folder = |name| variables(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = match folder("XDG_STATE_HOME") {
        _ if rustix::process::geteuid().is_root() => PathBuf::from("/var/lib"),
        Some(state) => state,
        None => folder("HOME")?.join(".local/state"),
    };
    // In a URL a question mark ends the path.
    let path = state.join("tenure/tenure.db");
    path.to_str().filter(|path| !path.contains('?')).map(|path| format!("file:{path}"))
}

fn read_ns(given: &Given<'_>) -> Result<Option<Found<String>>, Failure> {
    let Some(found) = given.text("ns")? else { return Ok(None) };
    let wrong = match &*found.value {
        "" => "it is empty",
        ns if ns.contains('/') => "it contains a slash",
        ns if ns.chars().any(char::is_control) => "it contains a control character",
        _ => return Ok(Some(found)),
    };
    let (said, shown) = (given.said("ns"), quoted(&found.value));
    let exit = given.exit_of("ns");
    let help = "a namespace is a single word, such as prod; unset it to use none";
    Err(Failure::new(exit, format!("invalid value {shown} for {said}"), wrong, help))
}

/// `--log-level` sets it directly; each `-v` is one level more than warnings.
fn read_level(given: &Given<'_>) -> Result<Found<LevelFilter>, Failure> {
    let times = given.times("verbose")?;
    if let Some(level) = given.choice("log-level", &LEVELS)?
        && (level.source == Source::Flag || times == 0)
    {
        return Ok(level);
    }
    let source = match times {
        0 => Source::Default,
        _ if given.is_on_command_line("verbose") => Source::Flag,
        _ => Source::Variable,
    };
    let value = match times {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    Ok(Found { value, source })
}
