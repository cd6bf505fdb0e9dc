use std::future::Future;
use std::pin::Pin;

use tenure::{Hold, Options, Result, Tenure, blocking};

/// The primitives that can stand in for a mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusive {
    /// The mutex itself.
    Mutex,
    /// A semaphore with one unit.
    SemaphoreOfOne,
    /// The last unit of a semaphore with five, four of which are taken.
    LastOfFive,
    /// The write side of a read-write lock.
    Writer,
    /// `all` of one name.
    AllOfOne,
    /// The blocking mutex; on real time only, because it waits on a thread.
    Blocking,
}

/// The owner of the four units.
pub(super) const FILLER: &str = "filler";

type Asked<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

impl Exclusive {
    /// All that also run on virtual time.
    pub const ALL: [Exclusive; 5] = [
        Exclusive::Mutex,
        Exclusive::SemaphoreOfOne,
        Exclusive::LastOfFive,
        Exclusive::Writer,
        Exclusive::AllOfOne,
    ];

    /// The hold that makes the name exclusive.
    pub(super) async fn prepare(self, client: &Tenure, name: &str) -> Option<Hold> {
        match self {
            Exclusive::LastOfFive => {
                let taken = client.semaphore(name, 5).owner(FILLER).acquire_many(4).await;
                Some(taken.expect("four of five are free"))
            }
            _ => None,
        }
    }

    /// Takes the place in line now, if the primitive can; the future waits for the turn.
    pub(super) fn join(self, client: &Tenure, name: &str, options: Options) -> Asked<Hold> {
        match self {
            Exclusive::Mutex => Box::pin(client.mutex(name).options(options).join()),
            Exclusive::SemaphoreOfOne => {
                Box::pin(client.semaphore(name, 1).options(options).join_many(1))
            }
            Exclusive::LastOfFive => {
                Box::pin(client.semaphore(name, 5).options(options).join_many(1))
            }
            Exclusive::Writer => Box::pin(client.rwlock(name).options(options).join_write()),
            Exclusive::AllOfOne => Box::pin(client.all([name]).options(options).acquire()),
            Exclusive::Blocking => {
                let joined = blocking(client).mutex(name).options(options).join();
                Box::pin(waiting(move || joined.wait().map(blocking::Hold::into_inner)))
            }
        }
    }

    /// Acquires it if it is free.
    pub(super) async fn try_acquire(
        self,
        client: &Tenure,
        name: &str,
        options: Options,
    ) -> Result<Option<Hold>> {
        match self {
            Exclusive::Mutex => client.mutex(name).options(options).try_acquire().await,
            Exclusive::SemaphoreOfOne => {
                client.semaphore(name, 1).options(options).try_acquire().await
            }
            Exclusive::LastOfFive => client.semaphore(name, 5).options(options).try_acquire().await,
            Exclusive::Writer => client.rwlock(name).options(options).try_write().await,
            Exclusive::AllOfOne => client.all([name]).options(options).try_acquire().await,
            Exclusive::Blocking => {
                let mutex = blocking(client).mutex(name).options(options);
                let tried = move || mutex.try_acquire();
                Ok(waiting(tried).await?.map(blocking::Hold::into_inner))
            }
        }
    }
}

fn blocking(client: &Tenure) -> blocking::Tenure {
    blocking::Tenure::from_async(client.clone()).expect("a thread")
}

/// Waits on a thread where blocking is allowed. Not one of the runtime: when another case fails, the runtime would wait
/// for it for ever.
async fn waiting<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, waited) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || done.send(call()));
    waited.await.expect("no panic")
}
