//! Setting up: again, side by side, and while others work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tenure::engines::postgres::{Postgres, PostgresConfig};

use crate::postgres_site::*;

async fn set_up(url: &str) {
    let (config, _) = PostgresConfig::from_url(url).unwrap();
    soon(Postgres::set_up(config)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn setting_up_again_changes_nothing() {
    let site = PostgresSite::new();
    let tenure = site.connect().await;
    let hold = tenure.mutex("x").acquire().await.unwrap();
    let oid = "SELECT 'tenure_v1.tick'::regproc::oid";
    let before = site.number(oid);
    let url = site.url();
    let many = (0..4).map(|_| {
        tokio::spawn({
            let url = url.clone();
            async move { set_up(&url).await }
        })
    });
    for one in many.collect::<Vec<_>>() {
        soon(one).await.unwrap();
    }
    assert_eq!(site.number(oid), before);
    assert!(hold.is_live());
    hold.release().await.unwrap();
}

/// Functions that differ are replaced while others use them. Many times, because each time a step can meet the change
/// at another moment: while it looks up a function, or while it hands a value of an old type to a new one.
#[tokio::test(flavor = "multi_thread")]
async fn other_functions_are_replaced_while_others_work() {
    let site = PostgresSite::new();
    let tenure = site.connect().await;
    let oid = "SELECT 'tenure_v1.tick'::regproc::oid";
    let done = Arc::new(AtomicBool::new(false));
    let over = done.clone();
    let work = tokio::spawn(async move {
        while !over.load(SeqCst) {
            tenure.mutex("x").acquire().await.unwrap().release().await.unwrap();
        }
    });
    for _ in 0..20 {
        let before = site.number(oid);
        site.sql("COMMENT ON SCHEMA tenure_v1 IS 'an older one'");
        set_up(&site.url()).await;
        assert_ne!(site.number(oid), before);
    }
    done.store(true, SeqCst);
    soon(work).await.unwrap();
}

/// A new version of the functions does not lock out roles that could use the old one.
#[tokio::test(flavor = "multi_thread")]
async fn setting_up_keeps_who_may_use_the_functions() {
    let site = PostgresSite::new();
    let role = format!("Odd \"role\" {}", site.database());
    let quoted = format!("\"{}\"", role.replace('"', "\"\""));
    site.sql(&format!(
        "CREATE ROLE {quoted} LOGIN; GRANT USAGE ON SCHEMA tenure, tenure_v1 TO {quoted}"
    ));
    site.sql("COMMENT ON SCHEMA tenure_v1 IS 'an older one'");
    set_up(&site.url()).await;
    let may = format!("SELECT has_schema_privilege({}, 'tenure_v1', 'USAGE')", role_text(&role));
    assert_eq!(site.sql(&may), "t");
    assert_eq!(site.sql("SELECT has_schema_privilege('public', 'tenure_v1', 'USAGE')"), "f");
}

fn role_text(role: &str) -> String {
    format!("'{}'", role.replace('\'', "''"))
}

/// Setting up runs as the owner of the database: functions that others have made must not run as that owner.
#[tokio::test(flavor = "multi_thread")]
async fn setting_up_calls_no_function_that_others_have_made() {
    let site = PostgresSite::new();
    site.sql(
        "CREATE FUNCTION public.obj_description(regnamespace, text) RETURNS text LANGUAGE plpgsql \
         AS $$ BEGIN RAISE 'this ran as the owner'; END $$",
    );
    set_up(&site.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_nobody_uses_are_swept() {
    let site = PostgresSite::new();
    let tenure = site.connect().await;
    for number in 0..50 {
        tenure.mutex(format!("n{number}")).acquire().await.unwrap().release().await.unwrap();
    }
    let kept = tenure.mutex("kept").acquire().await.unwrap();
    site.sql("UPDATE tenure.name SET number = number - 120000000");
    let highest = site.number("SELECT max(number) FROM tenure.name WHERE name LIKE 'n%'");
    assert_eq!(site.number("SELECT deleted FROM tenure_v1.sweep(0, 1000)"), 50);
    assert_eq!(site.number("SELECT count(*) FROM tenure.name"), 1);
    assert!(site.number("SELECT number FROM tenure.floor") >= highest);
    assert_eq!(holders(&tenure, "kept").await, [kept.fence().get()]);
}
