//! What is logged: enough to follow a claim, and never its secret.

use crate::fixtures;

use fixtures::controlled_engine::ControlledEngine;
use fixtures::log_recorder::{expect, keep, lines, written};
use fixtures::{ms, now, soon, until};
use tenure::engine::Ended;
use tenure::fencing::{changed, check};
use tenure::{Fence, Released, Tenure};
use tracing::Level;

fn kept() -> Tenure {
    kept_with(ControlledEngine::new())
}

fn kept_with(engine: std::sync::Arc<ControlledEngine>) -> Tenure {
    keep();
    Tenure::with_engine(engine)
}

const META: &str = r#"{"trace":"t-1","user":"u-2"}"#;

macro_rules! ask {
    ($tenure:expr, $name:expr) => {
        $tenure.mutex($name).owner("web-1").meta("trace", "t-1").meta("user", "u-2")
    };
}

#[test]
fn a_grant_is_logged_with_name_fence_owner_and_meta() {
    let tenure = kept();
    let hold = now(ask!(tenure, "granted").acquire()).unwrap();
    let fence = hold.fence().to_string();
    let line = written("granted", "lock.granted");
    expect(&line, Level::DEBUG, &[("fence", &fence), ("owner", "web-1"), ("meta", META)]);
    expect(&line, Level::DEBUG, &[("wait_ms", "0")]);
}

#[test]
fn a_release_is_logged_with_name_owner_and_meta() {
    let tenure = kept();
    let hold = now(ask!(tenure, "released").acquire()).unwrap();
    assert_eq!(now(hold.release()).unwrap(), Released::InTime);
    let line = written("released", "lock.released");
    expect(&line, Level::DEBUG, &[("owner", "web-1"), ("meta", META)]);
}

#[tokio::test]
async fn a_loss_is_an_error_with_name_owner_meta_and_reason() {
    let tenure = kept();
    let hold = ask!(tenure, "lost").ttl(ms(60)).renew(false).acquire().await.unwrap();
    assert_eq!(soon(hold.lost()).await, Ended::Expired);
    let line = written("lost", "lock.lost");
    expect(&line, Level::ERROR, &[("owner", "web-1"), ("meta", META)]);
    assert!(line.fields["reason"].contains("time ran out"), "{line:?}");
}

#[tokio::test]
async fn a_late_release_is_a_warning_that_says_what_to_do() {
    let tenure = kept();
    let hold = ask!(tenure, "late").ttl(ms(60)).renew(false).acquire().await.unwrap();
    soon(hold.lost()).await;
    assert_eq!(soon(hold.release()).await.unwrap(), Released::Late);
    let line = written("late", "lock.expired_before_release");
    expect(&line, Level::WARN, &[("owner", "web-1"), ("meta", META), ("ttl_ms", "60")]);
    assert!(line.fields["message"].contains("raise the ttl"), "{line:?}");
}

#[tokio::test]
async fn a_renewal_that_fails_is_a_warning_before_anything_is_lost() {
    let engine = ControlledEngine::new();
    let tenure = kept_with(engine.clone());
    let hold = ask!(tenure, "at risk").ttl(ms(1_000)).acquire().await.unwrap();
    engine.be_deaf();
    soon(hold.at_risk()).await;
    let line = written("at risk", "lock.renew_late");
    expect(&line, Level::WARN, &[("owner", "web-1"), ("meta", META)]);
    assert!(line.fields["reason"].contains("nobody listens"), "{line:?}");
}

#[tokio::test]
async fn a_break_is_logged_with_who_and_why() {
    let tenure = kept();
    let hold = ask!(tenure, "broken").acquire().await.unwrap();
    let by = tenure.defaults().details().owner.clone();
    tenure.break_hold("broken", hold.fence(), "wedged since noon").await.unwrap();
    let line = written("broken", "lock.lost");
    let why = format!("broken by {by}: wedged since noon");
    expect(&line, Level::ERROR, &[("reason", &why), ("owner", "web-1"), ("meta", META)]);
}

#[tokio::test]
async fn detaching_and_attaching_a_hold_are_logged() {
    let tenure = kept();
    let hold = ask!(tenure, "passed on").acquire().await.unwrap();
    let fence = hold.fence().to_string();
    let detached = hold.detach().await.unwrap();
    let line = written("passed on", "lock.detached");
    expect(&line, Level::DEBUG, &[("fence", &fence), ("owner", "web-1"), ("ttl_ms", "30000")]);
    drop(tenure.attach(&detached).await.unwrap());
    let line = written("passed on", "lock.attached");
    expect(&line, Level::DEBUG, &[("fence", &fence), ("ttl_ms", "30000")]);
    expect(&written("passed on", "lock.released"), Level::DEBUG, &[("fence", &fence)]);
}

/// Enough to tell afterwards which claims were refused, and who broke what.
#[tokio::test]
async fn refused_claims_and_breaks_are_logged() {
    let tenure = kept();
    let hold = ask!(tenure, "contended").acquire().await.unwrap();
    assert!(ask!(tenure, "contended").try_acquire().await.unwrap().is_none());
    expect(&written("contended", "lock.busy"), Level::DEBUG, &[("owner", "web-1"), ("meta", META)]);
    tenure.break_hold("contended", hold.fence(), "wedged").await.unwrap();
    let by = tenure.defaults().details().owner.clone();
    let fence = hold.fence().to_string();
    let line = written("contended", "lock.broken");
    expect(&line, Level::WARN, &[("by", &by), ("reason", "wedged"), ("fence", &fence)]);
}

/// The fence ties a log line to what was written under the hold.
#[tokio::test]
async fn every_line_about_a_hold_has_its_fence() {
    let engine = ControlledEngine::new();
    let tenure = kept_with(engine.clone());
    let first = tenure.mutex("fence: a").acquire().await.unwrap();
    let second = tenure.mutex("fence: b").ttl(ms(300)).acquire().await.unwrap();
    let fences = [first.fence(), second.fence()].map(|fence| fence.to_string());
    drop(first);
    engine.be_deaf();
    soon(second.lost()).await;
    let _ = soon(second.release()).await.unwrap();
    for (name, event, fence) in [
        ("fence: a", "lock.granted", &fences[0]),
        ("fence: a", "lock.released", &fences[0]),
        ("fence: b", "lock.renew_late", &fences[1]),
        ("fence: b", "lock.lost", &fences[1]),
        ("fence: b", "lock.expired_before_release", &fences[1]),
    ] {
        let line = written(name, event);
        assert_eq!(line.fields.get("fence"), Some(fence), "{line:?}");
    }
}

#[tokio::test]
async fn the_log_never_contains_a_claim_id() {
    let engine = ControlledEngine::new();
    let tenure = kept_with(engine.clone());
    let hold = ask!(tenure, "secret").acquire().await.unwrap();
    let over = soon(tenure.mutex("secret").wait(ms(10)).acquire()).await;
    assert!(over.is_err());
    let waiter = tokio::spawn(tenure.mutex("secret").join());
    tenure.break_hold("secret", hold.fence(), "x").await.unwrap();
    let _ = hold.release().await.unwrap();
    drop(soon(waiter).await.unwrap().unwrap());
    let brief = tenure.mutex("secret").ttl(ms(60)).renew(false).acquire().await.unwrap();
    soon(brief.lost()).await;
    let _ = soon(brief.release()).await.unwrap();
    let passed_on = tenure.mutex("secret").acquire().await.unwrap().detach().await.unwrap();
    assert!(tenure.attach(&passed_on).await.unwrap().release().await.is_ok());
    assert!(tenure.attach(&passed_on).await.is_err());
    let kept = tenure.mutex("secret").ttl(ms(300)).acquire().await.unwrap();
    engine.be_deaf();
    soon(kept.at_risk()).await;
    written("secret", "lock.renew_late");
    written("secret", "lock.expired_before_release");
    let all = format!("{:?}", *lines()).to_lowercase();
    for secret in engine.spellings() {
        assert!(!all.contains(&secret), "{secret} in {all}");
    }
}

#[test]
fn a_late_write_is_a_warning() {
    let _tenure = kept();
    let (offered, seen) = (Fence::new(4), Fence::new(7));
    check("fence.stale", offered, seen).unwrap_err();
    let line = written("fence.stale", "fence.stale");
    expect(&line, Level::WARN, &[("offered", "4"), ("seen", "7")]);
    check("fence.passes", seen, seen).unwrap();
    changed(0, "fence.column", offered).unwrap_err();
    let line = written("fence.column", "fence.stale");
    expect(&line, Level::WARN, &[("offered", "4")]);
    assert!(!line.fields.contains_key("seen"), "{line:?}");
    assert!(
        lines().iter().all(|line| line.fields.get("name").is_none_or(|it| it != "fence.passes"))
    );
}

struct Nothing;

impl tenure::Work for Nothing {
    type Error = String;

    async fn start(&mut self, _: &tenure::Term) -> Result<(), String> {
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), String> {
        Err("it does not listen".into())
    }
}

#[tokio::test]
async fn each_step_of_a_worker_is_logged_with_its_id_and_its_term() {
    let tenure = kept();
    let worker = tenure.worker("worker-steps").with_id("w-1");
    let (stopper, mut states) = (worker.stopper(), worker.states());
    let running = tokio::spawn(worker.run(Nothing));
    soon(states.reach(tenure::worker::State::Working)).await;
    let leader = tenure.election("worker-steps").leader().await.unwrap().unwrap();
    let term = leader.term.to_string();
    stopper.stop();
    soon(running).await.unwrap().unwrap();
    let line = written("worker-steps", "worker.state");
    expect(&line, Level::INFO, &[("worker", "w-1"), ("from", "idle"), ("to", "acquiring")]);
    let all = lines().clone();
    let states = all.iter().filter(|line| {
        let is = |field: &str, value: &str| line.fields.get(field).is_some_and(|it| it == value);
        is("event", "worker.state") && is("worker", "w-1")
    });
    let steps: Vec<_> = states
        .map(|line| {
            let field = |name: &str| line.fields.get(name).map_or("-", String::as_str);
            assert_eq!(field("term"), if field("from") == "idle" { "-" } else { &term });
            format!("{}: {}", field("on"), field("to"))
        })
        .collect();
    let expected = ["start: acquiring", "granted: working", "stop: pausing", "stuck: releasing"];
    assert_eq!(steps[..4], expected);
    let line = written("worker-steps", "worker.stuck");
    expect(&line, Level::ERROR, &[("reason", "it does not listen"), ("term", &term)]);
    let line = written("worker-steps", "lock.granted");
    expect(&line, Level::DEBUG, &[("meta", r#"{"worker":"w-1"}"#)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stands_by_says_for_whom_and_says_it_again_for_another() {
    let tenure = kept();
    let name = "worker-standby";
    let election = |owner: &str| tenure.election(name).owner(owner).value(format!("at {owner}"));
    let first = election("web-1").campaign().await.unwrap();
    let second = tokio::spawn(election("web-2").campaign());
    until("a candidate in line", || {
        let view = now(tenure.election(name).inspect()).unwrap().unwrap();
        view.waiters.len() == 1
    });
    let worker = tenure.worker(name).with_id("w-9").ttl(ms(900));
    let (stopper, mut states) = (worker.stopper(), worker.states());
    let running = tokio::spawn(worker.run(Nothing));
    let standby = || {
        let all = lines().clone();
        let is_it = |line: &fixtures::log_recorder::Line| {
            line.is("event", "worker.standby") && line.is("worker", "w-9")
        };
        all.into_iter().filter(is_it).collect::<Vec<_>>()
    };
    let said = async |count: usize| {
        while standby().len() < count {
            tokio::time::sleep(ms(5)).await;
        }
        standby().remove(count - 1)
    };
    let line = soon(said(1)).await;
    let fence = first.number().to_string();
    let fields = [("blocked_by.owner", "web-1"), ("leader", "at web-1"), ("name", name)];
    expect(&line, Level::INFO, &fields);
    expect(&line, Level::INFO, &[("blocked_by.fence", &fence)]);
    let _ = first.resign().await.unwrap();
    let second = soon(second).await.unwrap().unwrap();
    let line = soon(said(2)).await;
    expect(&line, Level::INFO, &[("blocked_by.owner", "web-2"), ("leader", "at web-2")]);
    // It is reported once for each leader, however often it looks; and nobody stands by for itself.
    drop(second);
    soon(states.reach(tenure::worker::State::Working)).await;
    stopper.stop();
    soon(running).await.unwrap().unwrap();
    assert_eq!(standby().len(), 2);
}

#[tokio::test]
async fn a_renewal_can_be_seen() {
    let tenure = kept();
    let hold = ask!(tenure, "renewed").ttl(ms(600)).acquire().await.unwrap();
    let line = tokio::task::spawn_blocking(|| written("renewed", "lock.renewed")).await.unwrap();
    let fence = hold.fence().to_string();
    expect(&line, Level::DEBUG, &[("fence", &fence), ("owner", "web-1"), ("ttl_ms", "600")]);
}
