//! TLS: a client that asks for it speaks to the right server, encrypted, or not at all.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use tenure::{ErrorKind, Result, Tenure};
use tenure_testkit::servers::{Certificates, Postgres};

use crate::postgres_site::*;

/// Writes a file into the server's folder, as the server's user.
fn write(site: &PostgresSite, file: &str, text: &str) {
    let path = site.server().directory().join("data").join(file);
    let lines = format!("SELECT unnest(string_to_array('{text}', E'\\n'))");
    site.sql(&format!("COPY ({lines}) TO '{}'", path.display()));
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
}

/// From now on the server presents this certificate, and over TCP accepts nobody without TLS and the password.
async fn encrypt(site: &PostgresSite, certificates: &Certificates) {
    let read = |path| fs::read_to_string(path).unwrap();
    write(site, "server.crt", read(certificates.server_path()).trim());
    write(site, "server.key", read(certificates.server_key_path()).trim());
    site.sql("ALTER ROLE postgres PASSWORD 'secret'");
    write(site, "pg_hba.conf", "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256");
    site.sql("ALTER SYSTEM SET ssl = on");
    site.sql("SELECT pg_reload_conf()");
    until("TLS is on", async || site.sql("SHOW ssl") == "on").await;
}

fn url(site: &PostgresSite, options: &str) -> String {
    site.url().replace("postgres@127.0.0.1", "postgres:secret@localhost") + options
}

/// Whether the server can be reached at all.
async fn works(url: &str) -> Result<()> {
    let tenure = soon(Tenure::connect(url)).await?;
    soon(tenure.health()).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_the_right_certificate_is_used_over_tls_only() {
    let site = PostgresSite::alone(Postgres::build());
    let certificates = Certificates::new().unwrap();
    encrypt(&site, &certificates).await;
    let ca = certificates.ca_path().display().to_string();
    for options in [
        "?sslmode=require",
        "?sslmode=verify-full",
        "?sslmode=verify-full&channel_binding=require",
        "?sslmode=require&channel_binding=prefer&listen=always",
        "?sslmode=require&channel_binding=disable",
    ] {
        let url = url(&site, &format!("{options}&sslrootcert={ca}"));
        let tenure = soon(Tenure::connect(&url)).await.unwrap();
        let hold = soon(tenure.mutex("x").acquire()).await.unwrap();
        let sessions = "FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE application_name = 'tenure'";
        assert_eq!(site.sql(&format!("SELECT bool_and(ssl), count(*) > 0 {sessions}")), "t|t");
        hold.release().await.unwrap();
        soon(tenure.close()).await;
        until("its sessions end", async || {
            site.number(&format!("SELECT count(*) {sessions}")) == 0
        })
        .await;
    }
    // Without TLS there is nothing to bind to, and the server accepts nobody.
    for options in ["?channel_binding=require", ""] {
        assert!(works(&url(&site, options)).await.is_err(), "{options:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_wrong_certificate_is_refused() {
    let all = Certificates::new().unwrap();
    let ca = all.ca_path().display().to_string();
    for (certificates, why) in
        [(all.expired(), "expired"), (all.other_name(), "name"), (all.other_authority(), "")]
    {
        let site = PostgresSite::alone(Postgres::build());
        encrypt(&site, &certificates).await;
        for mode in ["require", "verify-full"] {
            let url = url(&site, &format!("?sslmode={mode}&sslrootcert={ca}"));
            let error = works(&url).await.unwrap_err();
            let says = error.to_string();
            assert!(says.contains("certificate") && says.contains(why), "{mode}: {says}");
            assert!(!says.contains("secret"), "{says}");
        }
        assert_eq!(site.number("SELECT count(*) FROM tenure.name"), 0, "nothing was sent");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_refused_and_sent_nothing() {
    let site = PostgresSite::new();
    for mode in ["require", "verify-full"] {
        let certificates = Certificates::new().unwrap();
        let ca = certificates.ca_path().display().to_string();
        let url = format!("{}?sslmode={mode}&sslrootcert={ca}", site.url());
        let error = works(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    assert_eq!(site.number("SELECT count(*) FROM tenure.name"), 0);
}
