//! The layer: which requests are admitted, which wait, and the answers to the others.

use std::sync::Mutex;

use rusqlite::TransactionBehavior::Immediate;
use tenure::Fence;
use tenure::fencing::http::{Failure, FenceLayer, InProcess, Remember};
use tenure::fencing::{GuardError, sqlite};
use tenure_testkit::servers::Folder;

use crate::fences::site::{Site, ask, get, put, send, stale};
use crate::file_site::{ms, pause, soon, until};

async fn here() -> Site {
    Site::start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_request_is_told_what_why_and_what_next() {
    let site = here().await;
    let name = "wallet \"ü\"";
    assert_eq!(put(&site.port, name, 7, "seven").await.body, name, "the handler knows it");
    let late = put(&site.port, name, 5, "five").await;
    assert_eq!(late.status, 412);
    let head = late.head.to_lowercase();
    assert!(head.contains("content-type: application/problem+json"), "{head}");
    assert_eq!(
        late.body,
        r#"{"type":"urn:tenure:stale-fence","title":"The fence is too low","status":412,"#
            .to_owned()
            + r#""detail":"\"wallet \\\"ü\\\"\" refuses fence 5: it has seen 7, so the hold had ended before this write; acquire again","#
            + r#""name":"wallet \"ü\"","offered":5,"seen":7}"#
    );
    assert_eq!(get(&site.port).await.body, "seven");
    // Each name has fences of its own.
    assert_eq!(put(&site.port, "other", 5, "five").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_fence_or_name_is_a_bad_request() {
    let site = here().await;
    let long = "x".repeat(2000);
    for bad in ["0", "-1", "+7", "7.0", "", "seven", "9007199254740992", "99999999999999999999"] {
        let with = [("Tenure-Name", "x"), ("Tenure-Fence", bad)];
        assert_eq!(ask(&site.port, "PUT", &with, "").await.status, 400, "{bad:?}");
    }
    for with in [
        &[("Tenure-Fence", "7")][..],
        &[("Tenure-Fence", "7"), ("Tenure-Name", "")],
        &[("Tenure-Fence", "7"), ("Tenure-Name", &long)],
        &[("Tenure-Fence", "7"), ("Tenure-Name", "x"), ("Tenure-Name", "y")],
        &[("Tenure-Fence", "7"), ("Tenure-Fence", "8"), ("Tenure-Name", "x")],
    ] {
        assert_eq!(ask(&site.port, "PUT", with, "").await.status, 400, "{with:?}");
    }
    assert!(site.page.said().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_write_need_a_fence_unless_it_is_optional() {
    let site = here().await;
    assert_eq!(ask(&site.port, "PUT", &[], "x").await.status, 428);
    assert_eq!(ask(&site.port, "PUT", &[("Tenure-Name", "x")], "x").await.status, 428);
    assert_eq!(get(&site.port).await.status, 200);
    let site = Site::with(FenceLayer::new(InProcess::new(100)).optional()).await;
    assert_eq!(ask(&site.port, "PUT", &[], "x").await.status, 200);
    // A request that offers a fence is still checked.
    assert_eq!(put(&site.port, "x", 7, "seven").await.status, 200);
    assert_eq!(put(&site.port, "x", 5, "five").await.status, 412);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_can_come_from_the_path() {
    let layer = FenceLayer::new(InProcess::new(100));
    let site = Site::with(layer.named_by(|parts| Some(parts.uri.path().to_owned()))).await;
    assert_eq!(put(&site.port, "a", 7, "seven").await.body, "/page");
    assert_eq!(put(&site.port, "b", 5, "five").await.status, 412);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_no_more_names_can_be_remembered_new_ones_are_refused() {
    let site = Site::with(FenceLayer::new(InProcess::new(2))).await;
    for name in ["a", "b"] {
        assert_eq!(put(&site.port, name, 7, "seven").await.status, 200);
    }
    let full = put(&site.port, "c", 7, "seven").await;
    assert_eq!(full.status, 503, "{}", full.body);
    assert!(full.head.to_lowercase().contains("retry-after: 1"), "{}", full.head);
    assert_eq!(put(&site.port, "a", 8, "eight").await.status, 200);
    assert_eq!(put(&site.port, "b", 5, "five").await.status, 412, "nothing was forgotten");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_higher_fence_waits_for_those_before_it_and_lower_ones_are_refused_meanwhile() {
    let site = Site::that_waits(FenceLayer::new(InProcess::new(100))).await;
    let (page, port) = (site.page.clone(), site.port.clone());
    let asks = |fence: u64| {
        let port = port.clone();
        tokio::spawn(async move { put(&port, "x", fence, &fence.to_string()).await.status })
    };
    let began = async |count: usize| {
        let all = async || page.said().len() == count;
        until("they begin", all).await;
    };
    let five = [asks(5), asks(5)];
    began(2).await; // side by side
    let waits = asks(6);
    pause(ms(100)).await;
    let seven = asks(7);
    // Refused as soon as 7 has arrived, long before 7 begins; so is one that already waits.
    assert_eq!(soon(waits).await.unwrap(), 412);
    assert_eq!(soon(asks(6)).await.unwrap(), 412);
    assert_eq!(soon(asks(5)).await.unwrap(), 412);
    assert_eq!(page.said(), ["begins 5", "begins 5"]);
    page.may_go_on.add_permits(1);
    began(3).await;
    pause(ms(50)).await;
    assert_eq!(page.said(), ["begins 5", "begins 5", "ends 5"], "one is still there");
    page.may_go_on.add_permits(2);
    assert_eq!(soon(seven).await.unwrap(), 200);
    for five in five {
        assert_eq!(soon(five).await.unwrap(), 200);
    }
    assert_eq!(page.said(), ["begins 5", "begins 5", "ends 5", "ends 5", "begins 7", "ends 7"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_holds_up_nobody() {
    let site = Site::that_waits(FenceLayer::new(InProcess::new(100))).await;
    let with = [("Tenure-Name", "x"), ("Tenure-Fence", "5")];
    let stream = send(&site.port, "PUT", &with, "five").await;
    until("it begins", async || site.page.said().len() == 1).await;
    let port = site.port.clone();
    let seven = tokio::spawn(async move { put(&port, "x", 7, "seven").await.status });
    // It is refused as soon as 7 has arrived.
    assert_eq!(put(&site.port, "x", 6, "six").await.status, 412);
    drop(stream);
    // Its handler is dropped at whatever point it has reached.
    until("7 begins", async || site.page.said().len() == 2).await;
    site.page.may_go_on.add_permits(1);
    assert_eq!(soon(seven).await.unwrap(), 200);
    assert_eq!(site.page.said(), ["begins 5", "begins 7", "ends 7"]);
}

/// Memory that outlives the process: the same guard as for a transaction.
struct InSqlite(Mutex<rusqlite::Connection>);

impl InSqlite {
    fn open(path: &std::path::Path) -> InSqlite {
        let database = rusqlite::Connection::open(path).unwrap();
        database.execute_batch(sqlite::SCHEMA).unwrap();
        InSqlite(Mutex::new(database))
    }

    fn raise(&self, name: &str, fence: Fence) -> Result<(), GuardError<rusqlite::Error>> {
        let mut database = self.0.lock().unwrap();
        let transaction = database.transaction_with_behavior(Immediate)?;
        sqlite::guard(&transaction, name, fence)?;
        Ok(transaction.commit()?)
    }
}

impl Remember for InSqlite {
    async fn guard(&self, name: &str, fence: Fence) -> Result<(), GuardError<Failure>> {
        self.raise(name, fence).map_err(|error| error.map_failed(Failure::from))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fences_in_a_database_outlast_the_server() {
    let folder = Folder::new("fh").unwrap();
    let path = folder.path().join("fences.db");
    let site = Site::with(FenceLayer::new(InSqlite::open(&path))).await;
    assert_eq!(put(&site.port, "x", 7, "seven").await.status, 200);
    drop(site);
    let site = Site::with(FenceLayer::new(InSqlite::open(&path))).await;
    assert_eq!(stale(&put(&site.port, "x", 5, "five").await).seen, Some(Fence::new(7)));
    assert_eq!(put(&site.port, "x", 7, "seven").await.status, 200);
    // And when the database cannot be asked, nobody is let in.
    let database = rusqlite::Connection::open(&path).unwrap();
    database.execute_batch("DROP TABLE tenure_fences").unwrap();
    assert_eq!(put(&site.port, "x", 8, "eight").await.status, 503);
    assert_eq!(get(&site.port).await.body, "seven");
}
