use super::*;
use crate::model::error::ErrorKind;

fn read(url: &str) -> RedisConfig {
    let (config, rest) =
        RedisConfig::from_url(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    assert_eq!(rest, [], "{url}");
    config
}

fn refusal(url: &str) -> String {
    match RedisConfig::from_url(url) {
        Ok((config, _)) => panic!("{url} was read as {config:?}"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            error.to_string()
        }
    }
}

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp { host: host.into(), port }
}

fn password(config: &RedisConfig) -> Option<&str> {
    config.password.as_ref().map(Secret::expose)
}

#[test]
fn every_kind_of_url_has_its_label() {
    for (url, label) in [
        ("redis://127.0.0.1", "redis://127.0.0.1:6379/0"),
        ("redis://u:p@127.0.0.1:7000/3?namespace=a", "redis://127.0.0.1:7000/3"),
        ("redis://host/", "redis://host:6379/0"),
        ("redis://host?db=4", "redis://host:6379/4"),
        ("rediss://:p@cache.example/2", "rediss://cache.example:6379/2"),
        ("redis://[::1]", "redis://[::1]:6379/0"),
        ("redis://u@[2001:db8::1]:7000", "redis://[2001:db8::1]:7000/0"),
        ("redis+unix:///run/redis.sock", "redis+unix:///run/redis.sock?db=0"),
        ("unix:///run/re%20dis.sock?db=2", "redis+unix:///run/re dis.sock?db=2"),
        (
            "redis-sentinel://h1,h2:7,[::1]/main",
            "redis-sentinel://h1:26379,h2:7,[::1]:26379/main/0",
        ),
        ("rediss-sentinel://u:p@h1/main/5", "rediss-sentinel://h1:26379/main/5"),
        ("redis-cluster://h1,h2:7000", "redis-cluster://h1:6379,h2:7000"),
        ("rediss-cluster://u:p@h1/0", "rediss-cluster://h1:6379"),
    ] {
        assert_eq!(read(url).label(), label, "{url}");
    }
}

#[test]
fn a_url_says_where_the_servers_are() {
    assert_eq!(read("redis://h:1").topology, Topology::Single(tcp("h", 1)));
    assert_eq!(read("redis://[::1]:2").topology, Topology::Single(tcp("::1", 2)));
    let path = PathBuf::from("/run/a?b@c.sock");
    assert_eq!(
        read("redis+unix://u:p@/run/a%3Fb@c.sock").topology,
        Topology::Single(Address::Unix(path))
    );
    let sentinels = vec![tcp("a", 26379), tcp("b", 5)];
    assert_eq!(
        read("redis-sentinel://a,b:5/my%2Fmain").topology,
        Topology::Sentinel { sentinels, service: "my/main".into() }
    );
    let nodes = vec![tcp("a", 6379), tcp("b", 5)];
    assert_eq!(read("redis-cluster://a,b:5").topology, Topology::Cluster(nodes));
}

#[test]
fn user_and_password_are_decoded() {
    for (url, user, secret) in [
        ("redis://host", None, None),
        ("redis://:pass@host", None, Some("pass")),
        ("redis://user:pass@host", Some("user"), Some("pass")),
        ("redis://user@host", Some("user"), None),
        ("redis://user:@host", Some("user"), None),
        ("redis://us%40er:p%3A%2f%3F%23%25%C3%BC@host", Some("us@er"), Some("p:/?#%ü")),
        ("redis://user:a:b@c@host", Some("user"), Some("a:b@c")),
        ("redis-cluster://user:a,b@h1,h2", Some("user"), Some("a,b")),
        ("redis+unix://:p@/run/redis.sock", None, Some("p")),
    ] {
        let config = read(url);
        assert_eq!((config.user.as_deref(), password(&config)), (user, secret), "{url}");
    }
    let url = "redis-sentinel://a/main?sentinel_user=watcher&sentinel_password=%26p";
    let config = read(url);
    assert_eq!(config.sentinel_user.as_deref(), Some("watcher"));
    assert_eq!(config.sentinel_password.as_ref().map(Secret::expose), Some("&p"));
    assert!(config.user.is_none() && config.password.is_none());
}

#[test]
fn the_defaults_are_those_of_the_docs() {
    let config = read("redis://host");
    assert_eq!((config.namespace.as_str(), config.client_name.as_str()), ("tenure", "tenure"));
    assert_eq!(config.connect_timeout, Duration::from_secs(5));
    assert_eq!(config.command_timeout, Duration::from_secs(2));
    assert_eq!((config.wait_replicas, config.wait_timeout), (0, Duration::from_secs(1)));
    assert_eq!((config.after_restart, config.max_ttl), (AfterRestart::Grant, None));
    assert!(config.tls.is_none() && !config.require_noeviction);
    assert_eq!(config.longest_ttl(), Duration::from_secs(86_400));
    assert_eq!(read("redis://h?after_restart=wait").longest_ttl(), Duration::from_secs(60));
    assert_eq!(read("rediss://h").tls, Some(Tls::default()));
}

#[test]
fn options_are_read_and_foreign_ones_are_returned() {
    let (config, rest) = RedisConfig::from_url(
        "rediss://h?namespace=a.b:c-d_1&ttl=5s&client_name=web%2D3&connect_timeout=1s&\
         command_timeout=900ms&wait_replicas=2&wait_timeout=300ms&after_restart=wait&max_ttl=2min&\
         require=noeviction&ca=/etc/ca%20.pem&cert=/c.pem&key=/k.pem&server_name=redis.internal&\
         &wait=forever&owner=web%203&renew",
    )
    .unwrap();
    assert_eq!((config.namespace.as_str(), config.client_name.as_str()), ("a.b:c-d_1", "web-3"));
    assert_eq!(config.connect_timeout, Duration::from_secs(1));
    assert_eq!(config.command_timeout, Duration::from_millis(900));
    assert_eq!((config.wait_replicas, config.wait_timeout), (2, Duration::from_millis(300)));
    assert_eq!(config.after_restart, AfterRestart::Wait);
    assert_eq!(config.longest_ttl(), Duration::from_secs(120));
    assert!(config.require_noeviction);
    let tls = config.tls.unwrap();
    assert_eq!(tls.ca, Some("/etc/ca .pem".into()));
    assert_eq!((tls.cert, tls.key), (Some("/c.pem".into()), Some("/k.pem".into())));
    assert_eq!(tls.server_name.as_deref(), Some("redis.internal"));
    let rest: Vec<_> = rest.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(rest, [("ttl", "5s"), ("wait", "forever"), ("owner", "web 3"), ("renew", "")]);
}

#[test]
fn what_cannot_work_is_refused_with_the_option_and_the_limit() {
    let long = format!("redis://h?namespace={}", "n".repeat(65));
    for (url, says) in [
        ("http://host", "known: redis://"),
        ("redis:", "known: redis://"),
        ("redis://", "a host is missing"),
        ("redis://a b", "host is missing or not valid"),
        ("redis://h\r\nx", "host is missing or not valid"),
        ("redis://h#x", "write # as %23"),
        ("redis://h1,h2", "redis-cluster://"),
        ("redis://h:0", "from 1 to 65535"),
        ("redis://h:65536", "from 1 to 65535"),
        ("redis://h:+1", "from 1 to 65535"),
        ("redis://h:", "from 1 to 65535"),
        ("redis://fe80::1", "in brackets"),
        ("redis://[::1", "not an IPv6 address"),
        ("redis://[::1]6379", "not an IPv6 address"),
        ("redis://[1.2.3.4]", "not an IPv6 address"),
        ("redis://h/x", "database"),
        ("redis://h/1/2", "database"),
        ("redis://h/99999999999", "cannot read db"),
        ("redis://h/1?db=1", "db is given twice"),
        ("redis+unix://host/path", "three slashes"),
        ("redis+unix://", "missing"),
        ("redis+unix:///", "missing"),
        ("redis+unix:///a%00b", "missing"),
        ("redis-sentinel://h1,h2", "/service"),
        ("redis-sentinel:///main", "a host is missing"),
        ("redis-sentinel://h1,/main", "a host is missing"),
        ("redis-sentinel://h/ma%0Ain", "spaces"),
        ("redis-sentinel://h/main/x", "database"),
        ("redis-cluster://h/1", "a cluster has no database 1"),
        ("redis-cluster://h?db=1", "a cluster has no database 1"),
        ("redis://h?namespace=", "namespace has no value"),
        ("redis://h?namespace=a%7Bb%7D", "namespace must have 1 to 64"),
        ("redis://h?namespace=ü", "namespace must have 1 to 64"),
        (&long, "namespace must have 1 to 64"),
        ("redis://h?client_name=a%20b", "client_name must have 1 to 64"),
        ("redis://h?connect_timeout=5", "cannot read connect_timeout=\"5\" as a duration"),
        ("redis://h?connect_timeout=0s", "connect_timeout 0ns is out of range; 10ms to 600s"),
        ("redis://h?command_timeout=11min", "command_timeout 660s is out of range"),
        ("redis://h?wait_timeout=1ms", "wait_timeout 1ms is out of range"),
        ("redis://h?wait_replicas=101", "wait_replicas 101 is out of range; 0 to 100"),
        ("redis://h?wait_replicas=+1", "cannot read wait_replicas"),
        ("redis://h?wait_replicas=-1", "cannot read wait_replicas"),
        ("redis://h?wait_replicas=1&wait_timeout=2s", "not below command_timeout 2s"),
        ("redis://h?after_restart=hope", "known: grant, wait"),
        ("redis://h?max_ttl=49ms", "max_ttl 49ms is out of range; 50ms to 86400s"),
        ("redis://h?max_ttl=25h", "max_ttl 90000s is out of range"),
        ("redis://h?require=luck", "known: noeviction"),
        ("redis://h?sentinel_user=u", "there are no sentinels"),
        ("redis://h?sentinel_password=p", "there are no sentinels"),
        ("redis://h?ca=/ca.pem", "rediss://"),
        ("redis+unix:///s?server_name=x", "rediss://"),
        ("rediss://h?cert=/c.pem", "cert is set without key"),
        ("rediss://h?key=/k.pem", "key is set without cert"),
        ("redis://h?namespace=a&namespace=a", "namespace is given twice"),
        ("redis://h?ttl=1s&ttl=2s", "ttl is given twice"),
        ("redis://h?client_name=%zz", "client_name is not valid percent-encoded"),
        ("redis://h?client_name=%e", "client_name is not valid percent-encoded"),
        ("redis://h?client_name=%ff", "client_name is not valid percent-encoded"),
        ("redis://h?=x", "a-z and _"),
        ("redis://h?TTL=x", "a-z and _"),
    ] {
        let text = refusal(url);
        assert!(text.contains(says), "{url}: {text}");
    }
}

#[test]
fn a_password_reaches_no_text() {
    // Most of these have the mistakes that people make.
    for url in [
        "redis://user:hunter2%@host",
        "redis://user:hunter2#@host",
        "redis://user:hunter2/x@host",
        "redis://user:1/hunter2@host",
        "redis://user:hunter2?x@host",
        "redis://user:1?hunter2@host",
        "redis://hunter2/1@host",
        "redis://[hunter2",
        "redis://user:hunter2",
        "hunter2://",
        "redis:hunter2@host",
        "redis+unix://user:hunter2/path",
        "redis://user:hunter2@host:0",
        "redis://user:hunter2@host?max_ttl=1",
        "redis://user:hunter2@host?namespace={}",
        "redis-sentinel://a/main?sentinel_password=hunter2%",
        "redis-sentinel://a/main?sentinel_password=hunter2&sentinel_password=hunter2",
        "redis://a?sentinel_password=hunter2",
    ] {
        let text = refusal(url);
        assert!(!text.contains("hunter2"), "{url}: {text}");
    }
    let config = read("redis-sentinel://u:hunter2@a/main?sentinel_password=hunter2");
    assert!(!format!("{config:?} {}", config.label()).contains("hunter2"));
}

#[test]
fn fields_that_were_set_by_hand_are_checked_too() {
    let mut config = RedisConfig::new(Topology::Cluster(vec![]));
    assert!(config.check().unwrap_err().to_string().contains("no host"));
    config.topology = Topology::Cluster(vec![Address::Unix("/s".into())]);
    assert!(config.check().unwrap_err().to_string().contains("a single server"));
    config.topology = Topology::Single(Address::Unix("/s".into()));
    config.check().unwrap();
    config.tls = Some(Tls::default());
    assert!(config.check().unwrap_err().to_string().contains("TLS"));
}
