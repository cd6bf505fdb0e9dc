//! Nonsense is refused when the call is made: the text names the limit and what to do, and nothing is sent or
//! started.
#![allow(clippy::unwrap_used, reason = "whatever is missing fails the test")]

mod fixtures;

use std::fs;
use std::time::Duration;

use fixtures::{memory, ms, now};
use tenure::{Error, ErrorKind, Hold, Result, Tenure};

/// A call, and what the text of its refusal must say.
type Case = (&'static str, fn(&Tenure) -> Result<Hold>, &'static [&'static str]);

const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);

const NAMES: &[Case] = &[
    ("empty", |t| now(t.mutex("").acquire()), &["name is empty", "at least one character"]),
    (
        "2 KiB",
        |t| now(t.mutex("x".repeat(2048)).acquire()),
        &["2048 bytes", "limit is 1024 bytes", "shorten it"],
    ),
    ("one too many", |t| now(t.mutex("x".repeat(1025)).acquire()), &["limit is 1024 bytes"]),
    ("NUL", |t| now(t.mutex("a\0b").acquire()), &["control character '\\0'", "remove it"]),
    ("escape", |t| now(t.mutex("\u{1b}[2J").acquire()), &["control character", "remove it"]),
    ("C1 control", |t| now(t.mutex("\u{85}").acquire()), &["control character", "remove it"]),
    ("semaphore", |t| now(t.semaphore("", 2).acquire()), &["name is empty"]),
    ("rwlock", |t| now(t.rwlock("").write()), &["name is empty"]),
    ("one of several", |t| now(t.all(["a", "", "b"]).acquire()), &["name is empty"]),
];

const TIMES: &[Case] = &[
    ("zero ttl", |t| now(t.mutex("a").ttl(Duration::ZERO).acquire()), &["0ns", "50ms to 86400s"]),
    ("short ttl", |t| now(t.mutex("a").ttl(ms(49)).acquire()), &["49ms", "50ms to 86400s"]),
    ("a century", |t| now(t.mutex("a").ttl(CENTURY).acquire()), &["50ms to 86400s", "choose"]),
    ("longest ttl", |t| now(t.mutex("a").ttl(Duration::MAX).acquire()), &["50ms to 86400s"]),
    (
        "max_hold below ttl",
        |t| now(t.mutex("a").ttl(ms(500)).max_hold(ms(499)).acquire()),
        &["max_hold 499ms is below the ttl 500ms", "raise max_hold, or lower the ttl"],
    ),
    (
        "renew_every above half of the ttl",
        |t| now(t.mutex("a").ttl(ms(500)).renew_every(ms(251)).acquire()),
        &[
            "renew_every 251ms is out of range; 10ms to 250ms",
            "lower renew_every, or raise the ttl",
        ],
    ),
    (
        "renew_every zero",
        |t| now(t.mutex("a").renew_every(Duration::ZERO).acquire()),
        &["renew_every 0ns is out of range; 10ms to 15s"],
    ),
    (
        "hold_for above max_hold",
        |t| now(t.mutex("a").ttl(ms(500)).max_hold(ms(900)).hold_for(ms(901)).acquire()),
        &["hold_for 901ms is above the limit 900ms", "lower hold_for, or raise max_hold"],
    ),
    (
        "hold_for a century",
        |t| now(t.mutex("a").hold_for(CENTURY).acquire()),
        &["above the limit 86400s", "lower hold_for"],
    ),
];

const UNITS: &[Case] = &[
    (
        "weight 0",
        |t| now(t.semaphore("a", 5).acquire_many(0)),
        &["weight 0 is out of range", "1 to 5", "ask for fewer units"],
    ),
    (
        "weight over capacity",
        |t| now(t.semaphore("a", 5).acquire_many(6)),
        &["weight 6 is out of range", "1 to 5", "or raise the capacity"],
    ),
    (
        "capacity 0",
        |t| now(t.semaphore("a", 0).acquire()),
        &["capacity 0 is out of range", "1 to 1048575", "at least one unit"],
    ),
    ("two too many", |t| now(t.semaphore("a", (1 << 20) + 1).acquire()), &["1 to 1048575"]),
    ("largest capacity", |t| now(t.semaphore("a", u32::MAX).acquire()), &["1 to 1048575"]),
    ("heaviest weight", |t| now(t.semaphore("a", 5).acquire_many(u32::MAX)), &["1 to 5"]),
];

const DETAILS: &[Case] = &[
    (
        "long owner",
        |t| now(t.mutex("a").owner("x".repeat(257)).acquire()),
        &["the owner has 257 bytes", "limit is 256 bytes", "shorten it"],
    ),
    (
        "long reason",
        |t| now(t.mutex("a").reason("x".repeat(1 << 20)).acquire()),
        &["the reason has 1048576 bytes", "limit is 256 bytes", "shorten it"],
    ),
    (
        "long meta key",
        |t| now(t.mutex("a").meta("x".repeat(257), "v").acquire()),
        &["meta has 257 bytes", "limit is 256 bytes"],
    ),
    (
        "long meta value",
        |t| now(t.mutex("a").meta("k", "x".repeat(257)).acquire()),
        &["meta has 257 bytes", "limit is 256 bytes"],
    ),
    (
        "too many pairs",
        |t| now((0..17).fold(t.mutex("a"), |ask, n| ask.meta(format!("k{n}"), "v")).acquire()),
        &["17 pairs", "limit is 16"],
    ),
    (
        "control character in the reason",
        |t| now(t.mutex("a").reason("red \u{1b}[31m alert").acquire()),
        &["the reason contains the control character '\\u{1b}'", "remove it"],
    ),
    ("line break", |t| now(t.mutex("a").owner("a\r\nb").acquire()), &["control character '\\r'"]),
    ("in meta", |t| now(t.mutex("a").meta("k", "\0").acquire()), &["control character '\\0'"]),
    ("of all", |t| now(t.all(["a", "b"]).owner("\n").acquire()), &["control character '\\n'"]),
];

fn refuse(cases: &[Case]) {
    let tenure = memory();
    for (label, call, says) in cases {
        let error = call(&tenure).expect_err(label);
        expect(label, &error, says);
        let text = error.to_string();
        assert!(text.starts_with("acquire ") && text.contains("on memory"), "{label}: {text}");
        assert!(text.len() < 600, "{label}: {text}");
    }
    nothing_was_made(&tenure);
}

fn expect(label: &str, error: &Error, says: &[&str]) {
    assert_eq!(error.kind(), ErrorKind::Invalid, "{label}: {error}");
    assert!(!error.is_retryable() && !error.may_have_happened(), "{label}");
    for part in says {
        assert!(error.to_string().contains(part), "{label}: {part:?} is not in: {error}");
    }
}

/// Every test in this file looks at all threads of the process, so none of them may take a hold.
fn nothing_was_made(tenure: &Tenure) {
    assert_eq!(now(tenure.list("")).unwrap(), []);
    for thread in fs::read_dir("/proc/self/task").unwrap() {
        let name = fs::read_to_string(thread.unwrap().path().join("comm")).unwrap_or_default();
        assert_ne!(name.trim(), "tenure-watchdog", "there is nothing to watch");
    }
}

#[test]
fn bad_names_are_refused() {
    refuse(NAMES);
}

#[test]
fn bad_times_are_refused() {
    refuse(TIMES);
}

#[test]
fn bad_numbers_of_units_are_refused() {
    refuse(UNITS);
}

#[test]
fn bad_details_are_refused() {
    refuse(DETAILS);
}

#[test]
fn every_way_to_ask_refuses_alike() {
    let tenure = memory();
    let long = "x".repeat(1025);
    let failures = [
        now(tenure.mutex(&long).try_acquire()).err(),
        now(tenure.mutex(&long).join()).err(),
        now(tenure.mutex(&long).run(async |_| ())).err(),
        now(tenure.semaphore(&long, 2).try_acquire()).err(),
        now(tenure.semaphore(&long, 2).join_many(1)).err(),
        now(tenure.rwlock(&long).read()).err(),
        now(tenure.rwlock(&long).try_write()).err(),
        now(tenure.all(["a", &long]).try_acquire()).err(),
        now(tenure.inspect(&long)).err(),
        now(tenure.break_hold(&long, tenure::Fence::new(1), "x")).err(),
        now(tenure.semaphore(&long, 2).resize(3)).err(),
    ];
    for (call, failure) in failures.into_iter().enumerate() {
        let error = failure.unwrap_or_else(|| panic!("call {call} went through"));
        expect(&format!("call {call}"), &error, &["limit is 1024 bytes"]);
    }
    nothing_was_made(&tenure);
}

#[test]
fn resize_to_nonsense_is_refused() {
    let tenure = memory();
    for capacity in [0, 1 << 20, u32::MAX] {
        let error = now(tenure.semaphore("a", 5).resize(capacity)).unwrap_err();
        expect("resize", &error, &["resize \"a\" on memory", "1 to 1048575"]);
    }
    nothing_was_made(&tenure);
}

#[test]
fn a_url_without_an_engine_is_refused_without_its_password() {
    for url in [
        "reddis://user:secret@h",
        "reddis://user:secret@h:6379/0?ttl=5s",
        "reddis:secret",
        "user:secret@h",
        "://user:secret@h",
        "memory:secret",
        "memory://user:secret@h",
        "",
    ] {
        let error = now(Tenure::connect(url)).unwrap_err();
        expect(url, &error, &["there is no engine for", "known: memory:"]);
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("secret"), "{url}: {shown}");
    }
}

/// A URL without its scheme begins with what may be a password.
#[test]
fn a_url_without_a_scheme_is_refused_without_its_password() {
    for url in ["secret@h", "//secret@h", "secret@h:6379", "user%3Asecret@h:6379/0"] {
        let error = now(Tenure::connect(url)).unwrap_err();
        expect(url, &error, &["known: memory:"]);
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("secret"), "{url}: {shown}");
    }
}

#[test]
fn an_empty_list_of_names_is_refused() {
    let tenure = memory();
    let error = now(tenure.all::<&str>([]).acquire()).unwrap_err();
    expect("no names", &error, &["no names were given", "give at least one"]);
    let error = now(tenure.all::<&str>([]).try_acquire()).unwrap_err();
    expect("no names", &error, &["no names were given", "give at least one"]);
    nothing_was_made(&tenure);
    assert!(error.to_string().starts_with("acquire on memory: "), "says what was asked: {error}");
}

#[test]
fn a_bad_query_is_refused() {
    for (query, says) in [
        ("tll=5s", &["no option \"tll\"", "known: ttl, wait, renew"][..]),
        ("ttl=30", &["cannot read ttl=\"30\"", "with its unit, such as 30s"]),
        ("ttl=", &["cannot read ttl", "with its unit"]),
        ("ttl", &["cannot read ttl", "with its unit"]),
        ("ttl=-1s", &["cannot read ttl"]),
        ("ttl=1e3s", &["cannot read ttl"]),
        ("ttl=0s", &["ttl 0ns is out of range", "50ms to 86400s"]),
        ("ttl=100years", &["50ms to 86400s"]),
        ("wait=soon", &["cannot read wait"]),
        ("renew=maybe", &["cannot read renew", "write true or false"]),
        ("max_waiters=-1", &["cannot read max_waiters", "whole number"]),
        ("max_waiters=0x10", &["cannot read max_waiters"]),
        ("max_waiters=99999999999", &["cannot read max_waiters"]),
        ("max_hold=1s&ttl=2s", &["max_hold 1s is below the ttl 2s"]),
        ("owner=a\nb", &["control character '\\n'"]),
        ("password=secret", &["no option \"password\""]),
    ] {
        let error = now(Tenure::connect(&format!("memory:?{query}"))).unwrap_err();
        expect(query, &error, says);
        assert!(error.to_string().contains("on memory"), "{query}: {error}");
        assert!(!error.to_string().contains("secret"), "{query}: {error}");
    }
}

#[test]
fn bad_defaults_are_refused() {
    let tenure = memory();
    let mut options = tenure.defaults();
    options.ttl = Duration::ZERO;
    let error = tenure.clone().with_defaults(options.clone()).unwrap_err();
    expect("defaults", &error, &["set defaults on memory", "50ms to 86400s"]);
    let error = now(tenure.mutex("a").options(options).acquire()).unwrap_err();
    expect("options", &error, &["acquire \"a\" on memory", "50ms to 86400s"]);
    nothing_was_made(&tenure);
}

#[test]
fn a_hostile_name_is_shown_short_and_escaped() {
    let tenure = memory();
    let name = format!("\u{1b}[31m<script>{}", "ü".repeat(100_000));
    let error = now(tenure.mutex(&name).acquire()).unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains('\u{1b}') && shown.len() < 2_000, "{} bytes", shown.len());
}
