//! What each policy does when the engine goes, and when it comes back.

use tenure::{ErrorKind, Hold, OnOutage, Protection, Tenure};
use tenure_testkit::servers::Redis;

use crate::redis_site::*;

pub(crate) const POLICIES: [(OnOutage, &str, Protection); 2] =
    [(OnOutage::Local, "local", Protection::Local), (OnOutage::Open, "open", Protection::None)];

pub(crate) async fn connect_with(server: &Redis, policy: &str) -> Tenure {
    connect(&format!("{}?on_outage={policy}", server.url())).await
}

/// Acquires again and again until the engine grants.
pub(crate) async fn until_protected(tenure: &Tenure, name: &str) -> Hold {
    soon(async {
        loop {
            let hold = tenure.mutex(name).acquire().await.unwrap();
            if hold.protection() == Protection::Engine {
                return hold;
            }
            drop(hold);
            pause(ms(20)).await;
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_is_an_error_within_its_patience_and_is_the_default() {
    let server = server();
    let tenure = connect(&format!("{}?connect_timeout=500ms", server.url())).await;
    assert_eq!(tenure.defaults().on_outage, OnOutage::Closed);
    server.kill().unwrap();
    for _ in 0..2 {
        let error = within(secs(8), tenure.mutex("x").acquire()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let error = within(secs(8), tenure.mutex("x").try_acquire()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    // Claims with such a policy continue; the others still do not.
    let open = soon(tenure.mutex("x").on_outage(OnOutage::Open).acquire()).await.unwrap();
    assert_eq!(open.protection(), Protection::None);
    let error = within(secs(8), tenure.mutex("x").acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// Nobody claims anything, before the outage or in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_probe_finds_an_outage_while_nobody_claims() {
    let server = server();
    let tenure = connect(&server.url()).await;
    let until = async |is_so: bool| {
        soon(async {
            while tenure.is_reachable("x") != is_so {
                tenure.probe();
                pause(ms(20)).await;
            }
        })
        .await;
    };
    assert!(tenure.is_reachable("x"));
    for hung in [false, true] {
        if hung { server.pause() } else { server.kill() }.unwrap();
        until(false).await;
        if hung { server.resume() } else { server.restart() }.unwrap();
        until(true).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn local_keeps_this_process_in_order_and_returns_to_the_engine_by_itself() {
    let server = server();
    let tenure = connect_with(&server, "local").await;
    let before = soon(tenure.mutex("x").acquire()).await.unwrap();
    assert_eq!(before.protection(), Protection::Engine);
    let mut fence = before.fence();
    before.release().await.unwrap();
    for hung in [false, true] {
        if hung {
            server.pause().unwrap()
        } else {
            server.kill().unwrap()
        }
        let hold = soon(tenure.mutex("x").acquire()).await.unwrap();
        assert_eq!(hold.protection(), Protection::Local);
        assert_eq!(hold.name(), "x");
        assert_eq!(hold.fence(), fence, "that of the last hold from the engine");
        assert!(soon(tenure.mutex("x").try_acquire()).await.unwrap().is_none());
        let over = soon(tenure.mutex("x").wait(ms(50)).acquire()).await.unwrap_err();
        assert_eq!(over.kind(), ErrorKind::WaitOver, "{over}");
        assert!(over.to_string().contains("in this process"), "{over}");
        let next = tokio::spawn(tenure.mutex("x").join());

        if hung {
            server.resume().unwrap()
        } else {
            server.restart().unwrap()
        }
        drop(until_protected(&tenure, "y").await);
        // The engine is back, and would grant; this process still has its hold.
        assert!(soon(tenure.mutex("x").try_acquire()).await.unwrap().is_none());
        assert!(!next.is_finished() && hold.is_live());
        assert!(soon(hold.release()).await.is_ok());
        let next = served(next).await;
        assert_eq!(next.protection(), Protection::Engine);
        assert!(next.fence() > fence, "{} after {fence}", next.fence());
        assert_eq!(holders(&tenure, "x").await, [next.fence().get()]);
        fence = next.fence();
        next.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn open_lets_everyone_in_and_returns_to_the_engine_by_itself() {
    let server = server();
    let tenure = connect_with(&server, "open").await;
    let before = soon(tenure.mutex("x").acquire()).await.unwrap();
    let fence = before.fence();
    before.release().await.unwrap();
    server.kill().unwrap();
    let one = soon(tenure.mutex("x").acquire()).await.unwrap();
    let two = soon(tenure.mutex("x").try_acquire()).await.unwrap().expect("nobody is kept out");
    assert_eq!([one.protection(), two.protection()], [Protection::None; 2]);
    assert_eq!([one.fence(), two.fence()], [fence; 2]);
    server.restart().unwrap();
    let back = until_protected(&tenure, "x").await;
    assert!(back.fence() > two.fence());
    assert!(soon(tenure.mutex("x").try_acquire()).await.unwrap().is_none());
    assert!(one.is_live() && two.is_live());
    drop((one, two));
}

/// Each partition of a server counts by itself, and each name has a fence of its own.
#[tokio::test(flavor = "multi_thread")]
async fn each_name_has_its_last_fence_in_an_outage_and_a_higher_one_after_it() {
    let server = server();
    let tenure = connect_with(&server, "local").await;
    let names: Vec<_> = (0..40).map(|number| format!("n{number}")).collect();
    let mut fences = Vec::new();
    for round in 0..3 {
        if round == 1 {
            server.pause().unwrap();
        }
        if round == 2 {
            server.resume().unwrap();
            drop(until_protected(&tenure, "other").await);
        }
        for (at, name) in names.iter().enumerate() {
            let hold = soon(tenure.mutex(name).acquire()).await.unwrap();
            let expected = if round == 1 { Protection::Local } else { Protection::Engine };
            assert_eq!(hold.protection(), expected);
            let fence = hold.fence();
            match fences.get(at) {
                None => fences.push(fence),
                Some(before) if round == 1 => assert_eq!(fence, *before, "{name}"),
                Some(before) => assert!(fence > *before, "{name}: {fence} after {before}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_costs_only_the_first_claim_time() {
    for (_, policy, protection) in POLICIES {
        let server = server();
        let tenure = connect_with(&server, policy).await;
        server.pause().unwrap();
        drop(soon(tenure.mutex("first").acquire()).await.unwrap());
        let began = now();
        for number in 0..200 {
            let hold = soon(tenure.mutex(format!("x{number}")).acquire()).await.unwrap();
            assert_eq!(hold.protection(), protection);
        }
        // One second for each would add up to minutes.
        assert!(now().since(began) < secs(15), "{:?}", now().since(began));
        server.resume().unwrap();
    }
}

/// A wait that is shorter than the detection of an outage must not prevent it.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_wait_finds_an_outage_too() {
    let server = server();
    let tenure = connect_with(&server, "open").await;
    server.pause().unwrap();
    let hold = soon(tenure.mutex("x").wait(ms(20)).acquire()).await.unwrap();
    assert_eq!(hold.protection(), Protection::None);
    server.resume().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_in_line_continue_when_the_engine_is_gone() {
    for (_, policy, protection) in POLICIES {
        for hung in [false, true] {
            let server = server();
            let (other, tenure) =
                (connect(&server.url()).await, connect_with(&server, policy).await);
            let _hold = other.mutex("x").ttl(secs(600)).acquire().await.unwrap();
            let first = wait_for(&tenure, "x", secs(30));
            until_waiting(&other, "x", 1).await;
            let second = wait_for(&tenure, "x", secs(30));
            if hung {
                server.pause().unwrap()
            } else {
                server.kill().unwrap()
            }
            let first = served(first).await;
            assert_eq!(first.protection(), protection);
            if protection == Protection::Local {
                pause(ms(300)).await;
                assert!(!second.is_finished(), "two of this process are inside");
            }
            drop(first);
            assert_eq!(served(second).await.protection(), protection);
            if hung {
                server.resume().unwrap();
            } else {
                server.restart().unwrap();
            }
            // Their places in the engine's line are left.
            drop(until_protected(&tenure, "y").await);
            if hung {
                until("nobody waits", async || {
                    view(&other, "x").await.is_none_or(|view| view.waiters.is_empty())
                })
                .await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_at_the_start_is_connected_to_when_it_is_up() {
    let server = server();
    server.kill().unwrap();
    let error = soon(Tenure::connect(&format!("{}?on_outage=maybe", server.url()))).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid);
    for (_, policy, protection) in POLICIES {
        let tenure = connect_with(&server, policy).await;
        let hold = soon(tenure.mutex("x").acquire()).await.unwrap();
        assert_eq!(hold.protection(), protection);
        assert!(soon(tenure.health()).await.is_err());
        assert_eq!(hold.fence().get(), 0, "the engine has not given it any");
        drop(hold);
        server.restart().unwrap();
        let back = until_protected(&tenure, "x").await;
        assert!(back.fence().get() > 0);
        server.kill().unwrap();
    }
}

/// Two leaders, or work that is done twice, are never better than an error.
#[tokio::test(flavor = "multi_thread")]
async fn elections_and_onces_are_always_closed() {
    for (_, policy, _) in POLICIES {
        let server = server();
        let url = format!("{}?connect_timeout=500ms&on_outage={policy}", server.url());
        let tenure = connect(&url).await;
        server.kill().unwrap();
        drop(soon(tenure.mutex("x").acquire()).await.unwrap());
        let error = within(secs(8), tenure.election("x").campaign()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let error = within(secs(8), tenure.once("x").begin()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}

/// A runtime that runs only while it is asked for something has little time to connect again.
#[test]
fn a_program_that_blocks_on_each_call_returns_to_the_engine_too() {
    let server = server();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tenure = runtime.block_on(connect_with(&server, "local"));
    server.kill().unwrap();
    let protection = || {
        let hold = runtime.block_on(async { soon(tenure.mutex("x").acquire()).await.unwrap() });
        hold.protection()
    };
    assert_eq!(protection(), Protection::Local);
    // Longer than the time in which the connection is remade at once.
    std::thread::sleep(ms(2500));
    assert_eq!(protection(), Protection::Local);
    server.restart().unwrap();
    let began = now();
    while protection() != Protection::Engine {
        assert!(now().since(began) < BOUND, "it never goes back");
        std::thread::sleep(ms(20));
    }
}

#[test]
fn a_program_without_a_runtime_continues_and_returns_to_the_engine() {
    let server = server();
    let tenure = tenure::blocking::Tenure::connect(&server.url()).unwrap();
    server.kill().unwrap();
    let ask = || tenure.mutex("x").on_outage(OnOutage::Local);
    let hold = ask().acquire().unwrap();
    assert_eq!(hold.protection(), Protection::Local);
    assert!(ask().try_acquire().unwrap().is_none());
    drop(hold);
    server.restart().unwrap();
    let began = now();
    while ask().acquire().unwrap().protection() != Protection::Engine {
        assert!(now().since(began) < BOUND, "it never goes back");
        std::thread::sleep(ms(20));
    }
}
