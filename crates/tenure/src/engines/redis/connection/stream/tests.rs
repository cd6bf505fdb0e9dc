use std::path::{Path, PathBuf};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::rustls::{CertificateError, Error as TlsError};

use super::*;
use crate::engines::redis::config::Tls;

/// A folder that is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("tenure-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A root certificate whose key nobody has, valid for a hundred years.
const ROOT: &str = "\
-----BEGIN CERTIFICATE-----
MIIBjTCCATOgAwIBAgIUEvuc+VdZf6Z98EY8G0nR7jGOLiMwCgYIKoZIzj0EAwIw
GzEZMBcGA1UEAwwQdGVudXJlIHRlc3Qgcm9vdDAgFw0yNjExMTUxNDMwMjRaGA8y
MTI2MTAyMjE0MzAyNFowGzEZMBcGA1UEAwwQdGVudXJlIHRlc3Qgcm9vdDBZMBMG
ByqGSM49AgEGCCqGSM49AwEHA0IABFN9SybEOdUdItMqeDSlUeco38nTsR15h1Ze
Cf1HA1cv30hyKvYxgK/PM+/9rkAeWylGKV5kahfWhqFQDNfgRW6jUzBRMB0GA1Ud
DgQWBBSekYHlzaVeOVmaJQYlJmfBmItuqzAfBgNVHSMEGDAWgBSekYHlzaVeOVma
JQYlJmfBmItuqzAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIQC/
NcJ6H2JvEY2A3fOCN6oBjYXMdVfDmcsE0/XE5Swv9AIgRRh90r28g52ane3eja8v
Gq04ytBSwNqJCIjRBnLdPhY=
-----END CERTIFICATE-----
";

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp { host: host.into(), port }
}

fn setup(ca: &Path) -> Result<TlsSetup> {
    TlsSetup::new(&tls(ca))
}

fn tls(ca: &Path) -> Tls {
    Tls { ca: Some(ca.to_owned()), ..Tls::default() }
}

fn refusal(tls: &Tls) -> String {
    let error = TlsSetup::new(tls).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    error.to_string()
}

/// Sends and receives both ways.
async fn talk(mut ours: Stream, mut theirs: impl AsyncRead + AsyncWrite + Unpin) {
    let mut read = [0; 4];
    ours.write_all(b"PING").await.unwrap();
    theirs.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"PING");
    theirs.write_all(b"PONG").await.unwrap();
    let mut bytes = Vec::with_capacity(64);
    assert_eq!(ours.read_buf(&mut bytes).await.unwrap(), 4);
    assert_eq!(bytes, b"PONG");
    ours.write_all(b"QUIT").await.unwrap();
    ours.flush().await.unwrap();
    ours.shutdown().await.unwrap();
    theirs.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"QUIT");
    assert_eq!(theirs.read(&mut read).await.unwrap(), 0);
}

#[tokio::test]
async fn tcp_is_connected_without_delay() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let ours = Stream::connect(&tcp("127.0.0.1", port), None).await.unwrap();
    let Stream::Tcp(socket) = &ours else { panic!("{ours:?}") };
    assert!(socket.nodelay().unwrap());
    talk(ours, listener.accept().await.unwrap().0).await;
}

#[tokio::test]
async fn every_address_of_a_name_is_tried() {
    // Where `localhost` resolves to IPv6 first, nobody listens on that address.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let ours = Stream::connect(&tcp("localhost", port), None).await.unwrap();
    talk(ours, listener.accept().await.unwrap().0).await;
}

#[tokio::test]
async fn a_socket_in_the_file_system_is_connected() {
    let folder = Folder::new("unix");
    let path = folder.0.join("redis.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let address = Address::Unix(path);
    let ours = Stream::connect(&address, None).await.unwrap();
    talk(ours, listener.accept().await.unwrap().0).await;
    let tls = setup(&folder.file("ca.pem", ROOT)).unwrap();
    let error = Stream::connect(&address, Some(&tls)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[tokio::test]
async fn a_failure_names_the_address_and_the_cause() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    for (address, says) in [
        (tcp("127.0.0.1", port), format!("127.0.0.1:{port} failed: connection refused; is")),
        (
            tcp("no-such-host.invalid", 1),
            "cannot resolve the host of no-such-host.invalid:1: ".to_owned(),
        ),
        (Address::Unix("/no/such.sock".into()), "/no/such.sock failed: no such file".to_owned()),
    ] {
        let error = Stream::connect(&address, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains(&says), "{error}");
        assert!(!error.to_string().contains("os error"), "{error}");
    }
}

#[tokio::test]
async fn tls_never_falls_back_to_plain_text() {
    let folder = Folder::new("fallback");
    let tls = setup(&folder.file("ca.pem", ROOT)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp("127.0.0.1", listener.local_addr().unwrap().port());
    let server = async {
        let (mut theirs, _) = listener.accept().await.unwrap();
        let mut hello = [0; 1];
        theirs.read_exact(&mut hello).await.unwrap();
        theirs.write_all(b"-ERR unknown command\r\n").await.unwrap();
        hello[0]
    };
    let (ours, first) = tokio::join!(Stream::connect(&address, Some(&tls)), server);
    assert_eq!(first, 0x16, "the first byte is not the one of a handshake");
    let error = ours.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("port for TLS"), "{error}");
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_its_option() {
    let folder = Folder::new("files");
    let ca = folder.file("ca.pem", ROOT);
    let empty = folder.file("empty.pem", "");
    let cut = folder.file("cut.pem", &ROOT[..200]);
    let missing = folder.0.join("missing.pem");
    let garbled = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let garbled = folder.file("garbled.pem", garbled);
    for (file, says) in [
        (&missing, "no such file"),
        (&empty, "no certificate"),
        (&cut, "not valid PEM"),
        (&garbled, "unusable certificate"),
    ] {
        let text = refusal(&tls(file));
        assert!(text.contains(says) && text.contains("ca"), "{text}");
        assert!(text.contains(file.to_str().unwrap()), "{text}");
    }
    let mut config = tls(&ca);
    config.cert = Some(ca.clone());
    assert!(refusal(&config).contains("both"));
    config.key = Some(ca.clone());
    assert!(refusal(&config).contains("no private key"));
    config.cert = Some(empty);
    assert!(refusal(&config).contains("the cert file"));
}

#[test]
fn names_that_no_certificate_can_have_are_refused() {
    let folder = Folder::new("names");
    let mut config = tls(&folder.file("ca.pem", ROOT));
    let setup = TlsSetup::new(&config).unwrap();
    for host in ["example.com", "127.0.0.1", "::1"] {
        assert!(setup.name_for(host).is_ok(), "{host}");
    }
    assert_eq!(setup.name_for("a_b!").unwrap_err().kind(), ErrorKind::Invalid);
    config.server_name = Some("".into());
    assert!(refusal(&config).contains("server_name"));
    config.server_name = Some("other.example".into());
    let setup = TlsSetup::new(&config).unwrap();
    assert_eq!(setup.name_for("127.0.0.1").unwrap().to_str(), "other.example");
}

#[test]
fn distrust_is_a_refusal_and_says_why() {
    for (why, says) in [
        (CertificateError::Expired, "it has expired"),
        (CertificateError::UnknownIssuer, "set ca"),
        (CertificateError::NotValidForName, "set server_name"),
    ] {
        let error = io::Error::other(TlsError::InvalidCertificate(why));
        let error = explain(&tcp("h", 1), &error);
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.to_string().contains(says) && error.to_string().contains("h:1"), "{error}");
    }
}
