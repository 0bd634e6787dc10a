//! The hashed form of a row: every field preceded by its length, so that two different rows (a byte moved
//! from one field to the next, an absent field made empty) never have the same bytes.

use sha2::{Digest, Sha256};

/// SHA-256 output.
pub(crate) type Hash = [u8; 32];

/// What the first row is chained to.
pub(crate) const GENESIS: Hash = [0; 32];

const ROW: &[u8] = b"isle audit row 1";
const NAMESPACE: &[u8] = b"namespace";
const HEAD: &[u8] = b"isle audit head 1";

/// The fields of a row as they are stored; `detail` is the stored text and not a parsed value, which could
/// differ.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    pub(crate) time_ms: i64,
    pub(crate) actor: &'a str,
    pub(crate) door: &'a str,
    pub(crate) action: &'a str,
    pub(crate) sandbox: Option<&'a str>,
    pub(crate) run: Option<&'a str>,
    pub(crate) detail: &'a str,
    pub(crate) prev_hash: &'a [u8],
    pub(crate) namespace: Option<&'a str>,
}

impl Fields<'_> {
    /// The hash of these fields as the row at `seq`.
    pub(crate) fn hash(&self, seq: u64) -> Hash {
        let mut digest = Sha256::new();
        let mut feed = |part: &[u8]| digest.update(part);
        text(ROW, &mut feed);
        feed(&seq.to_be_bytes());
        feed(&self.time_ms.to_be_bytes());
        text(self.actor.as_bytes(), &mut feed);
        text(self.door.as_bytes(), &mut feed);
        text(self.action.as_bytes(), &mut feed);
        optional(self.sandbox, &mut feed);
        optional(self.run, &mut feed);
        text(self.detail.as_bytes(), &mut feed);
        text(self.prev_hash, &mut feed);
        // Last, so that rows without a namespace keep their hash.
        if let Some(namespace) = self.namespace {
            text(NAMESPACE, &mut feed);
            text(namespace.as_bytes(), &mut feed);
        }
        digest.finalize().into()
    }
}

/// Feeds the fields of a head.
pub(crate) fn head(seq: u64, hash: &[u8], taint: Option<&str>, mut feed: impl FnMut(&[u8])) {
    text(HEAD, &mut feed);
    feed(&seq.to_be_bytes());
    text(hash, &mut feed);
    optional(taint, &mut feed);
}

fn text(bytes: &[u8], feed: &mut impl FnMut(&[u8])) {
    feed(&(bytes.len() as u64).to_be_bytes());
    feed(bytes);
}

fn optional(value: Option<&str>, feed: &mut impl FnMut(&[u8])) {
    match value {
        None => feed(&[0]),
        Some(value) => {
            feed(&[1]);
            text(value.as_bytes(), feed);
        }
    }
}

/// Lower-case hexadecimal.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|half| char::from(DIGITS[usize::from(half)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: Fields<'static> = Fields {
        time_ms: 1,
        actor: "ab",
        door: "c",
        action: "exec",
        sandbox: None,
        run: None,
        detail: "{}",
        prev_hash: &GENESIS,
        namespace: None,
    };

    #[test]
    fn moving_a_byte_between_fields_changes_the_hash() {
        let moved = Fields { actor: "a", door: "bc", ..FIELDS };
        assert_ne!(FIELDS.hash(1), moved.hash(1));
    }

    #[test]
    fn an_absent_field_is_not_an_empty_one() {
        let empty = Fields { sandbox: Some(""), ..FIELDS };
        assert_ne!(FIELDS.hash(1), empty.hash(1));
    }

    #[test]
    fn adding_or_removing_a_namespace_changes_the_hash() {
        let named = Fields { namespace: Some("acme"), ..FIELDS };
        let other = Fields { namespace: Some(""), ..FIELDS };
        assert_ne!(FIELDS.hash(1), named.hash(1));
        assert_ne!(FIELDS.hash(1), other.hash(1));
        assert_ne!(named.hash(1), other.hash(1));
    }

    #[test]
    fn the_encoding_never_changes() {
        // Rows written by every released version must still verify.
        assert_eq!(
            hexadecimal(&FIELDS.hash(1)),
            "86758ef08afe1c2e395713c057dfd13963dab82c21d482fe2e8b6aa6862d925a"
        );
    }
}
