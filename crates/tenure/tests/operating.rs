//! What an operator sees and does: inspect, list, break. And what nobody sees: claim ids.

use crate::fixtures;

use fixtures::controlled_engine::ControlledEngine;
use fixtures::{is_free, memory, ms, now, soon, view, waiting};
use tenure::engine::Ended;
use tenure::{Begun, Broken, ErrorKind, Fence, Note, Released, Tenure};

#[test]
fn inspect_shows_what_holders_and_waiters_say_about_themselves() {
    let tenure = memory();
    assert_eq!(now(tenure.inspect("a")).unwrap(), None);
    let asked = tenure.semaphore("a", 5).owner("web-1").reason("nightly export");
    let hold = now(asked.meta("trace", "t-1").meta("user", "u-2").acquire_many(4)).unwrap();
    let joined = tenure.semaphore("a", 5).owner("web-2").meta("trace", "t-3").join_many(2);
    let waiter = waiting(joined);

    let line = view(&tenure, "a");
    assert_eq!((line.name.as_str(), line.capacity), ("a", 5));
    let [holder] = &line.holders[..] else { panic!("{line:?}") };
    assert_eq!((holder.fence, holder.weight), (hold.fence(), 4));
    assert_eq!(holder.details.owner, "web-1");
    assert_eq!(holder.details.reason.as_deref(), Some("nightly export"));
    let pairs = [("trace", "t-1"), ("user", "u-2")];
    assert_eq!(holder.details.meta, pairs.map(|(key, value)| (key.into(), value.into())));
    assert!(holder.remaining > ms(20_000) && holder.remaining <= ms(30_000));
    assert!(holder.held_for < ms(10_000));
    let [waits] = &line.waiters[..] else { panic!("{line:?}") };
    assert_eq!((waits.weight, waits.details.owner.as_str()), (2, "web-2"));
    assert_eq!(waits.details.reason, None);

    drop(hold);
    let line = view(&tenure, "a");
    assert_eq!((line.holders.len(), line.waiters.len()), (1, 0));
    assert_eq!(line.holders[0].details.owner, "web-2");
    drop(now(waiter).unwrap());
    assert_eq!(now(tenure.inspect("a")).unwrap(), None);
}

#[test]
fn the_owner_is_host_and_process_unless_it_is_set() {
    let tenure = memory();
    let _hold = now(tenure.mutex("a").acquire()).unwrap();
    let owner = view(&tenure, "a").holders[0].details.owner.clone();
    let (host, process) = owner.rsplit_once(':').unwrap();
    assert!(!host.is_empty());
    assert_eq!(process, std::process::id().to_string());
}

#[test]
fn waiters_are_shown_in_the_order_of_the_line() {
    let tenure = memory();
    let _hold = now(tenure.mutex("a").acquire()).unwrap();
    let line: Vec<_> =
        (0..20).map(|n| waiting(tenure.mutex("a").owner(format!("waiter-{n}")).join())).collect();
    let waiters = view(&tenure, "a").waiters;
    assert!(waiters.is_sorted_by_key(|waiter| waiter.ticket));
    let owners: Vec<_> = waiters.iter().map(|waiter| waiter.details.owner.clone()).collect();
    assert_eq!(owners, (0..20).map(|n| format!("waiter-{n}")).collect::<Vec<_>>());
    drop(line);
}

#[test]
fn list_is_ordered_by_name_and_knows_only_names_in_use() {
    let tenure = memory();
    let names = ["wallet:2", "table:1", "wallet:10", "wallet:1", "wallet", "zoo"];
    let holds = names.map(|name| now(tenure.mutex(name).acquire()).unwrap());
    let _passing = now(tenure.mutex("wallet:gone").acquire()).map(drop);
    let listed = |prefix: &str| {
        let views = now(tenure.list(prefix)).unwrap();
        views.iter().map(|view| view.name.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed("wallet:"), ["wallet:1", "wallet:10", "wallet:2"]);
    assert_eq!(listed(""), ["table:1", "wallet", "wallet:1", "wallet:10", "wallet:2", "zoo"]);
    assert_eq!(listed("nothing"), [""; 0]);
    drop(holds);
    assert_eq!(listed(""), [""; 0]);
}

#[test]
fn list_continues_over_pages() {
    let tenure = memory();
    let names: Vec<_> = (0..2_500).map(|n| format!("name-{n:04}")).collect();
    let holds: Vec<_> = names.iter().map(|n| now(tenure.mutex(n).acquire()).unwrap()).collect();
    let views = now(tenure.list("name-")).unwrap();
    assert!(views.iter().map(|view| view.name.as_str()).eq(names.iter().map(String::as_str)));
    drop(holds);
}

#[tokio::test]
async fn a_broken_hold_is_lost_at_once_with_who_and_why_and_the_next_is_served() {
    let tenure = memory();
    let hold = tenure.mutex("a").acquire().await.unwrap();
    let lost = tokio::spawn(hold.lost());
    let next = waiting(tenure.mutex("a").join());
    let operator = {
        let mut options = tenure.defaults();
        options.details_mut().owner = "alice".into();
        tenure.clone().with_defaults(options).unwrap()
    };
    let done = operator.break_hold("a", hold.fence(), "wedged since noon").await.unwrap();
    assert_eq!(done, Broken::Done);
    // This needs no ttl, no renewal and no time.
    let note = Note { by: "alice".into(), reason: "wedged since noon".into() };
    assert!(!hold.is_live() && hold.remaining().is_zero());
    assert_eq!(soon(lost).await.unwrap(), Ended::Broken(note));
    let next = now(next).unwrap();
    assert!(next.fence() > hold.fence());
    let error = hold.extend(ms(1_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("broken by alice: wedged since noon"), "{error}");
    assert_eq!(hold.release().await.unwrap(), Released::Late);
    assert!(next.is_live() && !is_free(&tenure, "a"));
}

#[tokio::test]
async fn a_break_with_another_fence_breaks_nothing() {
    let tenure = memory();
    let first = tenure.mutex("a").acquire().await.unwrap();
    let old = first.fence();
    drop(first);
    let hold = tenure.mutex("a").acquire().await.unwrap();
    for fence in [old, Fence::new(0), Fence::new(1), Fence::new(u64::MAX)] {
        assert_eq!(tenure.break_hold("a", fence, "").await.unwrap(), Broken::MovedOn);
    }
    assert_eq!(tenure.break_hold("b", hold.fence(), "").await.unwrap(), Broken::MovedOn);
    assert!(hold.is_live());
    assert_eq!(tenure.inspect("b").await.unwrap(), None);
    assert_eq!(hold.release().await.unwrap(), Released::InTime);
}

#[tokio::test]
async fn one_of_several_holders_can_be_broken() {
    let tenure = memory();
    let one = tenure.semaphore("a", 2).acquire().await.unwrap();
    let two = tenure.semaphore("a", 2).acquire().await.unwrap();
    assert_eq!(tenure.break_hold("a", two.fence(), "").await.unwrap(), Broken::Done);
    assert!(one.is_live() && !two.is_live());
}

#[tokio::test]
async fn several_names_are_lost_when_one_of_them_is_broken() {
    let tenure = memory();
    let both = tenure.all(["a", "b"]).acquire().await.unwrap();
    let (_, fence) = both.fences().last().unwrap();
    tenure.break_hold("b", fence, "").await.unwrap();
    assert!(!both.is_live() && both.remaining().is_zero());
    assert!(matches!(soon(both.lost()).await, Ended::Broken(_)));
    assert_eq!(both.release().await.unwrap(), Released::Late);
    assert!(is_free(&tenure, "a") && is_free(&tenure, "b"));
}

/// It is shown to the holder and logged, like every reason.
#[tokio::test]
async fn the_reason_of_a_break_has_the_limits_of_every_reason() {
    let tenure = memory();
    let hold = tenure.mutex("a").acquire().await.unwrap();
    for reason in ["x".repeat(1 << 20), "red \u{1b}[31m alert".into(), "two\r\nlines".into()] {
        let kind = tenure.break_hold("a", hold.fence(), reason).await.map_err(|e| e.kind());
        assert_eq!(kind, Err(ErrorKind::Invalid));
    }
    assert!(hold.is_live());
}

#[test]
fn a_broken_turn_that_nobody_took_yet_is_not_taken() {
    let tenure = memory();
    let holder = now(tenure.mutex("a").acquire()).unwrap();
    let waiter = waiting(tenure.mutex("a").join());
    drop(holder);
    let fence = view(&tenure, "a").holders[0].fence;
    assert_eq!(now(tenure.break_hold("a", fence, "")).unwrap(), Broken::Done);
    let taken = now(waiter).unwrap();
    assert!(taken.fence() > fence, "asked for again, and granted anew");
    assert!(taken.is_live());
}

#[tokio::test]
async fn nothing_that_can_be_printed_contains_a_claim_id() {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let hold = tenure.all(["a", "b"]).acquire().await.unwrap();
    let waiter = waiting(tenure.mutex("a").join());
    let over = soon(tenure.mutex("a").wait(ms(10)).acquire()).await.unwrap_err();
    let views = tenure.list("").await.unwrap();
    let (mutex, lost, at_risk) = (tenure.mutex("a"), hold.lost(), hold.at_risk());
    let printed = format!(
        "{hold:?} {hold:#?} {over} {over:?} {views:?} {tenure:?} {mutex:?} {lost:?} {at_risk:?} {:?}",
        hold.fences().collect::<Vec<_>>()
    );
    assert!(printed.contains("Hold { name: \"a\", fence: Fence("), "{printed}");
    for secret in engine.spellings() {
        assert!(!printed.contains(&secret), "{secret} in {printed}");
        assert!(!printed.contains(&secret.to_uppercase()), "{secret} in {printed}");
    }
    drop(waiter);
}

#[test]
fn leaders_and_onces_are_inspected_and_broken_in_their_own_space() {
    let tenure = memory();
    let (lock, election, once) = (tenure.mutex("a"), tenure.election("a"), tenure.once("a"));
    assert_eq!(now(election.inspect()).unwrap(), None);
    assert_eq!(now(once.inspect()).unwrap(), None);
    let lock = now(lock.acquire()).unwrap();
    let term = now(election.clone().campaign()).unwrap();
    let Begun::Mine(run) = now(once.clone().begin()).unwrap() else { panic!("it is new") };
    let fence = |view: Option<tenure::View>| view.unwrap().holders[0].fence;
    assert_eq!(fence(now(election.inspect()).unwrap()), term.number());
    assert_eq!(fence(now(once.inspect()).unwrap()), run.fence());
    assert_eq!(now(once.break_run(term.number(), "a slip")).unwrap(), Broken::MovedOn);
    assert_eq!(now(once.break_run(run.fence(), "it hangs")).unwrap(), Broken::Done);
    let left = now(once.inspect()).unwrap().unwrap();
    assert_eq!((left.holders.len(), left.waiters.len()), (0, 0));
    let record = left.record.unwrap();
    assert_eq!((record.fence, record.outcome), (run.fence(), None));
    assert!(!run.hold().is_live() && term.is_live() && lock.is_live());
    assert!(matches!(now(once.clone().begin()).unwrap(), Begun::Unsettled));
    // Its holder knows how it ended, and nobody has begun it again.
    assert_eq!(now(run.settle("paid")).unwrap(), Released::Late);
    let Begun::Replayed(outcome) = now(once.begin()).unwrap() else { panic!("it is settled") };
    assert_eq!(*outcome, *b"paid");
}
