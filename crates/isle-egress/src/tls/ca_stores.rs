//! A CA in the formats that programs read: OpenSSL opens a file named after the hash of the CA's subject,
//! Java reads a trust store (JKS) with all CAs.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, digest};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// The magic number of a JKS file, and the version that every Java reads.
const JAVA_MAGIC: u32 = 0xfeed_feed;
const JAVA_VERSION: u32 = 2;
/// The tag of a trusted certificate entry.
const JAVA_CERTIFICATE: u32 = 2;
/// The default password of every JKS trust store: it only protects against corruption.
const JAVA_PASSWORD: &str = "changeit";
const JAVA_SALT: &[u8] = b"Mighty Aphrodite";

/// The position of the number of entries.
const JAVA_COUNT: std::ops::Range<usize> = 8..12;
const JAVA_DIGEST: usize = 20;

/// Converts a PEM bundle to a JKS trust store. What is not a certificate is skipped.
#[must_use]
pub fn java_store(bundle: &str) -> Vec<u8> {
    let mut store = Vec::with_capacity(bundle.len());
    put_number(&mut store, JAVA_MAGIC);
    put_number(&mut store, JAVA_VERSION);
    put_number(&mut store, 0);
    CertificateDer::pem_slice_iter(bundle.as_bytes()).flatten().for_each(|one| put_entry(&mut store, &one));
    append_digest(store)
}

/// Adds the certificate `own`, in PEM, to a JKS trust store. `None` if the store has another format.
#[must_use]
pub fn java_store_with(store: &[u8], own: &str) -> Option<Vec<u8>> {
    let certificate = CertificateDer::from_pem_slice(own.as_bytes()).ok()?;
    let begin = [JAVA_MAGIC.to_be_bytes(), JAVA_VERSION.to_be_bytes()].concat();
    if !store.starts_with(&begin) || store.len() < JAVA_COUNT.end + JAVA_DIGEST {
        return None;
    }
    if memchr::memmem::find(store, &certificate).is_some() {
        return Some(store.to_vec());
    }
    let mut store = store[..store.len() - JAVA_DIGEST].to_vec();
    put_entry(&mut store, &certificate);
    Some(append_digest(store))
}

/// Adds a certificate; its alias is its hash, so that aliases are unique.
fn put_entry(store: &mut Vec<u8>, certificate: &[u8]) {
    put_number(store, JAVA_CERTIFICATE);
    let sum = digest(&SHA1_FOR_LEGACY_USE_ONLY, certificate);
    let count = u32::from_be_bytes([store[8], store[9], store[10], store[11]]).saturating_add(1);
    store[JAVA_COUNT].copy_from_slice(&count.to_be_bytes());
    let name: String = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    put_text(store, &name);
    // The creation time, which is not used.
    store.extend_from_slice(&0_u64.to_be_bytes());
    put_text(store, "X.509");
    put_number(store, u32::try_from(certificate.len()).unwrap_or(u32::MAX));
    store.extend_from_slice(certificate);
}

fn append_digest(mut store: Vec<u8>) -> Vec<u8> {
    let mut sum = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    JAVA_PASSWORD.encode_utf16().for_each(|unit| sum.update(&unit.to_be_bytes()));
    sum.update(JAVA_SALT);
    sum.update(&store);
    store.extend_from_slice(sum.finish().as_ref());
    store
}

fn put_number(store: &mut Vec<u8>, number: u32) {
    store.extend_from_slice(&number.to_be_bytes());
}

fn put_text(store: &mut Vec<u8>, text: &str) {
    store.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    store.extend_from_slice(text.as_bytes());
}

/// A part of a certificate's subject: the last number of its object identifier, and its text.
pub(crate) type NamePart<'t> = (u8, &'t str);
pub(crate) const ORGANISATION: u8 = 10;
pub(crate) const COMMON_NAME: u8 = 3;

/// The file name under which OpenSSL looks for a CA with this subject in its CA directory. Texts are short
/// and ASCII, with single spaces.
pub(crate) fn openssl_file_name(name: &[NamePart<'_>]) -> String {
    let mut canonical = Vec::new();
    for (kind, text) in name {
        let identifier = tagged(0x06, &[0x55, 0x04, *kind]);
        let text = tagged(0x0c, text.to_ascii_lowercase().as_bytes());
        canonical.extend(tagged(0x31, &tagged(0x30, &[identifier, text].concat())));
    }
    let sum = digest(&SHA1_FOR_LEGACY_USE_ONLY, &canonical);
    let first: String = sum.as_ref().iter().take(4).rev().map(|byte| format!("{byte:02x}")).collect();
    format!("{first}.0")
}

/// A short DER value.
fn tagged(tag: u8, contents: &[u8]) -> Vec<u8> {
    let mut value = vec![tag, u8::try_from(contents.len()).unwrap_or(u8::MAX)];
    value.extend_from_slice(contents);
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CertificateAuthority;

    #[test]
    fn the_file_name_is_the_subject_hash_of_openssl() {
        // As `openssl x509 -subject_hash` says it of a certificate with that subject.
        let name = [(ORGANISATION, "Isle"), (COMMON_NAME, "Isle sandbox 0123456789abcdef")];
        assert_eq!(openssl_file_name(&name), "5a3014c8.0");
    }

    #[test]
    fn a_java_store_has_every_certificate_and_skips_the_rest() {
        let pem = || CertificateAuthority::generate().unwrap().pem();
        let (one, two, own) = (pem(), pem(), pem());
        let has = |store: &[u8], pem: &str| {
            let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
            store.windows(der.len()).filter(|window| *window == &der[..]).count()
        };
        let store = java_store(&format!("# one\n{one}\nsome words\n{two}"));
        assert_eq!(store[..12], [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 2]);
        assert_eq!((has(&store, &one), has(&store, &two), has(&store, &own)), (1, 1, 0));
        let more = java_store_with(&store, &own).unwrap();
        assert_eq!((more[11], has(&more, &one), has(&more, &two), has(&more, &own)), (3, 1, 1, 1));
        assert_eq!(java_store_with(&more, &own).unwrap(), more, "it is there already");
        assert_eq!(more, java_store(&format!("{one}{two}{own}")), "it is sealed anew");
    }

    #[test]
    fn a_store_of_another_format_is_not_added_to() {
        let own = CertificateAuthority::generate().unwrap().pem();
        for other in [&b""[..], b"\x30\x82\x01\x00", &0xfeed_feed_u32.to_be_bytes(), &[0; 64]] {
            assert_eq!(java_store_with(other, &own), None);
        }
    }
}
