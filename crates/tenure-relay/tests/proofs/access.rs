//! TLS: who the relay is, and that nobody gets in without a certificate where one is asked for.

use std::io::{Error, Result};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tenure::Tenure;
use tenure_relay::{Access, Relay, Server, Tls};
use tenure_testkit::servers::Certificates;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::probe::relays::{config, scripted};

const TOKEN: &str = "4f7d0a1e9b6c4c1f8a52d3e6b7f80911";

type Shown = Option<(PathBuf, PathBuf)>;

fn certificates(path: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(path).unwrap().map(|found| found.unwrap()).collect()
}

/// One call over TLS by a client that trusts `authority` and shows a certificate, or none.
async fn call(to: SocketAddr, authority: &Path, shown: Shown, head: &str) -> Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(authority));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Error::other)?
        .with_root_certificates(roots);
    let tls = match shown {
        Some((cert, key)) => {
            let key = PrivateKeyDer::from_pem_file(key).unwrap();
            builder.with_client_auth_cert(certificates(&cert), key).map_err(Error::other)?
        }
        None => builder.with_no_client_auth(),
    };
    let talk = async {
        let stream = TcpStream::connect(to).await?;
        let name = ServerName::try_from("localhost").map_err(Error::other)?;
        let mut stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await?;
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"test_echo","params":[5]}"#;
        let length = body.len();
        let request = format!(
            "POST / HTTP/1.1\r\nhost: relay.example\r\n{head}connection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    tokio::time::timeout(Duration::from_secs(30), talk).await?
}

async fn start(node: &str, tls: Tls, access: Access) -> (SocketAddr, JoinHandle<()>) {
    let tenure = Tenure::connect("memory:").await.unwrap();
    let relay = Relay::new(config(node), &tenure).unwrap();
    let server = Server::bind(relay, (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let server = server.with_access(access, Some(tls));
    let address = server.address().unwrap();
    (address, tokio::spawn(server.run(std::future::pending())))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_shows_who_the_relay_is_and_tokens_who_asks() {
    let (node, files) = (scripted(), Certificates::new().unwrap());
    let tls = Tls::from_files(&files.server_path(), &files.server_key_path(), None).unwrap();
    let access = Access::from_lines(&format!("shop {TOKEN}")).unwrap();
    let (address, _relay) = start(&node.url(), tls, access).await;
    let token = format!("authorization: Bearer {TOKEN}\r\n");
    let answer = call(address, &files.ca_path(), None, &token).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("[5]"), "{answer}");
    let answer = call(address, &files.ca_path(), None, "").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert!(call(address, &files.other_ca_path(), None, &token).await.is_err(), "another relay");
    // A client without TLS gets no answer.
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gets_in_without_a_certificate_of_the_authority() {
    let (node, files) = (scripted(), Certificates::new().unwrap());
    let (cert, key) = (files.server_path(), files.server_key_path());
    let tls = Tls::from_files(&cert, &key, Some(&files.ca_path())).unwrap();
    let (address, _relay) = start(&node.url(), tls, Access::default()).await;
    let own = (files.client_path(), files.client_key_path());
    let answer = call(address, &files.ca_path(), Some(own), "").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("[5]"), "{answer}");
    let other = (files.other_client_path(), files.other_client_key_path());
    for shown in [None, Some(other)] {
        let answer = call(address, &files.ca_path(), shown, "").await;
        assert!(answer.as_ref().is_err_and(|_| true) || answer.is_ok_and(|it| it.is_empty()));
    }
    assert_eq!(node.calls("test_echo"), 1);
}

#[test]
fn files_that_are_no_certificates_are_named_and_not_shown() {
    let files = Certificates::new().unwrap();
    let (cert, key) = (files.server_path(), files.server_key_path());
    let nowhere = Path::new("/does/not/exist");
    for (cert, key, ca) in [
        (nowhere, &*key, None),
        (&*cert, nowhere, None),
        (&*key, &*key, None),
        (&*cert, &*cert, None),
        (&*cert, &*files.client_key_path(), None),
        (&*cert, &*key, Some(nowhere)),
        (&*cert, &*key, Some(&*key)),
    ] {
        let why = Tls::from_files(cert, key, ca).unwrap_err();
        assert!(why.contains('/') && !why.contains("BEGIN"), "{why}");
    }
}
