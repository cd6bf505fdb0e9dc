//! A hold that is handed over from one client to another.

use crate::fixtures;

use std::sync::Arc;
use std::time::Duration;

use fixtures::controlled_engine::ControlledEngine;
use fixtures::{is_free, memory, ms, now, poll_once, soon, until, view, waiting};
use tenure::engine::{
    Claim, ClaimId, Ended, Engine, Fence, Grant, Moment, Name, Space, Turn, Verdict,
};
use tenure::engines::memory::Memory;
use tenure::{Detached, Error, ErrorKind, Hold, Released, Tenure};

/// Two clients of the same lines, as in two processes.
fn two() -> (Tenure, Tenure) {
    let engine = Arc::new(Memory::new());
    (Tenure::with_engine(engine.clone()), Tenure::with_engine(engine))
}

fn unrenewed(tenure: &Tenure) -> Tenure {
    let mut options = tenure.defaults();
    options.renew = false;
    tenure.clone().with_defaults(options).unwrap()
}

/// The secret of `detached`, read again, as another process would have it.
fn told(detached: &Detached) -> Detached {
    Detached::from_secret(detached.name(), &detached.secret()).unwrap()
}

#[track_caller]
fn refused(attached: tenure::Result<Hold>, kind: ErrorKind, says: &str) -> Error {
    let error = attached.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(says), "{error}");
    error
}

#[tokio::test]
async fn a_detached_hold_says_what_it_is() {
    let tenure = memory();
    let hold = tenure.mutex("a").ttl(ms(5_000)).acquire().await.unwrap();
    let fence = hold.fence();
    let detached = hold.detach().await.unwrap();
    assert_eq!((detached.name(), detached.fence(), detached.ttl()), ("a", fence, ms(5_000)));
    assert!(!is_free(&tenure, "a"));
}

#[tokio::test]
async fn nobody_renews_a_detached_hold() {
    let tenure = memory();
    let detached = tenure.mutex("a").ttl(ms(200)).acquire().await.unwrap().detach().await.unwrap();
    let next = soon(tenure.mutex("a").acquire()).await.unwrap();
    assert!(next.fence() > detached.fence());
    refused(tenure.attach(&detached).await, ErrorKind::Lost, "attach \"a\" on memory: it is no");
    assert!(next.is_live());
}

#[tokio::test]
async fn detaching_leaves_the_full_ttl() {
    let tenure = memory();
    let hold = tenure.mutex("a").ttl(ms(20_000)).renew(false).acquire().await.unwrap();
    tokio::time::sleep(ms(300)).await;
    assert!(view(&tenure, "a").holders[0].remaining < ms(19_750));
    let _detached = hold.detach().await.unwrap();
    assert!(view(&tenure, "a").holders[0].remaining > ms(19_750));
}

#[tokio::test]
async fn an_attached_hold_is_renewed_and_its_drop_releases_it() {
    let (here, there) = two();
    let detached = here.mutex("a").ttl(ms(500)).acquire().await.unwrap().detach().await.unwrap();
    let hold = there.attach(&told(&detached)).await.unwrap();
    assert_eq!((hold.name(), hold.fence()), ("a", detached.fence()));
    tokio::time::sleep(ms(1_500)).await;
    assert!(hold.is_live() && !is_free(&here, "a"));
    drop(hold);
    assert!(is_free(&here, "a"));
}

#[tokio::test]
async fn an_attached_hold_is_not_renewed_if_the_defaults_say_so() {
    let (here, there) = two();
    let detached = here.mutex("a").ttl(ms(300)).acquire().await.unwrap().detach().await.unwrap();
    let hold = unrenewed(&there).attach(&detached).await.unwrap();
    assert_eq!(soon(hold.lost()).await, Ended::Expired);
    assert_eq!(soon(hold.release()).await.unwrap(), Released::Late);
}

#[tokio::test]
async fn an_attached_hold_can_be_released_extended_and_detached_again() {
    let (here, there) = two();
    let detached = here.mutex("a").ttl(ms(1_000)).acquire().await.unwrap().detach().await.unwrap();
    let hold = unrenewed(&there).attach(&detached).await.unwrap();
    hold.extend(ms(60_000)).await.unwrap();
    let again = hold.detach().await.unwrap();
    assert_eq!(again, detached);
    assert!(view(&here, "a").holders[0].remaining > ms(50_000));
    let hold = here.attach(&again).await.unwrap();
    assert_eq!(hold.release().await.unwrap(), Released::InTime);
    refused(there.attach(&again).await, ErrorKind::Lost, "it was released, or its time ran out");
}

#[tokio::test]
async fn checking_a_hold_changes_nothing() {
    let (here, there) = two();
    let detached = here.mutex("a").ttl(ms(20_000)).acquire().await.unwrap().detach().await.unwrap();
    let before = view(&here, "a").holders[0].remaining;
    assert!(there.check(&detached).await.unwrap() > ms(10_000));
    let hold = unrenewed(&there).attach(&detached).await.unwrap();
    assert!(view(&here, "a").holders[0].remaining <= before);
    hold.release().await.unwrap();
    let error = there.check(&detached).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(
        error.to_string().starts_with("check \"a\" on memory: it is no longer held"),
        "{error}"
    );
}

#[tokio::test]
async fn a_broken_hold_says_by_whom() {
    let (here, there) = two();
    let detached = here.mutex("a").acquire().await.unwrap().detach().await.unwrap();
    here.break_hold("a", detached.fence(), "wedged since noon").await.unwrap();
    refused(
        there.attach(&detached).await,
        ErrorKind::Lost,
        ": wedged since noon; acquire it again",
    );
    // It is not renewed for the next twenty seconds, so its holder must be told.
    let hold = here.mutex("a").ttl(ms(60_000)).acquire().await.unwrap();
    let hold = there.attach(&hold.detach().await.unwrap()).await.unwrap();
    here.break_hold("a", hold.fence(), "again").await.unwrap();
    assert!(matches!(soon(hold.lost()).await, Ended::Broken(note) if note.reason == "again"));
}

#[tokio::test]
async fn one_client_attaches_once() {
    let (here, there) = two();
    let detached = here.mutex("a").acquire().await.unwrap().detach().await.unwrap();
    let hold = there.attach(&detached).await.unwrap();
    refused(there.attach(&detached).await, ErrorKind::Invalid, "is attached to it already");
    assert!(hold.is_live() && !is_free(&here, "a"));
    // Nor while it is being released, nor after this client has given it away.
    let detached = hold.detach().await.unwrap();
    let hold = there.attach(&detached).await.unwrap();
    assert_eq!(hold.release().await.unwrap(), Released::InTime);
    refused(there.attach(&detached).await, ErrorKind::Lost, "no longer held");
    assert!(is_free(&here, "a"));
}

#[tokio::test]
async fn a_client_continues_its_own_hold() {
    let tenure = memory();
    let detached = tenure.mutex("a").ttl(ms(400)).acquire().await.unwrap().detach().await.unwrap();
    let hold = tenure.attach(&detached).await.unwrap();
    tokio::time::sleep(ms(1_000)).await;
    assert!(hold.is_live());
    assert_eq!(hold.release().await.unwrap(), Released::InTime);
    assert!(is_free(&tenure, "a"));
}

#[tokio::test]
async fn a_hold_that_someone_else_released_is_lost_and_says_so() {
    let (here, there) = two();
    let detached = here.mutex("a").ttl(ms(600)).acquire().await.unwrap().detach().await.unwrap();
    let (ours, theirs) =
        (here.attach(&detached).await.unwrap(), there.attach(&detached).await.unwrap());
    assert_eq!(theirs.release().await.unwrap(), Released::InTime);
    assert_eq!(soon(ours.lost()).await, Ended::Elsewhere);
    let next = here.mutex("a").acquire().await.unwrap();
    drop(ours);
    assert!(next.is_live() && !is_free(&there, "a"));
}

#[tokio::test]
async fn a_hold_of_several_names_is_not_detached_but_released() {
    let tenure = memory();
    let both = tenure.all(["a", "b"]).acquire().await.unwrap();
    let error = both.detach().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("several names; acquire and detach each"), "{error}");
    assert!(is_free(&tenure, "a") && is_free(&tenure, "b"));
}

#[tokio::test]
async fn a_hold_that_was_lost_is_not_detached() {
    let tenure = memory();
    let hold = tenure.mutex("a").ttl(ms(60)).renew(false).acquire().await.unwrap();
    soon(hold.lost()).await;
    let error = hold.detach().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().starts_with("detach \"a\" on memory: "), "{error}");
    let hold = tenure.mutex("a").acquire().await.unwrap();
    tenure.break_hold("a", hold.fence(), "drill").await.unwrap();
    assert_eq!(hold.detach().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_hold_that_cannot_be_renewed_is_not_detached_but_released() {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let hold = tenure.mutex("a").acquire().await.unwrap();
    engine.be_deaf();
    let error = hold.detach().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(is_free(&tenure, "a"));
}

#[tokio::test]
async fn a_dropped_detach_releases_and_a_dropped_attach_leaves_it_as_it_was() {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    engine.renew_late(3);
    for polls in 0..3 {
        let hold = tenure.mutex("a").acquire().await.unwrap();
        let mut detach = Box::pin(hold.detach());
        (0..polls).for_each(|_| assert!(poll_once(&mut detach).is_pending()));
        drop(detach);
        assert!(is_free(&tenure, "a"));
    }
    let detached = tenure.mutex("a").acquire().await.unwrap().detach().await.unwrap();
    for polls in 1..3 {
        let mut attach = Box::pin(tenure.attach(&detached));
        (0..polls).for_each(|_| assert!(poll_once(&mut attach).is_pending()));
        drop(attach);
        assert!(!is_free(&tenure, "a"));
    }
    // Only one at a time may check it.
    let first = waiting(tenure.attach(&detached));
    refused(tenure.attach(&detached).await, ErrorKind::Invalid, "already");
    drop(first.await.unwrap());
    assert!(is_free(&tenure, "a"));
}

#[tokio::test]
async fn a_break_while_it_is_checked_is_not_missed() {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let detached = tenure.mutex("a").acquire().await.unwrap().detach().await.unwrap();
    engine.renew_late(2);
    let attach = waiting(tenure.attach(&detached));
    tenure.break_hold("a", detached.fence(), "in haste").await.unwrap();
    let hold = attach.await.unwrap();
    assert!(!hold.is_live());
    assert!(matches!(soon(hold.lost()).await, Ended::Broken(_)));
}

#[tokio::test]
async fn a_late_turn_is_not_given_back() {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let detached = tenure.mutex("a").acquire().await.unwrap().detach().await.unwrap();
    let name = Name::new(Space::Lock, "a").unwrap();
    let turn = Grant::new(detached.fence(), Moment::ORIGIN, ms(2_000), true);
    assert!(engine.push(&name, Turn::Granted(turn)), "whoever hears no gives the turn back");
    assert_eq!(engine.leaves(), 0);
}

#[tokio::test]
async fn observers_of_a_detached_hold_hear_nothing_more() {
    let tenure = memory();
    let hold = tenure.mutex("a").ttl(ms(100)).acquire().await.unwrap();
    let (mut lost, mut at_risk) = (hold.lost(), hold.at_risk());
    assert!(poll_once(&mut lost).is_pending());
    let _detached = hold.detach().await.unwrap();
    until("it has ended", || is_free(&tenure, "a"));
    assert!(poll_once(&mut lost).is_pending() && poll_once(&mut at_risk).is_pending());
}

#[tokio::test]
async fn a_client_that_is_closed_leaves_what_it_detached() {
    let (here, there) = two();
    let detached = here.mutex("a").acquire().await.unwrap().detach().await.unwrap();
    soon(here.close()).await;
    refused(here.attach(&detached).await, ErrorKind::Closed, "was closed");
    assert_eq!(here.check(&detached).await.unwrap_err().kind(), ErrorKind::Closed);
    drop(here);
    assert!(!is_free(&there, "a"));
    assert_eq!(there.attach(&detached).await.unwrap().release().await.unwrap(), Released::InTime);
}

#[test]
fn the_watchdog_does_not_stay_for_what_was_detached() {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let hold = now(tenure.mutex("a").ttl(ms(60_000)).acquire()).unwrap();
    let _detached = now(hold.detach()).unwrap();
    drop(tenure);
    until("nobody else has the engine", || Arc::strong_count(&engine) == 1);
}

#[tokio::test]
async fn a_ttl_that_the_engine_does_not_keep_is_refused() {
    let tenure = memory();
    let secret = tenure.mutex("a").acquire().await.unwrap().detach().await.unwrap().secret();
    for ttl in ["0", "1", "99999999999"] {
        let odd = Detached::from_secret("a", &secret.replace("-30000", &format!("-{ttl}")));
        refused(tenure.attach(&odd.unwrap()).await, ErrorKind::Invalid, "is out of range");
    }
}

#[tokio::test]
async fn another_secret_or_another_name_is_no_hold() {
    let tenure = memory();
    let detached = tenure.mutex("a").acquire().await.unwrap().detach().await.unwrap();
    let secret = detached.secret();
    let fence = detached.fence().to_string();
    let before = Fence::new(detached.fence().get() - 1).to_string();
    let error = Detached::from_secret("b", &secret).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("of another name"), "{error}");
    for secret in [secret.replace(&fence, &before), format!("t1-{}-{fence}-30000", "0".repeat(32))]
    {
        let other = Detached::from_secret("a", &secret).unwrap();
        refused(tenure.attach(&other).await, ErrorKind::Lost, "no longer held");
    }
    assert!(!is_free(&tenure, "a"));
}

/// A request of the claim may still be on its way when another process releases the hold.
#[tokio::test]
async fn releasing_a_hold_in_doubt_says_so() {
    let engine = Arc::new(Memory::new());
    let tenure = Tenure::with_engine(engine.clone());
    let late = |name: &str, secret: &str| {
        let hex = u128::from_str_radix(&secret[3..35], 16).unwrap();
        let name = Name::new(Space::Lock, name).unwrap();
        Claim::new(name, ClaimId::from_bytes(hex.to_be_bytes()))
    };
    for (name, doubt) in [("sure", ""), ("in doubt", "-d")] {
        let detached = tenure.mutex(name).acquire().await.unwrap().detach().await.unwrap();
        let secret = detached.secret() + doubt;
        let detached = Detached::from_secret(name, &secret).unwrap();
        tenure.attach(&detached).await.unwrap().release().await.unwrap();
        let verdict = now(engine.claim(&late(name, &secret))).unwrap();
        assert_eq!(matches!(verdict, Verdict::Left), doubt == "-d", "{name}: {verdict:?}");
    }
}

#[tokio::test]
async fn max_hold_of_the_defaults_counts_from_the_attach() {
    let (here, there) = two();
    let detached = here.mutex("a").ttl(ms(200)).acquire().await.unwrap().detach().await.unwrap();
    let mut options = there.defaults();
    (options.ttl, options.max_hold) = (ms(200), Some(ms(500)));
    let there = there.with_defaults(options).unwrap();
    let hold = there.attach(&detached).await.unwrap();
    assert_eq!(soon(hold.lost()).await, Ended::MaxHold);
    let longest = Duration::from_secs(60);
    let detached = here.mutex("b").ttl(longest).acquire().await.unwrap().detach().await.unwrap();
    refused(there.attach(&detached).await, ErrorKind::Invalid, "max_hold 500ms is below the ttl");
    assert!(!is_free(&here, "b"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_may_outlive_its_process_still_belongs_to_it() {
    let (here, _) = two();
    let hold = here.mutex("a").ttl(ms(200)).acquire().await.unwrap();
    hold.outlive().await.unwrap();
    tokio::time::sleep(ms(400)).await;
    assert!(hold.is_live(), "it is renewed");
    assert_eq!(hold.release().await.unwrap(), Released::InTime);
    assert!(here.mutex("a").try_acquire().await.unwrap().is_some());
}
