//! Processes that are killed: whoever comes next is served at once, and not when a ttl is over.

use crate::probe_file::*;

/// Far longer than a test waits: nothing may depend on its end.
const TTL: &str = "600000";

#[tokio::test(flavor = "multi_thread")]
async fn s111_the_next_is_served_at_once_when_a_holder_is_killed() {
    let ground = Ground::new();
    let tenure = ground.connect().await;
    for round in 0..5 {
        let name = format!("x{round}");
        let mut holder = Other::on(&ground).await;
        let mut waiter = Other::on(&ground).await;
        holder.tell(&format!("claim a {name} {TTL}"));
        let fence = holder.hears("held a").await.fence();
        waiter.tell(&format!("claim b {name} {TTL}"));
        until_waiting(&tenure, &name, 1).await;
        // Its zombie is there until the end: nobody reaps it.
        let killed = holder.kill();
        let held = waiter.hears_within("held b", AT_ONCE).await;
        assert!(held.fence() > fence);
        assert!(killed.until(held.at()) < AT_ONCE, "{:?}", killed.until(held.at()));
        assert_eq!(holder.state(), 'Z');
    }
    ground.is_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn s111_whoever_comes_first_finds_that_a_holder_was_killed() {
    let ground = Ground::new();
    let tenure = ground.connect().await;
    let mut holder = Other::on(&ground).await;
    for (tag, name) in [("a", "x"), ("b", "y"), ("c", "z")] {
        holder.tell(&format!("claim {tag} {name} {TTL}"));
        holder.hears(&format!("held {tag}")).await;
    }
    assert!(tenure.mutex("x").try_acquire().await.unwrap().is_none());
    holder.kill();
    holder.reap();
    assert!(tenure.mutex("x").try_acquire().await.unwrap().is_some(), "by a try");
    assert_eq!(view(&tenure, "y").await, None, "by a look");
    drop(within(AT_ONCE, tenure.mutex("z").acquire()).await.unwrap());
}

/// A holds, B to E wait; two of them are killed at once, in every order, and each time the first
/// of those that live is served.
#[tokio::test(flavor = "multi_thread")]
async fn s111_the_line_goes_on_whoever_of_it_is_killed() {
    let ground = Ground::new();
    let tenure = ground.connect().await;
    let pairs = (0..5).flat_map(|one| (0..5).map(move |two| (one, two)));
    for (round, (one, two)) in pairs.filter(|(one, two)| one != two).enumerate() {
        let name = format!("x{round}");
        let mut line = Vec::new();
        for place in 0..5 {
            let mut other = Other::on(&ground).await;
            other.tell(&format!("claim t {name} {TTL}"));
            match place {
                0 => drop(other.hears("held t").await),
                _ => until_waiting(&tenure, &name, place).await,
            }
            line.push(Some(other));
        }
        let mut gone = [line[one].take().unwrap(), line[two].take().unwrap()];
        for other in &mut gone {
            other.kill();
        }
        let mut last = 0;
        for (place, other) in line.iter_mut().enumerate() {
            let Some(mut other) = other.take() else { continue };
            let held = other.hears_within("held t", AT_ONCE).await;
            assert!(held.fence() > last, "{place} of {one} and {two}");
            last = held.fence();
            // By release and by death in turn.
            if place % 2 == 0 {
                other.tell("release t");
                other.hears("released t").await;
            } else {
                other.kill();
            }
        }
        assert_eq!(view(&tenure, &name).await, None);
    }
    ground.is_sound();
}
