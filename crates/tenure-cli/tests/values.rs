//! The values of flags, variables and defaults, and the invalid ones.

use crate::sandbox;

use sandbox::{Sandbox, ran};

/// Invalid durations, and durations that nothing can be held for (S116).
const NO_TIMES: [&str; 10] =
    ["0", "-1", "1e3", "0x10", "nan", "1.5.2", "99999999999999999999", "", "30 potatoes", "+5"];
/// Invalid numbers of slots.
const NO_SLOTS: [&str; 9] =
    ["0", "-1", "1e3", "0x10", "nan", "1.5", "99999999999999999999", "1048576", ""];

#[test]
fn times_that_are_none_are_refused_by_flag_and_by_variable() {
    let sandbox = Sandbox::new("values-times");
    for value in NO_TIMES {
        for command in ["acquire", "renew"] {
            for args in
                [&[command, "x", "-t", value][..], &[command, "x", &format!("--ttl={value}")]]
            {
                let ran = sandbox.run(args);
                let [what, why, help] = ran.failed(64);
                assert!(what.starts_with(&format!("invalid value {value:?} for --ttl")), "{what}");
                assert!(why.contains("expected seconds") || why.contains("greater than"), "{why}");
                assert_eq!(help, "try `--ttl 30s`");
            }
            let ran = ran(sandbox.command([command, "x"]).env("TENURE_TTL", value));
            let [what, _, help] = ran.failed(78);
            assert!(what.contains("TENURE_TTL") && what.contains(&format!("{value:?}")), "{what}");
            assert!(help.contains("TENURE_TTL="), "{help}");
        }
    }
    assert!(!sandbox.folder().join("state").exists(), "nothing was asked of any engine");
}

#[test]
fn slots_that_are_none_are_refused_by_flag_and_by_variable() {
    let sandbox = Sandbox::new("values-slots");
    for value in NO_SLOTS {
        for args in
            [&["acquire", "x", "-j", value][..], &["acquire", "x", &format!("--slots={value}")]]
        {
            let ran = sandbox.run(args);
            let [what, why, _] = ran.failed(64);
            assert!(what.starts_with(&format!("invalid value {value:?} for --slots")), "{what}");
            assert_eq!(why, "expected a whole number from 1 to 1048575");
        }
        let ran = ran(sandbox.command(["acquire", "x"]).env("TENURE_SLOTS", value));
        let [what, ..] = ran.failed(78);
        assert!(what.starts_with(&format!("invalid value {value:?} for TENURE_SLOTS")), "{what}");
    }
}

#[test]
fn a_ttl_that_the_engine_cannot_keep_is_refused_with_its_range() {
    let sandbox = Sandbox::new("values-range");
    for value in ["1ms", "49ms", "25h", "9999999999"] {
        let ran = sandbox.run(&["acquire", "x", "-t", value]);
        let [_, why, _] = ran.failed(64);
        assert!(why.contains("50ms to 86400s"), "{why}");
    }
}

#[test]
fn the_command_line_wins_over_variables_and_those_over_the_url() {
    let sandbox =
        Sandbox::new("values-order").with("TENURE_NO_WAIT", "1").with("TENURE_OWNER", "ada");
    let _hold = sandbox.hold("backup");
    // The variable says not to wait; -w on the command line overrides it.
    let [_, why, _] = &sandbox.run(&["wait", "backup"]).failed(75).map(str::to_owned);
    assert_eq!(why, "you asked not to wait");
    let ran = sandbox.run(&["wait", "backup", "-w", "2s"]);
    assert_eq!(ran.failed(75)[1], "waited 2s");
    let ran = sandbox.run(&["config", "--json"]);
    assert!(
        ran.worked().contains(r#""setting":"owner","value":"ada","from":"variable""#),
        "{ran:?}"
    );

    let url = format!("{}?wait=70ms", sandbox.url());
    let sandbox = sandbox.with("TENURE_NO_WAIT", "0").with("TENURE_URL", &url);
    assert_eq!(sandbox.run(&["wait", "backup"]).failed(75)[1], "the wait timed out");
    let ran = sandbox.run(&["config", "--json"]);
    assert!(ran.worked().contains(r#""setting":"wait","value":"70ms","from":"url""#), "{ran:?}");
}

#[test]
fn flags_that_variables_contradict_are_not_in_conflict() {
    let sandbox =
        Sandbox::new("values-kinds").with("TENURE_SHARED", "yes").with("TENURE_WAIT", "forever");
    let kind = |args: &[&str]| {
        let ran = sandbox.run(&[&["acquire", "x", "-n"], args].concat());
        assert_eq!(ran.exit, Some(0), "{ran:?}");
        let claim = ran.stdout;
        let shown = sandbox.run(&["show", "x", "--json"]);
        let released = sandbox::ran(sandbox.command(["release", "x"]).env("TENURE_CLAIM", claim));
        assert_eq!(released.exit, Some(0), "{released:?}");
        shown.stdout.split("\"kind\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
    };
    assert_eq!(kind(&[]), "rwlock");
    assert_eq!(kind(&["-j", "3"]), "sem");
    assert_eq!(kind(&["-x"]), "rwlock");
}

#[test]
fn config_says_where_each_value_comes_from_and_hides_passwords() {
    let sandbox = Sandbox::new("values-config")
        .with("TENURE_URL", "redis://ada:hunter2@redis-1:6379/2?ttl=5s")
        .with("TENURE_WAIT", "10s")
        .with("TENURE_TLL", "hunter2");
    let ran = sandbox.run(&["config", "--ns", "prod", "-v"]);
    assert_eq!(ran.exit, Some(0));
    sandbox::snapshot("config", &ran.stdout);
    assert_eq!(ran.stderr, "tenure: TENURE_TLL is set, but there is no such setting\n");
    let ran = sandbox.run(&["config", "--json"]);
    sandbox::snapshot("config-json", ran.worked());
    assert!(!ran.stdout.contains("hunter2"));
    let odd = Sandbox::new("values-odd").with("TENURE_URL", "redis://:hunter2@h?x=hunter2&hunter2");
    assert!(!odd.run(&["config"]).worked().contains("hunter2"));
}

#[test]
fn the_default_engine_is_a_file_of_this_user() {
    let sandbox = Sandbox::new("values-default");
    let url = |command: &mut std::process::Command| {
        let ran = ran(command.args(["config", "--json"]));
        let line = ran.stdout.lines().next().unwrap_or_default().to_owned();
        line.split("\"value\":\"").nth(1).map(|rest| rest.split('"').next().unwrap().to_owned())
    };
    let default = |state: Option<&str>| {
        let mut command = sandbox.command([""; 0]);
        command.env_remove("TENURE_URL").env_remove("XDG_STATE_HOME");
        url(command.envs(state.map(|state| ("XDG_STATE_HOME", state)))).unwrap()
    };
    let home = format!("file:{}/.local/state/tenure/tenure.db", sandbox.folder().display());
    // For root, the machine's folder, whatever variables root's shell has set.
    let (own, said) = match rustix::process::geteuid().is_root() {
        true => ["file:/var/lib/tenure/tenure.db"; 2].into(),
        false => (&*home, "file:/somewhere/tenure/tenure.db"),
    };
    assert_eq!(default(None), own);
    assert_eq!(default(Some("relative")), own);
    assert_eq!(default(Some("/somewhere")), said);
    let ran = sandbox.run(&["ls"]);
    assert!(ran.worked().contains(&sandbox.url()), "{ran:?}");
}

#[test]
fn a_file_is_the_same_wherever_its_name_is_read() {
    let sandbox = Sandbox::new("values-paths");
    let home = sandbox.folder().join("below/locks.db");
    let held = sandbox.run(&["-u", "file:~/below/locks.db?ttl=5m", "run", "x", "--", "true"]);
    assert_eq!((held.exit, &*held.stderr), (Some(0), ""));
    assert!(home.exists());
    for url in
        ["file:locks.db", "file:./locks.db", "file:../locks.db?ttl=5s", "file:~", "file:~ada/x"]
    {
        let mut command = sandbox.command(["ls", "-u", url]);
        let ran = ran(command.current_dir(sandbox.folder()));
        let [what, _, help] = ran.failed(64);
        assert_eq!(what, "the path in --url is not absolute", "{url}");
        assert!(help.contains("write the absolute path"), "{help}");
    }
    let mut command = sandbox.command(["ls", "-u", "file:./locks.db"]);
    let refused = ran(command.current_dir(sandbox.folder()));
    let whole = format!("file:{}/locks.db", sandbox.folder().display());
    assert!(refused.failed(64)[2].ends_with(&whole), "{refused:?}");
    assert!(!sandbox.folder().join("locks.db").exists() && !sandbox.folder().join("~").exists());
}

#[test]
fn memory_is_refused_where_it_would_protect_nothing() {
    let sandbox = Sandbox::new("values-memory").with("TENURE_URL", "memory:?ttl=5s");
    for line in [
        &["run", "x", "--", "touch", "ran"][..],
        &["elect", "x", "--", "touch", "ran"],
        &["once", "x", "--", "touch", "ran"],
        &["acquire", "x"],
        &["ls"],
        &["show", "x"],
        &["leader", "x"],
        &["wait", "x"],
        &["watch"],
        &["break", "x"],
    ] {
        let ran = ran(sandbox.command(line).current_dir(sandbox.folder()));
        assert_eq!(ran.failed(78)[0], "memory: protects nothing on the command line", "{line:?}");
        let ran = sandbox.run(&[&["-u", "memory:"], line].concat());
        assert_eq!(ran.failed(64)[0], "memory: protects nothing on the command line", "{line:?}");
    }
    assert!(!sandbox.folder().join("ran").exists());
    assert_eq!(sandbox.run(&["doctor"]).exit, Some(0));
}

#[test]
fn namespaces_keep_names_apart_and_are_not_shown_within() {
    let sandbox = Sandbox::new("values-ns");
    let _hold = sandbox.hold("prod/backup");
    let _other = sandbox.hold("backup");
    let names = |args: &[&str]| {
        let ran = sandbox.run(&[&["ls", "--json"], args].concat());
        let lines = ran.worked().lines();
        let name = |line: &str| {
            line.split("\"name\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
        };
        lines.map(name).collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), ["backup", "prod/backup"]);
    assert_eq!(names(&["--ns", "prod"]), ["backup"]);
    assert_eq!(names(&["--ns", "prod", "bac"]), ["backup"]);
    assert_eq!(names(&["--ns", "pro"]), [""; 0]);
    assert_eq!(sandbox.run(&["show", "backup", "--ns", "test"]).exit, Some(1));
    assert_eq!(sandbox.run(&["show", "backup", "--ns", "prod"]).exit, Some(0));
}

/// As `sleep` and `timeout` take them.
#[test]
fn seconds_may_have_a_fraction() {
    let sandbox = Sandbox::new("values-fractions");
    let _hold = sandbox.hold("backup");
    for (value, said) in
        [("0.2", "200ms"), (".05", "50ms"), ("0.2s", "200ms"), ("0.001m", "60ms"), ("1", "1s")]
    {
        let ran = sandbox.run(&["wait", "backup", "-w", value]);
        assert_eq!(ran.failed(75)[1], format!("waited {said}"), "{value}");
    }
    for value in ["0.2.1", ".", "1.", "-0.2", "1e3", "0.2x", "99999999999999999999.5"] {
        let ran = sandbox.run(&["wait", "backup", &format!("-w={value}")]);
        let [what, ..] = ran.failed(64);
        assert!(what.starts_with(&format!("invalid value {value:?} for --wait")), "{what}");
    }
    // Far from where it is read, the unit must be said.
    let ran = ran(sandbox.command(["wait", "backup"]).env("TENURE_WAIT", "0.2"));
    assert!(ran.stderr.starts_with("error[T002]: "), "{ran:?}");
    ran.failed(78);
    let ran = sandbox::ran(sandbox.command(["wait", "backup"]).env("TENURE_WAIT", "0.2s"));
    assert_eq!(ran.failed(75)[1], "waited 200ms");
}

/// A user who asks for the settings must learn that one of them is invalid.
#[test]
fn config_refuses_what_every_command_would_refuse() {
    for (variable, value) in [
        ("TENURE_TTL", "abc"),
        ("TENURE_TTL", "30"),
        ("TENURE_SLOTS", "0"),
        ("TENURE_NO_WAIT", "maybe"),
        ("TENURE_INTERVAL", "soon"),
        ("TENURE_KEEP", "0s"),
        ("TENURE_SIGNAL", "BREXIT"),
        ("TENURE_META", "ticket"),
    ] {
        let sandbox = Sandbox::new("values-config-refuses").with(variable, value);
        for args in [&["config"][..], &["config", "--json"]] {
            let ran = sandbox.run(args);
            assert_eq!(ran.exit, Some(78), "{variable}={value}: {ran:?}");
            let said = format!("{value:?} for {variable}");
            let no_unit = format!("{value:?} in {variable} has no unit");
            assert!(ran.stderr.contains(&said) || ran.stderr.contains(&no_unit), "{ran:?}");
            assert!(ran.stdout.contains(variable), "what is set is shown all the same: {ran:?}");
        }
    }
    let sandbox = Sandbox::new("values-config-refuses").with("TENURE_UPSTREAM", "hunter2://x");
    let ran = sandbox.run(&["config"]);
    assert!(ran.exit == Some(78) && !ran.stderr.contains("hunter2"), "{ran:?}");
}
