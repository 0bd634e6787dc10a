//! Masking of output: values of secrets, in all their encodings, become `[secret NAME]`, and personal data, if
//! configured, becomes its kind, such as `[email]`. Values first, then personal data in the rest, so that the result
//! does not depend on how the output is split.

use std::borrow::Cow;
use std::sync::Arc;

use super::find::{Finder, Values};
use super::pii::PiiKinds;

/// What is masked.
#[derive(Debug, Clone)]
pub struct Masker {
    values: Option<Arc<Values>>,
    pii: PiiKinds,
}

impl Masker {
    /// For these; `None` when nothing is to be masked.
    #[must_use]
    pub fn of(values: Option<Arc<Values>>, pii: PiiKinds) -> Option<Self> {
        (values.is_some() || !pii.is_empty()).then_some(Self { values, pii })
    }

    /// For binary data: without personal data, which is only recognized in text.
    #[must_use]
    pub fn for_bytes(self) -> Option<Self> {
        Self::of(self.values, PiiKinds::default())
    }

    /// For messages of the engine about a sandbox: without IP addresses, which a grant may be needed for.
    #[must_use]
    pub fn for_messages(self) -> Option<Self> {
        Self::of(self.values, self.pii.without_addresses())
    }

    pub(crate) fn values(&self) -> Option<&Values> {
        self.values.as_deref()
    }

    pub(crate) fn pii(&self) -> Option<&PiiKinds> {
        Some(&self.pii).filter(|kinds| !kinds.is_empty())
    }

    /// How many bytes around a range are needed to mask it correctly.
    #[must_use]
    pub fn longest(&self) -> usize {
        let values = self.values().map_or(0, Values::longest);
        values.max(self.pii().map_or(0, |_| PiiKinds::LONGEST))
    }

    /// Masks a whole input.
    #[must_use]
    pub fn mask<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match self.window(bytes, 0, bytes.len()) {
            Some(masked) => Cow::Owned(masked),
            None => Cow::Borrowed(bytes),
        }
    }

    /// Masks a whole text.
    pub fn mask_text(&self, text: &mut String) {
        // A marker replaces whole encoded values, which are whole characters or ASCII.
        if let Cow::Owned(masked) = self.mask(text.as_bytes()) {
            *text = String::from_utf8_lossy(&masked).into_owned();
        }
    }

    /// Masks every text in a JSON value, except images.
    pub fn mask_json(&self, value: &mut serde_json::Value) {
        use serde_json::Value;
        match value {
            Value::String(text) => self.mask_text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_json(item)),
            Value::Object(fields) => {
                for (name, field) in fields.iter_mut() {
                    if !["png", "jpeg"].contains(&name.as_str()) {
                        self.mask_json(field);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// The range `from..to` of the input, masked with all of the input in view; `None` when nothing is masked.
    #[must_use]
    pub fn window(&self, bytes: &[u8], from: usize, to: usize) -> Option<Vec<u8>> {
        let first = self.values().and_then(|values| replaced(values, bytes, from, to));
        let (bytes, from, to) =
            first.as_ref().map_or((bytes, from, to), |first| (&first.bytes[..], first.from, first.to));
        let second = self.pii().and_then(|kinds| replaced(kinds, bytes, from, to));
        second.or(first).map(|Replaced { mut bytes, from, to }| {
            bytes.truncate(to);
            bytes.drain(..from);
            bytes
        })
    }
}

/// Bytes after replacement, and the new position of a range.
struct Replaced {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
}

/// Replaces what a finder finds; a range that begins or ends inside a match includes the whole marker. `None` when
/// nothing was found.
fn replaced<F: Finder>(finder: &F, bytes: &[u8], from: usize, to: usize) -> Option<Replaced> {
    let spans = finder.look(&mut F::Before::default(), bytes, true).spans;
    if spans.is_empty() {
        return None;
    }
    let mut out = Vec::with_capacity(bytes.len());
    let (mut new_from, mut new_to) = (None, None);
    let mut at = 0;
    for span in spans {
        let plain = out.len();
        if from < span.start {
            new_from.get_or_insert(plain + from.saturating_sub(at));
        }
        if to <= span.start {
            new_to.get_or_insert(plain + to.saturating_sub(at));
        }
        out.extend_from_slice(&bytes[at..span.start]);
        if from < span.end {
            new_from.get_or_insert(out.len());
        }
        out.extend_from_slice(finder.marker(span).as_bytes());
        if to <= span.end {
            new_to.get_or_insert(out.len());
        }
        at = span.end;
    }
    let from = new_from.unwrap_or(out.len() + from.saturating_sub(at));
    let to = new_to.unwrap_or(out.len() + to.saturating_sub(at));
    out.extend_from_slice(&bytes[at..]);
    Some(Replaced { bytes: out, from, to })
}

#[cfg(test)]
#[path = "mask_tests.rs"]
mod tests;
