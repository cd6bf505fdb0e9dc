//! What children inherit, and what happens when descriptors run out.

use std::fs;
use std::path::PathBuf;

use crate::file_site::*;

/// The targets of a process's descriptors.
fn descriptors(pid: u64) -> Vec<PathBuf> {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    all.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()).collect()
}

/// `sleep` may not have begun yet when it is looked at.
async fn until_it_sleeps(pid: u64) {
    until("the child runs its program", async || {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sleep")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s63_a_child_inherits_nothing() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let hold = tenure.mutex("x").acquire().await.unwrap();
    let mut other = ChildProcess::on(&site).await;
    // It waits, watches others and has taken the writer lock: everything that it ever opens is open.
    other.tell("claim a x 600000");
    until_waiting(&tenure, "x", 1).await;
    other.tell("spawn");
    let child = other.hears("spawned").await.number(1);
    until_it_sleeps(child).await;
    let of_parent = descriptors(other.pid().into());
    assert!(of_parent.iter().any(|path| path.ends_with("locks.db")), "{of_parent:?}");
    // Only standard input and output, which are pipes, are shared.
    let inherited = descriptors(child);
    let strange: Vec<_> = inherited
        .iter()
        .filter(|path| {
            let text = path.to_string_lossy();
            text.contains("locks.db") || text.contains("socket:") || text.contains("anon_inode")
        })
        .collect();
    assert_eq!(strange, Vec::<&PathBuf>::new());
    // So the death of its parent is noticed at once.
    other.kill();
    let next = wait_for(&tenure, "x", secs(600));
    hold.release().await.unwrap();
    drop(within(AT_ONCE, next).await.unwrap().unwrap());
    end(child);
}

/// A child of a fork has the socket, the lock file and the database open, and is not its parent.
#[tokio::test(flavor = "multi_thread")]
async fn a_forked_child_does_not_keep_its_parent_alive() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let mut other = ChildProcess::on(&site).await;
    other.tell("claim a x 600000");
    other.hears("held a").await;
    let hold = tenure.mutex("y").ttl(secs(600)).acquire().await.unwrap();
    other.tell("claim b y 600000");
    until_waiting(&tenure, "y", 1).await;
    other.tell("fork");
    let child = other.hears("forked").await.number(1);
    let (holds, waits) = (wait_for(&tenure, "x", secs(600)), wait_for(&tenure, "y", secs(600)));
    until_waiting(&tenure, "x", 1).await;
    until_waiting(&tenure, "y", 2).await;
    other.kill();
    other.reap();
    drop(within(AT_ONCE, holds).await.unwrap().unwrap());
    until_waiting(&tenure, "y", 1).await;
    hold.release().await.unwrap();
    drop(within(AT_ONCE, waits).await.unwrap().unwrap());
    end(child);
}

fn end(pid: u64) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

#[tokio::test(flavor = "multi_thread")]
async fn s64_without_descriptors_there_is_a_clear_error_and_no_spin() {
    let site = FileSite::new();
    drop(site.connect().await);
    let mut clear = 0;
    // No matter where they run out.
    for limit in 8..30 {
        let script = format!(r#"ulimit -n {limit}; exec "$0" "$@""#);
        let Some(mut other) = ChildProcess::may_start(&["sh", "-c", &script]).await else {
            continue;
        };
        other.tell(&format!("connect {}", site.url()));
        until("an answer", async || {
            !other.all("connected").is_empty() || !other.all("refused").is_empty()
        })
        .await;
        if let Some(refused) = other.all("refused").first() {
            assert!(refused.0.contains("; "), "what to do next: {refused:?}");
            clear += 1;
            continue;
        }
        other.tell("claim a x 600000");
        until("an answer", async || {
            !other.all("held a").is_empty() || !other.all("failed a").is_empty()
        })
        .await;
        if let Some(failed) = other.all("failed a").first() {
            assert!(failed.0.contains("; "), "what to do next: {failed:?}");
            clear += 1;
        }
        let (busy, began) = (other.busy_for(), now());
        pause(ms(100)).await;
        let spent = other.busy_for() - busy;
        assert!(spent <= ms(40), "{spent:?} in {:?} with {limit}", began.until(now()));
    }
    assert!(clear > 0, "they never ran out");
}

/// They run out while it waits and holds: its holds continue.
#[tokio::test(flavor = "multi_thread")]
async fn s64_when_descriptors_run_out_holds_continue() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let hold = tenure.mutex("x").ttl(secs(600)).acquire().await.unwrap();
    let limited = r#"ulimit -n 200; exec "$0" "$@""#;
    let mut other = ChildProcess::start(&["sh", "-c", limited]).await;
    other.tell(&format!("connect {}", site.url()));
    other.tell("claim y y 1000");
    other.hears("held y").await;
    other.tell("open 0");
    other.hears("opened").await;
    other.tell("claim x x 600000");
    until_waiting(&tenure, "x", 1).await;
    let busy = other.busy_for();
    pause(ms(2500)).await;
    assert_eq!(other.all("lost").len(), 0, "it renews");
    let spent = other.busy_for() - busy;
    assert!(spent < ms(800), "{spent:?}");
    hold.release().await.unwrap();
    other.hears_within("held x", AT_ONCE).await;
    other.tell("release y");
    assert!(other.hears("released y").await.0.contains("InTime"));
}
