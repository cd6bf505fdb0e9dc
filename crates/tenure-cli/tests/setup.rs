//! `tenure setup` over the real binary and a real Postgres.

use tenure_testkit::servers::Postgres;

use crate::sandbox::Sandbox;

#[test]
fn setup_makes_what_postgres_needs_and_can_be_run_again() {
    let (sandbox, server) = (Sandbox::new("setup"), Postgres::start().unwrap());
    let url = server.url("postgres");
    let without = sandbox.run(&["run", "-w", "20s", "x", "-u", &url, "--", "true"]);
    assert_eq!(without.exit, Some(64), "{without:?}");
    assert!(without.stderr.contains("tenure setup"), "{without:?}");
    for _ in 0..2 {
        let made = sandbox.run(&["setup", &url]);
        let says = format!("postgres://127.0.0.1:{}/postgres is ready.\n", server.port());
        assert_eq!((made.exit, made.stdout), (Some(0), says));
    }
    let done = sandbox.run(&["run", "-w", "20s", "x", "-u", &url, "--", "true"]);
    // No note about a password: there is none in the URL.
    assert_eq!((done.exit, &*done.stderr), (Some(0), ""));
    let measured = sandbox.run(&["bench", "--part", "contended", "--seconds", "1", "-u", &url]);
    assert_eq!(measured.exit, Some(0), "{measured:?}");
}

#[test]
fn what_setup_prints_is_what_it_runs() {
    let (sandbox, server) = (Sandbox::new("setup-print"), Postgres::start().unwrap());
    let printed = sandbox.run(&["setup", "--print"]);
    assert_eq!(printed.exit, Some(0));
    server.sql("postgres", &printed.stdout).unwrap();
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname IN ('tenure', 'tenure_v1')";
    assert_eq!(server.sql("postgres", schemas).unwrap(), "2");
    let ls = sandbox.run(&["ls", "-u", &server.url("postgres")]);
    assert_eq!(ls.exit, Some(0), "{ls:?}");
}

#[test]
fn a_url_that_cannot_be_read_is_refused_without_its_password() {
    let sandbox = Sandbox::new("setup-bad");
    for url in ["postgres://me:hunter2?x@host/db", "postgres://me:hunter2@host:port/db"] {
        let refused = sandbox.run(&["setup", url]);
        assert_ne!(refused.exit, Some(0), "{refused:?}");
        assert!(!refused.stderr.contains("hunter2"), "{refused:?}");
    }
}
