//! What random scripts rarely come upon: crowds, numbers with many digits, forms that change.

use std::sync::Arc;

use tenure::engine::{Claim, ClaimId, Leave, Left, Scope, Verdict};
use tenure_testkit::servers::Flavour;

use super::game::Game;
use super::plan::{Actor, Event, HEARING, Manner, Op, Plan, Shape, Which};
use super::said::Said;
use super::town::{self, Town};

const MANNER: Manner =
    Manner { may_wait: true, max_waiters: u32::MAX, by_ticket: false, seen: None, odd: None };
const MUTEX: Shape = Shape { capacity: 1, fixed: true, once: false };
const ALL: u32 = 1 << 20;

fn actor(process: usize, weight: u32) -> Actor {
    Actor { process, weight, ttl: 30_005, keep: 0, rerun: false, content: 0 }
}

fn claims(who: usize) -> Op {
    Op::Claim(who, MANNER)
}

fn leaves(who: usize) -> Op {
    Op::Leave { who, in_doubt: false, only: None, settle: None }
}

/// A name with claims that a test moves by itself.
struct Stage {
    town: Arc<Town>,
    game: Game,
}

impl Stage {
    async fn new(shape: Shape, actors: Vec<Actor>) -> Stage {
        let town = Arc::new(Town::new(Flavour::Debian).await);
        let plan = Plan { seed: 0, shape, actors, rounds: Vec::new() };
        let game = Game::new(&town, plan, "directed");
        let mut stage = Stage { town, game };
        stage.game.look_around();
        stage
    }

    /// Takes a step, and looks at the name afterwards.
    async fn step(&mut self, op: Op) -> Said {
        let said = self.game.step(op).await;
        self.expect(said)
    }

    /// The same without a look: a crowd takes long to show.
    async fn take(&mut self, op: Op) -> Said {
        let said = self.game.take(op).await;
        self.expect(said)
    }

    async fn pass(&mut self, millis: i64) {
        self.town.happen(Event::Pass(millis)).await;
        self.game.look_around();
        self.look().await;
    }

    async fn look(&mut self) {
        let same = self.game.compare_views().await;
        self.expect(same);
        self.town.settle().await;
        let same = self.game.has_heard_all();
        self.expect(same);
    }

    async fn end(&mut self) {
        let same = self.game.end().await;
        self.expect(same);
    }

    fn expect<T>(&self, same: Result<T, String>) -> T {
        same.unwrap_or_else(|why| panic!("{}\nWRONG: {why}", self.game.last_of_story(20)))
    }

    /// What Redis keeps under the name's own key.
    fn form(&self) -> String {
        let [own, _] = town::keys(&self.game.name);
        self.town.command(&["TYPE", &own]).text().unwrap().to_owned()
    }

    /// The last number that was given.
    fn counter(&self) -> u64 {
        let counter = self.town.command(&["HGET", &town::part(&self.game.name), "n"]);
        counter.int().unwrap() as u64
    }
}

#[tokio::test]
async fn six_hundred_that_cannot_be_reached_are_passed_over() {
    let mut actors = vec![actor(0, 1)];
    actors.extend((0..600).map(|_| actor(HEARING, 1)));
    actors.push(actor(0, 1));
    let mut stage = Stage::new(MUTEX, actors).await;
    for who in 0..602 {
        stage.take(claims(who)).await;
    }
    stage.step(leaves(0)).await;
    stage.look().await;
    // All of them come back to their places by one contact.
    stage.step(Op::Keep(300, Manner { by_ticket: true, ..MANNER })).await;
    stage.step(leaves(601)).await;
    stage.step(Op::Claim(1, Manner { by_ticket: true, ..MANNER })).await;
    stage.look().await;
}

#[tokio::test]
async fn a_thousand_readers_follow_a_writer() {
    let mut actors = vec![actor(0, ALL)];
    actors.extend((0..1000).map(|at| actor(at % 2, 1)));
    actors.push(actor(1, ALL));
    let mut stage = Stage::new(Shape { capacity: ALL, ..MUTEX }, actors).await;
    for who in 0..1002 {
        stage.take(claims(who)).await;
    }
    stage.step(leaves(0)).await;
    stage.look().await;
    // Nobody takes its turn: all end at once, more than one step can see to; the
    // writer behind them is of a process that let holds run out, and comes when it asks.
    stage.pass(2000).await;
    stage.step(leaves(0)).await;
    stage.step(claims(1001)).await;
    stage.look().await;
}

#[tokio::test]
async fn six_hundred_that_are_too_heavy_are_told() {
    let mut actors = vec![actor(0, 1)];
    actors.extend((0..600).map(|at| actor(at % 2, 5)));
    actors.push(actor(1, 2));
    let mut stage = Stage::new(Shape { capacity: 5, fixed: false, once: false }, actors).await;
    for who in 0..602 {
        stage.take(claims(who)).await;
    }
    assert_eq!(stage.step(Op::Resize(3)).await, Said::Done);
    stage.look().await;
    stage.step(leaves(0)).await;
    stage.step(leaves(601)).await;
}

#[tokio::test]
async fn every_digit_of_a_number_counts() {
    for first in [(1_u64 << 51) - 1001, (1 << 52) + 1, (1 << 53) - 10_001] {
        let mut stage = Stage::new(MUTEX, vec![actor(0, 1), actor(1, 1), actor(0, 1)]).await;
        let part = town::part(&stage.game.name);
        // The first step finds a server that it does not know, and counts from the clock.
        stage.step(leaves(2)).await;
        // Odd and even ones, alone and with a line.
        for number in (first..first + 404).step_by(101) {
            stage.town.command(&["HSET", &part, "n", &number.to_string()]);
            let Said::Granted { fence, .. } = stage.step(claims(0)).await else { panic!("held") };
            assert_eq!((fence, stage.counter()), (number + 2, number + 2));
            let before = stage.counter();
            let Said::Waiting { ticket, floor, .. } = stage.step(claims(1)).await else {
                panic!("waits")
            };
            assert!((before + 1..=stage.counter()).contains(&ticket), "{ticket} after {before}");
            assert_eq!(floor, stage.counter());
            stage.step(claims(2)).await;
            stage.step(leaves(0)).await;
            assert_eq!(stage.game.last_fence(1), stage.counter());
            stage.step(Op::Renew(1, Which::Own, 30_005)).await;
            stage.step(leaves(1)).await;
            assert_eq!(stage.game.last_fence(2), stage.counter());
            stage.step(Op::Break(Which::Of(2))).await;
            // What was broken is remembered; the next round is to find nothing.
            stage.pass(60_000).await;
            stage.game.forget_numbers();
        }
    }
}

#[tokio::test]
async fn a_partition_that_is_lost_makes_no_fence_fall() {
    let shared = Shape { capacity: 2, fixed: false, once: false };
    for (shape, holders) in [(MUTEX, 1), (shared, 2)] {
        let actors = (0..6).map(|at| actor(at % 2, 1)).collect();
        let mut stage = Stage::new(shape, actors).await;
        let part = town::part(&stage.game.name);
        // Ahead of the clock, as after a step back.
        stage.step(leaves(5)).await;
        let ahead = (stage.town.now() + 3_600_000) * 1000;
        stage.town.command(&["HSET", &part, "n", &ahead.to_string()]);
        for who in 0..5 {
            stage.take(claims(who)).await;
        }
        for (leaver, next) in (0..).zip(holders..5) {
            stage.town.command(&["DEL", &part]);
            let before = stage.game.last_fence(next - 1);
            stage.step(leaves(leaver)).await;
            let fence = stage.game.last_fence(next);
            assert!(fence > before && before > ahead, "{fence} after {before}, {shape:?}");
        }
    }
}

#[tokio::test]
async fn numbers_are_refused_before_they_are_rounded() {
    let mut stage = Stage::new(MUTEX, vec![actor(0, 1), actor(1, 1), actor(0, 1)]).await;
    stage.step(leaves(2)).await;
    let part = town::part(&stage.game.name);
    stage.town.command(&["HSET", &part, "n", &((1_u64 << 53) - 5).to_string()]);
    let Said::Granted { fence, .. } = stage.step(claims(0)).await else { panic!("held") };
    assert_eq!(fence, (1 << 53) - 3);
    // Two more are left, for a ticket and a fence; the first of them goes into the line.
    let engine = stage.town.processes[1].engine().clone();
    let mut claim = Claim::new(stage.game.name.clone(), ClaimId::from_bytes([7; 16]));
    assert!(matches!(engine.claim(&claim).await, Ok(Verdict::Waiting(_))));
    claim.id = ClaimId::from_bytes([8; 16]);
    for _ in 0..3 {
        let refused = engine.claim(&claim).await.unwrap_err();
        assert!(refused.to_string().contains("no numbers left"), "{refused}");
    }
    // Who holds is let go, and nobody is granted a number that there is not.
    let ended = Leave::new(stage.game.name.clone(), stage.game.id_of(0));
    let ours = stage.town.processes[0].engine().clone();
    assert_eq!(ours.leave(&ended).await.unwrap(), Left::Released);
    let page = ours.inspect(&Scope::Name(stage.game.name.clone())).await.unwrap();
    assert!(page.views.iter().all(|view| view.holders.is_empty()), "{page:?}");
}

#[tokio::test]
async fn one_holder_alone_has_a_form_of_its_own() {
    let mut stage = Stage::new(MUTEX, vec![actor(0, 1), actor(1, 1)]).await;
    stage.step(claims(0)).await;
    assert_eq!(stage.form(), "string");
    stage.step(Op::Renew(0, Which::Own, 90_005)).await;
    stage.step(Op::Renew(0, Which::Never, 90_005)).await;
    stage.step(claims(0)).await;
    stage.step(Op::Claim(1, Manner { may_wait: false, ..MANNER })).await;
    stage.step(Op::Claim(1, Manner { odd: Some((1, 2)), ..MANNER })).await;
    assert_eq!(stage.form(), "string");
    stage.pass(1000).await;
    stage.step(claims(1)).await;
    assert_eq!(stage.form(), "hash");
    stage.step(leaves(1)).await;
    assert_eq!(stage.form(), "hash");
    stage.step(Op::Renew(0, Which::Own, 30_005)).await;
    stage.step(leaves(0)).await;
    assert_eq!(stage.form(), "none");
    stage.step(claims(1)).await;
    assert_eq!(stage.form(), "string");
    // Whatever names the hold without ending it makes a hash of it, and nothing else of it changes.
    stage.pass(500).await;
    stage.step(Op::Break(Which::Never)).await;
    stage.step(Op::Renew(1, Which::Own, 505)).await;
    stage.step(Op::Leave { who: 0, in_doubt: true, only: None, settle: None }).await;
    assert_eq!(stage.form(), "hash");
    stage.step(Op::Break(Which::Of(1))).await;
    stage.step(Op::Renew(1, Which::Own, 505)).await;
    // The one that left in doubt is remembered.
    assert_eq!(stage.step(claims(0)).await, Said::Left);
    // At its last millisecond a key is still there.
    stage.pass(60_010).await;
    assert_eq!(stage.form(), "none");
    stage.step(claims(0)).await;
    assert_eq!(stage.form(), "string");
    stage.step(Op::Leave { who: 0, in_doubt: true, only: Some(Which::Own), settle: None }).await;
    assert_eq!(stage.form(), "hash");
    stage.pass(60_010).await;
    stage.end().await;
    assert_eq!(stage.form(), "none");
}

#[tokio::test]
async fn a_capacity_that_was_set_is_remembered_for_a_day() {
    let shape = Shape { capacity: 2, fixed: false, once: false };
    let mut stage = Stage::new(shape, vec![actor(0, 1), actor(1, 1), actor(1, 2)]).await;
    let day = 24 * 60 * 60 * 1000;
    stage.step(Op::Resize(1)).await;
    stage.pass(day - 10).await;
    stage.step(claims(0)).await;
    assert_eq!(stage.step(claims(2)).await, Said::Conflict(Some(1)));
    // Used, it wins for longer.
    stage.pass(20).await;
    stage.step(claims(1)).await;
    stage.step(leaves(1)).await;
    stage.step(leaves(0)).await;
    stage.step(claims(2)).await;
    stage.step(leaves(2)).await;
    stage.step(Op::Resize(1)).await;
    stage.pass(day).await;
    stage.step(claims(2)).await;
    stage.end().await;
    stage.step(Op::Resize(1)).await;
    stage.pass(day + 10).await;
    assert_eq!(stage.form(), "none");
    stage.step(claims(2)).await;
    stage.end().await;
}
