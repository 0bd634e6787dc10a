//! Masking of a stream. The end of what arrived is delayed as far as a match could reach into it. For values of secrets
//! the delay depends on the length only: a program that prints guesses and watches its output must not learn whether a
//! guess is the beginning of a value.

use std::collections::VecDeque;

use bytes::Bytes;
use zeroize::Zeroizing;

use super::find::{Finder, Found};
use super::mask::Masker;
use super::pii::Before;

/// Replacements whose positions are remembered.
const MOST_SHIFTS: usize = 4096;

/// A stream that is masked: values of secrets first, then personal data.
#[derive(Debug, Default)]
pub struct MaskedStream {
    values: Layer<()>,
    pii: Layer<Before>,
}

impl MaskedStream {
    /// Takes a piece; returns what can be emitted now.
    pub fn push(&mut self, masker: Option<&Masker>, piece: &Bytes) -> Bytes {
        let emitted = self.values.push(masker.and_then(Masker::values), piece);
        self.pii.push(masker.and_then(Masker::pii), &emitted)
    }

    /// End of input.
    pub fn finish(&mut self, masker: Option<&Masker>) -> Bytes {
        let rest = self.values.finish(masker.and_then(Masker::values));
        let pii = masker.and_then(Masker::pii);
        let emitted = self.pii.push(pii, &rest);
        let last = self.pii.finish(pii);
        if emitted.is_empty() { last } else { [emitted, last].concat().into() }
    }

    /// Whether something is delayed that [`release`](Self::release) would emit.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.values.pending.len() > self.values.released
    }

    /// No input for a while: emits what is delayed for values. If it turns out to be the beginning of a value, the rest
    /// of that value is replaced.
    pub fn release(&mut self, masker: Option<&Masker>) -> Bytes {
        let emitted = self.values.release(masker.and_then(Masker::values));
        self.pii.push(masker.and_then(Masker::pii), &emitted)
    }

    /// Position and length in the output of a range of the input.
    #[must_use]
    pub fn part(&self, from: u64, length: u64) -> (u64, u64) {
        let (start, end) = (self.position(from), self.position(from + length));
        (start, end - start)
    }

    /// Position in the output of a position in the input.
    #[must_use]
    pub fn position(&self, input: u64) -> u64 {
        self.pii.position(self.values.position(input))
    }

    #[cfg(test)]
    pub(crate) fn delayed(&self) -> usize {
        self.values.pending.len() + self.pii.pending.len()
    }
}

/// One kind of masking.
#[derive(Debug, Default)]
struct Layer<B> {
    /// Received and not emitted yet.
    pending: Zeroizing<Vec<u8>>,
    /// State of the finder at the start of it.
    before: B,
    /// How much of its beginning belongs to a match whose marker was emitted.
    replaced: usize,
    /// How much of its beginning was emitted by a release.
    released: usize,
    /// Bytes received, and bytes emitted.
    received: u64,
    emitted: u64,
    /// Ends of replacements: position in the input, position in the output.
    shifts: VecDeque<(u64, u64)>,
}

impl<B: Default> Layer<B> {
    fn push<F: Finder<Before = B>>(&mut self, finder: Option<&F>, piece: &Bytes) -> Bytes {
        self.received += piece.len() as u64;
        if finder.is_none() && self.pending.is_empty() {
            self.emitted += piece.len() as u64;
            return piece.clone();
        }
        self.pending.extend_from_slice(piece);
        self.take(finder, finder.is_none())
    }

    fn finish<F: Finder<Before = B>>(&mut self, finder: Option<&F>) -> Bytes {
        self.take(finder, true)
    }

    /// Emits everything that no longer depends on later input; of a match that reaches beyond that, the marker.
    fn take<F: Finder<Before = B>>(&mut self, finder: Option<&F>, last: bool) -> Bytes {
        let bytes = std::mem::take(&mut self.pending);
        let found = match finder {
            Some(finder) => finder.look(&mut self.before, &bytes, last),
            None => Found { spans: Vec::new(), open: bytes.len() },
        };
        let open = found.open;
        let (out, at) = self.replace(finder, &bytes, found);
        self.replaced = at.saturating_sub(open);
        self.released = self.released.saturating_sub(open);
        self.pending = Zeroizing::new(bytes[open..].to_vec());
        out
    }

    /// Emits what is delayed, and keeps it for later matches.
    fn release<F: Finder<Before = B>>(&mut self, finder: Option<&F>) -> Bytes {
        let bytes = std::mem::take(&mut self.pending);
        let found = match finder {
            Some(finder) => finder.look(&mut B::default(), &bytes, true),
            None => Found { spans: Vec::new(), open: bytes.len() },
        };
        let (out, _) = self.replace(finder, &bytes, found);
        self.released = bytes.len();
        self.pending = bytes;
        out
    }

    /// The bytes before `open` that were not emitted yet, with matches replaced; and how far that reaches.
    fn replace<F: Finder<Before = B>>(
        &mut self,
        finder: Option<&F>,
        bytes: &[u8],
        Found { spans, open }: Found,
    ) -> (Bytes, usize) {
        let base = self.received - bytes.len() as u64;
        let mut spans = spans.into_iter().peekable();
        // A match that was replaced already extends as far as it reached, or as far as another one overlaps it.
        let mut at = self.replaced;
        while let Some(span) = spans.next_if(|span| span.start < at) {
            at = at.max(span.end);
        }
        let mut out = Vec::with_capacity(bytes.len());
        let copy = |out: &mut Vec<u8>, from: usize, to: usize| {
            out.extend_from_slice(bytes.get(from.max(self.released)..to).unwrap_or_default());
        };
        let mut shifts = Vec::new();
        for span in spans.take_while(|span| span.start < open) {
            copy(&mut out, at, span.start);
            at = span.end;
            // A match that a release emitted whole has its marker already.
            if let Some(finder) = finder.filter(|_| span.end > self.released) {
                out.extend_from_slice(finder.marker(span).as_bytes());
                shifts.push((base + span.end as u64, self.emitted + out.len() as u64));
            }
        }
        copy(&mut out, at, open);
        for (received, emitted) in shifts {
            self.note_shift(received, emitted);
        }
        self.emitted += out.len() as u64;
        (out.into(), at)
    }

    fn note_shift(&mut self, received: u64, emitted: u64) {
        if self.shifts.len() == MOST_SHIFTS {
            self.shifts.pop_front();
        }
        self.shifts.push_back((received, emitted));
    }

    fn position(&self, input: u64) -> u64 {
        let before = self.shifts.iter().rev().find(|(end, _)| *end <= input);
        let (end, emitted) = before.copied().unwrap_or((0, 0));
        // Inside a replacement it is the end of that.
        let within = self.shifts.iter().find(|(next, _)| *next > input).map_or(u64::MAX, |(_, at)| *at);
        (emitted + (input - end)).min(within)
    }
}
