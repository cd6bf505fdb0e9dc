//! Turns a URL into an engine.

use std::sync::Arc;

use crate::engine::Engine;
#[cfg(feature = "file")]
use crate::engines::file::File;
#[cfg(feature = "http")]
use crate::engines::http::{Http, HttpConfig};
use crate::engines::memory::Memory;
#[cfg(feature = "postgres")]
use crate::engines::postgres::{Postgres, PostgresConfig};
#[cfg(feature = "redis")]
use crate::engines::redis::{Redis, RedisConfig};
use crate::engines::{POSTGRES_SCHEMES, REDIS_SCHEMES};
use crate::model::error::{Error, ErrorKind, Result};

/// An engine, the remaining options of its URL, and why it cannot be reached, if that was tried.
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

/// `reach`: try to reach the engine.
pub(super) async fn open(url: &str, reach: bool) -> Result<Opened> {
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    if address == "memory:" {
        return Ok(Opened::new(Memory::new(), fields(query)));
    }
    if let Some(path) = address.strip_prefix("file:") {
        let opened = open_file(path, fields(query)).await;
        return opened.map_err(|error| error.context("connect", "", address));
    }
    // The text after the scheme may be a password, and without a scheme all of it may be.
    let scheme = address
        .split_once(':')
        .map(|(scheme, _)| scheme)
        .filter(|scheme| scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)));
    if let Some(scheme) = scheme.filter(|scheme| REDIS_SCHEMES.contains(scheme)) {
        return open_redis(url, scheme, reach).await;
    }
    if let Some(scheme) = scheme.filter(|scheme| POSTGRES_SCHEMES.contains(scheme)) {
        return open_postgres(url, scheme, reach).await;
    }
    if let Some(scheme @ ("http" | "https" | "http+unix")) = scheme {
        return open_http(url, scheme, reach).await;
    }
    let reason = match scheme {
        Some(scheme) => format!("there is no engine for {scheme:?}"),
        None => "there is no engine for a URL without a scheme".to_owned(),
    };
    let unknown = Error::invalid(reason).next(
        "known: memory:, file:PATH, redis:// and its variants, postgres://, http://, https://, http+unix:PATH",
    );
    Err(unknown.context("connect", "", ""))
}

fn fields(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.map(|(field, value)| (field.to_owned(), value.to_owned())).collect()
}

#[cfg(feature = "file")]
async fn open_file(path: &str, mut fields: Vec<(String, String)>) -> Result<Opened> {
    // file:///var/lib/x names the same file as file:/var/lib/x.
    let path = path.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(path);
    if path.starts_with('~') {
        let reason = format!("{path:?} begins with ~, which only the shell expands");
        return Err(Error::invalid(reason)
            .next("write the whole path, or file:./~ for a folder with that name"));
    }
    let guard = take_guard(&mut fields)?;
    Ok(Opened::new(File::open_in_background(path.into(), guard).await?, fields))
}

#[cfg(not(feature = "file"))]
async fn open_file(_: &str, _: Vec<(String, String)>) -> Result<Opened> {
    Err(not_built_in("file"))
}

#[cfg(feature = "redis")]
async fn open_redis(url: &str, scheme: &str, reach: bool) -> Result<Opened> {
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
    Ok(Opened { down, ..Opened::new(redis, fields) })
}

#[cfg(not(feature = "redis"))]
async fn open_redis(_: &str, scheme: &str, _: bool) -> Result<Opened> {
    Err(not_built_in("redis").context("connect", "", scheme))
}

#[cfg(feature = "http")]
async fn open_http(url: &str, scheme: &str, reach: bool) -> Result<Opened> {
    let (config, fields) =
        HttpConfig::from_url(url).map_err(|error| error.context("connect", "", scheme))?;
    let label = config.label();
    let explain = |error: Error| error.context("connect", "", &label);
    let http = Http::unconnected(config).map_err(explain)?;
    if !reach {
        return Ok(Opened::new(http, fields));
    }
    let down = match http.reach().await {
        Err(error) if error.kind() == ErrorKind::Unavailable => Some(error),
        reached => reached.map(|()| None).map_err(explain)?,
    };
    Ok(Opened { down, ..Opened::new(http, fields) })
}

#[cfg(not(feature = "http"))]
async fn open_http(_: &str, scheme: &str, _: bool) -> Result<Opened> {
    Err(not_built_in("http").context("connect", "", scheme))
}

#[cfg(feature = "postgres")]
async fn open_postgres(url: &str, scheme: &str, reach: bool) -> Result<Opened> {
    let read = PostgresConfig::from_url(url);
    let (config, fields) = read.map_err(|error| error.context("connect", "", scheme))?;
    let postgres = Postgres::unconnected(config);
    let postgres = postgres.map_err(|error| error.context("connect", "", scheme))?;
    if !reach {
        return Ok(Opened::new(postgres, fields));
    }
    let label = postgres.profile().label.clone();
    let down = match postgres.reach().await {
        Err(error) if error.kind() == ErrorKind::Unavailable => Some(error),
        reached => reached.map(|()| None).map_err(|error| error.context("connect", "", &label))?,
    };
    Ok(Opened { down, ..Opened::new(postgres, fields) })
}

#[cfg(not(feature = "postgres"))]
async fn open_postgres(_: &str, scheme: &str, _: bool) -> Result<Opened> {
    Err(not_built_in("postgres").context("connect", "", scheme))
}

/// The error for an engine that this build does not have.
#[cfg(not(all(feature = "file", feature = "http", feature = "postgres", feature = "redis")))]
fn not_built_in(feature: &str) -> Error {
    let reason =
        format!("this program was built without the feature {feature:?} of the crate tenure");
    Error::new(ErrorKind::Unsupported, reason).next("add the feature in Cargo.toml")
}

#[cfg(feature = "file")]
/// Takes out the process whose end the claims of a file must wait for, besides this one's.
fn take_guard(fields: &mut Vec<(String, String)>) -> Result<Option<u32>> {
    let Some(at) = fields.iter().position(|(field, _)| field == "guard") else { return Ok(None) };
    let (_, value) = fields.swap_remove(at);
    value.parse().map(Some).map_err(|_| {
        Error::invalid(format!("cannot read guard={value:?} as a pid")).next("write a process id")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which engines are missing depends on the features of the build: `cargo xtask test --all` runs it with none
    /// of them.
    #[tokio::test]
    async fn an_engine_that_is_not_built_in_is_named_with_its_feature() {
        let folder = std::env::temp_dir().join(format!("tenure-open-{}", std::process::id()));
        let file = format!("file:{}", folder.join("locks.db").display());
        let table = [
            ("memory:", "memory", true),
            (&*file, "file", cfg!(feature = "file")),
            ("redis://127.0.0.1:1", "redis", cfg!(feature = "redis")),
            ("redis-cluster://127.0.0.1:1", "redis", cfg!(feature = "redis")),
            ("unix:///nowhere", "redis", cfg!(feature = "redis")),
            ("postgres://127.0.0.1:1/x", "postgres", cfg!(feature = "postgres")),
            ("rediss://127.0.0.1:1", "tls", cfg!(feature = "tls")),
            ("http://127.0.0.1:1", "http", cfg!(feature = "http")),
            ("http+unix:/nowhere", "http", cfg!(feature = "http")),
        ];
        for (url, feature, is_built_in) in table {
            match open(url, false).await {
                Ok(_) => assert!(is_built_in, "{url}"),
                Err(error) => {
                    assert!(!is_built_in, "{url}: {error}");
                    assert_eq!(error.kind(), ErrorKind::Unsupported);
                    let without_redis = feature == "tls" && cfg!(not(feature = "redis"));
                    let feature = if without_redis { "redis" } else { feature };
                    let named = format!("without the feature {feature:?}");
                    assert!(error.to_string().contains(&named), "{error}");
                }
            }
        }
        let _ = std::fs::remove_dir_all(folder);
    }
}
