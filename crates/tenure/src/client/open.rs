//! From a URL to an engine.

use std::sync::Arc;

use crate::engine::Engine;
use crate::engines::file::File;
use crate::engines::memory::Memory;
use crate::engines::redis::{Redis, RedisConfig};
use crate::error::{Error, ErrorKind, Result};

/// An engine, what else the query of its URL says, and why it cannot be reached, where it was tried.
pub(super) struct Opened {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) fields: Vec<(String, String)>,
    pub(super) down: Option<Error>,
}

impl Opened {
    fn new(engine: impl Engine, fields: Vec<(String, String)>) -> Opened {
        Opened { engine: Arc::new(engine), fields, down: None }
    }
}

/// `reach`: to see whether it is there.
pub(super) async fn open(url: &str, reach: bool) -> Result<Opened> {
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let fields = || {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.map(|(field, value)| (field.to_owned(), value.to_owned())).collect()
    };
    if address == "memory:" {
        return Ok(Opened::new(Memory::new(), fields()));
    }
    if let Some(path) = address.strip_prefix("file:") {
        // file:///var/lib/x names the same file as file:/var/lib/x.
        let path = path.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(path);
        let mut fields: Vec<(String, String)> = fields();
        let opened = async {
            if path.starts_with('~') {
                let reason = format!("{path:?} begins with the shell's sign for a home folder");
                return Err(Error::invalid(reason).next(
                    "write the whole path; file:./~ begins the path of a folder that is called so",
                ));
            }
            let guard = take_guard(&mut fields)?;
            File::open_in_background(path.into(), guard).await
        };
        let file = opened.await.map_err(|error| error.context("connect", "", address))?;
        return Ok(Opened::new(file, fields));
    }
    // What follows the scheme may be a password, and without a scheme anything may.
    let scheme = address
        .split_once(':')
        .map(|(scheme, _)| scheme)
        .filter(|scheme| scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)));
    if let Some(scheme) = scheme.filter(|scheme| RedisConfig::SCHEMES.contains(scheme)) {
        let read = RedisConfig::from_url(url);
        let (config, fields) = read.map_err(|error| error.context("connect", "", scheme))?;
        let label = config.label();
        let explain = |error: Error| error.context("connect", "", &label);
        let redis = Redis::unconnected(config).map_err(explain)?;
        if !reach {
            return Ok(Opened::new(redis, fields));
        }
        let down = match redis.reach().await {
            Err(error) if error.kind() == ErrorKind::Unavailable => Some(error),
            reached => reached.map(|()| None).map_err(explain)?,
        };
        return Ok(Opened { down, ..Opened::new(redis, fields) });
    }
    let reason = match scheme {
        Some(scheme) => format!("there is no engine for {scheme:?}"),
        None => "there is no engine for a URL without a scheme".to_owned(),
    };
    let unknown = Error::invalid(reason).next("known: memory:, file:PATH, redis:// and its kin");
    Err(unknown.context("connect", "", ""))
}

/// The process that a file's holds must outlive besides this one.
fn take_guard(fields: &mut Vec<(String, String)>) -> Result<Option<u32>> {
    let Some(at) = fields.iter().position(|(field, _)| field == "guard") else { return Ok(None) };
    let (_, value) = fields.swap_remove(at);
    value.parse().map(Some).map_err(|_| {
        Error::invalid(format!("cannot read guard={value:?} as a pid")).next("write a process id")
    })
}
