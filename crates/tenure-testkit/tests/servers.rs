//! The servers that tests start, the clock that they see and the network in front of them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use tenure_testkit::proxy::{Direction, Fault, Proxy};
use tenure_testkit::servers::{
    Anvil, Certificates, Clock, Cluster, Flavour, Fsync, Mining, Redis, Reply, Sentinels,
    eventually,
};

const SOON: Duration = Duration::from_secs(10);

fn ok() -> Reply {
    Reply::Text("OK".to_owned())
}

fn dial(port: u16) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(SOON))?;
    Ok(stream)
}

/// Sends a line and reads the answer up to the end of a line.
fn ask(stream: &mut TcpStream, line: &str) -> std::io::Result<String> {
    stream.write_all(format!("{line}\r\n").as_bytes())?;
    answer(stream)
}

fn answer(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        line.push(byte[0]);
    }
    Ok(String::from_utf8(line).unwrap().trim_end().to_owned())
}

/// Whether nothing arrives for a while.
fn is_silent(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(150))).unwrap();
    let read = stream.read(&mut [0]);
    stream.set_read_timeout(Some(SOON)).unwrap();
    read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

#[test]
fn a_dropped_server_leaves_neither_process_nor_folder() {
    let redis = Redis::build().start().unwrap();
    let (process, folder) = (format!("/proc/{}", redis.pid()), redis.directory().to_owned());
    assert_eq!(redis.info("process_id"), Some(redis.pid().to_string()));
    assert!(Path::new(&process).exists() && folder.exists());
    drop(redis);
    assert!(!Path::new(&process).exists() && !folder.exists());
}

#[test]
fn a_killed_test_process_takes_its_servers_with_it() {
    if let Ok(file) = std::env::var("TENURE_TEST_PID_FILE") {
        // Started on a thread that ends: only the end of the process may kill it.
        let redis = std::thread::spawn(|| Redis::build().start().unwrap()).join().unwrap();
        assert_eq!(redis.command(&["SET", "k", "v"]).unwrap(), ok());
        let folder = redis.directory().display();
        std::fs::write(&file, format!("{} {folder}\n", redis.pid())).unwrap();
        std::thread::sleep(SOON);
        return;
    }
    let file = std::env::temp_dir().join(format!("tenure-pid-{}", std::process::id()));
    let mut test = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "servers::a_killed_test_process_takes_its_servers_with_it"])
        .env("TENURE_TEST_PID_FILE", &file)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut said = String::new();
    eventually("the child has a server", SOON, || {
        said = std::fs::read_to_string(&file).unwrap_or_default();
        said.ends_with('\n')
    })
    .unwrap();
    std::fs::remove_file(file).unwrap();
    let (pid, folder) = said.trim_end().split_once(' ').unwrap();
    // A zombie is as good as gone: in a container nobody may wait for orphans.
    let runs = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.contains("redis-server") && !status.contains("State:\tZ")
    };
    assert!(runs());
    test.kill().unwrap();
    test.wait().unwrap();
    eventually("its server is gone", Duration::from_secs(2), || !runs()).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_append_only_file_survives_a_kill_and_nothing_else_does() {
    for (aof, kept) in [(true, Reply::Text("v".to_owned())), (false, Reply::Nil)] {
        let build = Redis::build();
        let build = if aof { build.aof(Fsync::Always) } else { build };
        let redis = build.start().unwrap();
        assert_eq!(redis.command(&["SET", "k", "v"]).unwrap(), ok());
        let (port, pid) = (redis.port(), redis.pid());
        redis.kill().unwrap();
        assert!(!redis.is_running() && redis.command(&["PING"]).is_err());
        redis.restart().unwrap();
        assert_eq!(redis.command(&["GET", "k"]).unwrap(), kept);
        assert_eq!(redis.port(), port);
        assert_ne!(redis.pid(), pid);
    }
}

#[test]
fn a_snapshot_is_written_when_the_server_is_asked_to_end() {
    let redis = Redis::build().rdb().start().unwrap();
    redis.command(&["SET", "k", "v"]).unwrap();
    redis.terminate().unwrap();
    redis.restart().unwrap();
    assert_eq!(redis.command(&["GET", "k"]).unwrap().text(), Some("v"));
}

#[test]
fn a_paused_server_keeps_connections_and_answers_later() {
    let redis = Redis::build().start().unwrap();
    let mut stream = dial(redis.port()).unwrap();
    redis.pause().unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    assert!(is_silent(&mut stream));
    redis.resume().unwrap();
    assert_eq!(answer(&mut stream).unwrap(), "+PONG");
}

#[test]
fn passwords_and_users_are_required_and_the_test_kit_still_gets_in() {
    let redis = Redis::build().password("open sesame").start().unwrap();
    let mut stream = dial(redis.port()).unwrap();
    assert!(ask(&mut stream, "PING").unwrap().starts_with("-NOAUTH"));
    assert_eq!(ask(&mut stream, "AUTH \"open sesame\"").unwrap(), "+OK");
    assert_eq!(redis.command(&["PING"]).unwrap().text(), Some("PONG"));

    let users = ["user default off", "user alice on >secret ~a:* +get"];
    let redis = Redis::build().acl(&users).start().unwrap();
    let mut stream = dial(redis.port()).unwrap();
    assert!(ask(&mut stream, "GET a:1").unwrap().starts_with("-NOAUTH"));
    assert_eq!(ask(&mut stream, "AUTH alice secret").unwrap(), "+OK");
    assert_eq!(ask(&mut stream, "GET a:1").unwrap(), "$-1");
    assert!(ask(&mut stream, "SET a:1 x").unwrap().starts_with("-NOPERM"));
    assert_eq!(redis.command(&["SET", "b", "x"]).unwrap(), ok());
    assert!(redis.memory_of("b").unwrap() > 0);
    assert_eq!(redis.memory_of("nothing"), None);
}

#[test]
fn a_server_can_listen_on_its_socket_alone() {
    let redis = Redis::build().unix_socket().start().unwrap();
    assert_eq!(redis.url(), format!("unix://{}", redis.socket_path().display()));
    assert_eq!(redis.command(&["CONFIG", "GET", "port"]).unwrap().to_string(), "[port, 0]");
    assert!(dial(redis.port()).is_err());
}

#[test]
fn a_replica_follows_its_primary() {
    let primary = Redis::build().password("secret").start().unwrap();
    let replica = Redis::build().password("secret").replica_of(primary.port()).start().unwrap();
    eventually("in sync", SOON, || replica.is_synced_replica()).unwrap();
    primary.command(&["SET", "k", "v"]).unwrap();
    assert_eq!(primary.connect().unwrap().command(&["WAIT", "1", "5000"]).unwrap(), Reply::Int(1));
    assert_eq!(replica.command(&["GET", "k"]).unwrap().text(), Some("v"));
}

#[test]
fn what_is_wrong_with_a_server_is_in_the_error() {
    let error = Redis::build().setting("no-such-setting", "1").start().unwrap_err().to_string();
    assert!(error.contains("no-such-setting"), "{error}");
    let first = Redis::build().start().unwrap();
    let error = Redis::build().port(first.port()).start().unwrap_err().to_string();
    assert!(error.contains("Address already in use"), "{error}");
}

#[test]
fn a_frozen_clock_decides_when_keys_expire() {
    for flavour in Flavour::ALL {
        let clock = Clock::new().unwrap();
        let redis = Redis::build().flavour(flavour).clock(&clock).start().unwrap();
        let seconds = || redis.command(&["TIME"]).unwrap().list()[0].int().unwrap();
        assert!((seconds() - clock.unix_millis() / 1000).abs() <= 1, "{flavour:?}");

        clock.freeze_at(2_000_000_000_500).unwrap();
        let time = redis.command(&["TIME"]).unwrap();
        let [seconds_now, micros] = [0, 1].map(|index| time.list()[index].int().unwrap());
        // Valkey counts microseconds by itself.
        assert_eq!((seconds_now, micros / 1000), (2_000_000_000, 500), "{flavour:?}");
        assert_eq!(redis.command(&["SET", "k", "v", "PX", "1000"]).unwrap(), ok());
        std::thread::sleep(Duration::from_millis(1200));
        assert_eq!(redis.command(&["PTTL", "k"]).unwrap(), Reply::Int(1000), "{flavour:?}");
        clock.advance(999).unwrap();
        assert_eq!(redis.command(&["PTTL", "k"]).unwrap(), Reply::Int(1), "{flavour:?}");
        clock.advance(1).unwrap();
        clock.advance(1).unwrap();
        assert_eq!(redis.command(&["GET", "k"]).unwrap(), Reply::Nil, "{flavour:?}");

        clock.run().unwrap();
        eventually("it runs on", SOON, || seconds() > 2_000_000_001).unwrap();
        clock.offset(-3_600_000).unwrap();
        assert!((seconds() - clock.unix_millis() / 1000).abs() <= 1, "{flavour:?}");
    }
}

#[test]
fn a_proxy_passes_holds_and_delays() {
    let redis = Redis::build().start().unwrap();
    let proxy = Proxy::start(redis.port()).unwrap();
    let mut stream = dial(proxy.port()).unwrap();
    assert_eq!(ask(&mut stream, "SET k 1").unwrap(), "+OK");
    assert_eq!((proxy.connections(), proxy.accepted()), (1, 1));
    assert_eq!((proxy.bytes(Direction::Upstream), proxy.bytes(Direction::Downstream)), (9, 5));

    proxy.hold(Direction::Upstream);
    stream.write_all(b"INCR k\r\n").unwrap();
    assert!(is_silent(&mut stream));
    assert_eq!(redis.command(&["GET", "k"]).unwrap().int(), Some(1));
    proxy.pass().unwrap();
    assert_eq!(answer(&mut stream).unwrap(), ":2");

    proxy.hold(Direction::Downstream);
    stream.write_all(b"INCR k\r\n").unwrap();
    assert!(is_silent(&mut stream));
    assert_eq!(redis.command(&["GET", "k"]).unwrap().int(), Some(3));
    proxy.pass().unwrap();
    assert_eq!(answer(&mut stream).unwrap(), ":3");

    proxy.delay(Direction::Downstream, Duration::from_millis(100));
    proxy.delay(Direction::Upstream, Duration::from_millis(100));
    let began = Instant::now();
    assert_eq!(ask(&mut stream, "INCR k").unwrap(), ":4");
    assert!(began.elapsed() >= Duration::from_millis(200));
    // Commands sent in a row are under way together.
    stream.write_all(b"INCR k\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(30));
    stream.write_all(b"INCR k\r\n").unwrap();
    assert_eq!([answer(&mut stream).unwrap(), answer(&mut stream).unwrap()], [":5", ":6"]);
}

#[test]
fn a_proxy_delivers_bytes_in_pieces() {
    let redis = Redis::build().start().unwrap();
    let proxy = Proxy::start(redis.port()).unwrap();
    let mut stream = dial(proxy.port()).unwrap();
    assert_eq!(ask(&mut stream, "PING").unwrap(), "+PONG");
    proxy.set(Direction::Downstream, Fault::Pieces(2));
    let began = Instant::now();
    assert_eq!(ask(&mut stream, "PING").unwrap(), "+PONG");
    // Four pieces have three pauses. Reads are not counted: a reader that does not run finds several pieces at once.
    assert!(began.elapsed() >= Duration::from_millis(3));
    let delivered = || proxy.delivered(Direction::Downstream) == 14;
    eventually("both answers were passed on", SOON, delivered).unwrap();
}

#[test]
fn a_proxy_swallows_cuts_and_drops_replies() {
    let redis = Redis::build().start().unwrap();
    let proxy = Proxy::start(redis.port()).unwrap();
    let mut stream = dial(proxy.port()).unwrap();
    proxy.swallow(Direction::Upstream);
    stream.write_all(b"INCR k\r\n").unwrap();
    assert!(is_silent(&mut stream));
    proxy.pass().unwrap();
    assert_eq!(ask(&mut stream, "INCR k").unwrap_err().kind(), ErrorKind::ConnectionReset);
    let mut stream = dial(proxy.port()).unwrap();
    assert_eq!(ask(&mut stream, "INCR k").unwrap(), ":1");

    proxy.drop_replies(2);
    stream.write_all(b"INCR k\r\n").unwrap();
    assert!(is_silent(&mut stream));
    assert_eq!(ask(&mut stream, "INCR k").unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(redis.command(&["GET", "k"]).unwrap().int(), Some(3));

    let mut stream = dial(proxy.port()).unwrap();
    assert_eq!(ask(&mut stream, "INCR k").unwrap(), ":4");
    proxy.reset();
    assert_eq!(answer(&mut stream).unwrap_err().kind(), ErrorKind::ConnectionReset);
    eventually("none is open", SOON, || proxy.connections() == 0).unwrap();
    assert_eq!(proxy.accepted(), 3);
}

/// A stream with missing bytes would be a different reply from the server's.
#[test]
fn a_proxy_delivers_nothing_after_a_gap() {
    let redis = Redis::build().start().unwrap();
    let proxy = Proxy::start(redis.port()).unwrap();
    let mut stream = dial(proxy.port()).unwrap();
    proxy.hold(Direction::Downstream);
    // Each of them is a chunk of its own, and all of them are there when the first is dropped.
    for number in 1..=5 {
        stream.write_all(format!("ECHO {number}\r\n").as_bytes()).unwrap();
        let arrived = || proxy.bytes(Direction::Downstream) == 7 * number;
        eventually("the reply is held", SOON, arrived).unwrap();
    }
    proxy.drop_replies(1);
    proxy.set(Direction::Downstream, Fault::Pass);
    assert_eq!(answer(&mut stream).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_proxy_closes_one_direction() {
    let redis = Redis::build().start().unwrap();
    let proxy = Proxy::start(redis.port()).unwrap();
    let mut stream = dial(proxy.port()).unwrap();
    assert_eq!(ask(&mut stream, "INCR k").unwrap(), ":1");
    proxy.half_close(Direction::Downstream);
    assert_eq!(answer(&mut stream).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    stream.write_all(b"INCR k\r\n").unwrap();
    eventually("it still arrives", SOON, || redis.command(&["GET", "k"]).unwrap().int() == Some(2))
        .unwrap();
    drop(stream);
    eventually("none is open", SOON, || proxy.connections() == 0).unwrap();
}

#[test]
fn a_proxy_refuses_is_mute_and_serves_again() {
    let redis = Redis::build().start().unwrap();
    let proxy = Proxy::start(redis.port()).unwrap();
    let mut before = dial(proxy.port()).unwrap();
    assert_eq!(ask(&mut before, "PING").unwrap(), "+PONG");
    proxy.refuse().unwrap();
    assert_eq!(dial(proxy.port()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(ask(&mut before, "PING").unwrap(), "+PONG");
    proxy.mute().unwrap();
    let mut mute = dial(proxy.port()).unwrap();
    mute.write_all(b"PING\r\n").unwrap();
    assert!(is_silent(&mut mute));
    proxy.accept().unwrap();
    assert_eq!(ask(&mut dial(proxy.port()).unwrap(), "PING").unwrap(), "+PONG");
    redis.kill().unwrap();
    assert!(ask(&mut dial(proxy.port()).unwrap(), "PING").is_err());
    let port = proxy.port();
    drop(proxy);
    assert!(answer(&mut mute).is_err());
    assert!(dial(port).is_err());
}

#[test]
fn a_server_speaks_tls_on_its_port_and_the_test_kit_still_reaches_it() {
    let certificates = Certificates::new().unwrap();
    let bad = [certificates.expired(), certificates.other_name(), certificates.other_authority()];
    for certificates in [&certificates].into_iter().chain(&bad) {
        let redis = Redis::build().tls(certificates).client_certificate_needed().start().unwrap();
        assert_eq!(redis.url(), format!("rediss://127.0.0.1:{}", redis.port()));
        assert_eq!(redis.command(&["CONFIG", "GET", "port"]).unwrap().to_string(), "[port, 0]");
        let mut stream = dial(redis.port()).unwrap();
        // Not a TLS hello: the server hangs up instead of answering.
        assert!(ask(&mut stream, "PING").is_err_and(|error| {
            matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset)
        }));
    }
    for path in [
        certificates.ca_path(),
        certificates.other_ca_path(),
        certificates.client_path(),
        certificates.other_client_path(),
        bad[0].server_path(),
    ] {
        assert!(std::fs::read_to_string(path).unwrap().contains("BEGIN CERTIFICATE"));
    }
    for path in [certificates.client_key_path(), certificates.other_client_key_path()] {
        assert!(std::fs::read_to_string(path).unwrap().contains("BEGIN PRIVATE KEY"));
    }
    let folder = certificates.ca_path().parent().unwrap().to_owned();
    drop(certificates);
    assert!(folder.exists());
    drop(bad);
    assert!(!folder.exists());
}

#[test]
fn sentinels_choose_the_next_primary() {
    let set = Sentinels::start(2).unwrap();
    assert!(set.url().starts_with("redis-sentinel://127.0.0.1:"));
    assert!(set.url().ends_with("/mymaster"));
    assert_eq!((set.nodes().len(), set.sentinels().len()), (3, 3));
    let first = set.primary().unwrap();
    assert_eq!(first.port(), set.nodes()[0].port());
    first.connect().unwrap().command(&["SET", "k", "v"]).unwrap();
    eventually("the replicas have it", SOON, || {
        set.nodes().iter().all(|node| node.command(&["GET", "k"]).unwrap().text() == Some("v"))
    })
    .unwrap();
    first.kill().unwrap();
    let next = set.await_failover(first).unwrap();
    assert_eq!(next.port(), set.primary().unwrap().port());
    assert_eq!(next.command(&["GET", "k"]).unwrap().text(), Some("v"));
    assert_eq!(next.command(&["SET", "k", "w"]).unwrap(), ok());
    first.restart().unwrap();
    eventually("the former primary follows", Duration::from_secs(20), || {
        first.is_synced_replica() && first.command(&["GET", "k"]).unwrap().text() == Some("w")
    })
    .unwrap();
}

/// A cluster of each flavour, with a slot moved step by step and a primary lost.
fn reshard_and_fail_over(flavour: Flavour) {
    let cluster = Cluster::start_with(flavour).unwrap();
    assert_eq!(cluster.nodes().len(), 6);
    let slot = cluster.slot_of("{a}1").unwrap();
    let from = cluster.owner_of(slot).unwrap();
    for number in 0..250 {
        from.command(&["SET", &format!("{{a}}{number}"), "v"]).unwrap().accepted().unwrap();
    }
    let to = cluster.nodes()[..3].iter().find(|node| node.port() != from.port()).unwrap();
    let (here, there) = (from.port(), to.port());
    let says = |node: &Redis, words: &[&str]| node.command(words).unwrap().to_string();

    cluster.begin_move(slot, to).unwrap();
    assert_eq!(says(from, &["GET", "{a}1"]), "v");
    assert_eq!(says(from, &["GET", "{a}x"]), format!("(ASK {slot} 127.0.0.1:{there})"));
    assert_eq!(cluster.migrate_keys(slot, to).unwrap(), 250);
    assert_eq!(says(from, &["GET", "{a}1"]), format!("(ASK {slot} 127.0.0.1:{there})"));
    assert_eq!(says(to, &["GET", "{a}1"]), format!("(MOVED {slot} 127.0.0.1:{here})"));
    cluster.finish_move(slot, to).unwrap();
    assert_eq!(cluster.owner_of(slot).unwrap().port(), there);
    assert_eq!(says(to, &["GET", "{a}1"]), "v");
    assert_eq!(says(from, &["GET", "{a}1"]), format!("(MOVED {slot} 127.0.0.1:{there})"));
    cluster.settle().unwrap();

    let replica = cluster.replica_of(to).unwrap();
    to.kill().unwrap();
    cluster.failover(replica).unwrap();
    assert_eq!(cluster.owner_of(slot).unwrap().port(), replica.port());
    assert_eq!(says(replica, &["GET", "{a}1"]), "v");
    to.restart().unwrap();
    cluster.settle().unwrap();
    assert_eq!(cluster.replica_of(replica).unwrap().port(), there);

    // With both alive, and the whole move in one go.
    cluster.failover(to).unwrap();
    assert_eq!(cluster.owner_of(slot).unwrap().port(), there);
    cluster.move_slot(slot, from).unwrap();
    assert_eq!(cluster.owner_of(slot).unwrap().port(), here);
    assert_eq!(says(from, &["GET", "{a}249"]), "v");
}

#[test]
fn a_slot_moves_and_a_replica_takes_over_in_a_cluster() {
    reshard_and_fail_over(Flavour::Debian);
}

#[test]
fn a_slot_moves_and_a_replica_takes_over_in_a_cluster_of_valkey() {
    reshard_and_fail_over(Flavour::Valkey);
}

#[test]
fn an_ethereum_node_starts_mines_as_told_and_is_gone_when_dropped() {
    let never = Anvil::build().mining(Mining::Never).chain(7).accounts(2).start().unwrap();
    let auto = Anvil::build().start().unwrap();
    assert_eq!(never.rpc("eth_chainId", json!([])).unwrap(), json!("0x7"));
    let accounts = never.rpc("eth_accounts", json!([])).unwrap();
    assert_eq!(accounts.as_array().map(Vec::len), Some(2));
    let sender = accounts[0].as_str().unwrap();
    let send = json!([{ "from": sender, "to": accounts[1], "value": "0x1" }]);
    for node in [&never, &auto] {
        node.rpc("eth_sendTransaction", send.clone()).unwrap();
        assert_eq!(node.nonce(sender, "pending").unwrap(), 1);
    }
    assert_eq!(never.nonce(sender, "latest").unwrap(), 0);
    eventually("it is mined", SOON, || auto.nonce(sender, "latest").unwrap() == 1).unwrap();
    never.mine(1).unwrap();
    assert_eq!(never.nonce(sender, "latest").unwrap(), 1);
    let refused = never.rpc("eth_noSuchMethod", json!([])).unwrap_err().to_string();
    assert!(refused.contains("eth_noSuchMethod"), "{refused}");
    let process = format!("/proc/{}", never.pid());
    assert!(Path::new(&process).exists());
    drop(never);
    assert!(!Path::new(&process).exists());
}
