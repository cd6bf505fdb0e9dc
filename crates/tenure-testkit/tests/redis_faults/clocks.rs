//! Clocks: steps of the server's, and that of a stopped process.
//!
//! S6, a client whose wall clock is wrong, has no test here: nothing of the client's wall clock is
//! sent or compared. `clock.rs` of the library reads CLOCK_BOOTTIME alone.

use tenure::{Ended, Released};
use tenure_testkit::servers::{Clock, Redis};

use crate::redis_site::*;

const HOUR: i64 = 3_600_000;

#[tokio::test(flavor = "multi_thread")]
async fn s2_a_server_clock_that_steps_back_prolongs_what_is_held_and_nothing_else() {
    let clock = Clock::new().unwrap();
    let server = Redis::build().clock(&clock).start().unwrap();
    let tenure = connect(&server.url()).await;
    let dead = tenure.mutex("dead").ttl(ms(800)).renew(false).acquire().await.unwrap();
    let live = tenure.mutex("live").ttl(ms(800)).acquire().await.unwrap();
    let next = wait_for(&tenure, "live", ms(800));
    until_waiting(&tenure, "live", 1).await;
    clock.offset(-HOUR).unwrap();
    // The caller's clock decides when its hold is lost, the server's when others may have it: later, never earlier.
    assert_eq!(soon(dead.lost()).await, Ended::Expired);
    assert!(tenure.mutex("dead").try_acquire().await.unwrap().is_none());
    // As long as its process lives, the name does not stay taken for an hour: the claim is left, to be sure.
    until_free(&tenure, "dead").await;
    assert_eq!(dead.release().await.unwrap(), Released::Late);
    // If its process is gone, the name does stay taken; an operator ends that.
    let fence = hold_like_the_dead(&tenure, "gone", ms(500)).await;
    clock.offset(-2 * HOUR).unwrap();
    let gone = view(&tenure, "gone").await.unwrap().holders[0].fence;
    assert_eq!(gone.get(), fence);
    tenure.break_hold("gone", gone, "its process is gone").await.unwrap();
    assert!(soon(tenure.mutex("gone").acquire()).await.unwrap().fence() > gone);
    // Live holds are renewed and handed over as ever, and fences rise.
    assert!(live.is_live());
    let fence = live.fence();
    assert_eq!(live.release().await.unwrap(), Released::InTime);
    let next = served(next).await;
    assert!(next.fence() > fence);
    // Holds that begin after the step end in their time.
    let fence = hold_like_the_dead(&tenure, "after", ms(500)).await;
    assert!(within(secs(5), tenure.mutex("after").acquire()).await.unwrap().fence().get() > fence);
}

#[tokio::test(flavor = "multi_thread")]
async fn s2_a_server_clock_that_steps_ahead_ends_holds_and_they_hear_of_it() {
    let clock = Clock::new().unwrap();
    let server = Redis::build().clock(&clock).start().unwrap();
    let tenure = connect(&server.url()).await;
    let hold = tenure.mutex("x").ttl(secs(3)).acquire().await.unwrap();
    clock.offset(HOUR).unwrap();
    // At its next contact, long before its own deadline, and with the reason.
    let ended = within(secs(3), hold.lost()).await;
    assert!(
        matches!(ended, Ended::ClockStep { by } if by.as_secs().abs_diff(3600) < 2),
        "{ended:?}"
    );
    assert!(
        ended.to_string().starts_with("the engine's clock stepped forward by about "),
        "{ended}"
    );
    let next = soon(tenure.mutex("x").acquire()).await.unwrap();
    assert!(next.fence() > hold.fence());
    clock.offset(0).unwrap();
    drop(next);
    assert!(soon(tenure.mutex("x").acquire()).await.unwrap().fence() > hold.fence());
}

/// A step that is too short to have ended the hold is not the reason why it is gone.
#[tokio::test(flavor = "multi_thread")]
async fn s2_a_short_step_does_not_explain_a_hold_that_was_deleted() {
    let clock = Clock::new().unwrap();
    let server = Redis::build().clock(&clock).start().unwrap();
    let tenure = connect(&server.url()).await;
    let hold = tenure.mutex("x").ttl(secs(9)).acquire().await.unwrap();
    clock.offset(500).unwrap();
    let key = key_of(&server, "x");
    server.command(&["DEL", &key]).unwrap();
    assert_eq!(within(secs(9), hold.lost()).await, Ended::Forgotten);
}
