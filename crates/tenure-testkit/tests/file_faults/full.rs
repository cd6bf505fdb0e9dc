//! A full disk: no new holds, existing holders continue, and everything works again when there is room.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use crate::file_site::*;

/// A small disk of their own for some processes.
struct Disk {
    site: FileSite,
    /// The first process on it, through which the others get there.
    first: ChildProcess,
}

impl Disk {
    async fn new(size: &str) -> Disk {
        let site = FileSite::new();
        let folder = site.folder.path().display();
        let script = format!(
            r#"mount -t tmpfs -o size={size} none '{folder}' && chmod 700 '{folder}' && exec "$0" "$@""#
        );
        let mut first = ChildProcess::start(&["unshare", "--mount", "sh", "-c", &script]).await;
        first.tell(&format!("connect {}", site.url()));
        first.hears("connected").await;
        Disk { site, first }
    }

    async fn other(&self) -> ChildProcess {
        let pid = self.first.pid().to_string();
        let mut other = ChildProcess::start(&["nsenter", "--target", &pid, "--mount"]).await;
        other.tell(&format!("connect {}", self.site.url()));
        other
    }

    /// The disk as this process sees it.
    fn path(&self) -> PathBuf {
        let folder = self.site.folder.path().strip_prefix("/").unwrap();
        PathBuf::from(format!("/proc/{}/root", self.first.pid())).join(folder)
    }

    fn fill(&self) {
        let mut filler =
            fs::File::options().create(true).append(true).open(self.path().join("filler"));
        let filler = filler.as_mut().unwrap();
        while filler.write_all(&[0; 4096]).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.path().join("filler")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s110_on_a_full_disk_holders_renew_and_release_and_others_are_refused_with_the_reason() {
    if !is_root("s110") {
        return;
    }
    let mut disk = Disk::new("4m").await;
    let mut holder = disk.other().await;
    for number in 0..20 {
        holder.tell(&format!("claim h{number} x{number} 1500"));
        holder.hears(&format!("held h{number}")).await;
    }
    let mut waiter = disk.other().await;
    waiter.hears("connected").await;
    waiter.tell("claim w x0 600000");
    disk.first.tell("show x0");
    pause(ms(200)).await;
    disk.fill();
    // Claims fail, sooner or later: the journal has some room of its own.
    let mut asked = 0;
    while disk.first.all("failed").is_empty() {
        disk.first.tell(&format!("try n{asked} {}{asked} 600000", "n".repeat(200)));
        until("an answer", async || {
            let said = disk.first.said();
            said.iter().any(|line| line.contains(&format!(" n{asked} ")))
        })
        .await;
        asked += 1;
        disk.fill();
        assert!(asked < 5000, "the disk has no end");
    }
    let failed = disk.first.hears("failed").await;
    assert_eq!(failed.word(2), "Unavailable", "{failed:?}");
    assert!(failed.0.contains("disk is full"), "{failed:?}");
    // Several renewals of every hold.
    pause(ms(3000)).await;
    assert_eq!(holder.all("lost").len(), 0, "{:?}", holder.all("risk"));
    for number in 1..20 {
        disk.fill();
        holder.tell(&format!("release h{number}"));
        let released = holder.hears(&format!("released h{number}")).await;
        assert!(released.0.contains("InTime"), "{released:?}");
    }
    holder.tell("release h0");
    waiter.hears_within("held w", AT_ONCE).await;
    disk.make_room();
    disk.first.tell("claim after after 600000");
    disk.first.hears("held after").await;
    let mut new = disk.other().await;
    new.hears("connected").await;
    new.tell("claim a new 600000");
    new.hears("held a").await;
}

/// A waiter waits until there is room.
#[tokio::test(flavor = "multi_thread")]
async fn s110_a_waiter_on_a_full_disk_is_served_when_there_is_room() {
    if !is_root("s110") {
        return;
    }
    let mut disk = Disk::new("3m").await;
    disk.first.tell("claim a x 600000");
    disk.first.hears("held a").await;
    disk.fill();
    let mut late = disk.other().await;
    until("an answer", async || {
        !late.all("connected").is_empty() || !late.all("refused").is_empty()
    })
    .await;
    if late.all("connected").is_empty() {
        let refused = late.hears("refused").await;
        assert_eq!(refused.word(1), "Unavailable", "{refused:?}");
        disk.make_room();
        late.tell(&format!("connect {}", disk.site.url()));
        late.hears("connected").await;
        disk.fill();
    }
    for number in 0..40 {
        late.tell(&format!("claim b{number} {}{number} 600000", "y".repeat(200)));
    }
    pause(ms(300)).await;
    assert_eq!(late.all("failed").len(), 0, "{:?}", late.all("failed"));
    disk.make_room();
    for number in 0..40 {
        late.hears(&format!("held b{number}")).await;
    }
}
