//! A hold that has run out and that a transaction keeps (`tenure.guard`): it is shown, and an operator can end the session.

use crate::sandbox;

use sandbox::{Sandbox, eventually};
use tenure_testkit::servers::PostgresDatabase;

#[test]
fn an_overdue_hold_that_a_transaction_keeps_is_shown_and_its_session_can_be_ended() {
    let database = PostgresDatabase::start().unwrap();
    let sandbox = Sandbox::new("guards").without_engine().with("TENURE_URL", &database.url());
    sandbox.run(&["acquire", "account:7", "-t", "1s"]).worked();
    let fence = database.sql("SELECT max(fence) FROM tenure.hold").unwrap();
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| {
            let guard = format!("SELECT tenure.guard('account:7', {fence}); SELECT pg_sleep(60)");
            database.sql(&guard)
        });
        eventually("it is overdue, and shown", || {
            sandbox
                .run(&["show", "account:7"])
                .stdout
                .contains("overdue, and kept by a transaction")
        });
        assert!(sandbox.run(&["ls"]).worked().contains("overdue"));
        let explained = sandbox.run(&["break", "account:7"]);
        assert_eq!(explained.exit, Some(1));
        assert!(explained.stdout.contains("--end-sessions"), "{}", explained.stdout);
        let doctor = sandbox.run(&["doctor"]).stdout;
        assert!(doctor.contains("account:7"), "{doctor}");
        // On its own it changes nothing.
        let mut args = vec!["break", "account:7", "--fence", &fence, "--reason", "a drill"];
        sandbox.run(&args).worked();
        sandbox.run(&["run", "-n", "account:7", "--", "true"]).failed(75);
        args.push("--end-sessions");
        let broken = sandbox.run(&args);
        assert!(broken.worked().contains("Ended 1 session"), "{}", broken.stdout);
        assert!(stuck.join().unwrap().is_err(), "its session was ended");
        sandbox.run(&["run", "-w", "20s", "account:7", "--", "true"]).worked();
    });
}

#[test]
fn other_engines_have_no_such_sessions() {
    let sandbox = Sandbox::new("guards-file");
    let hold = sandbox.hold("x");
    let fence = hold.fence().to_string();
    let args = ["break", "x", "--fence", &*fence, "--reason", "a drill", "--end-sessions"];
    let ran = sandbox.run(&args);
    let [what, ..] = ran.failed(64);
    assert!(what.contains("--end-sessions"), "{what}");
    // Nothing was broken.
    assert!(hold.is_live());
}
