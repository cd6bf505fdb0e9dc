//! S108: other machines, other boots, and file systems that are not this machine's own.

use std::fs;
use std::time::Duration;

use tenure::engine::{
    Claim, Engine, Leave, Name, OnceTerms, Settle, Space, SystemWorld, Verdict, World,
};
use tenure::engines::file::File;
use tenure::{ErrorKind, Tenure};

use crate::file_site::*;

const BOOT: &str = "11111111-2222-3333-4444-555555555555";

/// Makes the file claim that it was last used in another boot. Nobody may have it open.
fn reboot(site: &FileSite, machine: Option<&str>) {
    let db = site.sql();
    db.execute("UPDATE meta SET boot = ?1", [BOOT]).unwrap();
    if let Some(machine) = machine {
        db.execute("UPDATE meta SET machine = ?1", [machine]).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s108_a_file_of_another_machine_is_refused() {
    let site = FileSite::new();
    drop(site.connect().await.mutex("x").acquire().await.unwrap());
    let own = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    if own.trim().is_empty() {
        return;
    }
    reboot(&site, Some("0123456789abcdef0123456789abcdef"));
    let error = Tenure::connect(&site.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("another machine"), "{error}");
    // The file is unchanged.
    let boot: String = site.sql().query_row("SELECT boot FROM meta", [], |row| row.get(0)).unwrap();
    assert_eq!(boot, BOOT);
}

#[tokio::test(flavor = "multi_thread")]
async fn s108_another_machine_that_takes_the_file_over_is_noticed_by_those_who_use_it() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let hold = tenure.mutex("x").ttl(ms(900)).acquire().await.unwrap();
    reboot(&site, None);
    let error = tenure.mutex("y").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("another machine"), "{error}");
    soon(hold.lost()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s108_after_a_reboot_all_holds_are_void_and_fences_continue() {
    let site = FileSite::new();
    let mut other = ChildProcess::on(&site).await;
    for name in ["x", "y", "z"] {
        other.tell(&format!("claim {name} {name} 600000"));
        other.hears(&format!("held {name}")).await;
    }
    other.tell("claim w x 600000");
    let (tenure, semaphore) = (site.connect().await, "seats");
    until_waiting(&tenure, "x", 1).await;
    let last = holders(&tenure, "z").await[0];
    tenure.semaphore(semaphore, 2).resize(5).await.unwrap();
    drop(tenure);
    other.kill();
    other.reap();
    reboot(&site, None);
    let tenure = site.connect().await;
    assert_eq!(tenure.list("").await.unwrap().len(), 0, "all holds and places are void");
    for name in ["x", "y", "z"] {
        let hold = tenure.mutex(name).try_acquire().await.unwrap().unwrap();
        assert!(hold.fence().get() > last);
        hold.release().await.unwrap();
    }
    // The capacity that an operator has set survives a reboot.
    let mut units = Vec::new();
    while let Some(unit) = tenure.semaphore(semaphore, 2).try_acquire().await.unwrap() {
        units.push(unit);
    }
    assert_eq!(units.len(), 5);
    site.is_sound();
}

/// Numbers that were lost with a power cut are not repeated: they continue from the wall clock.
#[tokio::test(flavor = "multi_thread")]
async fn s108_after_a_reboot_fences_are_above_those_that_the_disk_never_saw() {
    let site = FileSite::new();
    let fence = {
        let tenure = site.connect().await;
        let mut fence = 0;
        for _ in 0..50 {
            fence = tenure.mutex("x").acquire().await.unwrap().fence().get();
        }
        tenure.close().await;
        fence
    };
    site.sql().execute("UPDATE meta SET number = number - 40", []).unwrap();
    reboot(&site, None);
    let hold = site.connect().await.mutex("x").acquire().await.unwrap();
    assert!(hold.fence().get() > fence, "{} after {fence}", hold.fence());
}

#[tokio::test(flavor = "multi_thread")]
async fn s108_what_a_once_left_outlives_the_machine() {
    let site = FileSite::new();
    let name = Name::new(Space::Once, "import").unwrap();
    let ask = |keep: Duration| {
        let mut claim = Claim::new(name.clone(), SystemWorld.mint().unwrap());
        claim.once = Some(OnceTerms { keep, rerun: false, content: 0 });
        claim
    };
    // The longest that can be expressed: a time that cannot be added to must not lock the file for ever.
    for keep in [secs(3600), Duration::MAX] {
        let engine = File::open(&site.path).unwrap();
        let claim = ask(keep);
        let verdict = engine.claim(&claim).await.unwrap();
        let fence = match verdict {
            Verdict::Granted(grant) => grant.fence,
            Verdict::Settled(_) => panic!("it was forgotten to be done again"),
            other => panic!("{other:?}"),
        };
        let mut leave = Leave::new(name.clone(), claim.id);
        leave.settle = Some(Settle { fence, outcome: Some((&b"42 rows"[..]).into()) });
        engine.leave(&leave).await.unwrap();
        engine.close().await.unwrap();
        reboot(&site, None);
        let engine = File::open(&site.path).unwrap();
        match engine.claim(&ask(keep)).await.unwrap() {
            Verdict::Settled(outcome) => assert_eq!(&*outcome, b"42 rows"),
            other => panic!("{other:?}"),
        }
        engine.close().await.unwrap();
        site.sql().execute("DELETE FROM name", []).unwrap();
    }
}

/// Mounts what `kind` says on the folder, and starts a child process that sees it.
async fn on_mount(site: &FileSite, mount: &str) -> ChildProcess {
    let folder = site.folder.path().display();
    let script = format!(r#"{mount} '{folder}' && chmod 700 '{folder}' && exec "$0" "$@""#);
    ChildProcess::start(&["unshare", "--mount", "sh", "-c", &script]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn s108_a_file_system_in_memory_will_do() {
    if !is_root("s108") {
        return;
    }
    let site = FileSite::new();
    let mut other = on_mount(&site, "mount -t tmpfs -o size=8m none").await;
    other.tell(&format!("connect {}", site.url()));
    other.hears("connected").await;
    other.tell("claim a x 600000");
    other.hears("held a").await;
    assert!(!site.path.exists(), "it is on the mount");
}

#[tokio::test(flavor = "multi_thread")]
async fn s108_a_shifted_boot_time_is_refused() {
    if !is_root("s108") {
        return;
    }
    let site = FileSite::new();
    let through = ["unshare", "--time", "--boottime", "3600", "--fork", "--kill-child"];
    let mut other = ChildProcess::start(&through).await;
    other.tell(&format!("connect {}", site.url()));
    let refused = other.hears("refused").await;
    assert_eq!(refused.word(1), "Unsupported");
    assert!(refused.0.contains("time namespace"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s108_a_user_space_file_system_is_refused() {
    if !is_root("s108") || !std::path::Path::new("/dev/fuse").exists() {
        return;
    }
    let site = FileSite::new();
    let mut other = ChildProcess::start(&["unshare", "--mount"]).await;
    other.tell(&format!("fuse {}", site.folder.path().display()));
    other.hears("mounted").await;
    other.tell(&format!("connect {}", site.url()));
    let refused = other.hears("refused").await;
    assert_eq!(refused.word(1), "Unsupported", "{refused:?}");
    assert!(refused.0.contains("is on FUSE"), "{refused:?}");
}
