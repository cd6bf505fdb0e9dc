//! Nonces of one account from several processes: in this file as several clients of one engine, with a
//! chain that does what the test says.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use alloy_primitives::{Address, B256, keccak256};
use tenure::Tenure;
use tenure::engines::memory::Memory;
use tenure_relay::nonces::{Chain, ChainError, NonceError, Nonces, Reserved, Terms};
use tokio::sync::watch;

const WALLET: Address = Address::repeat_byte(0x11);

/// What all nodes agree on in the end.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<HashMap<u64, B256>>>);

impl Ledger {
    fn send(&self, nonce: u64, hash: B256) {
        let before = self.0.lock().unwrap().insert(nonce, hash);
        assert!(before.is_none_or(|before| before == hash), "{nonce} was sent twice");
    }

    fn count(&self) -> u64 {
        let sent = self.0.lock().unwrap();
        (0..).find(|nonce| !sent.contains_key(nonce)).unwrap()
    }
}

/// A node: it may be behind, and it may not answer until it is told to.
#[derive(Clone)]
struct Node {
    ledger: Ledger,
    behind: Arc<Mutex<Option<u64>>>,
    open: watch::Sender<bool>,
}

impl Node {
    fn new(ledger: &Ledger) -> Node {
        Node { ledger: ledger.clone(), behind: Arc::default(), open: watch::channel(true).0 }
    }

    /// It counts so far and no further.
    fn be_behind(&self, count: impl Into<Option<u64>>) {
        *self.behind.lock().unwrap() = count.into();
    }
}

impl Chain for Node {
    async fn count(&self, account: Address) -> Result<u64, ChainError> {
        assert_eq!(account, WALLET);
        // Before it waits: its later answer is from the time of the request.
        let count = self.behind.lock().unwrap().unwrap_or_else(|| self.ledger.count());
        self.open.subscribe().wait_for(|open| *open).await?;
        Ok(count)
    }

    async fn knows(&self, hash: B256) -> Result<bool, ChainError> {
        Ok(self.ledger.0.lock().unwrap().values().any(|known| *known == hash))
    }
}

/// Processes that share an engine and a chain.
struct Place {
    engine: Arc<Memory>,
    ledger: Ledger,
    terms: Terms,
    clients: Mutex<Vec<Tenure>>,
}

impl Place {
    fn new() -> Place {
        let mut terms = Terms::default();
        (terms.unknown_for, terms.reserved_for) = (secs(30), secs(300));
        let engine = Arc::new(Memory::new());
        Place { engine, ledger: Ledger::default(), terms, clients: Mutex::default() }
    }

    fn tenure(&self) -> Tenure {
        Tenure::with_engine(self.engine.clone())
    }

    fn process(&self) -> Nonces<Node> {
        let (tenure, node) = (self.tenure(), Node::new(&self.ledger));
        self.clients.lock().unwrap().push(tenure.clone());
        Nonces::with_terms(&tenure, 1, WALLET, node, self.terms)
    }
}

impl Place {
    /// The process is gone, as by a kill: nothing of it is renewed or left.
    async fn ends(&self, number: usize) {
        let tenure = self.clients.lock().unwrap()[number].clone();
        tenure.close().await;
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn hash(of: u64) -> B256 {
    keccak256(of.to_be_bytes())
}

async fn send(place: &Place, mut reserved: Reserved<Node>) {
    let nonce = reserved.nonce();
    reserved.sending(hash(nonce)).await.unwrap();
    place.ledger.send(nonce, hash(nonce));
    reserved.commit(hash(nonce)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_nonce_is_given_once_and_none_is_left_out() {
    let place = Place::new();
    let processes: Vec<_> = (0..4).map(|_| place.process()).collect();
    let asks = (0..100).map(|ask| {
        let nonces = processes[ask % 4].clone();
        tokio::spawn(async move { nonces.reserve().await.unwrap() })
    });
    let mut all = Vec::new();
    for ask in asks.collect::<Vec<_>>() {
        all.push(ask.await.unwrap());
    }
    let given: BTreeSet<u64> = all.iter().map(Reserved::nonce).collect();
    assert_eq!(given, (0..100).collect());
    assert!(all.iter().all(Reserved::is_live));
    // In any order, by any process: a node keeps transactions that arrive too early.
    for reserved in all.into_iter().rev() {
        send(&place, reserved).await;
    }
    let standing = processes[0].resync().await.unwrap();
    assert_eq!((standing.count, standing.next(), standing.gaps()), (100, 100, vec![]));
}

/// F25: the send fails before anything is broadcast.
#[tokio::test]
async fn a_released_nonce_is_used_next_and_the_lowest_first() {
    let place = Place::new();
    let (ours, theirs) = (place.process(), place.process());
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(ours.reserve().await.unwrap());
    }
    let (third, first) = (held.remove(3), held.remove(1));
    assert_eq!((first.nonce(), third.nonce()), (1, 3));
    third.release().await.unwrap();
    first.release().await.unwrap();
    assert_eq!(theirs.gaps().await.unwrap(), [1, 3]);
    assert!(theirs.fill(2).await.unwrap().is_none(), "someone has it");
    let filled = theirs.fill(3).await.unwrap().unwrap();
    assert_eq!(theirs.gaps().await.unwrap(), [1]);
    filled.release().await.unwrap();
    for expected in [1, 3, 5] {
        let next = theirs.reserve().await.unwrap();
        assert_eq!(next.nonce(), expected);
        held.push(next);
    }
}

/// F25: no answer came.
#[tokio::test]
async fn an_unknown_nonce_is_nobodys_until_the_chain_has_counted_it() {
    let place = Place::new();
    let (ours, theirs) = (place.process(), place.process());
    let reserved = ours.reserve().await.unwrap();
    reserved.unknown(hash(0)).await.unwrap();
    let next = theirs.reserve().await.unwrap();
    assert_eq!((next.nonce(), theirs.fill(0).await.unwrap().is_none()), (1, true));
    let seen = &ours.resync().await.unwrap().in_flight;
    assert_eq!((seen[0].nonce, seen[0].hash), (0, Some(hash(0))), "{seen:?}");
    // It had arrived after all.
    place.ledger.send(0, hash(0));
    let standing = ours.resync().await.unwrap();
    assert_eq!((standing.count, standing.in_flight.len()), (1, 1));
    send(&place, next).await;
    assert_eq!(theirs.reserve().await.unwrap().nonce(), 2);
}

#[tokio::test]
async fn an_unknown_nonce_that_no_node_knows_is_a_gap_when_its_time_is_over() {
    let mut place = Place::new();
    place.terms.unknown_for = ms(300);
    let (ours, theirs) = (place.process(), place.process());
    ours.reserve().await.unwrap().unknown(hash(0)).await.unwrap();
    let next = theirs.reserve().await.unwrap();
    assert_eq!((next.nonce(), theirs.gaps().await.unwrap()), (1, vec![]));
    tokio::time::sleep(ms(350)).await;
    assert_eq!(ours.gaps().await.unwrap(), [0]);
    assert_eq!(theirs.reserve().await.unwrap().nonce(), 0);
}

/// A process that lives and has nothing more to reserve keeps nobody waiting: with a hash that no node
/// knows, and without one.
#[tokio::test]
async fn what_an_idle_process_left_open_is_given_up_by_itself() {
    let mut place = Place::new();
    place.terms.unknown_for = ms(300);
    let (idle, theirs) = (place.process(), place.process());
    idle.reserve().await.unwrap().unknown(hash(0)).await.unwrap();
    drop(idle.reserve().await.unwrap());
    for nonce in [0, 1] {
        let refilled = async {
            loop {
                match theirs.fill(nonce).await.unwrap() {
                    Some(reserved) => break reserved,
                    None => tokio::time::sleep(ms(20)).await,
                }
            }
        };
        let reserved = tokio::time::timeout(secs(20), refilled).await.expect("it is free");
        reserved.commit(hash(10 + nonce)).await.unwrap();
    }
}

/// The sender is gone before anything arrived: its nonce is not free at once, and not kept for ever.
#[tokio::test]
async fn what_a_dead_process_was_about_to_send_is_given_up_when_no_node_knows_it() {
    let mut place = Place::new();
    (place.terms.unknown_for, place.terms.ttl) = (ms(800), ms(400));
    let (ours, theirs) = (place.process(), place.process());
    let mut reserved = ours.reserve().await.unwrap();
    reserved.sending(hash(0)).await.unwrap();
    place.ends(0).await;
    let died = std::time::Instant::now();
    let next = theirs.reserve().await.unwrap();
    assert_eq!(next.nonce(), 1);
    let again = loop {
        match theirs.fill(0).await.unwrap() {
            Some(again) => break again,
            None => tokio::time::sleep(ms(20)).await,
        }
    };
    assert!(died.elapsed() > place.terms.unknown_for, "{:?}", died.elapsed());
    assert!(theirs.fill(0).await.unwrap().is_none(), "it is someone's again");
    drop(again);
}

/// Someone sends without asking, and the node keeps that behind a gap.
#[tokio::test]
async fn a_nonce_that_the_node_has_of_another_is_not_given_again_and_again() {
    let place = Place::new();
    let (ours, theirs) = (place.process(), place.process());
    let gap = ours.reserve().await.unwrap();
    place.ledger.send(1, hash(100));
    let refused = ours.reserve().await.unwrap();
    assert_eq!(refused.nonce(), 1);
    refused.wrong_nonce().await.unwrap();
    assert_eq!(theirs.reserve().await.unwrap().nonce(), 2);
    send(&place, gap).await;
    assert_eq!(theirs.resync().await.unwrap().count, 2);
}

/// A node keeps a transaction behind a gap: it is not counted, and its nonce is not free.
#[tokio::test]
async fn a_nonce_whose_transaction_waits_in_the_node_is_kept_for_as_long_as_that_takes() {
    let mut place = Place::new();
    (place.terms.unknown_for, place.terms.ttl) = (ms(500), ms(500));
    place.terms.reserved_for = ms(3_000);
    let (ours, theirs) = (place.process(), place.process());
    let gap = theirs.reserve().await.unwrap();
    let mut behind = ours.reserve().await.unwrap();
    gap.release().await.unwrap();
    behind.sending(hash(1)).await.unwrap();
    place.ledger.send(1, hash(1));
    behind.unknown(hash(1)).await.unwrap();
    let is_kept = async |nonces: &Nonces<Node>| {
        let standing = nonces.resync().await.unwrap();
        assert!(standing.in_flight.iter().any(|seen| seen.nonce == 1), "{standing:?}");
        assert_eq!((standing.next(), standing.gaps()), (0, vec![0]));
    };
    for _ in 0..12 {
        tokio::time::sleep(ms(100)).await;
        is_kept(&ours).await;
    }
    // Even when the process that sent it is gone: the others keep its unit, for longer than any unit lasts.
    place.ends(0).await;
    for _ in 0..40 {
        tokio::time::sleep(ms(100)).await;
        is_kept(&theirs).await;
    }
    send(&place, theirs.reserve().await.unwrap()).await;
    assert_eq!(theirs.reserve().await.unwrap().nonce(), 2);
}

#[tokio::test]
async fn a_reservation_that_is_dropped_without_a_word_is_not_given_again() {
    let place = Place::new();
    let (ours, theirs) = (place.process(), place.process());
    drop(ours.reserve().await.unwrap());
    assert_eq!(ours.reserve().await.unwrap().nonce(), 1);
    // Not even when nobody reserves there any more.
    drop(ours);
    assert_eq!(theirs.reserve().await.unwrap().nonce(), 2);
    // Nor when the report is cut off.
    let reserved = theirs.reserve().await.unwrap();
    theirs.chain().open.send_replace(false);
    let commit = tokio::time::timeout(ms(50), reserved.commit(hash(3))).await;
    assert!(commit.is_err(), "the node does not answer");
    theirs.chain().open.send_replace(true);
    assert_eq!(theirs.reserve().await.unwrap().nonce(), 4);
}

/// F25: units below the chain's count are removed.
#[tokio::test]
async fn what_the_chain_has_counted_is_let_go_of() {
    let place = Place::new();
    let (ours, theirs) = (place.process(), place.process());
    let node = ours.chain();
    node.be_behind(0);
    let reserved = ours.reserve().await.unwrap();
    place.ledger.send(0, hash(0));
    reserved.commit(hash(0)).await.unwrap();
    drop(ours.reserve().await.unwrap());
    let abandoned = theirs.reserve().await.unwrap();
    assert_eq!(abandoned.nonce(), 2);
    let units = async || {
        let view = place.tenure().inspect(format!("reserved:1:{WALLET:#x}")).await.unwrap();
        view.map_or(0, |view| view.holders.len())
    };
    assert_eq!(units().await, 4, "two of the first: one says who has it, one what was sent");
    // Someone sent the others without asking.
    (1..5).for_each(|nonce| place.ledger.send(nonce, hash(100 + nonce)));
    node.be_behind(None);
    let standing = ours.resync().await.unwrap();
    assert_eq!((standing.count, standing.next(), standing.in_flight.len()), (5, 5, 0));
    assert_eq!(units().await, 2, "theirs, and the count for whoever is late");
    assert_eq!(theirs.reserve().await.unwrap().nonce(), 5);
    assert!(theirs.fill(3).await.unwrap().is_none());
    abandoned.wrong_nonce().await.unwrap();
}

#[tokio::test]
async fn a_node_that_counts_late_is_not_believed() {
    let mut place = Place::new();
    place.terms.late = ms(1_000);
    let (ours, theirs) = (place.process(), place.process());
    theirs.chain().be_behind(0);
    for _ in 0..3 {
        send(&place, ours.reserve().await.unwrap()).await;
    }
    let reserved = theirs.reserve().await.unwrap();
    assert_eq!(reserved.nonce(), 3, "it says 0, and others know better");
    reserved.release().await.unwrap();
    assert!(theirs.fill(2).await.unwrap().is_none());
    // A node whose count falls for longer than that has lost transactions.
    tokio::time::sleep(ms(1_100)).await;
    assert_eq!(theirs.reserve().await.unwrap().nonce(), 0);
}

/// Stops between its first look and taking the nonce, loses its turn, and continues.
#[tokio::test]
async fn who_was_stopped_before_it_took_a_nonce_does_not_get_one_that_another_has() {
    for committed in [false, true] {
        let place = Place::new();
        let (ours, theirs) = (place.process(), place.process());
        ours.chain().open.send_replace(false);
        let stopped = tokio::spawn({
            let ours = ours.clone();
            async move { ours.reserve().await.unwrap() }
        });
        // It has looked, and waits for the node's answer, which will be out of date.
        while ours.chain().open.receiver_count() == 0 {
            tokio::task::yield_now().await;
        }
        let operator = place.tenure();
        let line = format!("nonces:1:{WALLET:#x}");
        let turn = operator.inspect(&line).await.unwrap().unwrap().holders[0].fence;
        operator.break_hold(&line, turn, "stopped").await.unwrap();
        let reserved = theirs.reserve().await.unwrap();
        assert_eq!(reserved.nonce(), 0);
        let kept = if committed {
            send(&place, reserved).await;
            None
        } else {
            Some(reserved)
        };
        ours.chain().open.send_replace(true);
        assert_eq!(stopped.await.unwrap().nonce(), 1);
        drop(kept);
    }
}

/// Stopped while it has a nonce, for longer than the others wait for it.
#[tokio::test]
async fn a_reservation_that_has_ended_says_so_before_anything_is_sent() {
    let mut place = Place::new();
    (place.terms.reserved_for, place.terms.ttl) = (ms(300), ms(200));
    place.terms.unknown_for = ms(300);
    let (ours, theirs) = (place.process(), place.process());
    let mut reserved = ours.reserve().await.unwrap();
    tokio::time::sleep(ms(350)).await;
    assert!(!reserved.is_live());
    let theirs = theirs.reserve().await.unwrap();
    assert_eq!(theirs.nonce(), 0);
    let error = reserved.sending(hash(7)).await.unwrap_err();
    assert!(matches!(error, NonceError::Lost(0)), "{error}");
    assert!(error.to_string().contains("do not send"), "{error}");
    assert!(theirs.is_live());
    reserved.release().await.unwrap();
}

#[cfg(feature = "relay")]
#[test]
fn numbers_are_told_by_chain() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let (handle, place) = (recorder.handle(), Place::new());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        tenure_relay::nonces::describe();
        runtime.block_on(async {
            // A chain of its own: other tests tell their numbers in this process, too.
            let node = Node::new(&place.ledger);
            let nonces = Nonces::with_terms(&place.tenure(), 77, WALLET, node, place.terms);
            let gap = nonces.reserve().await.unwrap();
            let above = nonces.reserve().await.unwrap();
            gap.release().await.unwrap();
            for _ in 0..2 {
                assert_eq!(nonces.gaps().await.unwrap(), [0]);
            }
            nonces.resync().await.unwrap();
            let told = handle.render();
            for line in [
                "tenure_nonce_in_flight{chain=\"77\"} 1",
                "tenure_nonce_gaps_total{chain=\"77\"} 1",
                "tenure_nonce_resyncs_total{chain=\"77\"} 1",
                "tenure_nonce_oldest_in_flight_seconds{chain=\"77\"} 0.",
            ] {
                assert!(told.contains(line), "no {line} in\n{told}");
            }
            above.wrong_nonce().await.unwrap();
        });
    });
    let told = handle.render();
    assert!(told.contains("tenure_nonce_wrong_nonce_total{chain=\"77\"} 1"), "{told}");
    assert!(told.contains("tenure_nonce_in_flight{chain=\"77\"} 0"), "{told}");
}
