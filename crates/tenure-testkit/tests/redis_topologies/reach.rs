//! TLS and sockets.

use tenure::ErrorKind;
use tenure_testkit::proxy::{Direction, Proxy};
use tenure_testkit::servers::{Certificates, Redis};

use crate::redis_site::*;

/// Holds, waits and hands over through this URL.
async fn works(url: &str) {
    let (ours, theirs) = (connect(url).await, connect(url).await);
    let hold = ours.mutex("x").ttl(secs(1)).acquire().await.unwrap();
    let next = wait_for(&theirs, "x", secs(1));
    until_waiting(&ours, "x", 1).await;
    pause(ms(1200)).await;
    assert!(hold.is_live());
    hold.release().await.unwrap();
    served(next).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s82_tls_with_an_authority_of_its_own_works_and_nothing_goes_in_plain_text() {
    let certificates = Certificates::new().unwrap();
    let server = Redis::build().tls(&certificates).start().unwrap();
    let ca = certificates.ca_path();
    works(&format!("{}?ca={}", server.url(), ca.display())).await;
    // The system's roots do not know it, and plain text is not understood.
    let error = within(secs(10), reach(&server.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let plain = server.url().replace("rediss://", "redis://");
    let error = within(secs(10), reach(&plain)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s82_a_bad_certificate_is_refused() {
    let good = Certificates::new().unwrap();
    for bad in [good.expired(), good.other_name(), good.other_authority()] {
        let server = Redis::build().tls(&bad).start().unwrap();
        let url = format!("{}?ca={}", server.url(), good.ca_path().display());
        let error = within(secs(10), reach(&url)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(!error.is_retryable());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s82_a_client_certificate_is_presented_where_the_server_requires_one() {
    let certificates = Certificates::new().unwrap();
    let server = Redis::build().tls(&certificates).client_certificate_needed().start().unwrap();
    let url = format!("{}?ca={}", server.url(), certificates.ca_path().display());
    let with = |cert: std::path::PathBuf, key: std::path::PathBuf| {
        format!("{url}&cert={}&key={}", cert.display(), key.display())
    };
    works(&with(certificates.client_path(), certificates.client_key_path())).await;
    let other = with(certificates.other_client_path(), certificates.other_client_key_path());
    for refused in [url.clone(), other] {
        let error = within(secs(10), reach(&refused)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s82_tls_never_falls_back_to_plain_text() {
    // A server that only speaks plain text, and a URL that asks for TLS.
    let server = server();
    let proxy = Proxy::start(server.port()).unwrap();
    let certificates = Certificates::new().unwrap();
    let ca = certificates.ca_path();
    let url = format!("rediss://127.0.0.1:{}?ca={}&connect_timeout=1s", proxy.port(), ca.display());
    assert!(within(secs(10), reach(&url)).await.is_err());
    // Something was sent, but no command that the server accepted.
    assert!(proxy.bytes(Direction::Upstream) > 0);
    assert_eq!(calls(&server, "hello"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_in_the_file_system_works_and_one_that_is_gone_is_named() {
    let server = Redis::build().unix_socket().start().unwrap();
    works(&server.url()).await;
    let tenure = connect(&server.url()).await;
    let hold = tenure.mutex("x").ttl(secs(30)).acquire().await.unwrap();
    // The previous connection may still be there.
    assert!(cut_off(&server, "tenure") > 0);
    drop(soon(tenure.mutex("y").acquire()).await.unwrap());
    assert!(hold.is_live());
    let gone = format!("{}.gone", server.url());
    let error = within(secs(10), reach(&gone)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("unixsocket"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_and_namespaces_are_separate() {
    let server = server();
    let hold = connect(&server.url()).await;
    let hold = hold.mutex("x").acquire().await.unwrap();
    for other in ["/3", "?namespace=theirs", "/3?namespace=theirs"] {
        let tenure = connect(&format!("{}{other}", server.url())).await;
        let apart = tenure.mutex("x").try_acquire().await.unwrap().expect("another name");
        // Kept, so that the next one finds it.
        assert!(tenure.mutex("x").try_acquire().await.unwrap().is_none());
        drop(apart);
    }
    assert!(hold.is_live());
}
