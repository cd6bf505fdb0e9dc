//! How bytes pass through the proxy.

use std::io;
use std::net::{Ipv4Addr, Shutdown};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Counts, Direction, Entry, Fault, Order, Weather};

/// Long enough for a waiting reader to read what has arrived.
const BETWEEN_PIECES: Duration = Duration::from_millis(1);

/// The state of a proxy's thread.
pub(super) struct Network {
    pub(super) port: u16,
    pub(super) target_port: u16,
    pub(super) weather: Arc<watch::Sender<Weather>>,
    pub(super) counts: Arc<Counts>,
}

/// A chunk on its way, with the time of its arrival.
enum Parcel {
    Bytes(Instant, Vec<u8>),
    /// The sender closed its side, or its connection broke.
    End(Instant),
}

impl Network {
    /// Serves until nobody can send orders any more.
    pub(super) async fn run(self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let network = Arc::new(self);
        let mut listener = None;
        let mut entry = Entry::Refused;
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                order = orders.recv() => {
                    let Some((wanted, answer)) = order else { break };
                    entry = wanted;
                    let _ = answer.send(network.listen(entry, &mut listener).await);
                }
                client = accept(listener.as_ref()) => {
                    network.counts.accepted.fetch_add(1, Ordering::AcqRel);
                    network.counts.open.fetch_add(1, Ordering::AcqRel);
                    let weather = network.weather.subscribe();
                    let mute = entry == Entry::Mute;
                    connections.spawn(Arc::clone(&network).serve(client, weather, mute));
                }
                Some(_) = connections.join_next() => {}
            }
        }
        close(listener);
        network.weather.send_modify(|weather| weather.resets += 1);
        while connections.join_next().await.is_some() {}
    }

    async fn listen(&self, entry: Entry, listener: &mut Option<TcpListener>) -> io::Result<()> {
        if entry == Entry::Refused {
            close(listener.take());
        } else if listener.is_none() {
            *listener = Some(TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).await?);
        }
        Ok(())
    }

    /// One connection, from start to end.
    async fn serve(
        self: Arc<Network>,
        client: TcpStream,
        mut weather: watch::Receiver<Weather>,
        mute: bool,
    ) {
        let resets = weather.borrow().resets;
        let cut = async move {
            let _ = weather.wait_for(|weather| weather.resets != resets).await;
        };
        let mut ends = vec![client];
        let cut_off = tokio::select! {
            broken = self.pass(&mut ends, mute) => broken,
            () = cut => true,
        };
        if cut_off {
            for end in &ends {
                let _ = end.set_zero_linger();
            }
        }
        drop(ends);
        self.counts.open.fetch_sub(1, Ordering::AcqRel);
    }

    /// Passes bytes both ways; returns whether the connection broke, or both sides closed it.
    async fn pass(&self, ends: &mut Vec<TcpStream>, mute: bool) -> bool {
        if mute {
            return drain(&mut ends[0]).await;
        }
        match TcpStream::connect((Ipv4Addr::LOCALHOST, self.target_port)).await {
            Ok(server) => ends.push(server),
            Err(_) => return true,
        }
        let [client, server] = ends.as_mut_slice() else { return true };
        for end in [&*client, &*server] {
            let _ = end.set_nodelay(true);
        }
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let up = self.carry(Direction::Upstream, from_client, to_server);
        let down = self.carry(Direction::Downstream, from_server, to_client);
        tokio::try_join!(up, down).is_err()
    }

    /// Passes bytes in one direction until both ends are closed; an error if the connection broke.
    async fn carry(
        &self,
        direction: Direction,
        from: ReadHalf<'_>,
        to: WriteHalf<'_>,
    ) -> io::Result<()> {
        let (arrived, parcels) = mpsc::unbounded_channel();
        let collect = async {
            self.collect(direction, from, arrived).await;
            Ok(())
        };
        tokio::try_join!(collect, self.deliver(direction, to, parcels)).map(|_| ())
    }

    /// Reads everything, whatever the fault, so that the sender is never blocked.
    async fn collect(
        &self,
        direction: Direction,
        mut from: ReadHalf<'_>,
        arrived: mpsc::UnboundedSender<Parcel>,
    ) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = from.read(&mut buffer).await.unwrap_or(0);
            let now = Instant::now();
            if read == 0 {
                let _ = arrived.send(Parcel::End(now));
                return;
            }
            self.counts.bytes[direction as usize].fetch_add(read as u64, Ordering::AcqRel);
            let _ = arrived.send(Parcel::Bytes(now, buffer[..read].to_vec()));
        }
    }

    async fn deliver(
        &self,
        direction: Direction,
        mut to: WriteHalf<'_>,
        mut parcels: mpsc::UnboundedReceiver<Parcel>,
    ) -> io::Result<()> {
        let mut gate = Gate::new(self.weather.subscribe(), direction);
        let mut closing = gate.clone();
        let (mut half_closed, mut gap) = (false, false);
        loop {
            let parcel = tokio::select! {
                biased;
                () = closing.closed(), if !half_closed => None,
                parcel = parcels.recv() => {
                    let Some(parcel) = parcel else { return Ok(()) };
                    Some(parcel)
                }
            };
            let Some(parcel) = parcel else {
                half_closed = true;
                to.shutdown().await?;
                continue;
            };
            let (Parcel::Bytes(came, _) | Parcel::End(came)) = &parcel;
            if half_closed {
                continue;
            }
            let passes = gate.permits(*came).await;
            match parcel {
                _ if !passes => gap = true,
                Parcel::Bytes(..) if self.is_to_drop(direction) => gap = true,
                // No network loses bytes and delivers those after them.
                _ if gap => return Err(io::ErrorKind::ConnectionReset.into()),
                Parcel::Bytes(_, bytes) => {
                    let mut rest = &*bytes;
                    while !rest.is_empty() {
                        let size = gate.piece().unwrap_or(rest.len()).clamp(1, rest.len());
                        let piece;
                        (piece, rest) = rest.split_at(size);
                        to.write_all(piece).await?;
                        let delivered = &self.counts.delivered[direction as usize];
                        delivered.fetch_add(size as u64, Ordering::AcqRel);
                        if !rest.is_empty() {
                            tokio::time::sleep(BETWEEN_PIECES).await;
                        }
                    }
                }
                Parcel::End(_) => to.shutdown().await?,
            }
        }
    }

    /// Whether this chunk is one of those to swallow ([`Proxy::drop_replies`](super::Proxy::drop_replies)); the
    /// last of them cuts the connections.
    fn is_to_drop(&self, direction: Direction) -> bool {
        let mut dropped = false;
        if direction == Direction::Downstream {
            self.weather.send_if_modified(|weather| {
                let Some(left) = weather.replies_to_drop else { return false };
                dropped = true;
                weather.replies_to_drop = Some(left - 1).filter(|left| *left > 0);
                weather.resets += u64::from(weather.replies_to_drop.is_none());
                true
            });
        }
        dropped
    }
}

/// What one direction of one connection knows of the faults.
#[derive(Clone)]
struct Gate {
    weather: watch::Receiver<Weather>,
    direction: Direction,
    half_closes: u64,
}

impl Gate {
    fn new(weather: watch::Receiver<Weather>, direction: Direction) -> Gate {
        let half_closes = weather.borrow().half_closes[direction as usize];
        Gate { weather, direction, half_closes }
    }

    /// Waits until this direction is to be half-closed.
    async fn closed(&mut self) {
        let (direction, before) = (self.direction as usize, self.half_closes);
        let _ = self.weather.wait_for(|weather| weather.half_closes[direction] != before).await;
    }

    /// The size of the pieces, if bytes are to arrive in pieces.
    fn piece(&self) -> Option<usize> {
        match self.weather.borrow().faults[self.direction as usize] {
            Fault::Pieces(size) => Some(size),
            _ => None,
        }
    }

    /// Waits until a chunk that arrived at `came` may pass; false if it is lost instead.
    async fn permits(&mut self, came: Instant) -> bool {
        loop {
            let (fault, half_closes) = {
                let weather = self.weather.borrow_and_update();
                let direction = self.direction as usize;
                (weather.faults[direction], weather.half_closes[direction])
            };
            match fault {
                _ if half_closes != self.half_closes => return false,
                Fault::Pass | Fault::Pieces(_) => return true,
                Fault::Swallow => return false,
                Fault::Delay(by) if came + by <= Instant::now() => return true,
                Fault::Delay(by) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(came + by) => {}
                        _ = self.weather.changed() => {}
                    }
                }
                Fault::Hold => {
                    let _ = self.weather.changed().await;
                }
            }
        }
    }
}

/// Stops listening. Dropping the socket is not enough: a process that another thread is just forking also has
/// it until `exec`.
fn close(listener: Option<TcpListener>) {
    if let Some(Ok(listener)) = listener.map(TcpListener::into_std) {
        let _ = std::net::TcpStream::from(OwnedFd::from(listener)).shutdown(Shutdown::Both);
    }
}

/// Waits for the next client; for ever if nobody listens.
async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    loop {
        let Some(listener) = listener else { std::future::pending().await };
        match listener.accept().await {
            Ok((client, _)) => return client,
            // The process has too many open files; others may close some.
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Reads until the client closes the connection.
async fn drain(client: &mut TcpStream) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match client.read(&mut buffer).await {
            Ok(0) => return false,
            Ok(_) => {}
            Err(_) => return true,
        }
    }
}
