//! The story of the paused holder: one process holds the lock and is stopped, another gets the lock and writes, and
//! the first continues in the middle of its work as if nothing had happened.

use std::io::{BufRead, Write};

use tenure::{Fence, Tenure};
use tenure_testkit::servers::{Flavour, Folder, Postgres, Redis};

use crate::fences::place::{Kind, NAME, Place};
use crate::fences::site::Site;
use crate::file_site::{ChildProcess, connect, secs, served, until_waiting, url, wait_for};

/// The variable that tells the other process what it is.
pub(crate) const SIGN: &str = "TENURE_TEST_PAUSED";

/// The other process: it takes the lock, and writes when told to. It does not check whether it still holds, because
/// it may be stopped right after the answer.
pub(crate) fn play() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        say("\nready");
        let mut held = None;
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            match line.split_once(' ').unwrap() {
                ("connect", url) => {
                    let tenure = Tenure::connect(url).await.unwrap();
                    say("connected");
                    let hold = tenure.mutex(NAME).ttl(secs(2)).acquire().await.unwrap();
                    say(&format!("held a {}", hold.fence()));
                    held = Some(hold);
                }
                ("write", place) => {
                    let (text, place) = place.split_once(' ').unwrap();
                    let fence = held.as_ref().unwrap().fence();
                    match Place::from_line(place).write(fence, text).await {
                        Ok(()) => say(&format!("wrote {text}")),
                        Err(stale) => {
                            let seen = stale.seen.map_or(0, Fence::get);
                            say(&format!("stale {text} {} {seen}", stale.offered));
                        }
                    }
                }
                order => panic!("what does {order:?} mean?"),
            }
        }
    });
    std::process::exit(0);
}

fn say(line: &str) {
    let _ = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}

async fn the_late_write_is_refused(engine: &str, place: &Place) {
    let tenure = connect(engine).await;
    let mut other = ChildProcess::start_with(&[], &[(SIGN, "1".into())]).await;
    other.tell(&format!("connect {engine}"));
    other.hears("connected").await;
    let old = other.hears("held a").await.fence();
    other.tell(&format!("write in-time {}", place.line()));
    other.hears("wrote in-time").await;
    assert_eq!(place.read().await, "in-time", "{place:?}");

    let next = wait_for(&tenure, NAME, secs(30));
    until_waiting(&tenure, NAME, 1).await;
    other.stop();
    let next = served(next).await;
    assert!(next.fence().get() > old);
    place.write(next.fence(), "of-the-next").await.unwrap();
    // The first thing that it does when it continues.
    other.tell(&format!("write too-late {}", place.line()));
    other.go_on();

    let stale = other.hears("stale too-late").await;
    assert_eq!(stale.number(2), old, "{place:?}");
    let column = matches!(place.kind, Kind::PostgresColumn | Kind::SqliteColumn);
    assert_eq!(stale.number(3), if column { 0 } else { next.fence().get() }, "{place:?}");
    assert_eq!(place.read().await, "of-the-next", "{place:?}");
    // The current holder continues.
    place.write(next.fence(), "and-again").await.unwrap();
    assert_eq!(place.read().await, "and-again", "{place:?}");
}

/// Lines in a file, and another file beside it to write to.
async fn with_file_engine(place: &Place) {
    let folder = Folder::new("fs").unwrap();
    the_late_write_is_refused(&url(&folder.path().join("locks.db")), place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_holder_cannot_write_a_file() {
    let folder = Folder::new("fs").unwrap();
    with_file_engine(&Place::new(Kind::File, folder.path().join("report").display())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_holder_cannot_write_to_sqlite() {
    let folder = Folder::new("fs").unwrap();
    for kind in [Kind::Sqlite, Kind::SqliteColumn] {
        let path = folder.path().join(format!("{kind:?}.db"));
        with_file_engine(&Place::sqlite(kind, &path)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_holder_cannot_write_to_postgres() {
    for kind in [Kind::Postgres, Kind::PostgresColumn] {
        let server = Postgres::start().unwrap();
        with_file_engine(&Place::postgres(kind, &server).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_holder_cannot_write_to_redis() {
    for flavour in Flavour::ALL {
        let server = Redis::build().flavour(flavour).start().unwrap();
        let place = Place::new(Kind::Redis, server.url());
        the_late_write_is_refused(&server.url(), &place).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_holder_cannot_write_over_http() {
    let site = Site::start().await;
    with_file_engine(&Place::new(Kind::Http, &site.port)).await;
}
