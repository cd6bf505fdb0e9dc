//! A full disk: new claims are refused with the reason, nothing is granted twice, and everything works again when there is
//! room.

use std::fs;
use std::io::Write;
use std::path::Path;

use tenure::ErrorKind;
use tenure_testkit::servers::Postgres;

use crate::file_site::is_root;
use crate::postgres_site::*;

fn fill(disk: &Path) {
    let filler = fs::File::options().create(true).append(true).open(disk.join("filler"));
    let mut filler = filler.unwrap();
    while filler.write_all(&[0; 512]).is_ok() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn s110_on_a_full_disk_new_claims_are_refused_with_the_reason_and_holds_stay() {
    if !is_root("s110") {
        return;
    }
    let site = PostgresSite::alone(Postgres::build().small_disk("8m"));
    let disk = site.server().small_disk();
    let folder = site.server().directory().join("small");
    site.sql(&format!("CREATE TABLESPACE small LOCATION '{}'", folder.display()));
    for what in ["TABLE", "INDEX"] {
        site.sql(&format!("ALTER {what} ALL IN TABLESPACE pg_default SET TABLESPACE small"));
    }
    let (tenure, far) = (site.connect().await, site.connect().await);
    let hold = tenure.mutex("held").ttl(secs(3)).acquire().await.unwrap();
    let waiter = tokio::spawn(far.mutex("held").join());
    until_waiting(&tenure, "held", 1).await;
    fill(&disk);
    // Sooner or later: the tables have some room of their own.
    let mut holds = Vec::new();
    let error = loop {
        let name = format!("{}{}", "n".repeat(200), holds.len());
        match tenure.mutex(&name).ttl(secs(600)).wait(secs(1)).acquire().await {
            Ok(hold) => holds.push(hold),
            Err(error) => break error,
        }
        assert!(holds.len() < 5_000, "the disk has no end");
        fill(&disk);
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let text = error.to_string();
    assert!(text.contains("out of room") && text.contains("53100"), "{text}");
    // Several renewals, which need no room.
    pause(secs(4)).await;
    assert!(hold.is_live(), "{:?}", hold.remaining());
    fs::remove_file(disk.join("filler")).unwrap();
    let newer = soon(tenure.mutex("new").acquire()).await.unwrap();
    assert!(holds.iter().all(|hold| hold.is_live()));
    hold.release().await.unwrap();
    let next = soon(waiter).await.unwrap().unwrap();
    assert!(next.is_live() && newer.is_live());
    drop((next, newer, holds));
    site.is_sound();
}
