//! The certificate authority of one sandbox. What it signs is believed inside that sandbox and nowhere
//! else; with it the gate answers for hosts whose encryption it opens.

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

use crate::host::Name;
use crate::stores::{COMMON_NAME, ORGANISATION, looked_up_as};

/// How long the certificate of a host is good for.
const LEAF_LIFE: Duration = Duration::from_secs(48 * 3600);
/// How long it is handed out.
const LEAF_USE: Duration = Duration::from_secs(24 * 3600);
/// As long as a sandbox may live.
const OWN_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Clocks of programs that pretend another time may be behind.
const BEFORE: Duration = Duration::from_secs(24 * 3600);
/// The first part of its name; the second tells the sandboxes apart.
const ORGANISATION_NAME: &str = "Isle";
/// Letters of a label.
const LABEL: usize = 16;
/// Hosts whose certificates are kept.
const MOST_LEAVES: usize = 512;

/// Why there is no authority, or no certificate.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// Making a key or a certificate failed.
    #[error("no certificate could be made: {0}")]
    Making(#[from] rcgen::Error),
    /// TLS does not take it.
    #[error("TLS does not take the certificate: {0}")]
    Tls(#[from] rustls::Error),
    /// What was kept of it cannot be read.
    #[error("what was kept of the certificate authority cannot be read")]
    Kept,
}

/// What is spoken inside TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Spoken {
    /// HTTP/1.1.
    One,
    /// HTTP/2.
    Two,
}

impl Spoken {
    /// As it is named in the handshake.
    pub(crate) fn alpn(self) -> Vec<u8> {
        match self {
            Self::One => b"http/1.1".to_vec(),
            Self::Two => b"h2".to_vec(),
        }
    }
}

/// The certificate authority of one sandbox.
pub struct Authority {
    label: String,
    key: Zeroizing<Vec<u8>>,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    /// The key of every host it answers for.
    host_key: KeyPair,
    leaves: Mutex<HashMap<(Name, Spoken), Leaf>>,
}

struct Leaf {
    config: Arc<ServerConfig>,
    made: Instant,
}

impl fmt::Debug for Authority {
    /// Without its keys.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Authority").field("label", &self.label).finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes one.
    pub fn generate() -> Result<Self, AuthorityError> {
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

    fn new(label: &str, key: KeyPair, certificate: CertificateDer<'static>) -> Result<Self, AuthorityError> {
        Ok(Self {
            label: label.to_owned(),
            key: Zeroizing::new(key.serialize_der()),
            certificate,
            issuer: Issuer::new(own_params(label), key),
            host_key: KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
            leaves: Mutex::default(),
        })
    }

    /// Takes one up again that was kept.
    pub fn restore(kept: &str) -> Result<Self, AuthorityError> {
        let mut words = kept.splitn(3, ' ');
        let mut word = || words.next().ok_or(AuthorityError::Kept);
        let key = Zeroizing::new(STANDARD.decode(word()?).map_err(|_| AuthorityError::Kept)?);
        let certificate = STANDARD.decode(word()?).map_err(|_| AuthorityError::Kept)?;
        let label = word()?;
        if label.len() != LABEL {
            return Err(AuthorityError::Kept);
        }
        let key = PrivatePkcs8KeyDer::from(key.as_slice());
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256)?;
        Self::new(label, key, CertificateDer::from(certificate))
    }

    /// All that is needed to take it up again, its key included.
    #[must_use]
    pub fn kept(&self) -> Zeroizing<String> {
        let key = Zeroizing::new(STANDARD.encode(&*self.key));
        Zeroizing::new(format!("{} {} {}", *key, STANDARD.encode(&self.certificate), self.label))
    }

    /// Its certificate, as trust stores have it.
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

    /// The name of a file in which OpenSSL looks for its certificate, where it is given a directory.
    #[must_use]
    pub fn file_name(&self) -> String {
        looked_up_as(&[(ORGANISATION, ORGANISATION_NAME), (COMMON_NAME, &common_name(&self.label))])
    }

    /// How to answer for a host.
    pub(crate) fn answering_for(
        &self,
        name: &Name,
        spoken: Spoken,
    ) -> Result<Arc<ServerConfig>, AuthorityError> {
        let key = (name.clone(), spoken);
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(leaf) = leaves.get(&key)
            && leaf.made.elapsed() < LEAF_USE
        {
            return Ok(Arc::clone(&leaf.config));
        }
        if leaves.len() >= MOST_LEAVES {
            leaves.clear();
        }
        let config = Arc::new(self.config_for(name, spoken)?);
        leaves.insert(key, Leaf { config: Arc::clone(&config), made: Instant::now() });
        Ok(config)
    }

    fn config_for(&self, name: &Name, spoken: Spoken) -> Result<ServerConfig, AuthorityError> {
        let mut params = CertificateParams::new(vec![name.to_string()])?;
        params.distinguished_name = DistinguishedName::new();
        // The field takes no more; programs look at the other one.
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
        config.alpn_protocols = vec![spoken.alpn()];
        Ok(config)
    }
}

/// Tells authorities of different sandboxes apart: two of one name would be taken for each other.
fn label() -> Result<String, AuthorityError> {
    Ok(random::<{ LABEL / 2 }>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn random<const COUNT: usize>() -> Result<[u8; COUNT], AuthorityError> {
    let mut bytes = [0; COUNT];
    let filled = rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes);
    filled.map_err(|_| AuthorityError::Tls(rustls::Error::FailedToGetRandomBytes))?;
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

/// A number that no other certificate has.
fn serial() -> Result<SerialNumber, AuthorityError> {
    let mut bytes = random::<16>()?;
    // Positive, and not shortened.
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    Ok(SerialNumber::from(bytes.to_vec()))
}

/// A time as certificates have it.
fn at(time: SystemTime) -> time::OffsetDateTime {
    time.into()
}
