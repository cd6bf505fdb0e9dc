//! Ports that nobody listens on.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use super::ServerError;

/// Below what the kernel gives to outgoing connections. A port from that range could be taken by a
/// client while its server is down, and a client that redials it could even reach itself.
const FIRST: u32 = 11_000;
const MANY: u32 = 21_000;

/// A port that is free now. It never gives the same one twice in a row; another process may still be
/// faster, so whoever listens on it must be ready to ask for another.
pub(crate) fn free() -> Result<u16, ServerError> {
    static NEXT: OnceLock<AtomicU32> = OnceLock::new();
    let next = NEXT.get_or_init(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let seed = now.map_or(0, |now| now.subsec_nanos()) ^ std::process::id().rotate_left(16);
        AtomicU32::new(seed.wrapping_mul(0x9E37_79B1) >> 1)
    });
    for _ in 0..1000 {
        let port = FIRST + next.fetch_add(1, Ordering::Relaxed) % MANY;
        let port = u16::try_from(port).unwrap_or(u16::MAX);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(ServerError::new("no free port in a thousand tries"))
}
