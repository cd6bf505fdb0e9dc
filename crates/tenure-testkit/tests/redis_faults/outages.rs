//! Servers that are down, silent or full of clients, and how a thousand waiters behave meanwhile.

use tenure::{ErrorKind, Hold, Tenure};
use tenure_testkit::proxy::{Direction, Proxy};
use tenure_testkit::servers::Redis;
use tokio::task::JoinHandle;

use crate::redis_site::*;

/// Clients that hold a name each, with one more that waits for it.
async fn clients(
    proxy: &Proxy,
    count: usize,
) -> Vec<(Tenure, Hold, JoinHandle<tenure::Result<Hold>>)> {
    let mut clients = Vec::new();
    for number in 0..count {
        let tenure = connect(&through(proxy, "")).await;
        let name = format!("x{number}");
        let hold = tenure.mutex(&name).ttl(secs(60)).acquire().await.unwrap();
        let waiter = wait_for(&tenure, &name, secs(60));
        until_waiting(&tenure, &name, 1).await;
        clients.push((tenure, hold, waiter));
    }
    clients
}

#[tokio::test(flavor = "multi_thread")]
async fn s23_clients_of_a_server_that_is_down_come_back_without_a_storm() {
    const CLIENTS: usize = 50;
    let server = Redis::build().aof(tenure_testkit::servers::Fsync::Always).start().unwrap();
    let proxy = proxy(&server);
    let clients = clients(&proxy, CLIENTS).await;
    server.kill().unwrap();
    // The first second has the short pauses; from then on each client's two connections try once or twice
    // a second each.
    pause(secs(2)).await;
    let before = proxy.accepted();
    pause(secs(3)).await;
    let rate = (proxy.accepted() - before) / 3;
    assert!(rate > 0, "they have given up");
    assert!(rate <= 4 * CLIENTS as u64, "{rate} connections a second");
    server.restart().unwrap();
    within(secs(10), async {
        for (tenure, hold, waiter) in clients {
            assert!(hold.is_live());
            hold.release().await.unwrap();
            served(waiter).await.release().await.unwrap();
            while tenure.health().await.is_err() {
                pause(ms(20)).await;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s25_a_server_that_accepts_and_never_answers_times_out_and_stops_nobody_else() {
    let (mute, well) = (server(), server());
    let proxy = proxy(&mute);
    let query = "?connect_timeout=500ms&command_timeout=500ms";
    let tenure = connect(&through(&proxy, query)).await;
    let other = connect(&well.url()).await;
    let hold = other.mutex("x").ttl(secs(1)).acquire().await.unwrap();
    for established in [true, false] {
        if established {
            proxy.hold(Direction::Downstream);
        } else {
            proxy.mute().unwrap();
            proxy.reset();
        }
        let asks: Vec<_> =
            (0..10).map(|n| tokio::spawn(tenure.mutex(format!("x{n}")).join())).collect();
        for _ in 0..50 {
            within(secs(5), other.mutex("y").acquire()).await.unwrap().release().await.unwrap();
        }
        for ask in asks {
            let error = within(secs(8), ask).await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
    }
    let mute = within(secs(8), Tenure::connect(&through(&proxy, query))).await.unwrap();
    let error = within(secs(8), mute.health()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(hold.is_live());
    proxy.pass().unwrap();
    // A connection that was made before that stays mute until it times out.
    drop(soon(tenure.mutex("z").wait(secs(20)).acquire()).await.unwrap());
    // Claims that gave up have left nothing that would stay for a ttl.
    for number in 0..10 {
        until_free(&tenure, &format!("x{number}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_without_an_answer_fails_after_its_wait_or_the_connect_timeout() {
    let server = server();
    let tenure = connect(&format!("{}?connect_timeout=500ms", server.url())).await;
    server.kill().unwrap();
    for wait in [None, Some(ms(800))] {
        let lock = tenure.mutex("x");
        let lock = if let Some(wait) = wait { lock.wait(wait) } else { lock };
        let error = within(secs(8), lock.acquire()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    let error = within(secs(8), tenure.mutex("x").try_acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let down = within(secs(8), Tenure::connect(&server.url())).await.unwrap();
    let error = within(secs(8), down.health()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.restart().unwrap();
    // The connection may pause for longer than this claim is patient.
    until("it is connected again", async || tenure.health().await.is_ok()).await;
    drop(soon(tenure.mutex("x").acquire()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_answers_take_long_is_reached_within_one_of_them() {
    let server = server();
    let proxy = proxy(&server);
    proxy.delay(Direction::Upstream, ms(250));
    proxy.delay(Direction::Downstream, ms(250));
    // Enough for one answer, and not for one to each question of a new connection.
    let tenure = connect(&through(&proxy, "?connect_timeout=1s")).await;
    until("a claim is answered", async || tenure.mutex("x").try_acquire().await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_answers_ever_later_is_not_taken_for_dead() {
    let server = server();
    let proxy = proxy(&server);
    let tenure = connect(&through(&proxy, "?command_timeout=1s&connect_timeout=30s")).await;
    tenure.mutex("x").acquire().await.unwrap().release().await.unwrap();
    let mut claims = Vec::new();
    // Each answer comes within the timeout after the one before it, and in the end long after its question.
    for later in [400, 800, 1200, 1600] {
        proxy.delay(Direction::Downstream, ms(later));
        for number in 0..10 {
            claims.push(wait_for(&tenure, &format!("{later}-{number}"), secs(30)));
            pause(ms(50)).await;
        }
    }
    for claim in claims {
        drop(served(claim).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_stands_in_line_keeps_its_ticket_through_an_outage() {
    let server = server();
    let proxy = proxy(&server);
    let far = connect(&through(&proxy, "?connect_timeout=300ms")).await;
    let near = connect(&server.url()).await;
    let hold = near.mutex("x").ttl(secs(60)).acquire().await.unwrap();
    let first = wait_for(&far, "x", secs(30));
    until_waiting(&near, "x", 1).await;
    let second = wait_for(&near, "x", secs(30));
    until_waiting(&near, "x", 2).await;
    // From now on the first one is not shown, because it cannot be reached.
    proxy.refuse().unwrap();
    proxy.reset();
    // Far longer than a claim without a place would be kept.
    pause(ms(1500)).await;
    assert!(!first.is_finished());
    proxy.pass().unwrap();
    pause(ms(1500)).await;
    hold.release().await.unwrap();
    let first = served(first).await;
    assert!(!second.is_finished());
    let fence = first.fence();
    drop(first);
    assert!(served(second).await.fence() > fence);
}

#[tokio::test(flavor = "multi_thread")]
async fn s76_when_the_server_accepts_no_more_clients_those_it_has_continue() {
    let server = Redis::build().setting("maxclients", "20").start().unwrap();
    let tenure = connect(&server.url()).await;
    let hold = tenure.mutex("x").ttl(secs(2)).acquire().await.unwrap();
    // The watchdog has its connection.
    let before = hold.remaining();
    until("it was renewed", async || hold.remaining() > before.min(ms(1500))).await;
    pause(ms(1000)).await;
    let mut idle = Vec::new();
    while let Ok(mut connection) = server.connect() {
        match connection.command(&["PING"]) {
            Ok(reply) if !reply.is_error() => idle.push(connection),
            _ => break,
        }
    }
    let full = within(secs(10), Tenure::connect(&server.url())).await.unwrap();
    let error = within(secs(10), full.mutex("full").try_acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("max number of clients"), "{error}");
    drop(full);
    drop(tenure.mutex("y").acquire().await.unwrap());
    pause(ms(2500)).await;
    assert!(hold.is_live());
    drop(idle);
    let late = soon(async {
        loop {
            let late = Tenure::connect(&server.url()).await.unwrap();
            if late.health().await.is_ok() {
                return late;
            }
        }
    });
    drop(late.await.mutex("z").acquire().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn s77_a_push_connection_that_is_half_open_is_found_by_asking() {
    let server = server();
    let proxy = proxy(&server);
    let far = connect(&through(&proxy, "?command_timeout=1s&connect_timeout=30s")).await;
    let near = connect(&server.url()).await;
    let hold = near.mutex("x").ttl(secs(60)).acquire().await.unwrap();
    let waiter = wait_for(&far, "x", secs(60));
    until_waiting(&near, "x", 1).await;
    // Nothing comes through any more, and nobody is told. The place is kept over another connection, twenty seconds
    // later; until then only a ping finds out.
    let before = proxy.accepted();
    proxy.swallow(Direction::Downstream);
    drop(hold);
    let found = async {
        while proxy.accepted() == before {
            pause(ms(20)).await;
        }
    };
    within(secs(15), found).await;
    assert!(!waiter.is_finished());
    // The connection that came instead has waited in vain for its greeting.
    proxy.pass().unwrap();
    proxy.reset();
    drop(served(waiter).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn s77_a_push_connection_that_reads_too_slowly_is_cut_and_comes_back() {
    let server =
        Redis::build().setting("client-output-buffer-limit", "pubsub 64kb 0 0").start().unwrap();
    let proxy = proxy(&server);
    let (far, near) = (connect(&through(&proxy, "")).await, connect(&server.url()).await);
    let hold = near.mutex("x").ttl(secs(60)).acquire().await.unwrap();
    let waiter = wait_for(&far, "x", secs(60));
    until_waiting(&near, "x", 1).await;
    let channels = server.command(&["PUBSUB", "CHANNELS", "tenure:*"]).unwrap();
    let noise = "x".repeat(1 << 20);
    // Nonsense on its channel, more than the server keeps for a slow reader.
    for channel in channels.list().iter().filter_map(|channel| channel.text()) {
        server.command(&["PUBLISH", channel, &noise]).unwrap();
    }
    drop(hold);
    drop(served(waiter).await);
}
