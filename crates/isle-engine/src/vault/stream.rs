//! Bytes that come in pieces, being masked: as much of their end is held back as could be the beginning of
//! something to be replaced, and no more.

use std::collections::VecDeque;

use bytes::Bytes;
use zeroize::Zeroizing;

use super::find::{Finder, Found};
use super::mask::Masker;
use super::personal::Before;

/// Replacements of which a stream remembers where they were.
const MOST_SHIFTS: usize = 4096;

/// A stream of bytes being masked: first the values of secrets, then personal data.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    values: Layer<()>,
    personal: Layer<Before>,
}

impl Stream {
    /// Takes a piece; what may be told now is the answer.
    pub(crate) fn push(&mut self, masker: Option<&Masker>, piece: &Bytes) -> Bytes {
        let told = self.values.push(masker.and_then(Masker::values), piece);
        self.personal.push(masker.and_then(Masker::personal), &told)
    }

    /// Nothing more will come.
    pub(crate) fn finish(&mut self, masker: Option<&Masker>) -> Bytes {
        let rest = self.values.finish(masker.and_then(Masker::values));
        let personal = masker.and_then(Masker::personal);
        let told = self.personal.push(personal, &rest);
        let last = self.personal.finish(personal);
        if told.is_empty() { last } else { [told, last].concat().into() }
    }

    /// Where a part of the bytes that came is among those that were told, and how long it is there.
    pub(crate) fn part(&self, from: u64, length: u64) -> (u64, u64) {
        let (start, end) = (self.place(from), self.place(from + length));
        (start, end - start)
    }

    /// Where a place among the bytes that came is among those that were told.
    pub(crate) fn place(&self, came: u64) -> u64 {
        self.personal.place(self.values.place(came))
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.values.pending.len() + self.personal.pending.len()
    }
}

/// One kind of masking.
#[derive(Debug, Default)]
struct Layer<B> {
    /// What came and is not told yet.
    pending: Zeroizing<Vec<u8>>,
    /// What has to be known of what came before that.
    before: B,
    /// How much of the beginning of it belongs to something whose marker was told.
    told: usize,
    /// Bytes that came, and bytes that were told.
    came: u64,
    gave: u64,
    /// Where replacements ended: among the bytes that came, and among those that were told.
    shifts: VecDeque<(u64, u64)>,
}

impl<B: Default> Layer<B> {
    fn push<F: Finder<Before = B>>(&mut self, finder: Option<&F>, piece: &Bytes) -> Bytes {
        self.came += piece.len() as u64;
        if finder.is_none() && self.pending.is_empty() {
            self.gave += piece.len() as u64;
            return piece.clone();
        }
        self.pending.extend_from_slice(piece);
        self.take(finder, finder.is_none())
    }

    fn finish<F: Finder<Before = B>>(&mut self, finder: Option<&F>) -> Bytes {
        self.take(finder, true)
    }

    /// Tells everything that no longer depends on what comes, and of what reaches over that the marker.
    fn take<F: Finder<Before = B>>(&mut self, finder: Option<&F>, last: bool) -> Bytes {
        let bytes = std::mem::take(&mut self.pending);
        let base = self.came - bytes.len() as u64;
        let Found { spans, open } = match finder {
            Some(finder) => finder.look(&mut self.before, &bytes, last),
            None => Found { spans: Vec::new(), open: bytes.len() },
        };
        let mut spans = spans.into_iter().peekable();
        // What was told already goes on as far as it reached, or as far as something overlaps it.
        let mut at = std::mem::take(&mut self.told);
        while let Some(span) = spans.next_if(|span| span.start < at) {
            at = at.max(span.end);
        }
        let mut out = Vec::with_capacity(bytes.len());
        for span in spans.take_while(|span| span.start < open) {
            out.extend_from_slice(&bytes[at..span.start]);
            if let Some(finder) = finder {
                out.extend_from_slice(finder.marker(span).as_bytes());
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

    fn place(&self, came: u64) -> u64 {
        let before = self.shifts.iter().rev().find(|(ended, _)| *ended <= came);
        let (ended, gave) = before.copied().unwrap_or((0, 0));
        // Inside of something replaced it is the end of that.
        let within = self.shifts.iter().find(|(next, _)| *next > came).map_or(u64::MAX, |(_, gave)| *gave);
        (gave + (came - ended)).min(within)
    }
}
