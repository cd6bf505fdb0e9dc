//! Many write at once with fences of all sizes: the content never goes back, and in the end it is that of the
//! highest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tenure::Fence;
use tenure_testkit::rng::Rng;
use tenure_testkit::servers::{Folder, Postgres, Redis};

use crate::fences::place::{Kind, Place};
use crate::fences::site::Site;
use crate::file_site::soon;

const HIGHEST: u64 = 24;

/// One write that passed, between two readings of a counter.
struct Written {
    fence: u64,
    began: u64,
    ended: u64,
}

async fn many_write_at_once(place: Place) {
    let counter = Arc::new(AtomicU64::new(0));
    let tick = |counter: &AtomicU64| counter.fetch_add(1, Ordering::SeqCst);
    let over = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn(never_goes_back(place.clone(), over.clone()));
    let mut rng = Rng::new(7);
    let mut fences: Vec<_> = (1..=HIGHEST).flat_map(|fence| [fence; 4]).collect();
    for at in (1..fences.len()).rev() {
        fences.swap(at, rng.between(0, at as u64) as usize);
    }
    let mut writers = Vec::new();
    for fences in fences.chunks(8).map(<[u64]>::to_vec) {
        let (place, counter) = (place.clone(), counter.clone());
        writers.push(tokio::spawn(async move {
            let mut written = Vec::new();
            for fence in fences {
                let began = tick(&counter);
                match place.write(Fence::new(fence), &fence.to_string()).await {
                    Ok(()) => written.push(Written { fence, began, ended: tick(&counter) }),
                    Err(stale) => assert!(stale.seen.is_none_or(|seen| seen > stale.offered)),
                }
            }
            written
        }));
    }
    let mut written = Vec::new();
    for writer in writers {
        written.extend(soon(writer).await.unwrap());
    }
    over.store(true, Ordering::SeqCst);
    assert!(soon(reader).await.unwrap() > 0, "nothing was read");
    assert_eq!(place.read().await, HIGHEST.to_string(), "{place:?}");
    for late in &written {
        let before = written.iter().find(|it| it.fence > late.fence && it.ended < late.began);
        assert!(before.is_none(), "{place:?}: {} passed after a higher one", late.fence);
    }
    // Every higher fence that arrived ends all lower ones, so far fewer pass than arrive.
    assert!(written.iter().any(|it| it.fence == HIGHEST), "{place:?}");
}

async fn never_goes_back(place: Place, over: Arc<AtomicBool>) -> u64 {
    let (mut last, mut count) = (0, 0);
    while !over.load(Ordering::SeqCst) {
        let read = place.read().await.parse().unwrap_or(0_u64);
        assert!(read >= last, "{place:?}: {read} after {last}");
        (last, count) = (read, count + 1);
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_never_goes_back() {
    let folder = Folder::new("fr").unwrap();
    many_write_at_once(Place::new(Kind::File, folder.path().join("report").display())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_never_goes_back() {
    let folder = Folder::new("fr").unwrap();
    for kind in [Kind::Sqlite, Kind::SqliteColumn] {
        let path = folder.path().join(format!("{kind:?}.db"));
        many_write_at_once(Place::sqlite(kind, &path)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_never_goes_back() {
    for kind in [Kind::Postgres, Kind::PostgresColumn] {
        let server = Postgres::start().unwrap();
        many_write_at_once(Place::postgres(kind, &server).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_never_goes_back() {
    let server = Redis::build().start().unwrap();
    many_write_at_once(Place::new(Kind::Redis, server.url())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_behind_http_never_goes_back() {
    let site = Site::start().await;
    many_write_at_once(Place::new(Kind::Http, &site.port)).await;
}
