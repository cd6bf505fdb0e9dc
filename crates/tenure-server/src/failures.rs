//! Limits requests without a known token: a network that sends too many is told to wait.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use hyper::StatusCode;
use tenure::engine::Moment;

use crate::problem::Problem;

/// How many one network may send within [`WINDOW`]. Someone who is still looking for the right token sends some, and
/// so does a page that asks for one.
const MOST: u32 = 30;
const WINDOW: Duration = Duration::from_secs(60);
/// How many networks are remembered.
const MOST_NETWORKS: usize = 10_000;

/// Lately failed requests, by network: when the first one was, and how many.
#[derive(Default)]
pub(crate) struct Failures(Mutex<hashbrown::HashMap<IpAddr, (Moment, u32), RandomState>>);

impl Failures {
    /// The answer to a request without a known token. A request with a known one is never refused because of others
    /// behind the same address.
    pub(crate) fn refuse(&self, network: IpAddr, now: Moment) -> Problem {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST_NETWORKS {
            all.retain(|_, (since, _)| now < *since + WINDOW);
            // More networks than that within a minute: none of them is worth remembering.
            if all.len() >= MOST_NETWORKS {
                all.clear();
            }
        }
        let (since, count) = all.entry(network).or_insert((now, 0));
        if now >= *since + WINDOW {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        let (left, count) = (now.until(*since + WINDOW), *count);
        drop(all);
        if count == 1 || count == MOST + 1 {
            tracing::warn!(event = "server.unauthorized", from = %network, count);
        }
        if count > MOST {
            return Problem::too_many("too many requests without a known token").after(left);
        }
        let why = "a token is required, in the header Authorization: Bearer TOKEN";
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", why)
    }
}

#[cfg(test)]
mod tests {
    use tenure::engine::{SystemWorld, World};

    use super::*;

    #[test]
    fn a_network_that_fails_too_often_waits_and_others_do_not() {
        let (failures, now) = (Failures::default(), SystemWorld.now());
        let [one, two]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        let status = |network, at| failures.refuse(network, at).status.as_u16();
        assert!((0..MOST).all(|_| status(one, now) == 401));
        assert_eq!((status(one, now), status(two, now)), (429, 401));
        assert_eq!((status(one, now + WINDOW / 2), status(one, now + WINDOW)), (429, 401));
    }

    #[test]
    fn many_networks_take_little_room() {
        let (failures, now) = (Failures::default(), SystemWorld.now());
        for number in 0..100_000_u32 {
            failures.refuse(IpAddr::from(number.to_be_bytes()), now);
        }
        assert!(failures.0.lock().unwrap().len() <= MOST_NETWORKS);
    }
}
