//! The CAs that the gate trusts: those of the host, and those of the setting `network_ca_files`.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustedCasError {
    /// Not PEM.
    #[error("no PEM certificates: {0}")]
    Pem(String),
    /// A certificate that cannot be used.
    #[error("a certificate cannot be used: {0}")]
    Certificate(String),
}

/// The trusted CAs.
#[derive(Default)]
pub struct TrustedCas {
    extra: Vec<CertificateDer<'static>>,
    config: OnceLock<Arc<ClientConfig>>,
}

impl fmt::Debug for TrustedCas {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TrustedCas").field("extra", &self.extra.len()).finish_non_exhaustive()
    }
}

impl TrustedCas {
    /// Trusts the certificates of a PEM file in addition.
    pub fn add_pem(&mut self, pem: &[u8]) -> Result<(), TrustedCasError> {
        let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .map_err(|error| TrustedCasError::Pem(error.to_string()))?;
        if found.is_empty() {
            return Err(TrustedCasError::Pem("none found".into()));
        }
        let mut store = RootCertStore::empty();
        for certificate in &found {
            store
                .add(certificate.clone())
                .map_err(|error| TrustedCasError::Certificate(error.to_string()))?;
        }
        self.extra.extend(found);
        Ok(())
    }

    /// The TLS client configuration. The host's CAs are read once, when first needed.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, rustls::Error> {
        if let Some(config) = self.config.get() {
            return Ok(Arc::clone(config));
        }
        let mut store = RootCertStore::empty();
        // What cannot be read is skipped: the hosts concerned are then reported as untrusted.
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        store.add_parsable_certificates(self.extra.iter().cloned());
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(store)
            .with_no_client_auth();
        Ok(Arc::clone(self.config.get_or_init(|| Arc::new(config))))
    }
}
