//! Signatures. The secret of a webhook follows from a key of the daemon and the webhook's id, so it is
//! shown once and kept nowhere.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use isle_store::WEBHOOK_KEY_LENGTH;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use isle_core::values::WebhookId;

const PREFIX: &str = "whsec_";

/// What the secrets of all webhooks follow from.
pub(super) struct Key(Zeroizing<[u8; WEBHOOK_KEY_LENGTH]>);

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[key]")
    }
}

impl Key {
    pub(super) fn new(bytes: [u8; WEBHOOK_KEY_LENGTH]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(super) fn secret_of(&self, id: &WebhookId) -> Secret {
        let code = code_of(&self.0[..], &[b"isle webhook 1 ", id.as_str().as_bytes()]);
        Secret(Zeroizing::new(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(code))))
    }
}

/// What one webhook is signed with.
pub(super) struct Secret(Zeroizing<String>);

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[secret]")
    }
}

impl Secret {
    /// For whoever made the webhook.
    pub(super) fn reveal(&self) -> String {
        self.0.to_string()
    }

    pub(super) fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }

    pub(super) fn has_hash(&self, hash: &[u8]) -> bool {
        self.hash().ct_eq(hash).into()
    }

    /// `v1=` and the HMAC-SHA256 of `TIMESTAMP.BODY` under the whole text of the secret, in hexadecimal.
    pub(super) fn sign(&self, timestamp: &str, body: &[u8]) -> String {
        let code = code_of(self.0.as_bytes(), &[timestamp.as_bytes(), b".", body]);
        let hexadecimal: String = code.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("v1={hexadecimal}")
    }
}

/// HMAC-SHA256.
fn code_of(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    // The same as `new_from_slice`, which would have to be unwrapped: no key is longer than a block here,
    // and one that is would count by its hash.
    let mut block = hmac::digest::Key::<Hmac<Sha256>>::default();
    if key.len() <= block.len() {
        block[..key.len()].copy_from_slice(key);
    } else {
        block[..32].copy_from_slice(&Sha256::digest(key));
    }
    let mut code = <Hmac<Sha256> as hmac::digest::KeyInit>::new(&block);
    for part in parts {
        code.update(part);
    }
    code.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_standard() {
        let hexadecimal = |code: [u8; 32]| code.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        // RFC 4231, cases 2 and 6.
        assert_eq!(
            hexadecimal(code_of(b"Jefe", &[b"what do ya want ", b"for nothing?"])),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hexadecimal(code_of(&[0xaa; 131], &[b"Test Using Larger Than Block-Size Key - Hash Key First"])),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn secrets_differ_by_webhook_and_are_told_to_nobody_who_prints_them() {
        let key = Key::new([7; WEBHOOK_KEY_LENGTH]);
        let (one, other) = (key.secret_of(&WebhookId::fresh()), key.secret_of(&WebhookId::fresh()));
        assert_ne!(one.reveal(), other.reveal());
        assert!(one.has_hash(&one.hash()) && !one.has_hash(&other.hash()) && !one.has_hash(b""));
        assert_ne!(one.sign("1", b"2"), one.sign("2", b"2"));
        assert!(!format!("{key:?}{one:?}").contains(&one.reveal()));
    }
}
