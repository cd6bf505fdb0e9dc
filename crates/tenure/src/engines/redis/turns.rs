//! Delivers pushed turns to the claims they are for.

use std::sync::{Arc, PoisonError, RwLock, Weak};

use super::connection::{Connection, Outgoing, ReplyTo};
use super::places::{PlacePush, Places};
use super::protocol::push::{HowEnded, Push, read_push};
use super::protocol::scripts::ScriptForm;
use super::shared::Shared;
use crate::engine::Turns;
use crate::model::claim::{ClaimId, Grant, Leave, Turn, look_again};
use crate::model::moment::Moment;
use crate::model::name::Name;
use crate::observe;

/// The claims of this process that wait, and the clients that their turns are delivered to.
#[derive(Default)]
pub(super) struct WaitingClaims {
    pub(super) places: Places,
    clients: RwLock<Vec<Weak<dyn Turns>>>,
}

impl WaitingClaims {
    pub(super) fn attach(&self, turns: Weak<dyn Turns>) {
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|client| client.strong_count() > 0);
        clients.push(turns);
    }

    pub(super) fn is_any(&self) -> bool {
        !self.places.is_empty()
    }

    pub(super) fn look_again_in(&self, shard: u16) {
        for client in self.clients() {
            client.look_again(shard.into());
        }
    }

    pub(super) fn check_holds_in(&self, shards: &[u16]) {
        let shards: Vec<u32> = shards.iter().copied().map(Into::into).collect();
        for client in self.clients() {
            client.check_holds(&shards);
        }
    }

    /// This user may not subscribe, so no push arrives: every waiting claim has to ask.
    pub(super) fn all_ask_again(&self) {
        for (name, id) in self.places.all() {
            self.deliver(&name, &id, Turn::LookAgain);
        }
    }

    fn deliver(&self, name: &Name, id: &ClaimId, turn: Turn) -> bool {
        let clients = self.clients();
        clients.iter().any(|client| client.deliver(name, id, turn.clone()))
    }

    fn clients(&self) -> Vec<Arc<dyn Turns>> {
        let clients = self.clients.read().unwrap_or_else(PoisonError::into_inner);
        clients.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Handles a push that came over `connection`. `base` is when the last request answered on that connection
/// was sent: the pushed event happened after that.
pub(super) fn pushed(connection: &Arc<Connection>, base: Moment, text: &[u8]) {
    let Shared { setup, waiting, .. } = &*connection.shared;
    let now = setup.now();
    match read_push(&setup.layout, text) {
        Some(Push::Ended { name, id, how }) => {
            waiting.places.forget(&name, &id);
            let turn = match how {
                HowEnded::Ended(ended) => Turn::Ended(ended),
                HowEnded::Settled(outcome) => Turn::Settled(outcome),
            };
            waiting.deliver(&name, &id, turn);
        }
        Some(Push::Granted { partition, ticket, fence, life, first_life, following }) => {
            if let Some((ticket, after)) = following {
                let push = Push::LookAt { partition, ticket, after };
                deliver_to_place(
                    connection,
                    PlacePush { at: (partition, ticket), heard: now, base, push },
                );
            }
            let following = None;
            let push = Push::Granted { partition, ticket, fence, life, first_life, following };
            deliver_to_place(
                connection,
                PlacePush { at: (partition, ticket), heard: now, base, push },
            );
        }
        Some(
            push @ (Push::AskAgain { partition, ticket } | Push::LookAt { partition, ticket, .. }),
        ) => deliver_to_place(
            connection,
            PlacePush { at: (partition, ticket), heard: now, base, push },
        ),
        Some(Push::AreYouThere) => {}
        None => observe::strange_push(&setup.profile.label),
    }
}

/// Delivers a push to its claim, now or as soon as the claim is known.
pub(super) fn deliver_to_place(connection: &Arc<Connection>, early: PlacePush) {
    let Shared { setup, waiting, numbers, .. } = &*connection.shared;
    let Some((spot, early)) = waiting.places.find(early) else { return };
    let PlacePush { heard, base, push, .. } = early;
    let turn = match push {
        Push::Granted { partition, fence, life, first_life, .. } => {
            numbers.saw(partition, fence);
            // Older than the last answer, which the core may not have handled yet.
            if fence <= spot.floor {
                return;
            }
            let mut grant = Grant::new(fence, base.max(spot.base), life, first_life);
            if setup.config.wait_replicas > 0 {
                // Nobody has counted the replicas that have this grant: renew before starting on it.
                grant.start_by = Moment::ORIGIN;
            }
            Turn::Granted(grant)
        }
        Push::LookAt { after, .. } => Turn::LookAt(look_again(heard + after, 0)),
        Push::AskAgain { .. } | Push::Ended { .. } | Push::AreYouThere => Turn::LookAgain,
    };
    let granted = if let Turn::Granted(grant) = &turn { Some(grant.fence) } else { None };
    let taken = waiting.deliver(&spot.name, &spot.id, turn);
    if let Some(fence) = granted.filter(|_| !taken) {
        let leave = Leave::new(spot.name, spot.id);
        let leave = Leave { only: Some(fence), unbegun: true, ..leave };
        let request = setup.layout.leave(&leave, true);
        let outgoing = Outgoing::new(ReplyTo::Ticked(leave.name));
        connection.send(request, Outgoing { form: ScriptForm::Text, ..outgoing });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::engine::Engine;
    use crate::engines::redis::Redis;
    use crate::engines::redis::config::{Address, RedisConfig, Topology};
    use crate::engines::redis::connection::{Pending, Purpose, Target};
    use crate::engines::redis::protocol::layout::partition;
    use crate::engines::redis::protocol::resp::Value;
    use crate::model::claim::Fence;
    use crate::model::name::Space;

    #[derive(Debug, Default)]
    struct Reply(Mutex<Vec<Turn>>);

    impl Turns for Reply {
        fn deliver(&self, _: &Name, _: &ClaimId, turn: Turn) -> bool {
            self.0.lock().unwrap().push(turn);
            true
        }

        fn look_again(&self, _: u32) {}
    }

    /// Sends `pushes` to a claim that is then answered *waiting* with ticket 7, after fence 5. Returns the
    /// turns that its owner receives.
    fn heard(pushes: &[&str], sent_before_push: bool) -> Vec<Turn> {
        let address = Address::Tcp { host: "127.0.0.1".into(), port: 1 };
        let redis =
            Redis::unconnected(RedisConfig::new(Topology::Single(address.clone()))).unwrap();
        let heard = Arc::new(Reply::default());
        let turns: Weak<dyn Turns> = Arc::downgrade(&heard) as _;
        redis.attach(turns);
        let shared = &redis.steps.shared;
        let connection = Connection::new(shared.clone(), Target::Fixed(address), Purpose::Commands);
        let name = Name::new(Space::Lock, "x").unwrap();
        let id = ClaimId::from_bytes([7; 16]);
        shared.waiting.places.expect(&name, id);
        let before = shared.setup.now();
        for push in pushes {
            let text = push.replace('P', &partition(&name).to_string());
            pushed(&connection, Moment::ORIGIN, text.as_bytes());
        }
        assert!(heard.0.lock().unwrap().is_empty(), "nobody knows yet whose it is");
        let sent = if sent_before_push { before } else { shared.setup.now() };
        let (reply, _answer) = tokio::sync::oneshot::channel();
        let waits =
            [Value::Bytes(b"W".as_slice().into()), Value::Int(7), Value::Int(0), Value::Int(5)];
        let pending = Pending { sent, reply: ReplyTo::Claim(reply, name, id) };
        connection.answered(pending, Value::List(waits.into()));
        heard.0.lock().unwrap().clone()
    }

    /// Where commands have a connection of their own, the turn can arrive before the place is known.
    #[test]
    fn a_turn_that_overtakes_the_answer_waiting_is_kept() {
        let turns = heard(&["G P 7 9 2000 1"], true);
        assert!(matches!(&turns[..], [Turn::Granted(grant)] if grant.fence == Fence::new(9)));
        assert!(matches!(&heard(&["A P 7"], true)[..], [Turn::LookAgain]));
        assert!(matches!(&heard(&["L P 7 1000"], true)[..], [Turn::LookAt(_)]));
        let behind = heard(&["G P 6 8 2000 1 7 2000"], true);
        assert!(matches!(&behind[..], [Turn::LookAt(_)]), "{behind:?}");
    }

    #[test]
    fn a_turn_of_another_or_an_older_one_is_not_believed() {
        assert!(heard(&["G P 8 9 2000 1"], true).is_empty(), "another's");
        assert!(heard(&["G P 7 5 2000 1"], true).is_empty(), "from before the answer");
        assert!(heard(&["G P 7 9 2000 1"], false).is_empty(), "from before the claim");
    }
}
