//! Free ports.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::ServerError;

/// Below the kernel's range for outgoing connections. A client could take a port from that range while its
/// server is down, and a client that redials it could even reach itself.
const FIRST: u32 = 11_000;
/// How many ports a process reserves, so that no other test program takes the port of a server that is down for
/// a moment.
const EACH: u32 = 1_000;
const PROCESSES: u32 = 21;

/// The ports of this process.
struct Block {
    first: u32,
    next: AtomicU32,
    /// Bound as long as this process lives; marks the ports as reserved.
    _sign: Option<UnixListener>,
}

static BLOCK: LazyLock<Block> = LazyLock::new(|| {
    // Not always the same one first: an earlier process there may still be ending.
    let start = std::process::id();
    let numbers = (0..PROCESSES).map(|number| (start + number) % PROCESSES);
    let mut free = numbers.filter_map(|number| Some((number, sign(number)?)));
    // If there are more processes than blocks, two of them share one.
    let (number, sign) =
        free.next().map_or((start % PROCESSES, None), |(number, sign)| (number, Some(sign)));
    Block { first: FIRST + number * EACH, next: AtomicU32::new(0), _sign: sign }
});

fn sign(number: u32) -> Option<UnixListener> {
    let name = format!("tenure-test-ports-{number}");
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).ok()?).ok()
}

/// A port that is free now. It never returns the same one twice in a row; another program may still take it
/// first, so be ready to ask for another.
pub(crate) fn free() -> Result<u16, ServerError> {
    for _ in 0..EACH {
        let port = BLOCK.first + BLOCK.next.fetch_add(1, Ordering::Relaxed) % EACH;
        let port = u16::try_from(port).unwrap_or(u16::MAX);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(ServerError::new("no free port in a thousand tries"))
}
