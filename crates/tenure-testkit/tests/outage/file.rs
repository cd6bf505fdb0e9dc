//! A file whose writer lock is taken: its holder was stopped.

use tenure::{ErrorKind, OnOutage, Protection};

use super::policies::POLICIES;
use crate::file_site::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_locked_is_an_outage_until_it_can_be_again() {
    for (policy, _, protection) in POLICIES {
        let site = FileSite::new();
        let (ours, theirs) = (site.connect().await, site.connect().await);
        let ask = |name: &str| ours.mutex(name).on_outage(policy);
        let before = ask("x").acquire().await.unwrap();
        assert_eq!(before.protection(), Protection::Engine);
        let _taken = theirs.mutex("taken").ttl(secs(600)).acquire().await.unwrap();
        let waits = tokio::spawn(ask("taken").join());
        until_waiting(&theirs, "taken", 1).await;
        let lock = site.lock_writers();
        let hold = soon(ask("y").acquire()).await.unwrap();
        assert_eq!(hold.protection(), protection);
        let other = soon(ask("y").try_acquire()).await.unwrap();
        assert_eq!(other.is_some(), policy == OnOutage::Open);
        assert_eq!(served(waits).await.protection(), protection);
        let closed = soon(ours.mutex("z").acquire()).await.unwrap_err();
        assert_eq!(closed.kind(), ErrorKind::Unavailable, "{closed}");
        drop((lock, other));
        let fence = hold.fence();
        let back = soon(async {
            loop {
                let back = ask("w").acquire().await.unwrap();
                if back.protection() == Protection::Engine {
                    return back;
                }
                pause(ms(20)).await;
            }
        })
        .await;
        assert!(back.fence() > fence);
        let waits = tokio::spawn(ask("y").join());
        if policy == OnOutage::Local {
            pause(ms(300)).await;
            assert!(!waits.is_finished(), "two of this process are inside");
        }
        drop(hold);
        assert_eq!(served(waits).await.protection(), Protection::Engine);
        assert!(before.is_live());
    }
}
