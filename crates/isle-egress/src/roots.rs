//! Whom the gate believes outside: the authorities of the system it runs on, and those the operator adds.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// Why certificates cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    /// Not PEM.
    #[error("it has no certificates in PEM: {0}")]
    Pem(String),
    /// TLS does not take one.
    #[error("one of its certificates cannot be used: {0}")]
    Certificate(String),
}

/// Whom the gate believes.
#[derive(Default)]
pub struct Roots {
    extra: Vec<CertificateDer<'static>>,
    config: OnceLock<Arc<ClientConfig>>,
}

impl fmt::Debug for Roots {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Roots").field("extra", &self.extra.len()).finish_non_exhaustive()
    }
}

impl Roots {
    /// Believes the certificates of a PEM file, too.
    pub fn add_pem(&mut self, pem: &[u8]) -> Result<(), RootsError> {
        let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .map_err(|error| RootsError::Pem(error.to_string()))?;
        if found.is_empty() {
            return Err(RootsError::Pem("none was found".into()));
        }
        let mut store = RootCertStore::empty();
        for certificate in &found {
            store.add(certificate.clone()).map_err(|error| RootsError::Certificate(error.to_string()))?;
        }
        self.extra.extend(found);
        Ok(())
    }

    /// How to connect. The system's authorities are read once, when they are first needed.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, rustls::Error> {
        if let Some(config) = self.config.get() {
            return Ok(Arc::clone(config));
        }
        let mut store = RootCertStore::empty();
        // What cannot be read there is left out: then hosts are not believed, which is told for each.
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        store.add_parsable_certificates(self.extra.iter().cloned());
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(store)
            .with_no_client_auth();
        Ok(Arc::clone(self.config.get_or_init(|| Arc::new(config))))
    }
}
