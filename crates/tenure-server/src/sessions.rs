//! Processes that use this server as their engine (`http://`): each has one stream, which brings its turns.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use tenure::engine::{ClaimId, Fence, Moment, Name, SystemWorld, Turn, World};
use tenure::engines::http::protocol::{self, Event};

use crate::events::Events;
use crate::sse::Sender;

type HashMap<K, V> = hashbrown::HashMap<K, V, RandomState>;

/// How long a session without a stream or requests is remembered.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// A process that has asked within this time counts as alive, even without a stream.
const ASKED_LATELY: Duration = Duration::from_secs(5);

/// All sessions of this server, by the number that each process has given itself.
pub(crate) struct Sessions {
    all: Mutex<HashMap<u128, Arc<Session>>>,
    events: Arc<Events>,
}

/// One process.
pub(crate) struct Session {
    inner: Mutex<Inner>,
    events: Arc<Events>,
}

struct Inner {
    stream: Option<(u64, Sender)>,
    streams: u64,
    /// The last batch of steps that arrived, and when: turns are counted from it.
    last: (u64, Moment),
    /// When it was last heard from.
    seen: Moment,
    /// The claims whose turns it wants to hear of.
    claims: HashMap<(Name, ClaimId), Expected>,
}

/// A claim whose turn a process wants to hear of.
struct Expected {
    /// If the process has not asked again by then, it is no longer told.
    until: Moment,
    owner: String,
    /// The last grant that was recorded.
    granted: Option<Fence>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}

impl Sessions {
    pub(crate) fn new(events: Arc<Events>) -> Sessions {
        Sessions { all: Mutex::default(), events }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u128, Arc<Session>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session with this number, which was heard from now.
    pub(crate) fn get(&self, number: u128, now: Moment) -> Arc<Session> {
        let mut all = self.all();
        let new = || {
            let (last, claims) = ((0, Moment::ORIGIN), HashMap::default());
            let inner = Inner { stream: None, streams: 0, last, seen: now, claims };
            Arc::new(Session { inner: Mutex::new(inner), events: self.events.clone() })
        };
        let session = all.entry(number).or_insert_with(new).clone();
        // Set here, so that `sweep` cannot remove the session in between.
        session.inner().seen = now;
        session
    }

    /// Forgets processes that are gone, and claims that nobody asks for. Returns those claims.
    pub(crate) fn sweep(&self, now: Moment) -> Vec<(Arc<Session>, Name, ClaimId)> {
        let mut gone = Vec::new();
        self.all().retain(|_, session| {
            let mut inner = session.inner();
            let stays = inner.stream.is_some() || now < inner.seen + FORGET_AFTER;
            let over = inner.claims.extract_if(|_, expected| !stays || expected.until <= now);
            gone.extend(over.map(|((name, id), _)| (session.clone(), name, id)));
            stays
        });
        gone
    }
}

impl Session {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A batch of steps has arrived.
    pub(crate) fn arrived(&self, batch: u64, at: Moment) {
        let mut inner = self.inner();
        if batch > inner.last.0 {
            inner.last = (batch, at);
        }
    }

    /// The process wants to hear of this claim until `until`. Returns whether that is new.
    pub(crate) fn expects(&self, name: &Name, id: ClaimId, until: Moment, owner: &str) -> bool {
        let mut inner = self.inner();
        if let Some(known) = inner.claims.get_mut(&(name.clone(), id)) {
            known.until = known.until.max(until);
            return false;
        }
        let expected = Expected { until, owner: owner.to_owned(), granted: None };
        inner.claims.insert((name.clone(), id), expected);
        true
    }

    /// The owner of the claim, as others see it.
    pub(crate) fn owner(&self, name: &Name, id: ClaimId) -> Option<String> {
        self.inner().claims.get(&(name.clone(), id)).map(|expected| expected.owner.clone())
    }

    /// The process no longer wants to hear of this claim. Returns the claim's owner, if it did before.
    pub(crate) fn forgets(&self, name: &Name, id: ClaimId) -> Option<String> {
        self.inner().claims.remove(&(name.clone(), id)).map(|expected| expected.owner)
    }

    /// Records a grant, which an answer and a push may both report. Returns whether it is new.
    pub(crate) fn granted(&self, name: &Name, id: ClaimId, fence: Fence) -> bool {
        let mut inner = self.inner();
        let Some(expected) = inner.claims.get_mut(&(name.clone(), id)) else { return false };
        let is_news = expected.granted.replace(fence) != Some(fence);
        let owner = is_news.then(|| expected.owner.clone());
        drop(inner);
        if let Some(owner) = owner {
            self.events.add("granted", name, &owner, Some(fence), None);
        }
        is_news
    }

    /// Sets its stream, which ends the one before. Returns the number of the stream.
    pub(crate) fn connect(&self, stream: Sender) -> u64 {
        let mut inner = self.inner();
        inner.streams += 1;
        let number = inner.streams;
        inner.stream = Some((number, stream));
        number
    }

    /// The stream with this number has ended.
    pub(crate) fn disconnect(&self, number: u64, now: Moment) {
        let mut inner = self.inner();
        if inner.stream.as_ref().is_some_and(|(current, _)| *current == number) {
            inner.stream = None;
            inner.seen = now;
        }
    }

    /// Sends an event. One that does not fit ends the stream: no turn may be dropped.
    fn say(&self, event: &Event) -> bool {
        let mut inner = self.inner();
        let text = protocol::encode_event(event);
        match &inner.stream {
            Some((_, stream)) if stream.send("turn", None, &text) => true,
            _ => {
                inner.stream = None;
                false
            }
        }
    }

    /// Sends a turn. Returns whether the process can be expected to take it. Even without a stream, it may be told of
    /// the grant by an answer that is on its way: giving the turn back could end a hold that it has begun to use.
    pub(crate) fn deliver(&self, name: &Name, id: &ClaimId, turn: &Turn) -> bool {
        let (batch, arrived) = self.inner().last;
        let heard = self.say(&Event::turn(batch, arrived, name, id, turn));
        let is_there = heard || SystemWorld.now() < arrived + ASKED_LATELY;
        if let Turn::Granted(grant) = turn
            && is_there
            && self.granted(name, *id, grant.fence)
        {
            crate::meters::acquired(crate::wire::Kind::of(name), "granted");
        }
        is_there
    }

    /// Whether the stream with this number is still the one that events go to.
    pub(crate) fn is_current(&self, number: u64) -> bool {
        self.inner().stream.as_ref().is_some_and(|(current, _)| *current == number)
    }

    pub(crate) fn look_again(&self) {
        self.say(&Event::LookAgain);
    }

    pub(crate) fn check_holds(&self) {
        self.say(&Event::CheckHolds);
    }
}

#[cfg(test)]
mod tests {
    use tenure::engine::Space;

    use super::*;

    fn name(text: &str) -> Name {
        Name::new(Space::Lock, text).unwrap()
    }

    #[test]
    fn a_process_that_is_gone_leaves_nothing_whether_it_had_a_stream_or_not() {
        let (sessions, now) = (Sessions::new(Arc::default()), SystemWorld.now());
        let id = ClaimId::from_bytes([1; 16]);
        let never = sessions.get(1, now);
        let had = sessions.get(2, now);
        let (sender, _response) = crate::sse::stream(1);
        let stream = had.connect(sender);
        for session in [&never, &had] {
            assert!(session.expects(&name("x"), id, Moment::FAR, "me"));
        }
        assert!(sessions.sweep(now + FORGET_AFTER / 2).is_empty());
        let gone = sessions.sweep(now + FORGET_AFTER);
        assert!(gone.len() == 1 && Arc::ptr_eq(&gone[0].0, &never), "one has a stream");
        had.disconnect(stream, now + FORGET_AFTER);
        assert!(sessions.sweep(now + FORGET_AFTER * 3 / 2).is_empty());
        assert_eq!(sessions.sweep(now + FORGET_AFTER * 2).len(), 1);
        assert!(sessions.all().is_empty());
    }

    #[test]
    fn a_claim_that_nobody_asks_for_any_more_is_forgotten() {
        let (sessions, now) = (Sessions::new(Arc::default()), SystemWorld.now());
        let (one, two) = (ClaimId::from_bytes([1; 16]), ClaimId::from_bytes([2; 16]));
        let soon = now + Duration::from_secs(10);
        sessions.get(1, now).expects(&name("x"), one, soon, "me");
        sessions.get(1, now).expects(&name("x"), two, soon, "me");
        // One is asked for again.
        assert!(!sessions.get(1, now).expects(
            &name("x"),
            two,
            soon + Duration::from_secs(10),
            "me"
        ));
        let gone = sessions.sweep(soon);
        assert_eq!(gone.iter().map(|(_, _, id)| *id).collect::<Vec<_>>(), [one]);
        assert!(sessions.get(1, now).forgets(&name("x"), two).is_some());
    }

    #[test]
    fn a_grant_is_noted_once() {
        let (events, now) = (Arc::new(Events::default()), SystemWorld.now());
        let session = Sessions::new(events.clone()).get(1, now);
        let id = ClaimId::from_bytes([1; 16]);
        session.expects(&name("x"), id, Moment::FAR, "me");
        assert!(session.granted(&name("x"), id, Fence::new(7)));
        assert!(!session.granted(&name("x"), id, Fence::new(7)));
        assert_eq!(events.of(&name("x"), 10).len(), 1);
    }
}
