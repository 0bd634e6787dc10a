//! Sealing: XChaCha20-Poly1305 with a random nonce of 24 bytes. Whose secret it is, its name, version,
//! hosts and expiry are sealed with it, so that nobody who writes to the database can move a value to
//! another name or send it to another host.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use serde_json::json;
use zeroize::Zeroizing;

use crate::error::{Code, Error, Result};

const NONCE: usize = 24;
/// What the check of a key says when it is opened.
const CHECK: &[u8] = b"isle vault";

/// The key of the vault.
#[derive(Clone)]
pub(crate) struct Key(Zeroizing<[u8; 32]>);

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[key]")
    }
}

/// What is sealed together with a value.
#[derive(Debug)]
pub(crate) struct About<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) version: u64,
    /// As JSON.
    pub(crate) hosts: &'a str,
    pub(crate) expires_at_ms: Option<i64>,
}

impl About<'_> {
    fn bytes(&self) -> Vec<u8> {
        // JSON of an array has one reading, whatever the texts in it contain.
        json!(["isle secret 1", self.namespace, self.name, self.version, self.hosts, self.expires_at_ms])
            .to_string()
            .into_bytes()
    }
}

impl Key {
    /// A fresh one.
    pub(crate) fn fresh() -> Result<Self> {
        let mut bytes = Zeroizing::new([0u8; 32]);
        getrandom::fill(&mut bytes[..]).map_err(Error::internal)?;
        Ok(Self(bytes))
    }

    /// Reads one as it is written: 64 hexadecimal digits, or 32 bytes in base64.
    pub(crate) fn parse(text: &str) -> Option<Self> {
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

    /// As [`Key::parse`] reads it.
    pub(crate) fn written(&self) -> Zeroizing<String> {
        Zeroizing::new(self.0.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.0).into())
    }

    fn sealed(&self, plain: &[u8], about: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
        let mut nonce = [0u8; NONCE];
        getrandom::fill(&mut nonce).map_err(Error::internal)?;
        let sealed = self
            .cipher()
            .encrypt(XNonce::from_slice(&nonce), Payload { msg: plain, aad: about })
            .map_err(|_| Error::internal("the value could not be sealed"))?;
        Ok((nonce.to_vec(), sealed))
    }

    fn opened(&self, nonce: &[u8], sealed: &[u8], about: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        if nonce.len() != NONCE {
            return None;
        }
        let payload = Payload { msg: sealed, aad: about };
        self.cipher().decrypt(XNonce::from_slice(nonce), payload).ok().map(Zeroizing::new)
    }

    /// Seals a value: its nonce, and what is stored.
    pub(crate) fn seal(&self, value: &str, about: &About<'_>) -> Result<(Vec<u8>, Vec<u8>)> {
        self.sealed(value.as_bytes(), &about.bytes())
    }

    /// Opens a value.
    pub(crate) fn open(&self, nonce: &[u8], sealed: &[u8], about: &About<'_>) -> Result<Zeroizing<String>> {
        let damaged = || {
            Error::new(
                Code::VaultLocked,
                format!("the secret {} cannot be opened: its record was changed, or it was sealed with another key", about.name),
            )
            .next("set it again, or remove it")
        };
        let plain = self.opened(nonce, sealed, &about.bytes()).ok_or_else(damaged)?;
        let text = std::str::from_utf8(&plain).map_err(|_| damaged())?;
        Ok(Zeroizing::new(text.to_owned()))
    }

    /// A text that only this key opens.
    pub(crate) fn check(&self) -> Result<String> {
        let (nonce, sealed) = self.sealed(CHECK, CHECK)?;
        Ok(STANDARD.encode([nonce, sealed].concat()))
    }

    /// Whether such a text is this key's.
    pub(crate) fn opens(&self, check: &str) -> bool {
        let Ok(bytes) = STANDARD.decode(check) else { return false };
        let Some((nonce, sealed)) = bytes.split_at_checked(NONCE) else { return false };
        self.opened(nonce, sealed, CHECK).is_some_and(|plain| *plain == CHECK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(name: &str) -> About<'_> {
        About { namespace: "a", name, version: 1, hosts: "[]", expires_at_ms: None }
    }

    #[test]
    fn a_value_opens_with_its_key_and_as_what_it_was_sealed() {
        let key = Key::fresh().unwrap();
        let (nonce, sealed) = key.seal("hunter22", &about("N")).unwrap();
        assert!(!sealed.windows(8).any(|bytes| bytes == b"hunter22"));
        assert_eq!(*key.open(&nonce, &sealed, &about("N")).unwrap(), "hunter22");
        let others = [
            About { namespace: "b", ..about("N") },
            about("M"),
            About { version: 2, ..about("N") },
            About { hosts: "[\"evil.test\"]", ..about("N") },
            About { expires_at_ms: Some(1), ..about("N") },
        ];
        for other in others {
            let error = key.open(&nonce, &sealed, &other).unwrap_err();
            assert_eq!(error.code, Code::VaultLocked, "{other:?}");
        }
        assert!(Key::fresh().unwrap().open(&nonce, &sealed, &about("N")).is_err());
        let mut damaged = sealed.clone();
        damaged[0] ^= 1;
        assert!(key.open(&nonce, &damaged, &about("N")).is_err());
        assert!(key.open(&nonce[1..], &sealed, &about("N")).is_err());
    }

    #[test]
    fn the_same_value_is_never_sealed_to_the_same_bytes() {
        let key = Key::fresh().unwrap();
        assert_ne!(key.seal("x", &about("N")).unwrap(), key.seal("x", &about("N")).unwrap());
    }

    #[test]
    fn keys_are_written_in_hexadecimal_or_base64() {
        let key = Key::fresh().unwrap();
        let check = key.check().unwrap();
        assert!(Key::parse(&key.written()).unwrap().opens(&check));
        assert!(Key::parse(&format!(" {}\n", key.written().to_uppercase())).unwrap().opens(&check));
        assert!(Key::parse(&STANDARD.encode(&key.0[..])).unwrap().opens(&check));
        assert!(!Key::fresh().unwrap().opens(&check));
        for wrong in ["", "secret", "0123", &"g".repeat(64), &STANDARD.encode([0u8; 31])] {
            assert!(Key::parse(wrong).is_none(), "{wrong}");
        }
        assert!(!key.opens("") && !key.opens("!") && !key.opens("AAAA"));
    }
}
