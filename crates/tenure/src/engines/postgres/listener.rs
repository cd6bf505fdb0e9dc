//! Hears of turns, while there may be something to hear.
//!
//! It listens over a connection that steps go over, too, so that it begins with one round trip and no new connection. The
//! session that listens has the advisory lock with the number of this process, by which others know that somebody
//! does. When the process ends, the server closes the session and the lock is free.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use super::config::Listen;
use super::link::{Link, Reply};
use super::shared::Shared;
use super::statements::Statement;
use crate::model::error::{Error, Result};
use crate::observe;
use crate::world::{SystemWorld, World};

/// How often to look whether there is still something to hear, or whether there is now.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long it listens on when there is nothing to hear.
const LINGER: Duration = Duration::from_secs(10);
/// Whoever asks whether the engine is there does not wait for the session that listens for longer.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);
const SHORTEST_BACK_OFF: Duration = Duration::from_millis(10);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(2);

/// What the listener is told.
pub(super) enum Ask {
    /// There may be something to hear now.
    Listen,
    /// The session has ended.
    Ended,
    /// Say so when everything that was sent until now has been delivered.
    Flush(oneshot::Sender<()>),
}

pub(super) struct Listener {
    pub(super) shared: Arc<Shared>,
    pub(super) link: Link,
    pub(super) asks: mpsc::UnboundedReceiver<Ask>,
}

impl Listener {
    /// Listens and stops listening until the engine is closed.
    pub(super) async fn run(mut self) {
        let (mut back_off, mut failing_since) = (SHORTEST_BACK_OFF, None);
        while self.wait_until_needed().await {
            match self.listen().await {
                Ok(()) => (back_off, failing_since) = (SHORTEST_BACK_OFF, None),
                Err(error) => {
                    let failing = failing_since.get_or_insert_with(Instant::now).elapsed();
                    if failing >= self.shared.config.command_timeout {
                        self.shared.hears_no_more();
                    }
                    observe::connection_lost(&self.shared.profile.label, &error);
                    self.rest(back_off).await;
                    back_off = (back_off * 2).min(LONGEST_BACK_OFF);
                }
            }
        }
    }

    /// Waits before the next try. Meanwhile nobody hears anything, and nobody waits for that.
    async fn rest(&mut self, time: Duration) {
        let over = Instant::now() + time;
        while let Ok(Some(_)) = tokio::time::timeout_at(over, self.asks.recv()).await {}
    }

    /// Returns false if the engine was closed.
    async fn wait_until_needed(&mut self) -> bool {
        loop {
            let (now, later) = self.shared.places.should_listen(SystemWorld.now());
            match self.shared.config.listen {
                Listen::Always => return true,
                Listen::WhenNeeded if now => return true,
                Listen::WhenNeeded | Listen::Never => {}
            }
            // The session over which it was heard may have ended: no claim may count on a push.
            self.shared.listening.send_replace(false);
            let look = if later { LOOK_EVERY } else { Duration::from_secs(3600) };
            tokio::select! {
                ask = self.asks.recv() => match ask {
                    None => return false,
                    Some(Ask::Flush(done)) => drop(done),
                    Some(Ask::Listen | Ask::Ended) => {}
                },
                () = sleep(look) => {}
            }
        }
    }

    /// Listens until there is nothing to hear any more, or the session ends.
    async fn listen(&mut self) -> Result<()> {
        // What was said of an earlier session is not about this one.
        let mut flushes = Vec::new();
        while let Ok(ask) = self.asks.try_recv() {
            if let Ask::Flush(done) = ask {
                flushes.push(done);
            }
        }
        let process = self.shared.process;
        // Queued together: nothing can come between them.
        let listens = self.ask(Statement::owned(format!("LISTEN tenure_{process:x}")));
        let mut lock = self.lock();
        answer(listens).await?;
        let mut has_lock = has_lock(answer(lock).await?);
        self.shared.hears_now();
        for done in flushes {
            self.flush(done).await;
        }
        let (mut needed_at, mut look_at) = (Instant::now(), Instant::now() + LOOK_EVERY);
        loop {
            tokio::select! {
                ask = self.asks.recv() => match ask {
                    None => return Ok(()),
                    Some(Ask::Listen) => needed_at = Instant::now(),
                    // The next round listens over a new one.
                    Some(Ask::Ended) => return Ok(()),
                    Some(Ask::Flush(done)) => self.flush(done).await,
                },
                () = sleep_until(look_at) => {
                    look_at = Instant::now() + LOOK_EVERY;
                    if !has_lock {
                        lock = self.lock();
                        has_lock = self::has_lock(answer(lock).await?);
                        if has_lock {
                            // Until now this process seemed to be dead, and its places may have been set aside.
                            self.shared.hears_now();
                        }
                    }
                    let (now, _) = self.shared.places.should_listen(SystemWorld.now());
                    if now || self.shared.config.listen == Listen::Always {
                        needed_at = Instant::now();
                    } else if needed_at.elapsed() > LINGER {
                        return self.stop().await;
                    }
                }
            }
        }
    }

    async fn stop(&self) -> Result<()> {
        // First, so that no claim that is sent from now on counts on a push.
        self.shared.listening.send_replace(false);
        // All: a session that was asked to listen twice has the lock twice.
        let unlocks = self.ask(Statement::plain(
            "SELECT pg_advisory_unlock_all(), set_config('tenure.process', '', false)",
        ));
        let unlistens = self.ask(Statement::plain("UNLISTEN *"));
        answer(unlocks).await?;
        answer(unlistens).await.map(drop)
    }

    /// Notifications come before the answer to whatever is asked after them.
    async fn flush(&self, done: oneshot::Sender<()>) {
        let asked = answer(self.ask(Statement::plain("SELECT 1")));
        if matches!(tokio::time::timeout(FLUSH_WITHIN, asked).await, Ok(Ok(_))) {
            let _ = done.send(());
        }
    }

    /// Takes the lock that says that somebody listens. An earlier session of ours whose end the server has not noticed
    /// yet may still have it.
    ///
    /// If this host vanishes, the server must notice, or the lock stays: by default it takes two hours.
    fn lock(&self) -> oneshot::Receiver<Reply> {
        let process = self.shared.process;
        self.ask(Statement::owned(format!(
            "SELECT pg_try_advisory_lock({process}), set_config('tenure.process', '{process}', false), \
             set_config('tcp_keepalives_idle', '3', false), set_config('tcp_keepalives_interval', '1', false), \
             set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '6000', false)"
        )))
    }

    fn ask(&self, statement: Statement) -> oneshot::Receiver<Reply> {
        let (tell, told) = oneshot::channel();
        self.link.send(statement, move |reply| {
            let _ = tell.send(reply);
        });
        told
    }
}

async fn answer(told: oneshot::Receiver<Reply>) -> Reply {
    told.await.unwrap_or_else(|_| Err(Error::closed()))
}

fn has_lock((rows, _): (Vec<tokio_postgres::Row>, crate::model::moment::Moment)) -> bool {
    rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(false)
}
