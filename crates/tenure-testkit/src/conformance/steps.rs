//! Cases about single steps, without the core.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tenure::engine::{
    Broken, Claim, ClaimId, Ended, Engine, FIRST_LIFE, Fence, Grant, Leave, Left, Name, Note,
    OnceTerms, Place, Renewal, Renewed, Scope, Settle, Space, Ticket, Turn, Turns, Verdict,
};

use super::{Kit, SECOND};

/// A client that only records the pushes for its own names.
#[derive(Debug)]
struct Inbox {
    name: Name,
    turns: Mutex<Vec<(ClaimId, Turn)>>,
}

impl Turns for Inbox {
    fn deliver(&self, name: &Name, id: &ClaimId, turn: Turn) -> bool {
        let mine = *name == self.name;
        if mine {
            self.turns.lock().expect("no panic").push((*id, turn));
        }
        mine
    }

    fn look_again(&self, _: u32) {}
}

/// An engine, a name, and the recorded pushes.
struct Raw {
    kit: Kit,
    engine: Arc<dyn Engine>,
    name: Name,
    inbox: Arc<Inbox>,
}

impl Raw {
    fn new(kit: Kit) -> Raw {
        let engine = (kit.connect)();
        let name = Name::new(Space::Lock, &kit.name("x")).expect("a good name");
        let inbox = Arc::new(Inbox { name: name.clone(), turns: Mutex::default() });
        let weak: Weak<dyn Turns> = Arc::downgrade(&inbox) as _;
        engine.attach(weak);
        Raw { kit, engine, name, inbox }
    }

    fn new_claim(&self, ttl: Duration) -> Claim {
        let id = self.kit.runtime.world().mint().expect("an id");
        let mut claim = Claim::new(self.name.clone(), id);
        claim.ttl = ttl;
        claim
    }

    async fn claim(&self, claim: &Claim) -> Verdict {
        self.engine.claim(claim).await.expect("an answer")
    }

    async fn granted(&self, claim: &Claim) -> Grant {
        match self.claim(claim).await {
            Verdict::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    async fn waiting(&self, claim: &Claim) -> Place {
        match self.claim(claim).await {
            Verdict::Waiting(place) => place,
            other => panic!("does not wait: {other:?}"),
        }
    }

    async fn renew(&self, id: ClaimId, fence: Fence, ttl: Duration) -> Renewed {
        let renewal = Renewal::Hold { name: self.name.clone(), id, fence, ttl };
        let shard = self.engine.shard(&self.name);
        let mut answers = self.engine.renew(shard, &[renewal]).await.expect("answers");
        assert_eq!(answers.len(), 1, "one answer for each renewal");
        answers.remove(0)
    }

    async fn leave(&self, id: ClaimId, in_doubt: bool) -> Left {
        let leave = Leave { in_doubt, ..Leave::new(self.name.clone(), id) };
        self.engine.leave(&leave).await.expect("an answer")
    }

    async fn holders(&self) -> Vec<Fence> {
        let page = self.engine.inspect(&Scope::Name(self.name.clone())).await.expect("a page");
        page.views.iter().flat_map(|view| &view.holders).map(|holder| holder.fence).collect()
    }

    /// The turn that was pushed to a claim.
    async fn pushed(&self, id: ClaimId) -> Grant {
        let find = || {
            let inbox = self.inbox.turns.lock().expect("no panic");
            inbox.iter().find_map(|(to, turn)| match turn {
                Turn::Granted(grant) if *to == id => Some(*grant),
                _ => None,
            })
        };
        let came = async {
            loop {
                match find() {
                    Some(grant) => break grant,
                    None => self.kit.sleep(Duration::from_millis(1)).await,
                }
            }
        };
        self.kit.soon("a pushed turn", came).await
    }
}

pub(super) async fn a_claim_is_found_and_not_prolonged(kit: Kit) {
    let raw = Raw::new(kit);
    let claim = raw.new_claim(SECOND * 3);
    let first = raw.granted(&claim).await;
    raw.kit.sleep(SECOND).await;
    let again = raw.granted(&claim).await;
    assert_eq!(again.fence, first.fence, "the same claim was granted twice");
    let slack = Duration::from_millis(200);
    assert!(again.good_until <= first.good_until + slack, "finding a grant prolonged it");
    assert_eq!(raw.holders().await, [first.fence]);
    raw.leave(claim.id, false).await;
}

pub(super) async fn a_waiting_claim_keeps_its_ticket(kit: Kit) {
    let raw = Raw::new(kit);
    let [a, b, c] = [(); 3].map(|()| raw.new_claim(SECOND * 9));
    raw.granted(&a).await;
    let b_place = raw.waiting(&b).await;
    let c_place = raw.waiting(&c).await;
    assert!(b_place.ticket < c_place.ticket);
    let again = raw.waiting(&b).await;
    assert_eq!((again.ticket, again.ahead), (b_place.ticket, 0));
    assert!(again.floor >= b_place.floor);
    assert_eq!(raw.leave(b.id, false).await, Left::Quit);
    assert_eq!(raw.leave(c.id, false).await, Left::Quit);
    assert_eq!(raw.leave(a.id, false).await, Left::Released);
}

pub(super) async fn renewing_never_creates(kit: Kit) {
    let raw = Raw::new(kit);
    let claim = raw.new_claim(SECOND);
    let gone = raw.renew(claim.id, Fence::new(1), SECOND).await;
    assert!(matches!(gone, Renewed::Gone(_)), "{gone:?}");
    let grant = raw.granted(&claim).await;
    raw.kit.sleep(SECOND * 2).await;
    let gone = raw.renew(claim.id, grant.fence, SECOND).await;
    assert!(matches!(gone, Renewed::Gone(Ended::Expired | Ended::Forgotten)), "{gone:?}");
    assert_eq!(raw.holders().await, []);
}

pub(super) async fn renewing_never_shortens(kit: Kit) {
    let raw = Raw::new(kit);
    let claim = raw.new_claim(SECOND * 30);
    let grant = raw.granted(&claim).await;
    let renewed = raw.renew(claim.id, grant.fence, SECOND).await;
    let Renewed::Held(after) = renewed else { panic!("held: {renewed:?}") };
    assert_eq!(after.fence, grant.fence);
    assert!(after.good_until + SECOND * 5 > grant.good_until, "a renewal made it shorter");
    raw.kit.sleep(SECOND * 2).await;
    assert_eq!(raw.holders().await, [grant.fence]);
    raw.leave(claim.id, false).await;
}

pub(super) async fn renewing_for_no_time_only_asks(kit: Kit) {
    let raw = Raw::new(kit);
    let (a, b) = (raw.new_claim(SECOND * 20), raw.new_claim(SECOND * 30));
    let grant = raw.granted(&a).await;
    raw.kit.sleep(SECOND * 4).await;
    // Alone, and with another claim in line.
    for _ in 0..2 {
        let asked = raw.renew(a.id, grant.fence, Duration::ZERO).await;
        let Renewed::Held(found) = asked else { panic!("held: {asked:?}") };
        assert_eq!(found.fence, grant.fence);
        // The time counts from the send, so a slow trip makes it seem shorter.
        assert!(found.good_until < grant.good_until + SECOND * 3, "asking prolonged it");
        assert!(found.good_until + SECOND * 5 > grant.good_until, "asking made it shorter");
        raw.waiting(&b).await;
    }
    assert_eq!(raw.leave(a.id, false).await, Left::Released);
    let turn = raw.pushed(b.id).await;
    let asked = raw.renew(b.id, turn.fence, Duration::ZERO).await;
    // On a slow machine its first life may be over.
    let is_full = matches!(&asked, Renewed::Held(found) if !found.first_life);
    assert!(!is_full, "asking made a turn a full hold: {asked:?}");
    raw.leave(b.id, false).await;
    let gone = raw.renew(b.id, turn.fence, Duration::ZERO).await;
    assert!(matches!(gone, Renewed::Gone(_)), "{gone:?}");
}

pub(super) async fn renewing_needs_the_fence(kit: Kit) {
    let raw = Raw::new(kit);
    let claim = raw.new_claim(SECOND * 30);
    let grant = raw.granted(&claim).await;
    let other = Fence::new(grant.fence.get() - 1);
    let gone = raw.renew(claim.id, other, SECOND * 30).await;
    assert!(matches!(gone, Renewed::Gone(_)), "an old grant was renewed: {gone:?}");
    raw.leave(claim.id, false).await;
}

pub(super) async fn leaving_twice_changes_nothing(kit: Kit) {
    let raw = Raw::new(kit);
    let (a, b) = (raw.new_claim(SECOND * 30), raw.new_claim(SECOND * 30));
    raw.granted(&a).await;
    assert_eq!(raw.leave(a.id, false).await, Left::Released);
    let held = raw.granted(&b).await;
    let again = raw.leave(a.id, false).await;
    assert!(matches!(again, Left::Gone(_)), "{again:?}");
    let stranger = raw.new_claim(SECOND).id;
    let nobody = raw.leave(stranger, false).await;
    assert!(matches!(nobody, Left::Gone(_)), "{nobody:?}");
    assert_eq!(raw.holders().await, [held.fence], "a stranger's leave freed the hold");
    raw.leave(b.id, false).await;
}

pub(super) async fn a_turn_is_given_back_only_while_it_is_held(kit: Kit) {
    let raw = Raw::new(kit);
    let claim = raw.new_claim(SECOND * 30);
    let grant = raw.granted(&claim).await;
    let give_back = async |fence| {
        let leave = Leave { only: Some(fence), ..Leave::new(raw.name.clone(), claim.id) };
        raw.engine.leave(&leave).await.expect("an answer")
    };
    let old = give_back(Fence::new(grant.fence.get() - 1)).await;
    assert!(matches!(old, Left::Gone(_)), "{old:?}");
    assert_eq!(raw.holders().await, [grant.fence], "an old turn ended a newer hold");
    assert_eq!(give_back(grant.fence).await, Left::Released);
    assert_eq!(raw.holders().await, []);
}

pub(super) async fn a_claim_that_left_in_doubt_stays_left(kit: Kit) {
    let raw = Raw::new(kit);
    let claim = raw.new_claim(SECOND * 30);
    raw.granted(&claim).await;
    raw.leave(claim.id, true).await;
    let late = raw.claim(&claim).await;
    assert!(matches!(late, Verdict::Left), "a late duplicate was answered {late:?}");
    assert_eq!(raw.holders().await, []);
}

pub(super) async fn a_pushed_turn_has_a_first_life(kit: Kit) {
    let raw = Raw::new(kit);
    let (a, b, c) = (raw.new_claim(SECOND * 30), raw.new_claim(SECOND * 30), raw.new_claim(SECOND));
    raw.granted(&a).await;
    raw.waiting(&b).await;
    raw.leave(a.id, false).await;
    let turn = raw.pushed(b.id).await;
    assert!(turn.first_life && turn.sent.until(turn.good_until) <= FIRST_LIFE);
    // Nobody takes the turn: it is a hold that ends by itself.
    raw.kit.sleep(FIRST_LIFE + SECOND / 2).await;
    let next = raw.granted(&c).await;
    assert!(next.fence > turn.fence);
    // The claim returns with its ticket, and its renewal makes the turn a full hold.
    let place = raw.waiting(&b).await;
    raw.leave(c.id, false).await;
    raw.inbox
        .turns
        .lock()
        .expect("no panic")
        .retain(|(_, turn)| !matches!(turn, Turn::Granted(grant) if grant.fence < next.fence));
    let turn = raw.pushed(b.id).await;
    assert!(turn.fence > place.floor);
    let renewed = raw.renew(b.id, turn.fence, b.ttl).await;
    let Renewed::Held(full) = renewed else { panic!("held: {renewed:?}") };
    assert!(!full.first_life && full.sent.until(full.good_until) > SECOND * 25);
    raw.leave(b.id, false).await;
}

pub(super) async fn a_ticket_brings_back_the_place(kit: Kit) {
    let raw = Raw::new(kit);
    let (a, b) = (raw.new_claim(SECOND * 30), raw.new_claim(SECOND * 30));
    let mut c = raw.new_claim(SECOND * 30);
    raw.granted(&a).await;
    let b_place = raw.waiting(&b).await;
    // The engine forgot this claim; its ticket shows that it came first.
    c.ticket = Some(Ticket::new(b_place.ticket.get() - 1));
    let c_place = raw.waiting(&c).await;
    assert_eq!((c_place.ticket, c_place.ahead), (c.ticket.expect("set above"), 0));
    raw.leave(a.id, false).await;
    raw.pushed(c.id).await;
    raw.leave(c.id, false).await;
    raw.pushed(b.id).await;
    raw.leave(b.id, false).await;
}

pub(super) async fn fences_go_on_above_what_was_seen(kit: Kit) {
    let raw = Raw::new(kit);
    let first = raw.new_claim(SECOND * 30);
    let before = raw.granted(&first).await.fence;
    raw.leave(first.id, false).await;
    let mut second = raw.new_claim(SECOND * 30);
    second.seen = Fence::new(before.get() + 1000);
    assert!(raw.granted(&second).await.fence > second.seen);
    raw.leave(second.id, false).await;
}

pub(super) async fn a_fence_that_nobody_can_have_seen_is_refused(kit: Kit) {
    let raw = Raw::new(kit);
    let mut claim = raw.new_claim(SECOND * 30);
    for seen in [(1 << 53) - 1, 1 << 53, u64::MAX] {
        claim.seen = Fence::new(seen);
        let refused = raw.engine.claim(&claim).await;
        assert!(refused.is_err(), "with {seen}: {refused:?}");
    }
    // Nothing was raised by it.
    claim.seen = Fence::default();
    let fence = raw.granted(&claim).await.fence;
    assert!(fence.get() < 1 << 52, "{fence}");
    raw.leave(claim.id, false).await;
}

pub(super) async fn a_once_has_not_begun_before_its_turn_is_taken(kit: Kit) {
    let raw = Raw::new(kit);
    let once = OnceTerms { keep: SECOND * 600, rerun: false, content: 0 };
    let claim = || {
        let mut claim = raw.new_claim(SECOND * 30);
        claim.once = Some(once);
        claim
    };
    let (a, b, c, d) = (claim(), claim(), claim(), claim());
    let a_fence = raw.granted(&a).await.fence;
    raw.waiting(&b).await;
    let undo = Settle { fence: a_fence, outcome: None };
    let undone = Leave { settle: Some(undo), ..Leave::new(raw.name.clone(), a.id) };
    raw.engine.leave(&undone).await.expect("an answer");
    let turn = raw.pushed(b.id).await;
    // Nobody takes the turn, so nothing has begun.
    raw.kit.sleep(FIRST_LIFE + SECOND / 2).await;
    let next = raw.granted(&c).await;
    assert!(next.fence > turn.fence);
    raw.leave(c.id, false).await;
    // This turn was taken, and the once was never settled.
    let verdict = raw.engine.claim(&d).await.expect("an answer");
    assert!(matches!(verdict, Verdict::Unsettled), "{verdict:?}");
}

pub(super) async fn a_broken_hold_says_so_when_renewed(kit: Kit) {
    let raw = Raw::new(kit);
    let claim = raw.new_claim(SECOND * 30);
    let grant = raw.granted(&claim).await;
    let note = Note { by: "ops".into(), reason: "stuck".into() };
    let done = raw.engine.break_hold(&raw.name, grant.fence, &note).await.expect("an answer");
    assert_eq!(done, Broken::Done);
    let gone = raw.renew(claim.id, grant.fence, SECOND).await;
    assert!(matches!(&gone, Renewed::Gone(Ended::Broken(why)) if *why == note), "{gone:?}");
    assert_eq!(raw.leave(claim.id, false).await, Left::Gone(Ended::Broken(note)));
}
