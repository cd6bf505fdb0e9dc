//! What random scripts rarely reach: crowds, numbers with many digits, changes of form.

use std::sync::Arc;

use tenure::engine::{Claim, ClaimId, Leave, Left, Scope, Verdict};
use tenure_testkit::servers::Flavour;

use super::comparison::Comparison;
use super::environment::{self, Environment};
use super::plan::{Actor, Event, HEARING, Manner, Next, Op, Plan, Shape, Which};
use super::said::Said;

const MANNER: Manner = Manner {
    may_wait: true,
    max_waiters: u32::MAX,
    by_ticket: false,
    seen: None,
    odd: None,
    server: 0,
};
const MUTEX: Shape = Shape { capacity: 1, fixed: true, once: false };
const ALL: u32 = 1 << 20;

fn actor(process: usize, weight: u32) -> Actor {
    Actor { process, on_behalf: false, weight, ttl: 30_005, keep: 0, rerun: false, content: 0 }
}

fn claims(who: usize) -> Op {
    Op::Claim(who, MANNER)
}

fn leaves(who: usize) -> Op {
    Op::Leave { who, in_doubt: false, only: None, only_waiting: None, settle: None }
}

/// A name with claims that a test moves by itself.
struct Case {
    environment: Arc<Environment>,
    comparison: Comparison,
}

impl Case {
    async fn new(shape: Shape, actors: Vec<Actor>) -> Case {
        let environment = Arc::new(Environment::new(Flavour::Debian).await);
        let plan = Plan { seed: 0, shape, actors, rounds: Vec::new() };
        let comparison = Comparison::new(&environment, plan, "directed");
        let mut case = Case { environment, comparison };
        case.comparison.look_around();
        case
    }

    /// Takes a step, and looks at the name afterwards.
    async fn step(&mut self, op: Op) -> Said {
        let said = self.comparison.step(op).await;
        self.expect(said)
    }

    /// The same without a look: showing a crowd takes long.
    async fn take(&mut self, op: Op) -> Said {
        let said = self.comparison.take(op).await;
        self.expect(said)
    }

    async fn pass(&mut self, millis: i64) {
        self.environment.happen(Event::Pass(millis)).await;
        self.comparison.look_around();
        self.look().await;
    }

    async fn look(&mut self) {
        let same = self.comparison.compare_views().await;
        self.expect(same);
        self.environment.settle().await;
        let same = self.comparison.has_heard_all();
        self.expect(same);
    }

    async fn end(&mut self) {
        let same = self.comparison.end().await;
        self.expect(same);
    }

    fn expect<T>(&self, same: Result<T, String>) -> T {
        same.unwrap_or_else(|why| panic!("{}\nWRONG: {why}", self.comparison.last_of_story(20)))
    }

    /// What Redis keeps under the name's own key.
    fn form(&self) -> String {
        let [own, _] = environment::keys(&self.comparison.name);
        self.environment.command(&["TYPE", &own]).text().unwrap().to_owned()
    }

    /// The last number that was given.
    fn counter(&self) -> u64 {
        self.environment.counter(&self.comparison.name)
    }
}

#[tokio::test]
async fn six_hundred_that_cannot_be_reached_are_passed_over() {
    let mut actors = vec![actor(0, 1)];
    actors.extend((0..600).map(|_| actor(HEARING, 1)));
    actors.push(actor(0, 1));
    let mut case = Case::new(MUTEX, actors).await;
    for who in 0..602 {
        case.take(claims(who)).await;
    }
    case.step(leaves(0)).await;
    case.look().await;
    // One contact brings all of them back to their places.
    case.step(Op::Keep(300, Manner { by_ticket: true, ..MANNER })).await;
    case.step(leaves(601)).await;
    case.step(Op::Claim(1, Manner { by_ticket: true, ..MANNER })).await;
    case.look().await;
}

#[tokio::test]
async fn a_thousand_readers_follow_a_writer() {
    let mut actors = vec![actor(0, ALL)];
    actors.extend((0..1000).map(|at| actor(at % 2, 1)));
    actors.push(actor(1, ALL));
    let mut case = Case::new(Shape { capacity: ALL, ..MUTEX }, actors).await;
    for who in 0..1002 {
        case.take(claims(who)).await;
    }
    case.step(leaves(0)).await;
    case.look().await;
    // Nobody takes its turn: all end at once, more than one step can handle. The writer behind them belongs to a
    // process that let holds run out, and comes back when it asks.
    case.pass(2000).await;
    case.step(leaves(0)).await;
    case.step(claims(1001)).await;
    case.look().await;
}

#[tokio::test]
async fn six_hundred_that_are_too_heavy_are_told() {
    let mut actors = vec![actor(0, 1)];
    actors.extend((0..600).map(|at| actor(at % 2, 5)));
    actors.push(actor(1, 2));
    let mut case = Case::new(Shape { capacity: 5, fixed: false, once: false }, actors).await;
    for who in 0..602 {
        case.take(claims(who)).await;
    }
    assert_eq!(case.step(Op::Resize(3)).await, Said::Done);
    case.look().await;
    case.step(leaves(0)).await;
    case.step(leaves(601)).await;
}

#[tokio::test]
async fn every_digit_of_a_number_counts() {
    for first in [(1_u64 << 51) - 1001, (1 << 52) + 1, (1 << 53) - 10_001] {
        let mut case = Case::new(MUTEX, vec![actor(0, 1), actor(1, 1), actor(0, 1)]).await;
        let part = environment::part(&case.comparison.name);
        // The first step finds a server that it does not know, and numbers start from the clock.
        case.step(leaves(2)).await;
        // Odd and even numbers, alone and with a line.
        for number in (first..first + 404).step_by(101) {
            case.environment.command(&["HSET", &part, "n", &number.to_string()]);
            let Said::Granted { fence, .. } = case.step(claims(0)).await else { panic!("held") };
            assert_eq!((fence, case.counter()), (number + 2, number + 2));
            let before = case.counter();
            let Said::Waiting { ticket, floor, .. } = case.step(claims(1)).await else {
                panic!("waits")
            };
            assert!((before + 1..=case.counter()).contains(&ticket), "{ticket} after {before}");
            assert_eq!(floor, case.counter());
            case.step(claims(2)).await;
            case.step(leaves(0)).await;
            assert_eq!(case.comparison.last_fence(1), case.counter());
            case.step(Op::Renew(1, Which::Own, 30_005)).await;
            case.step(leaves(1)).await;
            assert_eq!(case.comparison.last_fence(2), case.counter());
            case.step(Op::Break(Which::Of(2))).await;
            // Broken claims are remembered, but the next round must find none.
            case.pass(60_000).await;
            case.comparison.forget_numbers();
        }
    }
}

#[tokio::test]
async fn a_partition_that_is_lost_makes_no_fence_fall() {
    let shared = Shape { capacity: 2, fixed: false, once: false };
    for (shape, holders) in [(MUTEX, 1), (shared, 2)] {
        let actors = (0..6).map(|at| actor(at % 2, 1)).collect();
        let mut case = Case::new(shape, actors).await;
        let part = environment::part(&case.comparison.name);
        // Ahead of the clock, as after a step back.
        case.step(leaves(5)).await;
        let ahead = (case.environment.now() + 3_600_000) * 1000;
        case.environment.command(&["HSET", &part, "n", &ahead.to_string()]);
        for who in 0..5 {
            case.take(claims(who)).await;
        }
        for (leaver, next) in (0..).zip(holders..5) {
            case.environment.command(&["DEL", &part]);
            let before = case.comparison.last_fence(next - 1);
            case.step(leaves(leaver)).await;
            let fence = case.comparison.last_fence(next);
            assert!(fence > before && before > ahead, "{fence} after {before}, {shape:?}");
        }
    }
}

#[tokio::test]
async fn numbers_are_refused_before_they_are_rounded() {
    let mut case = Case::new(MUTEX, vec![actor(0, 1), actor(1, 1), actor(0, 1)]).await;
    case.step(leaves(2)).await;
    let part = environment::part(&case.comparison.name);
    case.environment.command(&["HSET", &part, "n", &((1_u64 << 53) - 5).to_string()]);
    let Said::Granted { fence, .. } = case.step(claims(0)).await else { panic!("held") };
    assert_eq!(fence, (1 << 53) - 3);
    // Two more are left, for a ticket and a fence; the first of them is used for a place in line.
    let engine = case.environment.processes[1].engine().clone();
    let mut claim = Claim::new(case.comparison.name.clone(), ClaimId::from_bytes([7; 16]));
    assert!(matches!(engine.claim(&claim).await, Ok(Verdict::Waiting(_))));
    claim.id = ClaimId::from_bytes([8; 16]);
    for _ in 0..3 {
        let refused = engine.claim(&claim).await.unwrap_err();
        assert!(refused.to_string().contains("no numbers left"), "{refused}");
    }
    // Holders are released, and nobody is granted a number that does not exist.
    let ended = Leave::new(case.comparison.name.clone(), case.comparison.id_of(0));
    let ours = case.environment.processes[0].engine().clone();
    assert_eq!(ours.leave(&ended).await.unwrap(), Left::Released);
    let page = ours.inspect(&Scope::Name(case.comparison.name.clone())).await.unwrap();
    assert!(page.views.iter().all(|view| view.holders.is_empty()), "{page:?}");
}

#[tokio::test]
async fn one_holder_alone_has_a_form_of_its_own() {
    let mut case = Case::new(MUTEX, vec![actor(0, 1), actor(1, 1)]).await;
    case.step(claims(0)).await;
    assert_eq!(case.form(), "string");
    case.step(Op::Renew(0, Which::Own, 90_005)).await;
    case.step(Op::Renew(0, Which::Never, 90_005)).await;
    case.step(claims(0)).await;
    case.step(Op::Claim(1, Manner { may_wait: false, ..MANNER })).await;
    case.step(Op::Claim(1, Manner { odd: Some((1, 2)), ..MANNER })).await;
    assert_eq!(case.form(), "string");
    case.pass(1000).await;
    let hands_over =
        |next| Op::HandOver { who: 0, holder: false, next, ttl: 0, fences: 5, details: 1 };
    for next in [Next::Known(Which::Own), Next::OfBlock(2), Next::OfBlock(0), Next::Ahead] {
        case.step(hands_over(next)).await;
        assert_eq!(case.form(), "string");
    }
    case.step(claims(1)).await;
    assert_eq!(case.form(), "hash");
    case.pass(1000).await;
    for next in [Next::OfBlock(4), Next::OfBlock(3), Next::OfBlock(1), Next::Ahead] {
        case.step(hands_over(next)).await;
    }
    assert_eq!(case.form(), "hash");
    case.step(leaves(1)).await;
    assert_eq!(case.form(), "hash");
    case.step(Op::Renew(0, Which::Own, 30_005)).await;
    case.step(leaves(0)).await;
    assert_eq!(case.form(), "none");
    case.step(claims(1)).await;
    assert_eq!(case.form(), "string");
    // Anything that names the hold without ending it turns it into a hash, and changes nothing else.
    case.pass(500).await;
    case.step(Op::Break(Which::Never)).await;
    case.step(Op::Renew(1, Which::Own, 505)).await;
    case.step(Op::Leave { who: 0, in_doubt: true, only: None, only_waiting: None, settle: None })
        .await;
    assert_eq!(case.form(), "hash");
    case.step(Op::Break(Which::Of(1))).await;
    case.step(Op::Renew(1, Which::Own, 505)).await;
    // The one that left in doubt is remembered.
    assert_eq!(case.step(claims(0)).await, Said::Left);
    // In its last millisecond a key still exists.
    case.pass(60_010).await;
    assert_eq!(case.form(), "none");
    case.step(claims(0)).await;
    assert_eq!(case.form(), "string");
    case.step(Op::Leave {
        who: 0,
        in_doubt: true,
        only: Some(Which::Own),
        only_waiting: None,
        settle: None,
    })
    .await;
    assert_eq!(case.form(), "hash");
    case.pass(60_010).await;
    case.end().await;
    assert_eq!(case.form(), "none");
}

#[tokio::test]
async fn a_capacity_that_was_set_is_remembered_for_a_day() {
    let shape = Shape { capacity: 2, fixed: false, once: false };
    let mut case = Case::new(shape, vec![actor(0, 1), actor(1, 1), actor(1, 2)]).await;
    let day = 24 * 60 * 60 * 1000;
    case.step(Op::Resize(1)).await;
    case.pass(day - 10).await;
    case.step(claims(0)).await;
    assert_eq!(case.step(claims(2)).await, Said::Conflict(Some(1)));
    // While the name is used, it applies for longer.
    case.pass(20).await;
    case.step(claims(1)).await;
    case.step(leaves(1)).await;
    case.step(leaves(0)).await;
    case.step(claims(2)).await;
    case.step(leaves(2)).await;
    case.step(Op::Resize(1)).await;
    case.pass(day).await;
    case.step(claims(2)).await;
    case.end().await;
    case.step(Op::Resize(1)).await;
    case.pass(day + 10).await;
    assert_eq!(case.form(), "none");
    case.step(claims(2)).await;
    case.end().await;
}
