//! Accepting connections, and limiting their number.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::sockopt;

use crate::socket::{Bound, Connection, PeerAddress};
use crate::tls::Tls;

/// Reserve connections beyond the limit, on which only a few requests are allowed.
const RESERVE: usize = 256;
/// The same for one network.
const RESERVE_OF_ONE: usize = 16;
/// How long a client may be silent before the system probes it, and how long it may leave sent data unacknowledged.
/// Otherwise a client whose machine is gone would take up a place for many minutes.
const SILENT_FOR: Duration = Duration::from_secs(30);

/// A listening socket and its connection limits.
pub struct Listener {
    listener: Bound,
    room: Arc<Room>,
    tls: Box<dyn Fn() -> Option<Tls> + Send + Sync>,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listener").field(&self.listener).finish()
    }
}

/// How many connections there may be, and how many there are.
#[derive(Debug)]
struct Room {
    most: usize,
    most_of_one: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: Count,
    /// By network.
    of: HashMap<IpAddr, Count>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    normal: usize,
    reserve: usize,
}

/// A place for one connection. Dropping it frees the place.
#[derive(Debug)]
pub struct ConnectionPlace {
    room: Arc<Room>,
    network: IpAddr,
    is_in_reserve: bool,
}

/// An accepted connection and its place.
#[derive(Debug)]
pub struct Accepted {
    /// The connection.
    pub stream: Connection,
    /// Where it comes from.
    pub from: PeerAddress,
    /// What to make the TLS handshake with.
    pub tls: Option<Tls>,
    /// Whether it is one of the few beyond the limit, on which only a few requests are allowed.
    pub is_in_reserve: bool,
    /// Frees the place when it is dropped.
    pub place: ConnectionPlace,
}

/// What counts as one client: an IPv4 address, or the IPv6 network of one customer.
#[must_use]
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address => address,
    }
}

impl Room {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection from this network, if there is one.
    fn enter(self: &Arc<Room>, network: IpAddr) -> Option<ConnectionPlace> {
        let mut taken = self.taken();
        let of_one = taken.of.get(&network).copied().unwrap_or_default();
        let is_in_reserve = taken.all.normal >= self.most || of_one.normal >= self.most_of_one;
        if is_in_reserve && (taken.all.reserve >= RESERVE || of_one.reserve >= RESERVE_OF_ONE) {
            return None;
        }
        *taken.all.of(is_in_reserve) += 1;
        *taken.of.entry(network).or_default().of(is_in_reserve) += 1;
        Some(ConnectionPlace { room: self.clone(), network, is_in_reserve })
    }
}

impl Count {
    fn of(&mut self, is_in_reserve: bool) -> &mut usize {
        if is_in_reserve { &mut self.reserve } else { &mut self.normal }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut taken = self.room.taken();
        *taken.all.of(self.is_in_reserve) -= 1;
        if let Some(of_one) = taken.of.get_mut(&self.network) {
            *of_one.of(self.is_in_reserve) -= 1;
            if of_one.normal + of_one.reserve == 0 {
                taken.of.remove(&self.network);
            }
        }
    }
}

impl Listener {
    /// Accepts up to `room` connections at a time, and a few more in reserve. `tls` is called for each of them, so
    /// that certificates can be replaced.
    pub fn new(
        listener: impl Into<Bound>,
        room: usize,
        tls: impl Fn() -> Option<Tls> + Send + Sync + 'static,
    ) -> Listener {
        let listener = listener.into();
        // Accepted sockets inherit these. Without them, the server only takes longer to notice that a client is gone.
        // A unix socket needs none of them.
        let _ = sockopt::set_socket_keepalive(&listener, true);
        let _ = sockopt::set_tcp_keepidle(&listener, SILENT_FOR);
        let _ = sockopt::set_tcp_keepintvl(&listener, SILENT_FOR / 3);
        let _ = sockopt::set_tcp_keepcnt(&listener, 3);
        let _ = sockopt::set_tcp_user_timeout(&listener, SILENT_FOR.as_millis() as u32);
        let room = Room { most: room, most_of_one: usize::MAX, taken: Mutex::default() };
        Listener { listener, room: Arc::new(room), tls: Box::new(tls) }
    }

    /// Accepts at most `most_of_one` connections from one [network](network_of), not counting those in reserve.
    #[must_use]
    pub fn with_most_of_one(mut self, most_of_one: usize) -> Listener {
        let (most, taken) = (self.room.most, Mutex::default());
        self.room = Arc::new(Room { most, most_of_one, taken });
        self
    }

    /// The next connection, with a normal place or one in reserve. Connections for which there is neither are closed,
    /// so that the others do not wait behind them.
    ///
    /// # Cancel safety
    /// May be dropped at any await point.
    pub async fn accept(&self) -> Accepted {
        loop {
            let (stream, from) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                // Most likely out of file descriptors for the moment.
                Err(error) => {
                    tracing::warn!(event = "http.accept", %error);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Some(place) = self.room.enter(from.network()) else {
                tracing::debug!(event = "http.full", %from);
                continue;
            };
            let (is_in_reserve, tls) = (place.is_in_reserve, (self.tls)());
            return Accepted { stream, from, tls, is_in_reserve, place };
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn nobody_takes_the_places_of_others() {
        let room = Arc::new(Room { most: 6, most_of_one: 4, taken: Mutex::default() });
        let [one, two]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        let enter = |network| room.enter(network).map(|place| (place.is_in_reserve, place));
        let mut places: Vec<_> = (0..100).filter_map(|_| enter(one)).collect();
        assert_eq!(places.iter().filter(|(is_in_reserve, _)| !is_in_reserve).count(), 4);
        assert_eq!(places.len(), 4 + RESERVE_OF_ONE);
        let others: Vec<_> = (0..3).filter_map(|_| enter(two)).collect();
        assert_eq!(others.iter().map(|(is, _)| *is).collect::<Vec<_>>(), [false, false, true]);
        places.remove(0);
        assert!(!enter(two).unwrap().0, "one was given back");
        drop((places, others));
        let taken = room.taken();
        assert!(taken.of.is_empty() && taken.all.normal + taken.all.reserve == 0);
    }

    #[tokio::test]
    async fn the_system_probes_silent_clients() {
        let bound = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = bound.local_addr().unwrap();
        let listener = Listener::new(bound, 1, || None);
        let _client = TcpStream::connect(address).await.unwrap();
        let Connection::Tcp(accepted) = listener.accept().await.stream else { panic!("not TCP") };
        assert!(sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), SILENT_FOR);
        let within = sockopt::tcp_user_timeout(&accepted).unwrap();
        assert_eq!(u128::from(within), SILENT_FOR.as_millis());
    }

    #[test]
    fn one_network_of_ipv6_is_one_client() {
        let network = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(network("2001:db8:1:2:3::4"), network("2001:db8:1:2:ffff::1"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
        assert_ne!(network("10.0.0.2"), network("10.0.0.1"));
    }
}
