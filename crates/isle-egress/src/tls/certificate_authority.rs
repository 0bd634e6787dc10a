//! The certificate authority of one sandbox, trusted inside that sandbox only. It signs the certificates of
//! hosts whose TLS connections the gate intercepts.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SerialNumber,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use zeroize::Zeroizing;

use crate::policy::host::Name;
use crate::tls::ca_stores::{COMMON_NAME, ORGANISATION, openssl_file_name};

/// Validity of a host's certificate.
const LEAF_LIFE: Duration = Duration::from_secs(48 * 3600);
/// How long a certificate is reused.
const LEAF_USE: Duration = Duration::from_secs(24 * 3600);
/// Validity of the CA certificate: longer than a sandbox exists.
const OWN_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Certificates are valid from earlier on, for programs with a wrong clock.
const BEFORE: Duration = Duration::from_secs(24 * 3600);
/// The organization in the CA's subject; the common name differs per sandbox.
const ORGANISATION_NAME: &str = "Isle";
/// Length of a label.
const LABEL: usize = 16;
/// Maximum number of cached certificates.
const MOST_LEAVES: usize = 512;

/// Why a CA or a certificate could not be created.
#[derive(Debug, thiserror::Error)]
pub enum CertificateAuthorityError {
    /// Creating a key or a certificate failed.
    #[error("could not create a certificate: {0}")]
    Making(#[from] rcgen::Error),
    /// rustls rejected it.
    #[error("the certificate cannot be used for TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The stored form is not valid.
    #[error("the stored certificate authority cannot be read")]
    Stored,
}

/// The HTTP version inside TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum HttpVersion {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

impl HttpVersion {
    /// The ALPN protocol name.
    pub(crate) fn alpn(self) -> Vec<u8> {
        match self {
            Self::Http1 => b"http/1.1".to_vec(),
            Self::Http2 => b"h2".to_vec(),
        }
    }
}

/// The certificate authority of one sandbox.
pub struct CertificateAuthority {
    label: String,
    key: Zeroizing<Vec<u8>>,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    /// The key of all host certificates.
    host_key: KeyPair,
    leaves: Mutex<HashMap<(Name, HttpVersion), Leaf>>,
}

struct Leaf {
    config: Arc<ServerConfig>,
    made: Instant,
}

impl fmt::Debug for CertificateAuthority {
    /// Without its keys.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CertificateAuthority").field("label", &self.label).finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// Creates a CA.
    pub fn generate() -> Result<Self, CertificateAuthorityError> {
        let label = label()?;
        let label = label.as_str();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = own_params(label);
        params.serial_number = Some(serial()?);
        let now = SystemTime::now();
        (params.not_before, params.not_after) = (at(now - BEFORE), at(now + OWN_LIFE));
        let certificate = params.self_signed(&key)?.der().clone();
        Self::new(label, key, certificate)
    }

    fn new(
        label: &str,
        key: KeyPair,
        certificate: CertificateDer<'static>,
    ) -> Result<Self, CertificateAuthorityError> {
        Ok(Self {
            label: label.to_owned(),
            key: Zeroizing::new(key.serialize_der()),
            certificate,
            issuer: Issuer::new(own_params(label), key),
            host_key: KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
            leaves: Mutex::default(),
        })
    }

    /// Restores a CA from its stored form.
    pub fn restore(stored: &str) -> Result<Self, CertificateAuthorityError> {
        let mut words = stored.splitn(3, ' ');
        let mut word = || words.next().ok_or(CertificateAuthorityError::Stored);
        let key = Zeroizing::new(STANDARD.decode(word()?).map_err(|_| CertificateAuthorityError::Stored)?);
        let certificate = STANDARD.decode(word()?).map_err(|_| CertificateAuthorityError::Stored)?;
        let label = word()?;
        if label.len() != LABEL {
            return Err(CertificateAuthorityError::Stored);
        }
        let key = PrivatePkcs8KeyDer::from(key.as_slice());
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256)?;
        Self::new(label, key, CertificateDer::from(certificate))
    }

    /// The form to store, including the private key.
    #[must_use]
    pub fn to_stored(&self) -> Zeroizing<String> {
        let key = Zeroizing::new(STANDARD.encode(&*self.key));
        Zeroizing::new(format!("{} {} {}", *key, STANDARD.encode(&self.certificate), self.label))
    }

    /// The certificate in PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        let encoded = STANDARD.encode(&self.certificate);
        let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
        for line in encoded.as_bytes().chunks(64) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
        text
    }

    /// The file name under which OpenSSL looks for the certificate in a CA directory.
    #[must_use]
    pub fn file_name(&self) -> String {
        openssl_file_name(&[(ORGANISATION, ORGANISATION_NAME), (COMMON_NAME, &common_name(&self.label))])
    }

    /// The TLS server configuration for a host.
    pub(crate) fn server_config(
        &self,
        name: &Name,
        http_version: HttpVersion,
    ) -> Result<Arc<ServerConfig>, CertificateAuthorityError> {
        let key = (name.clone(), http_version);
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(leaf) = leaves.get(&key)
            && leaf.made.elapsed() < LEAF_USE
        {
            return Ok(Arc::clone(&leaf.config));
        }
        if leaves.len() >= MOST_LEAVES {
            leaves.clear();
        }
        let config = Arc::new(self.config_for(name, http_version)?);
        leaves.insert(key, Leaf { config: Arc::clone(&config), made: Instant::now() });
        Ok(config)
    }

    fn config_for(
        &self,
        name: &Name,
        http_version: HttpVersion,
    ) -> Result<ServerConfig, CertificateAuthorityError> {
        let mut params = CertificateParams::new(vec![name.to_string()])?;
        params.distinguished_name = DistinguishedName::new();
        // The common name is limited to 64 characters; programs use the subject alternative name.
        let common: String = name.as_str().chars().take(64).collect();
        params.distinguished_name.push(DnType::CommonName, common);
        params.serial_number = Some(serial()?);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let now = SystemTime::now();
        (params.not_before, params.not_after) = (at(now - BEFORE), at(now + LEAF_LIFE));
        let leaf = params.signed_by(&self.host_key, &self.issuer)?;
        let chain = vec![leaf.der().clone(), self.certificate.clone()];
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.host_key.serialize_der()));
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_no_client_auth()
                .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![http_version.alpn()];
        Ok(config)
    }
}

/// Distinguishes the CAs of sandboxes: programs confuse two CAs with the same subject.
fn label() -> Result<String, CertificateAuthorityError> {
    Ok(random::<{ LABEL / 2 }>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn random<const COUNT: usize>() -> Result<[u8; COUNT], CertificateAuthorityError> {
    let mut bytes = [0; COUNT];
    let filled = rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes);
    filled.map_err(|_| CertificateAuthorityError::Tls(rustls::Error::FailedToGetRandomBytes))?;
    Ok(bytes)
}

fn common_name(label: &str) -> String {
    format!("{ORGANISATION_NAME} sandbox {label}")
}

fn own_params(label: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, ORGANISATION_NAME);
    params.distinguished_name.push(DnType::CommonName, common_name(label));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// A unique serial number.
fn serial() -> Result<SerialNumber, CertificateAuthorityError> {
    let mut bytes = random::<16>()?;
    // Positive, and of constant length.
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    Ok(SerialNumber::from(bytes.to_vec()))
}

/// A time in the form of certificates.
fn at(time: SystemTime) -> time::OffsetDateTime {
    time.into()
}
