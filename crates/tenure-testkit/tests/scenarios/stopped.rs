//! Processes that are stopped: holders and waiters.

use std::time::Duration;

use tenure::Released;

use crate::fixtures::*;

pub(super) async fn s4_a_holder_that_was_stopped_finds_its_hold_lost_before_anything_else(
    site: &impl Site,
) {
    let tenure = site.connect().await;
    let mut other = ChildProcess::on(site).await;
    other.tell("claim a x 1000");
    let old = other.hears("held a").await.fence();
    let next = wait_for(&tenure, "x", secs(30));
    until_waiting(&tenure, "x", 1).await;
    other.stop();
    let next = served(next).await;
    let granted = now();
    pause(ms(500)).await;
    other.go_on();
    let last_live = other.hears("lost a").await.at();
    assert!(last_live < granted, "it believed in its hold while another had it");
    assert!(next.fence().get() > old && next.is_live());
    other.tell("release a");
    let released = other.hears("released a").await;
    assert!(released.0.contains(&format!("{:?}", Released::Late)), "{released:?}");
    assert_eq!(holders(&tenure, "x").await, [next.fence().get()]);
}

pub(super) async fn s28_the_turn_of_a_stopped_waiter_passes_on_and_it_comes_back_to_the_line(
    site: &impl Site,
) {
    let tenure = site.connect().await;
    let hold = tenure.mutex("x").acquire().await.unwrap();
    let mut other = ChildProcess::on(site).await;
    other.tell("claim a x 30000");
    until_waiting(&tenure, "x", 1).await;
    let next = wait_for(&tenure, "x", secs(30));
    until_waiting(&tenure, "x", 2).await;
    other.stop();
    hold.release().await.unwrap();
    let given = holders(&tenure, "x").await[0];
    // At the end of a first life, far from the end of the ttl.
    let next = within(secs(12), next).await.unwrap().unwrap();
    assert!(next.fence().get() > given);
    other.go_on();
    until_waiting(&tenure, "x", 1).await;
    assert!(other.all("held a").is_empty(), "its turn was over");
    let fence = next.fence().get();
    next.release().await.unwrap();
    assert!(other.hears("held a").await.fence() > fence);
}

/// However many there are, and even if the last one to come is stopped, too.
pub(super) async fn s28_stopped_waiters_in_a_row_cost_a_first_life_each(site: &impl Site) {
    let (two, three, five) =
        tokio::join!(stopped_row(site, 2), stopped_row(site, 3), stopped_row(site, 5));
    for (count, waited) in [two, three, five] {
        // Two seconds for each, rather than the time until the next contact.
        println!("{count} in a row that were stopped: {waited:?}");
        assert!(waited < secs(2) * count + secs(4), "{waited:?} for {count}");
    }
}

/// How long the first waiter that reacts waits behind this many stopped ones.
async fn stopped_row(site: &impl Site, count: u32) -> (u32, Duration) {
    let name = format!("x{count}");
    let tenure = site.connect().await;
    let hold = tenure.mutex(&name).acquire().await.unwrap();
    let mut stopped = Vec::new();
    for number in 0..count as usize {
        let mut other = ChildProcess::on(site).await;
        other.tell(&format!("claim a {name} 30000"));
        until_waiting(&tenure, &name, number + 1).await;
        stopped.push(other);
    }
    // A waiter behind them, from another client.
    let client = site.connect().await;
    let next = wait_for(&client, &name, secs(30));
    until_waiting(&tenure, &name, count as usize + 1).await;
    let mut last = ChildProcess::on(site).await;
    last.tell(&format!("claim a {name} 30000"));
    until_waiting(&tenure, &name, count as usize + 2).await;
    stopped.push(last);
    // By then all have looked for the first time; on their own they ask again after twenty seconds.
    pause(LOOKED).await;
    stopped.iter().for_each(ChildProcess::stop);
    let released = now();
    hold.release().await.unwrap();
    drop(within(secs(60), next).await.unwrap().unwrap());
    (count, now().since(released))
}

pub(super) async fn s29_a_stopped_waiter_that_wakes_up_late_holds_only_what_the_engine_says(
    site: &impl Site,
) {
    let tenure = site.connect().await;
    let hold = tenure.mutex("x").acquire().await.unwrap();
    let mut other = ChildProcess::on(site).await;
    other.tell("claim a x 30000");
    until_waiting(&tenure, "x", 1).await;
    other.stop();
    hold.release().await.unwrap();
    let given = holders(&tenure, "x").await[0];
    // Its first life is over, and nobody else came.
    until_free(&tenure, "x").await;
    other.go_on();
    let held = other.hears("held a").await.fence();
    assert!(held > given, "it started on a turn that was over");
    assert_eq!(holders(&tenure, "x").await, [held]);
}
