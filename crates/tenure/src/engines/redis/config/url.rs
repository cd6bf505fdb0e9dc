//! Reads the URLs of Redis.
//!
//! **Invariant:** an error never quotes anything before the query, nor an option's name unless it clearly is one:
//! if percent-encoding was forgotten, any of it can be part of a password.

use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

use super::{Address, AfterRestart, RedisConfig, Secret, Tls, Topology};
use crate::model::error::{Error, Result};

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

enum Shape {
    Single,
    Unix,
    Sentinel,
    Cluster,
}

/// The options for Redis itself. All others are returned to the caller.
const OURS: [&str; 16] = [
    "namespace",
    "client_name",
    "db",
    "connect_timeout",
    "command_timeout",
    "wait_replicas",
    "wait_timeout",
    "after_restart",
    "max_ttl",
    "require",
    "sentinel_user",
    "sentinel_password",
    "ca",
    "cert",
    "key",
    "server_name",
];

pub(super) fn parse(url: &str) -> Result<(RedisConfig, Vec<(String, String)>)> {
    if url.contains('#') {
        return Err(Error::invalid("the URL contains a #").next("write # as %23"));
    }
    let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
    let (shape, encrypted) = shape_of(scheme)?;
    let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = location.split_once('/').unwrap_or((location, ""));
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (Some(login), hosts),
        None => (None, authority),
    };
    let (topology, db) = locate(&shape, hosts, path)?;
    let mut config = RedisConfig::new(topology);
    config.tls = encrypted.then(Tls::default);
    if let Some(login) = login {
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let user = decode("the user", user)?;
        let password = decode("the password", password)?;
        config.user = Some(user).filter(|user| !user.is_empty());
        config.password = Some(password).filter(|text| !text.is_empty()).map(Secret::new);
    }
    let mut options = read_query(query)?;
    if let Some(db) = db {
        options.push(("db".to_owned(), db));
    }
    let mut rest = Vec::new();
    for (at, (option, value)) in options.iter().enumerate() {
        if options[..at].iter().any(|(earlier, _)| earlier == option) {
            let reason = format!("the option {option} is given twice");
            return Err(Error::invalid(reason).next("give it once"));
        }
        match OURS.contains(&option.as_str()) {
            true => set(&mut config, option, value)?,
            false => rest.push((option.clone(), value.clone())),
        }
    }
    Ok((config, rest))
}

fn shape_of(scheme: &str) -> Result<(Shape, bool)> {
    match scheme {
        "redis" => Ok((Shape::Single, false)),
        "rediss" => Ok((Shape::Single, true)),
        "redis+unix" | "unix" => Ok((Shape::Unix, false)),
        "redis-sentinel" => Ok((Shape::Sentinel, false)),
        "rediss-sentinel" => Ok((Shape::Sentinel, true)),
        "redis-cluster" => Ok((Shape::Cluster, false)),
        "rediss-cluster" => Ok((Shape::Cluster, true)),
        _ => Err(Error::invalid("this is not a Redis URL").next(
            "known: redis://, rediss://, redis+unix://, redis-sentinel://, rediss-sentinel://, \
             redis-cluster://, rediss-cluster://",
        )),
    }
}

/// Reads hosts and path: the servers, and the database if the path names one.
fn locate(shape: &Shape, hosts: &str, path: &str) -> Result<(Topology, Option<String>)> {
    let (topology, db) = match shape {
        Shape::Unix => {
            if !hosts.is_empty() {
                let error = Error::invalid("a Unix socket has no host");
                return Err(error.next("write redis+unix:///path/to.sock, with three slashes"));
            }
            let path = decode("the path", path)?;
            if path.is_empty() || path.contains('\0') {
                let error = Error::invalid("the path of the Unix socket is missing");
                return Err(error.next("write redis+unix:///path/to.sock"));
            }
            (Topology::Single(Address::Unix(PathBuf::from(format!("/{path}")))), "")
        }
        Shape::Single if hosts.contains(',') => {
            let error = Error::invalid("there are several hosts in the URL of one server");
            return Err(error.next("write redis-sentinel:// or redis-cluster://"));
        }
        Shape::Single => (Topology::Single(tcp(hosts, REDIS_PORT)?), path),
        Shape::Cluster => {
            let nodes = hosts.split(',').map(|host| tcp(host, REDIS_PORT));
            (Topology::Cluster(nodes.collect::<Result<_>>()?), path)
        }
        Shape::Sentinel => {
            let sentinels = hosts.split(',').map(|host| tcp(host, SENTINEL_PORT));
            let sentinels = sentinels.collect::<Result<_>>()?;
            let (service, db) = path.split_once('/').unwrap_or((path, ""));
            (Topology::Sentinel { sentinels, service: decode("the service", service)? }, db)
        }
    };
    if !db.bytes().all(|byte| byte.is_ascii_digit()) {
        let error = Error::invalid("the database after the last / is not a number");
        return Err(error.next("write / or ? in a password as %2F or %3F"));
    }
    Ok((topology, Some(db.to_owned()).filter(|db| !db.is_empty())))
}

fn tcp(text: &str, default_port: u16) -> Result<Address> {
    let (host, port) = match text.strip_prefix('[') {
        Some(bracketed) => {
            let (host, after) = bracketed.split_once(']').unwrap_or((bracketed, "]"));
            if host.parse::<Ipv6Addr>().is_err() || !(after.is_empty() || after.starts_with(':')) {
                let error = Error::invalid("the text in brackets is not an IPv6 address");
                return Err(error.next("write [::1]:6379"));
            }
            (host, after.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
    if host.is_empty() || host.len() > 253 || !host.chars().all(plain) {
        let error = Error::invalid("a host is missing or not valid");
        return Err(error.next("write scheme://user:password@host:port; encode other characters"));
    }
    let port = match port {
        None => default_port,
        Some(port) => {
            port.parse().ok().filter(|&parsed| parsed > 0 && digits(port)).ok_or_else(|| {
                let error = Error::invalid("a port is not a number from 1 to 65535");
                error.next("write IPv6 in brackets, and percent-encode @ / ? : in a password")
            })?
        }
    };
    Ok(Address::Tcp { host: host.to_owned(), port })
}

fn read_query(query: &str) -> Result<Vec<(String, String)>> {
    let mut options = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (option, value) = pair.split_once('=').unwrap_or((pair, ""));
        if option.is_empty() || !option.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
            let error = Error::invalid("an option's name has characters other than a-z and _");
            return Err(error.next("write ? in a password as %3F"));
        }
        options.push((option.to_owned(), decode(&format!("the option {option}"), value)?));
    }
    Ok(options)
}

fn set(config: &mut RedisConfig, option: &str, value: &str) -> Result<()> {
    if value.is_empty() {
        let reason = format!("the option {option} has no value");
        return Err(Error::invalid(reason).next("give it one, or leave it out"));
    }
    match option {
        "namespace" => config.namespace = value.to_owned(),
        "client_name" => config.client_name = value.to_owned(),
        "db" => config.db = number(option, value)?,
        "connect_timeout" => config.connect_timeout = duration(option, value)?,
        "command_timeout" => config.command_timeout = duration(option, value)?,
        "wait_replicas" => config.wait_replicas = number(option, value)?,
        "wait_timeout" => config.wait_timeout = duration(option, value)?,
        "max_ttl" => config.max_ttl = Some(duration(option, value)?),
        "after_restart" => {
            config.after_restart = match value {
                "grant" => AfterRestart::Grant,
                "wait" => AfterRestart::Wait,
                _ => return Err(unknown(option, value).next("known: grant, wait")),
            }
        }
        "require" if value == "noeviction" => config.require_noeviction = true,
        "require" => return Err(unknown(option, value).next("known: noeviction")),
        "sentinel_user" => config.sentinel_user = Some(value.to_owned()),
        "sentinel_password" => config.sentinel_password = Some(Secret::new(value)),
        // A URL that names a certificate must not end up with plain text.
        _ => {
            let Some(tls) = &mut config.tls else {
                let reason = format!("the option {option} needs TLS, and this URL has none");
                return Err(Error::invalid(reason)
                    .next("write rediss://, rediss-sentinel:// or rediss-cluster://"));
            };
            match option {
                "ca" => tls.ca = Some(value.into()),
                "cert" => tls.cert = Some(value.into()),
                "key" => tls.key = Some(value.into()),
                _ => tls.server_name = Some(value.to_owned()),
            }
        }
    }
    Ok(())
}

fn unknown(option: &str, value: &str) -> Error {
    Error::invalid(format!("{option}={value:?} is not known"))
}

fn duration(option: &str, value: &str) -> Result<Duration> {
    humantime::parse_duration(value).map_err(|error| {
        let reason = format!("cannot read {option}={value:?} as a duration: {error}");
        Error::invalid(reason).next("write a number with its unit, such as 2s or 500ms")
    })
}

fn number(option: &str, value: &str) -> Result<u32> {
    // `parse` would also accept a leading plus.
    value.parse().ok().filter(|_| digits(value)).ok_or_else(|| {
        let reason = format!("cannot read {option}={value:?} as a number");
        Error::invalid(reason).next("write a whole number")
    })
}

fn digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn decode(what: &str, text: &str) -> Result<String> {
    let wrong = || {
        let reason = format!("{what} is not valid percent-encoded UTF-8");
        Error::invalid(reason).next("write % as %25")
    };
    if !text.contains('%') {
        return Ok(text.to_owned());
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut pieces = text.split('%');
    decoded.extend_from_slice(pieces.next().unwrap_or_default().as_bytes());
    for piece in pieces {
        let bytes = piece.as_bytes();
        let hex = |at: usize| bytes.get(at).and_then(|&byte| (byte as char).to_digit(16));
        let (Some(high), Some(low)) = (hex(0), hex(1)) else {
            return Err(wrong());
        };
        decoded.push((high * 16 + low) as u8);
        decoded.extend_from_slice(&bytes[2..]);
    }
    String::from_utf8(decoded).map_err(|_| wrong())
}
