//! Valid and invalid certificates for servers with TLS.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use super::ServerError;
use super::folder::Folder;

/// An authority and the certificates that it signed, as PEM files that exist as long as this value or a clone.
///
/// [`new`](Certificates::new) has a valid certificate for the server; [`expired`](Certificates::expired) and
/// the others have an invalid one in its place.
#[derive(Clone, Debug)]
pub struct Certificates {
    folder: Arc<Folder>,
    server: &'static str,
}

type Signer = Issuer<'static, KeyPair>;

impl Certificates {
    /// Makes an authority, and all files that the methods name.
    pub fn new() -> Result<Certificates, ServerError> {
        let folder = Folder::new("tls")?;
        write_all(&folder).map_err(|error| match error {
            Failed::Rcgen(error) => ServerError::during("cannot make a certificate")(error),
            Failed::Server(error) => error,
        })?;
        Ok(Certificates { folder: Arc::new(folder), server: "server" })
    }

    /// With a server certificate that expired years ago.
    #[must_use]
    pub fn expired(&self) -> Certificates {
        self.with("expired")
    }

    /// With a server certificate for `elsewhere.example` only.
    #[must_use]
    pub fn other_name(&self) -> Certificates {
        self.with("other-name")
    }

    /// With a server certificate of an authority that is not in [`ca_path`](Certificates::ca_path).
    #[must_use]
    pub fn other_authority(&self) -> Certificates {
        self.with("other-authority")
    }

    /// The certificate of the authority.
    #[must_use]
    pub fn ca_path(&self) -> PathBuf {
        self.path("ca", "pem")
    }

    /// The certificate of the other authority, which signed no valid certificate.
    #[must_use]
    pub fn other_ca_path(&self) -> PathBuf {
        self.path("other-ca", "pem")
    }

    /// The certificate that the server uses: for `127.0.0.1` and `localhost`, if it is a valid one.
    #[must_use]
    pub fn server_path(&self) -> PathBuf {
        self.path(self.server, "pem")
    }

    /// The key of the server, in PKCS #8.
    #[must_use]
    pub fn server_key_path(&self) -> PathBuf {
        self.path(self.server, "key")
    }

    /// A certificate for a client.
    #[must_use]
    pub fn client_path(&self) -> PathBuf {
        self.path("client", "pem")
    }

    /// The key of the client, in PKCS #8.
    #[must_use]
    pub fn client_key_path(&self) -> PathBuf {
        self.path("client", "key")
    }

    /// A client certificate of the other authority.
    #[must_use]
    pub fn other_client_path(&self) -> PathBuf {
        self.path("other-client", "pem")
    }

    /// The key to [`other_client_path`](Certificates::other_client_path).
    #[must_use]
    pub fn other_client_key_path(&self) -> PathBuf {
        self.path("other-client", "key")
    }

    fn with(&self, server: &'static str) -> Certificates {
        Certificates { folder: Arc::clone(&self.folder), server }
    }

    fn path(&self, name: &str, ending: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.{ending}"))
    }
}

enum Failed {
    Rcgen(rcgen::Error),
    Server(ServerError),
}

impl From<rcgen::Error> for Failed {
    fn from(error: rcgen::Error) -> Failed {
        Failed::Rcgen(error)
    }
}

impl From<ServerError> for Failed {
    fn from(error: ServerError) -> Failed {
        Failed::Server(error)
    }
}

fn write_all(folder: &Folder) -> Result<(), Failed> {
    let ours = authority(folder, "ca")?;
    let other = authority(folder, "other-ca")?;
    let here = ["127.0.0.1", "localhost"];
    let server = ExtendedKeyUsagePurpose::ServerAuth;
    let client = ExtendedKeyUsagePurpose::ClientAuth;
    sign(folder, "server", leaf(&here, server.clone())?, &ours)?;
    sign(folder, "client", leaf(&["client.example"], client.clone())?, &ours)?;
    sign(folder, "other-name", leaf(&["elsewhere.example"], server.clone())?, &ours)?;
    sign(folder, "other-authority", leaf(&here, server.clone())?, &other)?;
    sign(folder, "other-client", leaf(&["client.example"], client)?, &other)?;
    let mut expired = leaf(&here, server)?;
    expired.not_before = date_time_ymd(2020, 1, 1);
    expired.not_after = date_time_ymd(2021, 1, 1);
    sign(folder, "expired", expired, &ours)
}

fn authority(folder: &Folder, name: &str) -> Result<Signer, Failed> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, format!("tenure test {name}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    folder.write(&format!("{name}.pem"), &certificate.pem())?;
    Ok(Issuer::new(params, key))
}

fn leaf(
    names: &[&str],
    purpose: ExtendedKeyUsagePurpose,
) -> Result<CertificateParams, rcgen::Error> {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names)?;
    params.extended_key_usages = vec![purpose];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

fn sign(
    folder: &Folder,
    name: &str,
    params: CertificateParams,
    signer: &Signer,
) -> Result<(), Failed> {
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, signer)?;
    folder.write(&format!("{name}.pem"), &certificate.pem())?;
    folder.write(&format!("{name}.key"), &key.serialize_pem())?;
    Ok(())
}
