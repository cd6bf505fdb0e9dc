//! What the server refuses, and what callers hear about it.

use tenure::ErrorKind;
use tenure_testkit::servers::Postgres;

use crate::postgres_site::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_the_tables_says_what_to_run() {
    let site = PostgresSite::new();
    site.sql("DROP SCHEMA tenure_v1 CASCADE; DROP SCHEMA tenure CASCADE");
    let error = tenure::Tenure::connect(&site.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("tenure setup"), "{error}");
    // Unless it is told to make them.
    let tenure = connect(&format!("{}?setup=true", site.url())).await;
    tenure.mutex("x").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_layout_is_refused() {
    let site = PostgresSite::new();
    site.sql("UPDATE tenure.layout SET version = 2");
    let error = tenure::Tenure::connect(&site.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("version 2, not 1"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_needs_nothing_but_the_schemas() {
    let site = PostgresSite::new();
    let role = format!("app_{}", site.database());
    site.sql(&format!("CREATE ROLE {role} LOGIN"));
    let url = site.url().replace("postgres@", &format!("{role}@"));
    let error = tenure::Tenure::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("GRANT USAGE ON SCHEMA"), "{error}");
    site.sql(&format!("GRANT USAGE ON SCHEMA tenure, tenure_v1 TO {role}"));
    let tenure = connect(&url).await;
    let hold = tenure.mutex("x").acquire().await.unwrap();
    let next = wait_for(&tenure, "x", secs(30));
    until_waiting(&tenure, "x", 1).await;
    hold.release().await.unwrap();
    served(next).await.release().await.unwrap();
}

/// A row that a foreign open transaction has locked is waited for, and then named; it is not in the way of other
/// names, or of the holds of the same process.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_locked_is_in_the_way_of_nobody_else() {
    let site = PostgresSite::new();
    let url = format!("{}?connections=2", site.url());
    let (tenure, other) = (connect(&url).await, connect(&url).await);
    // Renewed every 300 ms, together with the one that is locked.
    let mut holds = Vec::new();
    for number in 0..8 {
        let lock = tenure.mutex(format!("x{number}")).ttl(ms(900));
        holds.push(lock.acquire().await.unwrap());
    }
    let busy = tenure.mutex("y").ttl(secs(60)).renew_every(ms(300)).acquire().await.unwrap();
    let (client, connection) =
        tokio_postgres::connect(&site.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
        .batch_execute("BEGIN; SELECT FROM tenure.name WHERE name = 'y' FOR UPDATE")
        .await
        .unwrap();
    let free = within(AT_ONCE, other.mutex("z").acquire()).await.unwrap();
    let error = soon(other.mutex("y").wait(ms(4500)).acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    for hold in &holds {
        assert!(hold.is_live(), "{} was lost", hold.name());
    }
    client.batch_execute("COMMIT").await.unwrap();
    assert!(busy.is_live());
    drop((free, busy, holds));
}

#[tokio::test(flavor = "multi_thread")]
async fn serializable_by_default_is_no_trouble() {
    let site = PostgresSite::new();
    let set = "ALTER DATABASE {} SET default_transaction_isolation = 'serializable'";
    site.sql(&set.replace("{}", site.database()));
    let clients = [site.connect().await, site.connect().await, site.connect().await];
    let mut tasks = Vec::new();
    for number in 0..12 {
        let tenure = clients[number % 3].clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                let hold = tenure.mutex("x").wait(secs(25)).acquire().await.unwrap();
                hold.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        soon(task).await.unwrap();
    }
    site.is_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_connections_is_waited_out() {
    let site = PostgresSite::alone(
        Postgres::build().setting("max_connections=12").setting("superuser_reserved_connections=1"),
    );
    site.sql("CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA tenure, tenure_v1 TO app");
    let url = site.url().replace("postgres@", "app@");
    let mut others = Vec::new();
    while let Ok((client, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await
    {
        tokio::spawn(connection);
        others.push(client);
    }
    let tenure = tenure::Tenure::connect(&url).await.unwrap();
    let waiting = tokio::spawn(async move { tenure.mutex("x").wait(secs(20)).acquire().await });
    pause(ms(500)).await;
    drop(others);
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// 25006: the server takes no writes for a while, as after a failover.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_writes_is_waited_out() {
    let site = PostgresSite::new();
    let tenure = site.connect().await;
    let set = |value: &str| {
        let set = format!(
            "ALTER DATABASE {} SET default_transaction_read_only = {value}",
            site.database()
        );
        site.server().sql("postgres", &set).unwrap();
    };
    set("on");
    site.server()
        .sql(
            "postgres",
            &format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = '{}'",
                site.database()
            ),
        )
        .unwrap();
    let waiting = {
        let tenure = tenure.clone();
        tokio::spawn(async move { tenure.mutex("x").wait(secs(20)).acquire().await })
    };
    pause(ms(500)).await;
    assert!(!waiting.is_finished());
    set("off");
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}
