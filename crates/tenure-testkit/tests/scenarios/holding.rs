//! Holding: releases that are late, holds that others end.

use tenure::{Broken, Ended, Fence, Released};

use crate::fixtures::*;

pub(super) async fn s48_a_late_release_is_told_so_and_does_not_touch_the_next_owner(
    site: &impl Site,
) {
    let (far, near) = (site.connect().await, site.connect().await);
    let late = far.mutex("x").ttl(ms(300)).renew(false).acquire().await.unwrap();
    let next = soon(near.mutex("x").acquire()).await.unwrap();
    assert!(next.fence() > late.fence());
    assert_eq!(late.release().await.unwrap(), Released::Late);
    assert_eq!(holders(&near, "x").await, [next.fence().get()]);
    next.release().await.unwrap();
}

pub(super) async fn s50_a_broken_hold_hears_of_it_by_push_and_the_line_moves(site: &impl Site) {
    let operator = site.connect().await;
    let mut holder = ChildProcess::on(site).await;
    holder.tell("claim a x 600000");
    let fence = Fence::new(holder.hears("held a").await.fence());
    let line: Vec<_> = (0..5).map(|_| wait_for(&operator, "x", secs(60))).collect();
    until_waiting(&operator, "x", 5).await;
    let broken = operator.break_hold("x", fence, "stuck").await.unwrap();
    assert_eq!(broken, Broken::Done);
    // Its next renewal would be minutes away.
    let ended = holder.hears_within("ended a", AT_ONCE).await;
    assert!(ended.0.contains("Broken") && ended.0.contains("stuck"), "{ended:?}");
    assert_eq!(operator.break_hold("x", fence, "again").await.unwrap(), Broken::MovedOn);
    for waiter in line {
        assert!(served(waiter).await.fence() > fence);
    }
    holder.tell("release a");
    let released = holder.hears("released a").await;
    assert!(released.0.contains(&format!("{:?}", Released::Late)), "{released:?}");
}

pub(super) async fn s51_a_hold_ends_at_its_longest_although_its_process_lives(site: &impl Site) {
    let tenure = site.connect().await;
    let lock = tenure.mutex("x").ttl(ms(600)).max_hold(ms(1800));
    let hold = lock.acquire().await.unwrap();
    let next = wait_for(&tenure, "x", secs(30));
    pause(ms(1200)).await;
    assert!(hold.is_live() && !next.is_finished());
    assert_eq!(soon(hold.lost()).await, Ended::MaxHold);
    assert!(served(next).await.fence() > hold.fence());
}
