//! Which server is the primary, according to the sentinels.
//!
//! A primary that was replaced accepts writes for some more seconds, until the sentinels have made it a
//! replica. So every connection to a primary is accompanied by one to each sentinel, which reports when
//! another server takes over. And when a server has lost a replica, its answers count only if the sentinels
//! agree that it is still the primary.

use std::future::{Future, pending, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::config::{Address, Topology};
use super::connection::handshake::{Greeting, SerialConnection, field, greet};
use super::connection::stream::Stream;
use super::connection::{Connection, Purpose, Reply};
use super::setup::Setup;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;

/// After the second event one sentinel names the new primary; after the first, all of them do.
const EVENTS: [&[u8]; 2] = [b"+switch-master", b"+failover-state-reconf-slaves"];
/// A sentinel that has been silent for this long is asked.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// Within this time a change has spread to all sentinels.
const SPREAD: Duration = Duration::from_secs(3);
/// How long a sentinel may take to answer while a renewal waits for it.
const AT_ONCE: Duration = Duration::from_millis(300);
/// A replica that was last heard from longer ago than this, in seconds, may have lost its primary.
const LONGEST_LAG: u64 = 3;

/// The last change of the primary that a sentinel reported.
#[derive(Clone)]
struct Switch {
    from: Address,
    to: Address,
    heard: Moment,
}

/// What the sentinels have said, and how to ask them.
pub(super) struct Sentinels {
    setup: Arc<Setup>,
    /// The last change of the primary that one of them reported.
    switch: Mutex<Option<Switch>>,
}

/// Why a server may no longer be the primary.
pub(super) struct Doubt {
    pub(super) error: Error,
    /// Another server is certainly the primary.
    pub(super) is_replaced: bool,
}

impl From<Error> for Doubt {
    fn from(error: Error) -> Doubt {
        Doubt { error, is_replaced: false }
    }
}

impl Sentinels {
    pub(super) fn new(setup: Arc<Setup>) -> Sentinels {
        Sentinels { setup, switch: Mutex::default() }
    }

    fn switch(&self) -> MutexGuard<'_, Option<Switch>> {
        self.switch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn service(&self) -> Option<(&[Address], &str)> {
        match &self.setup.config.topology {
            Topology::Sentinel { sentinels, service } => Some((sentinels, service)),
            _ => None,
        }
    }

    /// Connects to the primary that most of the sentinels name. A server that one of them has just named in
    /// place of another is tried first: the other sentinels may not know of it yet.
    pub(super) async fn greet_primary(&self, purpose: Purpose) -> Result<(Stream, Greeting)> {
        let switch = self.switch().clone();
        let recent = switch.filter(|switch| self.setup.now().since(switch.heard) < 2 * SPREAD);
        if let Some(Switch { to, .. }) = recent
            && let Ok((stream, greeting)) = greet(&self.setup, &to, purpose).await
        {
            return Ok((stream, Greeting { primary: Some(to), ..greeting }));
        }
        let sentinels = self.service().map_or(0, |(sentinels, _)| sentinels.len());
        let limit = self.setup.config.connect_timeout / 4;
        let (named, failure) = self.ask_sentinels(sentinels / 2 + 1, limit).await;
        let mut failure = failure.unwrap_or_else(|| Error::invalid("the URL names no sentinel"));
        for primary in by_votes(named) {
            match greet(&self.setup, &primary, purpose).await {
                Ok((stream, greeting)) => {
                    return Ok((stream, Greeting { primary: Some(primary), ..greeting }));
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Asks all sentinels at once, until `enough` have named a primary or all have answered.
    async fn ask_sentinels(&self, enough: usize, limit: Duration) -> (Vec<Address>, Option<Error>) {
        let Some((sentinels, service)) = self.service() else { return (Vec::new(), None) };
        let asked = sentinels.iter().map(|sentinel| async move {
            let named = timeout(limit, self.ask_sentinel(sentinel, service)).await;
            named.map_err(|_| silent(sentinel, limit))??.ok_or_else(|| {
                let reason = format!("the sentinel {sentinel} does not know {service:?}");
                Error::new(ErrorKind::Unavailable, reason)
            })
        });
        let (mut named, mut failure) = (Vec::new(), None);
        for answer in gather(asked.collect(), enough).await {
            match answer {
                Ok(primary) => named.push(primary),
                Err(error) => failure = Some(error),
            }
        }
        (named, failure)
    }

    pub(super) async fn ask_sentinel(
        &self,
        sentinel: &Address,
        service: &str,
    ) -> Result<Option<Address>> {
        // A sentinel that hangs must not use up the time of the others.
        let limit = self.setup.config.connect_timeout / 4;
        let asked = async {
            let mut talk = self.talk_to_sentinel(sentinel).await?;
            primary_of(&mut talk, service).await
        };
        timeout(limit, asked).await.map_err(|_| silent(sentinel, limit))?
    }

    pub(super) async fn talk_to_sentinel<'a>(
        &self,
        sentinel: &'a Address,
    ) -> Result<SerialConnection<'a>> {
        let config = &self.setup.config;
        let mut talk = SerialConnection::open(&self.setup, sentinel).await?;
        let (user, password) = (&config.sentinel_user, &config.sentinel_password);
        talk.log_in(user.as_deref(), password.as_ref(), &config.client_name).await?;
        Ok(talk)
    }

    /// Returns when a sentinel says that another server has taken over from `primary`.
    ///
    /// # Cancel safety
    /// Safe: it only listens.
    pub(super) async fn replaced(&self, primary: &Address) {
        let Some((sentinels, service)) = self.service() else { return pending().await };
        let watches = sentinels.iter().map(|sentinel| async move {
            loop {
                match self.listen_to(sentinel, service, primary).await {
                    Ok(next) => return Ok(next),
                    Err(error) => tracing::debug!(%sentinel, %error, "sentinel.lost"),
                }
                sleep(Duration::from_millis(1000 + self.setup.random() % 1000)).await;
            }
        });
        if let Some(Ok(to)) = gather(watches.collect(), 1).await.pop() {
            let (from, heard) = (primary.clone(), self.setup.now());
            *self.switch() = Some(Switch { from, to, heard });
        }
    }

    /// Waits until this sentinel names another primary than `primary`, and returns that.
    async fn listen_to(
        &self,
        sentinel: &Address,
        service: &str,
        primary: &Address,
    ) -> Result<Address> {
        let limit = self.setup.config.connect_timeout / 4;
        let begun = async {
            let mut talk = self.talk_to_sentinel(sentinel).await?;
            for event in EVENTS {
                talk.ask(&[b"SUBSCRIBE", event]).await?;
            }
            let named = primary_of(&mut talk, service).await?;
            Ok((talk, named))
        };
        let begun: Result<_> =
            timeout(limit, begun).await.unwrap_or_else(|_| Err(silent(sentinel, limit)));
        let (mut talk, mut before) = begun?;
        while before.as_ref().is_some_and(|before| before != primary) {
            // Either we or this sentinel missed a change: the other sentinels know which.
            let known = self.switch().clone();
            let is_behind =
                known.is_some_and(|it| Some(&it.from) == before.as_ref() && it.to == *primary);
            if !is_behind {
                let sentinels = self.service().map_or(0, |(sentinels, _)| sentinels.len());
                let (named, _) = self.ask_sentinels(sentinels, limit).await;
                let most = by_votes(named).into_iter().next();
                if let Some(next) = most.filter(|most| most != primary) {
                    return Ok(next);
                }
            }
            sleep(SPREAD).await;
            before = primary_of(&mut talk, service).await?;
        }
        loop {
            if let Ok(heard) = timeout(ASK_EVERY, talk.push()).await {
                heard?;
            }
            let named = timeout(limit, primary_of(&mut talk, service)).await;
            if let Some(named) = named.map_err(|_| silent(sentinel, limit))??
                && named != *primary
            {
                return Ok(named);
            }
        }
    }

    /// Checks whether the answers of the server at the other end of `connection` count. `heard` is what the
    /// server said about its replicas afterwards: a replica that has disconnected may be the new primary.
    pub(super) async fn confirm(
        &self,
        connection: &Connection,
        heard: oneshot::Receiver<Result<Reply>>,
    ) -> Result<(), Doubt> {
        let lost = || Error::new(ErrorKind::Unavailable, "the connection was closed");
        let Reply { value, .. } = heard.await.map_err(|_| lost())??;
        // No text: the user is not allowed to run INFO.
        let Some(info) = value.as_str() else { return Ok(()) };
        let no_primary = || {
            let reason = "the server is no longer the primary";
            let error = Error::new(ErrorKind::Unavailable, reason).not_now();
            Doubt { error, is_replaced: true }
        };
        if field(info, "role") != "master" {
            return Err(no_primary());
        }
        let here = info.lines().filter(|line| is_replica_here(line)).count();
        let primary = {
            let mut state = connection.state();
            state.replicas = state.replicas.max(here);
            state.primary.clone().filter(|_| here < state.replicas)
        };
        let Some(primary) = primary else { return Ok(()) };
        let sentinels = self.service().map_or(0, |(sentinels, _)| sentinels.len());
        let (named, _) = self.ask_sentinels(sentinels, AT_ONCE).await;
        if named.iter().any(|named| *named != primary) {
            return Err(no_primary());
        }
        if named.len() * 2 > sentinels {
            return Ok(());
        }
        let reason = format!(
            "the server has lost a replica, and {} of {sentinels} sentinels say that it is still the \
             primary",
            named.len()
        );
        Err(Error::new(ErrorKind::Unavailable, reason)
            .next("are the sentinels reachable from here?")
            .into())
    }
}

async fn primary_of(talk: &mut SerialConnection<'_>, service: &str) -> Result<Option<Address>> {
    let parts: [&[u8]; 3] = [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", service.as_bytes()];
    let answer = talk.ask_between_pushes(&parts).await?;
    let Some([host, port]) = answer.as_list() else { return Ok(None) };
    let port = port.as_int().and_then(|port| port.try_into().ok());
    Ok(host.as_str().zip(port).map(|(host, port)| Address::Tcp { host: host.to_owned(), port }))
}

/// The named servers, the one that was named most often first.
fn by_votes(named: Vec<Address>) -> Vec<Address> {
    let votes = |address: &Address| named.iter().filter(|other| *other == address).count();
    let mut all: Vec<Address> = Vec::new();
    for address in &named {
        if !all.contains(address) {
            all.push(address.clone());
        }
    }
    all.sort_by_key(|address| usize::MAX - votes(address));
    all
}

fn silent(sentinel: &Address, limit: Duration) -> Error {
    let reason = format!("the sentinel {sentinel} did not answer within {limit:?}");
    Error::new(ErrorKind::Unavailable, reason)
}

/// Whether a line of `INFO` describes a replica that follows this primary.
fn is_replica_here(line: &str) -> bool {
    let facts = line.strip_prefix("slave").and_then(|rest| rest.split_once(':'));
    let Some((number, facts)) = facts else { return false };
    let fact = |name: &str| facts.trim_end().split(',').find_map(|fact| fact.strip_prefix(name));
    number.bytes().all(|byte| byte.is_ascii_digit())
        && fact("state=") == Some("online")
        && fact("lag=").and_then(|lag| lag.parse().ok()).is_some_and(|lag: u64| lag <= LONGEST_LAG)
}

/// Runs all futures at once until `enough` have succeeded or all have ended.
async fn gather<T, F>(all: Vec<F>, enough: usize) -> Vec<Result<T>>
where
    F: Future<Output = Result<T>>,
{
    let mut running: Vec<_> = all.into_iter().map(Box::pin).collect();
    let mut ended = Vec::new();
    poll_fn(|cx| {
        running.retain_mut(|one| match one.as_mut().poll(cx) {
            Poll::Ready(result) => {
                ended.push(result);
                false
            }
            Poll::Pending => true,
        });
        let succeeded = ended.iter().filter(|result| result.is_ok()).count();
        match running.is_empty() || succeeded >= enough {
            true => Poll::Ready(std::mem::take(&mut ended)),
            false => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_majority_comes_first() {
        let at = |port| Address::Tcp { host: "h".into(), port };
        assert_eq!(by_votes(vec![at(1), at(2), at(2)]), [at(2), at(1)]);
        assert_eq!(by_votes(vec![at(1), at(2), at(1)]), [at(1), at(2)]);
        assert!(by_votes(Vec::new()).is_empty());
    }

    #[test]
    fn a_replica_counts_while_it_follows() {
        for (line, counts) in [
            ("slave0:ip=127.0.0.1,port=2,state=online,offset=9,lag=0\r", true),
            ("slave11:ip=127.0.0.1,port=2,state=online,offset=9,lag=3", true),
            ("slave0:ip=127.0.0.1,port=2,state=online,offset=9,lag=4", false),
            ("slave0:ip=127.0.0.1,port=2,state=wait_bgsave,offset=0,lag=0", false),
            ("slave_read_only:1", false),
            ("connected_slaves:1", false),
        ] {
            assert_eq!(is_replica_here(line), counts, "{line}");
        }
    }
}
