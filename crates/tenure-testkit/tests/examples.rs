//! The examples of the library, run as their readers would: as processes, on a file and on a server.
//!
//! `cargo test` of the whole workspace builds the examples, too; this test alone runs those that were built last.

mod workers;

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tenure_testkit::servers::{Folder, Redis};

/// Longer than anything takes that works at all.
const BOUND: Duration = Duration::from_secs(60);

/// An engine for processes, and a folder for their files.
struct Place {
    url: String,
    folder: Folder,
}

impl Place {
    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn start(&self, name: &str) -> Example {
        Example::start(&self.url, name, &[])
    }
}

/// Runs the test in a place of each kind.
fn everywhere(test: fn(&Place)) {
    let folder = Folder::new("examples").unwrap();
    let url = format!("file:{}?ttl=2s", folder.path().join("locks.db").display());
    test(&Place { url, folder });
    let redis = Redis::build().start().unwrap();
    let url = format!("{}?ttl=2s", redis.url());
    test(&Place { url, folder: Folder::new("examples").unwrap() });
}

/// A running program, with its output.
struct Example {
    child: Child,
    lines: Receiver<String>,
}

impl Example {
    fn start(url: &str, name: &str, args: &[&str]) -> Example {
        Example::spawn(Example::command(name).args(args).env("TENURE_URL", url))
    }

    fn command(name: &str) -> Command {
        // Cargo builds the examples along with the tests, beside the folder of the test programs.
        let tests = std::env::current_exe().unwrap();
        let program: PathBuf = tests.ancestors().nth(2).unwrap().join("examples").join(name);
        let build = "cargo build -p tenure --examples --all-features";
        assert!(program.exists(), "run `{build}` first: no {program:?}");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program).env("NO_COLOR", "1");
        command
    }

    fn spawn(command: &mut Command) -> Example {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let (tell, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            out.lines().map_while(Result::ok).for_each(|line| drop(tell.send(line)));
        });
        Example { child, lines }
    }

    /// Waits for a line with these words, and returns it.
    fn says(&self, words: &str) -> String {
        let began = Instant::now();
        loop {
            let left = BOUND.saturating_sub(began.elapsed());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("never said {words:?}"));
            if line.contains(words) {
                return line;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until it has ended successfully, and returns its output since then.
    fn ends(mut self) -> Vec<String> {
        let (began, mut said) = (Instant::now(), Vec::new());
        loop {
            match self.lines.recv_timeout(BOUND.saturating_sub(began.elapsed())) {
                Ok(line) => said.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("never ended; it said {said:#?}"),
            }
        }
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}; it said {said:#?}");
        said
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text after these words, up to a character that is neither letter nor digit.
fn after<'a>(line: &'a str, words: &str) -> &'a str {
    let (_, rest) = line.split_once(words).unwrap_or_else(|| panic!("no {words:?} in {line:?}"));
    rest.split(|end: char| !end.is_alphanumeric()).next().unwrap()
}

fn count(lines: &[String], words: &str) -> usize {
    lines.iter().filter(|line| line.contains(words)).count()
}

#[test]
fn two_bookings_one_after_the_other_both_succeed() {
    everywhere(|place| {
        let said = Example::start(&place.url, "booking", &["sequential"]).ends();
        for guest in ["ann", "bob"] {
            // A release may be reported a moment after the next one has the lock.
            let its: Vec<_> = said.iter().filter(|it| it.contains(guest)).cloned().collect();
            assert_eq!(audit(&its), ["ACQUIRED", "RELEASED"], "{said:#?}");
        }
        assert_eq!(count(&said, "wrote the booking"), 2, "{said:#?}");
        assert_eq!(count(&said, "Ann: Yes, Bob: Yes"), 1, "{said:#?}");
    });
}

#[test]
fn of_two_simultaneous_bookings_one_wins_and_the_other_never_sees_the_database() {
    everywhere(|place| {
        let said = Example::start(&place.url, "booking", &["race"]).ends();
        // Either of the two answers may come first.
        let mut words = audit(&said);
        words.sort_unstable();
        assert_eq!(words, ["ACQUIRED", "REJECTED", "RELEASED"], "{said:#?}");
        assert_eq!(count(&said, "wrote the booking"), 1, "{said:#?}");
    });
}

#[test]
fn after_a_crash_the_next_one_books() {
    everywhere(|place| {
        let said = Example::start(&place.url, "booking", &["crash"]).ends();
        assert_eq!(count(&said, "kill -9"), 1, "{said:#?}");
        let words = audit(&said);
        assert!(words.starts_with(&["ACQUIRED"]), "{said:#?}");
        assert!(words.ends_with(&["ACQUIRED", "RELEASED"]), "{said:#?}");
        // On a file a dead process can be seen; on a server its ttl has to run out.
        let waits = place.url.starts_with("redis");
        assert_eq!(words.contains(&"REJECTED"), waits, "{said:#?}");
    });
}

#[test]
fn a_hold_that_has_ended_can_neither_free_the_next_one_nor_write() {
    everywhere(|place| {
        let said = Example::start(&place.url, "booking", &["stolen"]).ends();
        let words = audit(&said);
        assert!(words.ends_with(&["REJECTED", "RELEASED"]), "{said:#?}");
        let warned = said.iter().find(|line| line.contains("lock.expired_before_release"));
        assert!(warned.is_some_and(|line| line.contains(" WARN ")), "{said:#?}");
        assert_eq!(count(&said, "Cleo: Yes, InTime; Dan: TooLate, Late"), 1, "{said:#?}");
    });
}

/// What happened to locks, one word for each event.
fn audit(said: &[String]) -> Vec<&'static str> {
    let words = ["ACQUIRED", "REJECTED", "RELEASED"];
    let word = |line: &String| words.into_iter().find(|word| line.contains(word));
    said.iter().filter_map(word).collect()
}

/// Sends a request, and returns the head and the body of the answer.
fn ask(port: &str, request: &str, with: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    let length = body.len();
    let head = format!("Host: x\r\nConnection: close\r\nContent-Length: {length}\r\n{with}");
    stream.write_all(format!("{request} HTTP/1.1\r\n{head}\r\n{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn book(port: &str, order: &str) -> String {
    ask(port, "POST /book", "X-Request-Id: req-7\r\n", order).0
}

#[test]
fn a_booking_service_answers_logs_and_ends() {
    everywhere(|place| {
        let database = place.path().join("bookings.db");
        let start = || {
            let mut service = Example::command("booking");
            service.env("TENURE_URL", &place.url).env("TENURE_TTL", "4s");
            Example::spawn(service.env("BOOKING_DB", &database).env("PORT", "0"))
        };
        let (one, other) = (start(), start());
        let ports = [&one, &other].map(|service| {
            let line = service.says("listening on");
            assert!(line.contains("ttl=4s"), "{line}");
            after(&line, "127.0.0.1:").to_owned()
        });
        assert!(ask(&ports[0], "GET /health", "", "").0.contains("200 OK"));
        assert!(book(&ports[0], "no order").contains("400"));

        // Both at once: one of the two books it.
        let order = r#"{"table": 12, "time": "19:00", "guest": "Ann"}"#;
        let asked = ports.clone().map(|port| std::thread::spawn(move || book(&port, order)));
        let mut heads = asked.map(|asked| asked.join().unwrap());
        heads.sort();
        assert!(
            heads[0].contains("201 Created") && heads[1].contains("409 Conflict"),
            "{heads:#?}"
        );
        assert!(heads.iter().all(|head| head.contains("x-request-id: req-7")), "{heads:#?}");
        // Nobody is booking any more, and the table is taken all the same.
        let (head, body) = ask(&ports[0], "POST /book", "", order);
        assert!(head.contains("409 Conflict") && body == "taken\n", "{head}");

        // A booking that has begun is finished; no new one is accepted.
        let port = ports[0].clone();
        let last = r#"{"table": 3, "time": "19:00", "guest": "Bob"}"#;
        let asked = std::thread::spawn(move || book(&port, last));
        one.says("ACQUIRED table:3");
        one.signal(Signal::TERM);
        one.says("told to end");
        assert!(asked.join().unwrap().contains("201 Created"));
        let said = one.ends();
        assert_eq!(count(&said, "ended"), 1, "{said:#?}");
        assert!(TcpStream::connect(format!("127.0.0.1:{}", ports[0])).is_err());

        other.signal(Signal::INT);
        let said = other.ends();
        let audited = said.iter().filter(|line| line.contains("table:12"));
        assert!(audited.clone().count() > 0 && audited.clone().all(|line| line.contains("req-7")));
    });
}

#[test]
fn services_wait_for_an_engine_that_is_not_there_and_say_so() {
    let redis = Redis::build().start().unwrap();
    redis.kill().unwrap();
    let start = |name: &str| {
        let mut service = Example::command(name);
        let service = Example::spawn(service.env("TENURE_URL", redis.url()).env("PORT", "0"));
        service.says("engine.down");
        let port = after(&service.says("listening on"), "127.0.0.1:").to_owned();
        (service, port)
    };
    let ((booking, one), (worker, other)) = (start("booking"), start("worker"));
    let order = |table: u32| format!(r#"{{"table": {table}, "time": "19:00", "guest": "Ann"}}"#);
    let is_down = || {
        for port in [&one, &other] {
            let (head, body) = ask(port, "GET /health", "", "");
            assert!(head.contains("503 Service Unavailable"), "{head} {body}");
        }
        let (head, body) = ask(&one, "POST /book", "", &order(1));
        assert!(head.contains("503 Service Unavailable"), "{head} {body}");
    };
    let is_up = |table: u32| {
        booking.says("engine.up");
        let began = Instant::now();
        for port in [&one, &other] {
            while !ask(port, "GET /health", "", "").0.contains("200 OK") {
                assert!(began.elapsed() < Duration::from_secs(30), "{port} is not up");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let (head, body) = ask(&one, "POST /book", "", &order(table));
        assert!(head.contains("201 Created"), "{head} {body}");
        worker.says("leads: starting work");
    };
    is_down();
    redis.restart().unwrap();
    is_up(1);

    // The same when it goes away later.
    redis.kill().unwrap();
    is_down();
    booking.says("engine.down");
    redis.restart().unwrap();
    is_up(2);
    for service in [booking, worker] {
        service.signal(Signal::TERM);
        service.ends();
    }
}

#[test]
fn a_booking_service_that_was_not_told_its_engine_warns() {
    let mut service = Example::command("booking");
    let service = Example::spawn(service.env_remove("TENURE_URL").env("PORT", "0"));
    service.says("WARN engine.memory");
    service.says("listening on");
    service.signal(Signal::TERM);
    service.ends();
}

#[test]
fn without_a_server_and_without_settings_they_run_too() {
    let temporary = Folder::new("examples").unwrap();
    // With the mode of the system's own folder, in which a file of locks must not be.
    std::fs::set_permissions(temporary.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    let all = [
        "api_limiter",
        "cron_leader",
        "long_task",
        "mutex_run",
        "wallet_signer",
        "webhook",
        "worker",
    ];
    for name in all {
        let mut command = Example::command(name);
        command.env_remove("TENURE_URL").env("TMPDIR", temporary.path()).env("PORT", "0");
        let example = Example::spawn(&mut command);
        if name == "worker" {
            example.says("doing some heavy work");
            example.signal(Signal::TERM);
        }
        example.ends();
    }
    for scenario in ["sequential", "race", "crash", "stolen"] {
        let mut command = Example::command("booking");
        command.env_remove("TENURE_URL").env("TMPDIR", temporary.path());
        Example::spawn(command.arg(scenario)).ends();
    }
}

#[test]
fn signers_in_several_processes_use_every_nonce_once() {
    everywhere(|place| {
        let folder = place.path().to_str().unwrap();
        let start = || Example::start(&place.url, "wallet_signer", &[folder]);
        let said: Vec<_> = [start(), start(), start()].map(Example::ends).concat();
        assert_eq!(count(&said, "30 of them sent here"), 3, "{said:#?}");
        assert_eq!(count(&said, "(InTime)"), 90, "{said:#?}");
        for wallet in ["0xab", "0xcd"] {
            let chain = place.path().join(format!("tenure-chain-{wallet}.txt"));
            let chain = std::fs::read_to_string(chain).unwrap();
            let nonces: Vec<_> = chain.lines().map(|line| after(line, "").to_owned()).collect();
            assert_eq!(nonces, (0..45).map(|nonce| nonce.to_string()).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_webhook_is_processed_once_and_a_payment_is_answered_twice() {
    everywhere(|place| {
        let said = place.start("webhook").ends();
        assert_eq!(count(&said, "processing 42"), 1, "{said:#?}");
        assert_eq!(count(&said, "\"processed\""), 1, "{said:#?}");
        assert_eq!(count(&said, "the same id with another body"), 1, "{said:#?}");
        assert_eq!(count(&said, "paid 7"), 2, "{said:#?}");
        // What one instance has processed is not processed again by one that is started later.
        let said = place.start("webhook").ends();
        assert_eq!(count(&said, "processing 42"), 0, "{said:#?}");
        assert_eq!(count(&said, "\"already processed\""), 3, "{said:#?}");
    });
}

#[test]
fn jobs_run_on_the_leader_which_hands_over() {
    everywhere(|place| {
        let start = |jobs| Example::start(&place.url, "cron_leader", &[jobs]);
        let term = |example: &Example| -> u64 {
            after(&example.says("leads, term"), "term ").parse().unwrap()
        };
        let first = start("100000");
        let terms = [term(&first)];
        first.says("runs job 2");
        let second = start("100000");
        second.says("campaigns");

        first.signal(Signal::TERM);
        assert_eq!(count(&first.ends(), "was told to stop: handed over"), 1);
        let terms = [terms[0], term(&second)];
        let third = start("2");
        third.says("campaigns");
        second.signal(Signal::KILL);
        drop(second);

        let terms = [terms[0], terms[1], term(&third)];
        assert!(terms.is_sorted_by(|one, next| one < next), "{terms:?}");
        let said = third.ends();
        assert_eq!(count(&said, "runs job"), 2, "{said:#?}");
        assert_eq!(count(&said, "has run its jobs: handed over"), 1, "{said:#?}");
    });
}

#[test]
fn a_leader_that_loses_its_term_says_so_and_campaigns_again() {
    everywhere(|place| {
        let leader = Example::start(&place.url, "cron_leader", &["100000"]);
        let term = after(&leader.says("leads, term"), "term ").parse().unwrap();
        let tenure = tenure::blocking::Tenure::connect(&place.url).unwrap();
        let term = tenure::Fence::new(term);
        tenure.election("cron").break_term(term, "an operator's reason").unwrap();
        let line = leader.says("has lost term");
        assert_eq!(after(&line, "term "), term.to_string());
        assert!(line.contains("an operator's reason"), "{line}");
        let next: u64 = after(&leader.says("leads, term"), "term ").parse().unwrap();
        assert!(next > term.get());
        leader.signal(Signal::TERM);
        leader.ends();
    });
}

#[test]
fn a_task_that_outlives_its_ttl_keeps_its_lock_if_it_is_renewed() {
    everywhere(|place| {
        let said = place.start("long_task").ends();
        assert!(count(&said, "RENEWED long-task") >= 3, "{said:#?}");
        assert_eq!(count(&said, " REJECTED long-task"), 1, "{said:#?}");
        assert_eq!(count(&said, "released InTime"), 1, "{said:#?}");
        assert_eq!(count(&said, "the lock was lost"), 1, "{said:#?}");
        assert_eq!(count(&said, "released Late"), 1, "{said:#?}");
    });
}

#[test]
fn counting_under_a_lock_loses_no_number() {
    everywhere(|place| {
        let file = place.path().join("counter.txt");
        let start = || Example::start(&place.url, "mutex_run", &[file.to_str().unwrap()]);
        let said: Vec<_> = [start(), start(), start()].map(Example::ends).concat();
        assert_eq!(count(&said, "10 counted here"), 3, "{said:#?}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "30", "{said:#?}");
        assert_eq!(count(&said, "the work failed: Err"), 3, "{said:#?}");
        assert_eq!(count(&said, "not in time: "), 3, "{said:#?}");
    });
}

#[test]
fn a_partner_is_never_called_more_than_five_times_at_once() {
    everywhere(|place| {
        let partner = place.path().join("partner");
        let start = || Example::start(&place.url, "api_limiter", &[partner.to_str().unwrap()]);
        let said: Vec<_> = [start(), start(), start()].map(Example::ends).concat();
        assert_eq!(count(&said, "without waiting: rate limit exceeded"), 3, "{said:#?}");
        assert_eq!(count(&said, "12 calls made, in turn"), 3, "{said:#?}");
        let calls = said.iter().filter(|line| line.contains("at once"));
        let most: HashSet<_> = calls.map(|line| after(line, ": ").to_owned()).collect();
        assert!(most.iter().all(|most| most.parse::<u32>().unwrap() <= 5), "{most:?}");
    });
}
