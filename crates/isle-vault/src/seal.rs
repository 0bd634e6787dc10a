//! Encryption of values: XChaCha20-Poly1305 with a random nonce of 24 bytes. Namespace, name, version, hosts and expiry
//! are associated data, so that a writer to the database cannot move a value to another name or another host.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use serde_json::json;
use zeroize::Zeroizing;

use isle_core::{Code, Error, Result};

const NONCE: usize = 24;
/// Plain text of the check value of a key.
const CHECK: &[u8] = b"isle vault";

/// The key of the vault.
#[derive(Clone)]
pub struct Key(Zeroizing<[u8; 32]>);

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[key]")
    }
}

/// What is authenticated together with a value.
#[derive(Debug)]
pub struct AssociatedData<'a> {
    /// The namespace the secret belongs to.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its version.
    pub version: u64,
    /// Its hosts, as JSON.
    pub hosts: &'a str,
    /// When it expires.
    pub expires_at_ms: Option<i64>,
}

impl AssociatedData<'_> {
    fn bytes(&self) -> Vec<u8> {
        // A JSON array is unambiguous, whatever the texts contain.
        json!(["isle secret 1", self.namespace, self.name, self.version, self.hosts, self.expires_at_ms])
            .to_string()
            .into_bytes()
    }
}

impl Key {
    /// A new random key.
    pub fn generate() -> Result<Self> {
        let mut bytes = Zeroizing::new([0u8; 32]);
        getrandom::fill(&mut bytes[..]).map_err(Error::internal)?;
        Ok(Self(bytes))
    }

    /// Parses 64 hexadecimal digits, or 32 bytes in base64.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let mut key = Zeroizing::new([0u8; 32]);
        if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            for (byte, pair) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
                *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
            }
            return Some(Self(key));
        }
        let bytes = Zeroizing::new(STANDARD.decode(text).ok()?);
        if bytes.len() != key.len() {
            return None;
        }
        key.copy_from_slice(&bytes);
        Some(Self(key))
    }

    /// In hexadecimal, as [`Key::parse`] reads it.
    #[must_use]
    pub fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(self.0.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.0).into())
    }

    fn encrypt(&self, plain: &[u8], about: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
        let mut nonce = [0u8; NONCE];
        getrandom::fill(&mut nonce).map_err(Error::internal)?;
        let sealed = self
            .cipher()
            .encrypt(XNonce::from_slice(&nonce), Payload { msg: plain, aad: about })
            .map_err(|_| Error::internal("the value could not be encrypted"))?;
        Ok((nonce.to_vec(), sealed))
    }

    fn decrypt(&self, nonce: &[u8], sealed: &[u8], about: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        if nonce.len() != NONCE {
            return None;
        }
        let payload = Payload { msg: sealed, aad: about };
        self.cipher().decrypt(XNonce::from_slice(nonce), payload).ok().map(Zeroizing::new)
    }

    /// Encrypts a value; gives the nonce and the ciphertext.
    pub fn seal(&self, value: &str, about: &AssociatedData<'_>) -> Result<(Vec<u8>, Vec<u8>)> {
        self.encrypt(value.as_bytes(), &about.bytes())
    }

    /// Decrypts a value.
    pub fn open(&self, nonce: &[u8], sealed: &[u8], about: &AssociatedData<'_>) -> Result<Zeroizing<String>> {
        let damaged = || {
            Error::new(
                Code::VaultLocked,
                format!("the secret {} cannot be decrypted: its record was changed, or it was encrypted with another key", about.name),
            )
            .next("set it again, or remove it")
        };
        let plain = self.decrypt(nonce, sealed, &about.bytes()).ok_or_else(damaged)?;
        let text = std::str::from_utf8(&plain).map_err(|_| damaged())?;
        Ok(Zeroizing::new(text.to_owned()))
    }

    /// A check value that only this key decrypts.
    pub fn check(&self) -> Result<String> {
        let (nonce, sealed) = self.encrypt(CHECK, CHECK)?;
        Ok(STANDARD.encode([nonce, sealed].concat()))
    }

    /// Whether a check value was made with this key.
    #[must_use]
    pub fn opens(&self, check: &str) -> bool {
        let Ok(bytes) = STANDARD.decode(check) else { return false };
        let Some((nonce, sealed)) = bytes.split_at_checked(NONCE) else { return false };
        self.decrypt(nonce, sealed, CHECK).is_some_and(|plain| *plain == CHECK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(name: &str) -> AssociatedData<'_> {
        AssociatedData { namespace: "a", name, version: 1, hosts: "[]", expires_at_ms: None }
    }

    #[test]
    fn a_value_opens_with_its_key_and_as_what_it_was_sealed() {
        let key = Key::generate().unwrap();
        let (nonce, sealed) = key.seal("hunter22", &about("N")).unwrap();
        assert!(!sealed.windows(8).any(|bytes| bytes == b"hunter22"));
        assert_eq!(*key.open(&nonce, &sealed, &about("N")).unwrap(), "hunter22");
        let others = [
            AssociatedData { namespace: "b", ..about("N") },
            about("M"),
            AssociatedData { version: 2, ..about("N") },
            AssociatedData { hosts: "[\"evil.test\"]", ..about("N") },
            AssociatedData { expires_at_ms: Some(1), ..about("N") },
        ];
        for other in others {
            let error = key.open(&nonce, &sealed, &other).unwrap_err();
            assert_eq!(error.code, Code::VaultLocked, "{other:?}");
        }
        assert!(Key::generate().unwrap().open(&nonce, &sealed, &about("N")).is_err());
        let mut damaged = sealed.clone();
        damaged[0] ^= 1;
        assert!(key.open(&nonce, &damaged, &about("N")).is_err());
        assert!(key.open(&nonce[1..], &sealed, &about("N")).is_err());
    }

    #[test]
    fn the_same_value_is_never_sealed_to_the_same_bytes() {
        let key = Key::generate().unwrap();
        assert_ne!(key.seal("x", &about("N")).unwrap(), key.seal("x", &about("N")).unwrap());
    }

    #[test]
    fn keys_are_written_in_hexadecimal_or_base64() {
        let key = Key::generate().unwrap();
        let check = key.check().unwrap();
        assert!(Key::parse(&key.to_hex()).unwrap().opens(&check));
        assert!(Key::parse(&format!(" {}\n", key.to_hex().to_uppercase())).unwrap().opens(&check));
        assert!(Key::parse(&STANDARD.encode(&key.0[..])).unwrap().opens(&check));
        assert!(!Key::generate().unwrap().opens(&check));
        for wrong in ["", "secret", "0123", &"g".repeat(64), &STANDARD.encode([0u8; 31])] {
            assert!(Key::parse(wrong).is_none(), "{wrong}");
        }
        assert!(!key.opens("") && !key.opens("!") && !key.opens("AAAA"));
    }
}
