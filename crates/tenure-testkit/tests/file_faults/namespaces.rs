//! Processes that see other pids than this one, or not all of them: a process that cannot be seen is not dead. Then
//! only the ttl shows that a holder is gone.

use tenure::Tenure;

use crate::file_site::*;

async fn holds_until_its_ttl(site: &FileSite, tenure: &Tenure, through: &[&str]) {
    let name = format!("x{}", through.len());
    let mut holder = ChildProcess::start(through).await;
    holder.tell(&format!("connect {}", site.url()));
    holder.hears("connected").await;
    holder.tell(&format!("claim a {name} 2500"));
    let fence = holder.hears("held a").await.fence();
    let next = wait_for(tenure, &name, secs(600));
    until_waiting(tenure, &name, 1).await;
    // It renews, so it holds for longer than its ttl.
    pause(ms(3000)).await;
    assert_eq!(holders(tenure, &name).await, [fence]);
    assert!(!next.is_finished());
    let killed = holder.kill();
    holder.reap();
    pause(ms(200)).await;
    assert!(!next.is_finished(), "nobody can know that it is gone");
    let hold = within(secs(20), next).await.unwrap().unwrap();
    assert!(hold.fence().get() > fence && killed.until(now()) > ms(200));
    hold.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s111_a_holder_in_another_pid_namespace_ends_with_its_ttl() {
    if !is_root("s111") {
        return;
    }
    let site = FileSite::new();
    let tenure = site.connect().await;
    let namespace = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    holds_until_its_ttl(&site, &tenure, &namespace).await;
}

/// `/proc` is that of the surrounding namespace: its pids are those of other processes.
#[tokio::test(flavor = "multi_thread")]
async fn s111_a_holder_that_cannot_see_its_own_pids_ends_with_its_ttl() {
    if !is_root("s111") {
        return;
    }
    let site = FileSite::new();
    let tenure = site.connect().await;
    let namespace = ["unshare", "--pid", "--fork", "--kill-child"];
    holds_until_its_ttl(&site, &tenure, &namespace).await;
    // Nor does it take a process of its own namespace for dead because of the pids in the file.
    let mut other = ChildProcess::start(&namespace).await;
    other.tell(&format!("connect {}", site.url()));
    other.hears("connected").await;
    other.tell("claim a y 600000");
    other.hears("held a").await;
    assert_eq!(site.number("SELECT space FROM process ORDER BY number DESC LIMIT 1"), 0);
}

/// Root's processes are hidden from others. That they cannot be seen does not mean that they are gone.
#[tokio::test(flavor = "multi_thread")]
async fn s111_a_holder_that_is_hidden_is_not_dead() {
    if !is_root("s111") {
        return;
    }
    let site = FileSite::new();
    std::os::unix::fs::chown(site.folder.path(), Some(12345), Some(12345)).unwrap();
    let mount = r#"mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid=12345 \
        --regid=12345 --clear-groups "$0" "$@""#;
    let mut user = ChildProcess::start(&["unshare", "--mount", "sh", "-c", mount]).await;
    user.tell(&format!("connect {}", site.url()));
    user.hears("connected").await;
    let mut root = ChildProcess::on(&site).await;
    root.tell("claim a x 600000");
    root.hears("held a").await;
    user.tell("try b x 600000");
    until("an answer", async || user.said().iter().any(|line| line.contains(" b "))).await;
    assert_eq!(user.all("held b").len(), 0, "two holders");
    // But its regular end is noticed.
    user.tell("claim c x 600000");
    until_waiting(&site.connect().await, "x", 1).await;
    root.kill();
    user.hears_within("held c", AT_ONCE).await;
}
