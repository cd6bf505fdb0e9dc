//! How long claims, releases and closing take when the engine is gone.

use tenure::{ErrorKind, Tenure};
use tracing::Level;

use super::events::{keep, written};
use crate::redis_site::*;

/// Longer than any of these may take, and far less than a ttl or the engine's patience.
const SHORT: std::time::Duration = secs(4);

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_for_a_while_is_waited_for() {
    let server = server();
    for wait in [Some(secs(60)), None] {
        server.kill().unwrap();
        for tenure in [
            soon(Tenure::connect(&server.url())).await.unwrap(),
            soon(Tenure::connect_lazily(&server.url())).await.unwrap(),
        ] {
            let lock = tenure.mutex("x");
            let lock = if let Some(wait) = wait { lock.wait(wait) } else { lock };
            let waits = tokio::spawn(lock.join());
            // Without a wait it has five seconds.
            pause(if wait.is_some() { ms(6500) } else { ms(1000) }).await;
            assert!(!waits.is_finished());
            server.restart().unwrap();
            drop(served(waits).await);
            server.kill().unwrap();
        }
        server.restart().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_does_not_wait_soon_hears_that_the_engine_is_gone() {
    for hung in [false, true] {
        let server = server();
        let tenure = connect(&server.url()).await;
        drop(soon(tenure.mutex("x").acquire()).await.unwrap());
        if hung {
            server.pause().unwrap()
        } else {
            server.kill().unwrap()
        }
        for tenure in [tenure, soon(Tenure::connect_lazily(&server.url())).await.unwrap()] {
            for _ in 0..2 {
                let error = within(SHORT, tenure.mutex("x").try_acquire()).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            }
        }
    }
}

/// The end of a hold is logged when its owner has reached it, and ending a program does not wait for a ttl.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_nobody_hears_is_soon_over_and_so_is_closing() {
    keep();
    for hung in [false, true] {
        let server = server();
        let tenure = connect(&server.url()).await;
        let names = ["one", "two", "three"].map(|name| format!("unheard-{name}-{}", server.port()));
        let mut holds = Vec::new();
        for name in &names {
            holds.push(soon(tenure.mutex(name).ttl(secs(60)).acquire()).await.unwrap());
        }
        let held = soon(tenure.mutex("held").ttl(secs(60)).acquire()).await.unwrap();
        let waits = wait_for(&tenure, "held", secs(60));
        until_waiting(&tenure, "held", 1).await;
        let term = soon(tenure.election("unheard").ttl(secs(60)).campaign()).await.unwrap();
        if hung {
            server.pause().unwrap()
        } else {
            server.kill().unwrap()
        }
        for hold in holds {
            let released = within(SHORT, hold.release()).await.unwrap();
            assert_eq!(format!("{released:?}"), "Unknown");
        }
        for name in &names {
            let said = written("name", name, &["lock.release_unanswered", "lock.released"]);
            assert_eq!(said, [(Level::WARN, "lock.release_unanswered".to_owned())]);
        }
        assert_eq!(format!("{:?}", within(SHORT, term.resign()).await.unwrap()), "Unknown");
        assert_eq!(written("name", "unheard", &["leader.resigned"]), []);
        waits.abort();
        drop(held);
        within(SHORT, tenure.close()).await;
    }
}

/// An unanswered release is sent again: the name is free when the server is back, not when the ttl is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_nobody_heard_arrives_when_the_engine_is_back() {
    let server = server();
    let (ours, theirs) = (connect(&server.url()).await, connect(&server.url()).await);
    let hold = soon(ours.mutex("x").ttl(secs(600)).acquire()).await.unwrap();
    server.pause().unwrap();
    assert_eq!(format!("{:?}", soon(hold.release()).await.unwrap()), "Unknown");
    server.resume().unwrap();
    drop(soon(theirs.mutex("x").acquire()).await.unwrap());
}
