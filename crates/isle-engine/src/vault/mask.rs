//! Masking: values of secrets in what leaves a sandbox, in all their forms, replaced by `[secret NAME]`.
//! A [`Masker`] knows the values; a [`Stream`] applies it to bytes that come in pieces, and holds back as
//! much of their end as could be the beginning of a value, and no more.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;

use aho_corasick::{AhoCorasick, MatchKind};
use bytes::Bytes;
use zeroize::Zeroizing;

use super::forms::forms;
use super::secret::{SHORTEST_EXPOSED, SecretName};
use crate::error::{Error, Result};

/// Replacements of which a stream remembers where they were.
const MOST_SHIFTS: usize = 4096;

/// Knows values, and finds them.
pub(crate) struct Masker {
    finder: AhoCorasick,
    /// Of each pattern: its bytes, and the secret it is a form of.
    patterns: Vec<(Zeroizing<Vec<u8>>, usize)>,
    /// What stands in the place of each secret.
    markers: Vec<String>,
    longest: usize,
    /// Whether everything is hidden, because nobody knows what to look for.
    withholds: bool,
}

impl fmt::Debug for Masker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Masker").field("markers", &self.markers).finish_non_exhaustive()
    }
}

/// Bytes to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start: usize,
    end: usize,
    /// The secret it is named after: the one that begins first.
    secret: usize,
}

impl Masker {
    /// For these values; `None` when there is none that can be masked.
    pub(crate) fn new<'a>(
        values: impl IntoIterator<Item = (&'a SecretName, &'a str)>,
    ) -> Result<Option<Self>> {
        let (mut patterns, mut markers) = (Vec::new(), Vec::new());
        for (name, value) in values.into_iter().filter(|(_, value)| value.len() >= SHORTEST_EXPOSED) {
            let secret = markers.len();
            markers.push(format!("[secret {name}]"));
            patterns.extend(forms(value).into_iter().map(|form| (form, secret)));
        }
        if patterns.is_empty() {
            return Ok(None);
        }
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(patterns.iter().map(|(form, _)| &form[..]))
            .map_err(Error::internal)?;
        let longest = patterns.iter().map(|(form, _)| form.len()).max().unwrap_or(0);
        Ok(Some(Self { finder, patterns, markers, longest, withholds: false }))
    }

    /// Hides everything: what is to be hidden cannot be known now.
    pub(crate) fn withholding() -> Result<Self> {
        let finder = AhoCorasick::new([""; 0]).map_err(Error::internal)?;
        let markers = vec!["[withheld: the secrets are locked]".to_owned()];
        Ok(Self { finder, patterns: Vec::new(), markers, longest: 0, withholds: true })
    }

    /// How long the longest form is.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Everything to be replaced, in order; what overlaps is one.
    fn spans(&self, bytes: &[u8]) -> Vec<Span> {
        if self.withholds && !bytes.is_empty() {
            return vec![Span { start: 0, end: bytes.len(), secret: 0 }];
        }
        let mut spans: Vec<Span> = self
            .finder
            .find_overlapping_iter(bytes)
            .map(|found| Span {
                start: found.start(),
                end: found.end(),
                secret: self.patterns[found.pattern().as_usize()].1,
            })
            .collect();
        // The longest of those that begin at one place gives its name.
        spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
        let mut merged: Vec<Span> = Vec::with_capacity(spans.len());
        for span in spans {
            match merged.last_mut() {
                Some(last) if span.start < last.end => last.end = last.end.max(span.end),
                _ => merged.push(span),
            }
        }
        merged
    }

    /// Where the longest ending begins that may be the beginning of a form; the length when there is none.
    fn open_end(&self, bytes: &[u8]) -> usize {
        let first = bytes.len().saturating_sub(self.longest.saturating_sub(1));
        (first..bytes.len())
            .find(|&start| {
                let rest = &bytes[start..];
                self.patterns.iter().any(|(form, _)| form.len() > rest.len() && form.starts_with(rest))
            })
            .unwrap_or(bytes.len())
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
    /// be masked there.
    pub(crate) fn window(&self, bytes: &[u8], from: usize, to: usize) -> Option<Vec<u8>> {
        let spans: Vec<Span> =
            self.spans(bytes).into_iter().filter(|span| span.end > from && span.start < to).collect();
        if spans.is_empty() {
            return None;
        }
        let mut masked = Vec::with_capacity(to - from);
        let mut at = from;
        for span in spans {
            masked.extend_from_slice(bytes.get(at..span.start.max(at)).unwrap_or_default());
            masked.extend_from_slice(self.markers[span.secret].as_bytes());
            at = span.end.min(to);
        }
        masked.extend_from_slice(&bytes[at..to]);
        Some(masked)
    }
}

/// A stream of bytes being masked.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// What came and is not told yet.
    pending: Zeroizing<Vec<u8>>,
    /// How much of the beginning of that belongs to something whose marker was told.
    told: usize,
    /// Bytes that came, and bytes that were told.
    came: u64,
    gave: u64,
    /// Where replacements ended: among the bytes that came, and among those that were told.
    shifts: VecDeque<(u64, u64)>,
}

impl Stream {
    /// Takes a piece; what may be told now is the answer.
    pub(crate) fn push(&mut self, masker: Option<&Masker>, piece: &Bytes) -> Bytes {
        self.came += piece.len() as u64;
        let Some(masker) = masker else {
            if self.pending.is_empty() {
                self.gave += piece.len() as u64;
                return piece.clone();
            }
            self.pending.extend_from_slice(piece);
            return self.finish(None);
        };
        self.pending.extend_from_slice(piece);
        let open = masker.open_end(&self.pending);
        self.take(Some(masker), open)
    }

    /// Nothing more will come.
    pub(crate) fn finish(&mut self, masker: Option<&Masker>) -> Bytes {
        let end = self.pending.len();
        self.take(masker, end)
    }

    /// Tells everything before `open`, and of what reaches over it the marker.
    fn take(&mut self, masker: Option<&Masker>, open: usize) -> Bytes {
        let bytes = std::mem::take(&mut self.pending);
        let base = self.came - bytes.len() as u64;
        let mut spans = masker.map(|masker| masker.spans(&bytes)).unwrap_or_default();
        // What was told already goes on as far as it reached, or as far as something overlaps it.
        let mut at = std::mem::take(&mut self.told);
        while let Some(span) = spans.first().copied().filter(|span| span.start < at) {
            at = at.max(span.end);
            spans.remove(0);
        }
        let mut out = Vec::with_capacity(bytes.len());
        for span in spans {
            if span.start >= open {
                break;
            }
            out.extend_from_slice(&bytes[at..span.start]);
            if let Some(masker) = masker {
                out.extend_from_slice(masker.markers[span.secret].as_bytes());
            }
            at = span.end;
            self.note_shift(base + span.end as u64, self.gave + out.len() as u64);
        }
        if at < open {
            out.extend_from_slice(&bytes[at..open]);
        }
        self.told = at.saturating_sub(open);
        self.pending = Zeroizing::new(bytes[open..].to_vec());
        self.gave += out.len() as u64;
        out.into()
    }

    fn note_shift(&mut self, came: u64, gave: u64) {
        if self.shifts.len() == MOST_SHIFTS {
            self.shifts.pop_front();
        }
        self.shifts.push_back((came, gave));
    }

    /// Where a part of the bytes that came is among those that were told, and how long it is there.
    pub(crate) fn part(&self, from: u64, length: u64) -> (u64, u64) {
        let (start, end) = (self.place(from), self.place(from + length));
        (start, end - start)
    }

    /// Where a place among the bytes that came is among those that were told.
    pub(crate) fn place(&self, came: u64) -> u64 {
        let before = self.shifts.iter().rev().find(|(ended, _)| *ended <= came);
        let (ended, gave) = before.copied().unwrap_or((0, 0));
        // Inside of something replaced it is the end of that.
        let within = self.shifts.iter().find(|(next, _)| *next > came).map_or(u64::MAX, |(_, gave)| *gave);
        (gave + (came - ended)).min(within)
    }
}

#[cfg(test)]
#[path = "mask_tests.rs"]
mod tests;
