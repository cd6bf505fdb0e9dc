//! Where options come from: the call, the environment, the URL, the defaults. In this order.

use crate::fixtures;

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::Duration;

use fixtures::log_recorder::{expect, keep, lines};
use fixtures::{memory, ms, now, view};
use tenure::{ErrorKind, OnOutage, Tenure};
use tracing::Level;

const INSIDE: &str = "TENURE_TEST_INSIDE";

/// Runs the test once more in a process of its own with these variables, and returns `true` in that process. All
/// tests share the environment of this process, so it stays unchanged.
fn inside(test: &str, variables: &[(&str, &OsStr)]) -> bool {
    if env::var_os(INSIDE).is_some() {
        return true;
    }
    let mut child = Command::new(env::current_exe().unwrap());
    for (variable, _) in env::vars_os().filter(|(key, _)| key.as_bytes().starts_with(b"TENURE_")) {
        child.env_remove(variable);
    }
    child.env(INSIDE, "1").envs(variables.iter().copied());
    let output = child.args(["--exact", &format!("options::{test}")]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}

fn text(value: &str) -> &OsStr {
    OsStr::new(value)
}

#[test]
fn the_defaults_are_those_of_the_docs() {
    let options = memory().defaults();
    assert_eq!(options.ttl, Duration::from_secs(30));
    assert_eq!((options.wait, options.max_hold, options.max_waiters), (None, None, None));
    assert!(options.renew && options.hold_for.is_zero());
    assert_eq!(options.on_outage, OnOutage::Closed);
    assert!(options.details().reason.is_none() && options.details().meta.is_empty());
}

#[test]
fn the_query_of_the_url_sets_defaults() {
    let url = "memory:?ttl=5s&wait=250ms&renew=off&renew_every=2s&max_hold=1h&hold_for=2s&max_waiters=7&on_outage=open&owner=web-3";
    let tenure = now(Tenure::connect(url)).unwrap();
    let options = tenure.defaults();
    assert_eq!((options.ttl, options.wait), (ms(5_000), Some(ms(250))));
    assert_eq!(options.renew_every, Some(ms(2_000)));
    assert_eq!((options.max_hold, options.hold_for), (Some(ms(3_600_000)), ms(2_000)));
    assert_eq!((options.renew, options.max_waiters), (false, Some(7)));
    assert_eq!(options.on_outage, OnOutage::Open);
    assert_eq!(options.details().owner, "web-3");

    let _hold = now(tenure.mutex("a").acquire()).unwrap();
    let holder = &view(&tenure, "a").holders[0];
    assert_eq!(holder.details.owner, "web-3");
    assert!(holder.remaining > ms(3_000) && holder.remaining <= ms(5_000));
}

#[test]
fn the_call_overrides_the_url() {
    let tenure = now(Tenure::connect("memory:?ttl=5s&owner=web-3&wait=1h")).unwrap();
    let hold = now(tenure.mutex("a").ttl(ms(60_000)).owner("me").acquire()).unwrap();
    let holder = &view(&tenure, "a").holders[0];
    assert_eq!(holder.details.owner, "me");
    assert!(holder.remaining > ms(50_000) && hold.remaining() > ms(50_000));
    let error = now(tenure.mutex("a").wait(Duration::ZERO).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WaitOver);
    assert_eq!(tenure.defaults().details().owner, "web-3", "a call changes no default");
}

#[test]
fn the_last_value_of_a_field_counts() {
    let tenure = now(Tenure::connect("memory:?ttl=5s&&ttl=7s&wait=1s&wait=forever")).unwrap();
    assert_eq!((tenure.defaults().ttl, tenure.defaults().wait), (ms(7_000), None));
}

#[test]
fn other_defaults_for_a_clone_leave_the_original_as_it_was() {
    let tenure = memory();
    let mut options = tenure.defaults();
    options.ttl = ms(5_000);
    let other = tenure.clone().with_defaults(options).unwrap();
    assert_eq!((tenure.defaults().ttl, other.defaults().ttl), (ms(30_000), ms(5_000)));
    let hold = now(other.mutex("a").acquire()).unwrap();
    assert!(hold.remaining() <= ms(5_000));
    assert!(now(tenure.mutex("a").try_acquire()).unwrap().is_none(), "the lines are the same");
}

#[test]
fn an_empty_environment_is_memory_with_the_defaults() {
    if !inside("an_empty_environment_is_memory_with_the_defaults", &[]) {
        return;
    }
    keep();
    let tenure = now(Tenure::from_env()).unwrap();
    assert_eq!(tenure.profile().label, "memory");
    assert_eq!((tenure.defaults().ttl, tenure.defaults().wait), (ms(30_000), None));
    // Whoever forgot the variable must be told, but once is enough.
    let _again = now(Tenure::from_env()).unwrap();
    let lines = lines();
    let warned: Vec<_> = lines.iter().filter(|line| line.is("event", "engine.memory")).collect();
    assert_eq!(warned.len(), 1, "{lines:#?}");
    expect(warned[0], Level::WARN, &[]);
    assert!(warned[0].fields["message"].contains("protect this process only"), "{warned:?}");
}

#[test]
fn asking_for_memory_causes_no_warning() {
    if !inside("asking_for_memory_causes_no_warning", &[("TENURE_URL", text("memory:"))]) {
        return;
    }
    keep();
    let _tenure = now(Tenure::from_env()).unwrap();
    assert!(!lines().iter().any(|line| line.is("event", "engine.memory")));
}

#[test]
fn the_environment_sets_defaults_and_overrides_its_url_but_not_the_call() {
    let variables = [
        ("TENURE_URL", text("memory:?ttl=5s&wait=1s")),
        ("TENURE_TTL", text("7s")),
        ("TENURE_RENEW", text("false")),
        ("TENURE_RENEW_EVERY", text("1s")),
        ("TENURE_MAX_HOLD", text("1h")),
        ("TENURE_HOLD_FOR", text("100ms")),
        ("TENURE_MAX_WAITERS", text("3")),
        ("TENURE_ON_OUTAGE", text("local")),
        ("TENURE_OWNER", text("from-outside")),
    ];
    let test = "the_environment_sets_defaults_and_overrides_its_url_but_not_the_call";
    if !inside(test, &variables) {
        return;
    }
    let tenure = now(Tenure::from_env()).unwrap();
    let options = tenure.defaults();
    assert_eq!((options.ttl, options.wait), (ms(7_000), Some(ms(1_000))));
    assert_eq!(options.renew_every, Some(ms(1_000)));
    assert_eq!((options.max_hold, options.hold_for), (Some(ms(3_600_000)), ms(100)));
    assert_eq!((options.renew, options.max_waiters), (false, Some(3)));
    assert_eq!(options.on_outage, OnOutage::Local);
    assert_eq!(options.details().owner, "from-outside");
    let hold = now(tenure.mutex("a").ttl(ms(60_000)).acquire()).unwrap();
    assert!(hold.remaining() > ms(50_000));
}

#[test]
fn a_bad_value_in_the_environment_is_refused() {
    let variables = [("TENURE_TTL", text("30"))];
    if !inside("a_bad_value_in_the_environment_is_refused", &variables) {
        return;
    }
    let error = now(Tenure::from_env()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let says = error.to_string();
    assert!(says.contains("from_env") && says.contains("cannot read ttl=\"30\""), "{says}");
}

#[test]
fn a_bad_url_in_the_environment_is_refused_without_its_password() {
    let variables = [("TENURE_URL", text("reddis://user:secret@h"))];
    if !inside("a_bad_url_in_the_environment_is_refused_without_its_password", &variables) {
        return;
    }
    let error = now(Tenure::from_env()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
}

/// A URL that cannot be read must not become `memory:`: each process would have locks of its own.
#[test]
fn a_variable_that_is_not_text_is_refused_and_not_ignored() {
    let bytes = OsString::from(OsStr::from_bytes(b"redis://\xff"));
    let test = "a_variable_that_is_not_text_is_refused_and_not_ignored";
    if !inside(test, &[("TENURE_URL", &bytes)]) {
        return;
    }
    let answer = now(Tenure::from_env()).map(|tenure| tenure.profile().label.clone());
    assert_eq!(answer.map_err(|error| error.kind()), Err(ErrorKind::Invalid));
}
