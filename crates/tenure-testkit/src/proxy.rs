//! A bad network in front of a real server.
//!
//! The proxy passes bytes between its clients and one port, and can delay, hold or swallow them, cut
//! connections and refuse new ones, while it runs. It has a thread of its own, so that whatever the
//! test blocks, the network goes on. A change holds for what is written from then on: bytes that the
//! proxy already passed on cannot be called back.

mod flow;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::servers::free_port;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server: requests.
    Upstream,
    /// From the server to the client: replies and pushes.
    Downstream,
}

/// What happens to bytes of one direction, and to the end of a connection that they announce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// They arrive.
    #[default]
    Pass,
    /// They arrive so much later, in order.
    Delay(Duration),
    /// They arrive in pieces of so many bytes, with a pause between them, so that whoever reads has to put them together.
    Pieces(usize),
    /// They are kept, and arrive when the fault is another.
    Hold,
    /// They are gone, and nobody is told. A connection that has lost some is cut when the next would
    /// arrive: no network brings bytes after a gap.
    Swallow,
}

/// What happens to new connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Entry {
    #[default]
    Open,
    /// Nobody listens.
    Refused,
    /// Accepted, and nothing more.
    Mute,
}

/// What all connections look at; each wakes when it changes.
#[derive(Clone, Debug, Default)]
struct Weather {
    faults: [Fault; 2],
    /// Connections older than this count are cut.
    resets: u64,
    /// Connections older than this count end their sending in that direction.
    half_closes: [u64; 2],
    /// How many chunks to swallow downstream before the cut; nothing if none is to be.
    replies_to_drop: Option<u64>,
}

#[derive(Debug, Default)]
struct Counts {
    open: AtomicUsize,
    accepted: AtomicU64,
    bytes: [AtomicU64; 2],
    delivered: [AtomicU64; 2],
}

/// A proxy in front of one port of the loopback address. Dropping it cuts everything.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    weather: Arc<watch::Sender<Weather>>,
    counts: Arc<Counts>,
    orders: mpsc::UnboundedSender<Order>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Tells the thread what to do with new connections; it answers when it is done.
type Order = (Entry, std::sync::mpsc::Sender<io::Result<()>>);

impl Proxy {
    /// Listens on a free port, and passes all to the target until told otherwise. The target need not
    /// be up: a client whose connection cannot be passed on is cut.
    pub fn start(target_port: u16) -> io::Result<Proxy> {
        for _ in 0..10 {
            match Proxy::start_on(free_port().map_err(io::Error::other)?, target_port) {
                // Someone else was faster.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                started => return started,
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    fn start_on(port: u16, target_port: u16) -> io::Result<Proxy> {
        let weather = Arc::new(watch::Sender::new(Weather::default()));
        let counts = Arc::new(Counts::default());
        let (orders, to_do) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let network = flow::Network {
            port,
            target_port,
            weather: Arc::clone(&weather),
            counts: Arc::clone(&counts),
        };
        let thread = std::thread::Builder::new()
            .name("proxy".to_owned())
            .spawn(move || runtime.block_on(network.run(to_do)))?;
        let proxy = Proxy { port, weather, counts, orders, thread: Some(thread) };
        proxy.entry(Entry::Open)?;
        Ok(proxy)
    }

    /// Where clients connect, on the loopback address.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets what happens to bytes of one direction.
    pub fn set(&self, direction: Direction, fault: Fault) {
        self.change(|weather| weather.faults[direction as usize] = fault);
    }

    /// Ends all faults: bytes pass, those that were held arrive, and new connections are served.
    pub fn pass(&self) -> io::Result<()> {
        self.change(|weather| {
            weather.faults = [Fault::Pass; 2];
            weather.replies_to_drop = None;
        });
        self.entry(Entry::Open)
    }

    /// From now on bytes of this direction arrive so much later.
    pub fn delay(&self, direction: Direction, by: Duration) {
        self.set(direction, Fault::Delay(by));
    }

    /// Keeps the bytes of this direction until another fault is set, or none.
    pub fn hold(&self, direction: Direction) {
        self.set(direction, Fault::Hold);
    }

    /// Loses the bytes of this direction; the connections stay open. When the fault is another, those
    /// that have lost bytes are cut with the next that they carry in this direction.
    pub fn swallow(&self, direction: Direction) {
        self.set(direction, Fault::Swallow);
    }

    /// Cuts all present connections on both sides, with RST.
    pub fn reset(&self) {
        self.change(|weather| weather.resets += 1);
    }

    /// Swallows the next `chunks` that come from the server, on any connection, and then cuts all
    /// connections. A chunk is what one read returns: a reply, if replies come one by one. Whatever
    /// happens meanwhile, nothing passes on a connection that has lost a chunk.
    pub fn drop_replies(&self, chunks: u64) {
        self.change(|weather| weather.replies_to_drop = Some(chunks).filter(|chunks| *chunks > 0));
    }

    /// On all present connections, ends the sending in this direction, as `shutdown` does: the
    /// receiver sees the end of the stream, and what is sent later is gone. The other direction goes on.
    pub fn half_close(&self, direction: Direction) {
        self.change(|weather| weather.half_closes[direction as usize] += 1);
    }

    /// From now on nobody listens: new connections are refused. Present ones go on.
    pub fn refuse(&self) -> io::Result<()> {
        self.entry(Entry::Refused)
    }

    /// From now on connections are accepted, and stay silent until they are closed or cut.
    pub fn mute(&self) -> io::Result<()> {
        self.entry(Entry::Mute)
    }

    /// From now on new connections are served.
    pub fn accept(&self) -> io::Result<()> {
        self.entry(Entry::Open)
    }

    /// How many connections of clients are open now: silent ones too, and those whose end is held or
    /// swallowed.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.counts.open.load(Ordering::Acquire)
    }

    /// How many connections were accepted so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.counts.accepted.load(Ordering::Acquire)
    }

    /// How many bytes have come to the proxy in this direction so far, whatever became of them.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.counts.bytes[direction as usize].load(Ordering::Acquire)
    }

    /// How many bytes were passed on in this direction so far.
    #[must_use]
    pub fn delivered(&self, direction: Direction) -> u64 {
        self.counts.delivered[direction as usize].load(Ordering::Acquire)
    }

    fn change(&self, change: impl FnOnce(&mut Weather)) {
        self.weather.send_modify(change);
    }

    fn entry(&self, entry: Entry) -> io::Result<()> {
        let (answer, done) = std::sync::mpsc::channel();
        let gone = || io::Error::other("the thread of the proxy is gone");
        self.orders.send((entry, answer)).map_err(|_| gone())?;
        done.recv().map_err(|_| gone())?
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Without orders to come the thread cuts all connections and ends.
        let (closed, _) = mpsc::unbounded_channel();
        self.orders = closed;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
