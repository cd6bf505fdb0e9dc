//! A bad network in front of a real server.
//!
//! The proxy passes bytes between its clients and one port. While it runs, it can delay, hold or swallow them,
//! cut connections and refuse new ones. It has its own thread, so the network keeps running whatever the test
//! blocks. A change applies to bytes that are written from then on: bytes that the proxy has already passed on
//! cannot be called back.

mod flow;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::servers::free_port;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server: requests.
    Upstream,
    /// From the server to the client: replies and pushes.
    Downstream,
}

/// The treatment of bytes in one direction, and of the end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// They are passed on.
    #[default]
    Pass,
    /// They are delayed by this much, in order.
    Delay(Duration),
    /// They arrive in pieces of this size with pauses in between, so that the reader has to put them together.
    Pieces(usize),
    /// They are kept, and arrive when the fault changes.
    Hold,
    /// They are lost, and nobody is told. A connection that has lost bytes is cut when the next bytes would
    /// arrive: no network delivers bytes after a gap.
    Swallow,
}

/// The treatment of new connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Entry {
    #[default]
    Open,
    /// Refused: nobody listens.
    Refused,
    /// Accepted, and then silent.
    Mute,
}

/// The state that all connections watch; each wakes when it changes.
#[derive(Clone, Debug, Default)]
struct Weather {
    faults: [Fault; 2],
    /// Connections older than this number are cut.
    resets: u64,
    /// Connections older than this number end their sending in that direction.
    half_closes: [u64; 2],
    /// The number of chunks to swallow downstream before the cut; zero for none.
    replies_to_drop: Option<u64>,
}

#[derive(Debug, Default)]
struct Counts {
    open: AtomicUsize,
    accepted: AtomicU64,
    bytes: [AtomicU64; 2],
    delivered: [AtomicU64; 2],
}

/// A proxy in front of one port of the loopback address. Dropping it cuts all connections.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    weather: Arc<watch::Sender<Weather>>,
    counts: Arc<Counts>,
    orders: mpsc::UnboundedSender<Order>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Tells the thread what to do with new connections; the thread confirms when it is done.
type Order = (Entry, std::sync::mpsc::Sender<io::Result<()>>);

impl Proxy {
    /// Listens on a free port, and passes everything to the target until told otherwise. The target need not be
    /// up: a client whose connection cannot be passed on is cut.
    pub fn start(target_port: u16) -> io::Result<Proxy> {
        for _ in 0..10 {
            match Proxy::start_on(free_port().map_err(io::Error::other)?, target_port) {
                // Another process took the port first.
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

    /// The address for clients, on the loopback interface.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets the treatment of bytes in one direction.
    pub fn set(&self, direction: Direction, fault: Fault) {
        self.change(|weather| weather.faults[direction as usize] = fault);
    }

    /// Ends all faults: bytes pass, held bytes arrive, and new connections are served.
    pub fn pass(&self) -> io::Result<()> {
        self.change(|weather| {
            weather.faults = [Fault::Pass; 2];
            weather.replies_to_drop = None;
        });
        self.entry(Entry::Open)
    }

    /// Delays bytes of this direction by this much from now on.
    pub fn delay(&self, direction: Direction, by: Duration) {
        self.set(direction, Fault::Delay(by));
    }

    /// Keeps the bytes of this direction until another fault is set, or none.
    pub fn hold(&self, direction: Direction) {
        self.set(direction, Fault::Hold);
    }

    /// Loses the bytes of this direction; the connections stay open. When the fault changes, connections that
    /// have lost bytes are cut at the next bytes in this direction.
    pub fn swallow(&self, direction: Direction) {
        self.set(direction, Fault::Swallow);
    }

    /// Cuts all current connections on both sides, with RST.
    pub fn reset(&self) {
        self.change(|weather| weather.resets += 1);
    }

    /// Swallows the next `chunks` from the server, on any connection, and then cuts all connections. A chunk is
    /// the result of one read: a reply, if replies come one by one. Nothing passes on a connection that has
    /// lost a chunk.
    pub fn drop_replies(&self, chunks: u64) {
        self.change(|weather| weather.replies_to_drop = Some(chunks).filter(|chunks| *chunks > 0));
    }

    /// Ends the sending in this direction on all current connections, as `shutdown` does: the receiver sees the
    /// end of the stream, and bytes that are sent later are lost. The other direction continues.
    pub fn half_close(&self, direction: Direction) {
        self.change(|weather| weather.half_closes[direction as usize] += 1);
    }

    /// Refuses new connections from now on, because nobody listens. Current connections continue.
    pub fn refuse(&self) -> io::Result<()> {
        self.entry(Entry::Refused)
    }

    /// Accepts new connections from now on and stays silent, until they are closed or cut.
    pub fn mute(&self) -> io::Result<()> {
        self.entry(Entry::Mute)
    }

    /// Serves new connections from now on.
    pub fn accept(&self) -> io::Result<()> {
        self.entry(Entry::Open)
    }

    /// The number of open client connections, including silent ones and those whose end is held or swallowed.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.counts.open.load(Ordering::Acquire)
    }

    /// The number of accepted connections so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.counts.accepted.load(Ordering::Acquire)
    }

    /// The number of bytes received in this direction so far, passed on or not.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.counts.bytes[direction as usize].load(Ordering::Acquire)
    }

    /// The number of bytes passed on in this direction so far.
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
        // When nobody can send orders any more, the thread cuts all connections and ends.
        let (closed, _) = mpsc::unbounded_channel();
        self.orders = closed;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
