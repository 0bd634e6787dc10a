//! Masking: values of secrets in what leaves a sandbox, in all their forms, replaced by `[secret NAME]`, and
//! personal data where that is wished for, replaced by what it is. First the values, then in what is left
//! the personal data, so that it makes no difference in which pieces something came.

use std::borrow::Cow;
use std::sync::Arc;

use super::find::{Finder, Values};
use super::personal::Personal;

/// Knows what is to be replaced.
#[derive(Debug, Clone)]
pub(crate) struct Masker {
    values: Option<Arc<Values>>,
    personal: Personal,
}

impl Masker {
    /// For these; `None` when there is nothing to look for.
    pub(crate) fn of(values: Option<Arc<Values>>, personal: Personal) -> Option<Self> {
        let something = values.is_some() || !personal.is_empty();
        something.then_some(Self { values, personal })
    }

    /// For bytes that are no text: personal data is not looked for where bytes may mean anything.
    pub(crate) fn for_bytes(self) -> Option<Self> {
        Self::of(self.values, Personal::default())
    }

    /// For what the engine itself says of a sandbox: addresses are what was asked for and may be granted.
    pub(crate) fn for_words(self) -> Option<Self> {
        Self::of(self.values, self.personal.without_addresses())
    }

    pub(super) fn values(&self) -> Option<&Values> {
        self.values.as_deref()
    }

    pub(super) fn personal(&self) -> Option<&Personal> {
        Some(&self.personal).filter(|personal| !personal.is_empty())
    }

    /// How much around a part has to be known to tell what it is part of.
    pub(crate) fn longest(&self) -> usize {
        let values = self.values().map_or(0, Values::longest);
        values.max(self.personal().map_or(0, |_| Personal::LONGEST))
    }

    /// All of it at once.
    pub(crate) fn mask<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match self.window(bytes, 0, bytes.len()) {
            Some(masked) => Cow::Owned(masked),
            None => Cow::Borrowed(bytes),
        }
    }

    /// A text at once.
    pub(crate) fn mask_text(&self, text: &mut String) {
        // A marker takes the place of whole forms, and those are whole characters or ASCII.
        if let Cow::Owned(masked) = self.mask(text.as_bytes()) {
            *text = String::from_utf8_lossy(&masked).into_owned();
        }
    }

    /// Every text of a JSON value. Pictures are left alone: they are no text.
    pub(crate) fn mask_json(&self, value: &mut serde_json::Value) {
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

    /// The part from `from` to `to` of bytes, masked by what all of them show; `None` when nothing is to
    /// be masked.
    pub(crate) fn window(&self, bytes: &[u8], from: usize, to: usize) -> Option<Vec<u8>> {
        let first = self.values().and_then(|values| replaced(values, bytes, from, to));
        let (bytes, from, to) =
            first.as_ref().map_or((bytes, from, to), |first| (&first.bytes[..], first.from, first.to));
        let second = self.personal().and_then(|personal| replaced(personal, bytes, from, to));
        second.or(first).map(|Replaced { mut bytes, from, to }| {
            bytes.truncate(to);
            bytes.drain(..from);
            bytes
        })
    }
}

/// Bytes in which something was replaced, and where a part of them is now.
struct Replaced {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
}

/// Replaces what a finder finds; a part that begins or ends within that has it whole. `None` when nothing
/// was found.
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
