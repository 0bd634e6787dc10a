//! Masking of values in a stream. Every byte of a value becomes an asterisk, so that lengths do not change,
//! and the result does not depend on how the stream is split. The last bytes are delayed as far as a value
//! could extend into them, whatever they are: if only beginnings of values were held back, a program could
//! have chosen bytes echoed and learn a value from their delay.

use std::sync::Arc;

use bytes::Bytes;
use zeroize::Zeroizing;

use crate::masking::secret_finder::SecretFinder;

/// Replaces every byte of a value. It has no meaning in JSON, HTML, headers or base64.
const STAR: u8 = b'*';

/// A masked stream.
#[derive(Debug)]
pub struct MaskStream {
    finder: Arc<SecretFinder>,
    /// The last bytes received: a value may begin in them.
    pending: Zeroizing<Vec<u8>>,
    /// How many of the first of them belong to a value that was found.
    covered: usize,
    /// How many of the first of them were already passed on.
    released: usize,
    /// The secrets found since the last call of `take_found`.
    found: Vec<usize>,
}

impl MaskStream {
    /// A masker for these values.
    #[must_use]
    pub fn new(finder: Arc<SecretFinder>) -> Self {
        Self { finder, pending: Zeroizing::default(), covered: 0, released: 0, found: Vec::new() }
    }

    /// Takes a piece; returns what can be passed on.
    pub fn push(&mut self, piece: Bytes) -> Bytes {
        let mut bytes = std::mem::take(&mut self.pending);
        bytes.extend_from_slice(&piece);
        let open = self.finder.undecided_from(&bytes);
        self.settle(bytes, open)
    }

    /// The stream has ended: returns the rest.
    pub fn finish(&mut self) -> Bytes {
        let bytes = std::mem::take(&mut self.pending);
        let open = bytes.len();
        self.settle(bytes, open)
    }

    /// The number of bytes held back.
    #[must_use]
    pub fn held(&self) -> usize {
        self.pending.len() - self.released
    }

    /// Passes on delayed bytes. They are remembered: if they turn out to be the beginning of a value, the
    /// rest of the value is masked.
    pub fn release(&mut self) -> Bytes {
        let mut bytes = Zeroizing::new(self.pending.to_vec());
        let whole = bytes.len();
        self.mask(&mut bytes, whole);
        let out = Bytes::copy_from_slice(&bytes[self.released..]);
        self.released = self.pending.len();
        out
    }

    /// The names of secrets found, each once.
    pub fn take_found(&mut self) -> Vec<String> {
        let mut found = std::mem::take(&mut self.found);
        found.sort_unstable();
        found.dedup();
        found.into_iter().map(|secret| self.finder.name(secret).to_owned()).collect()
    }

    /// Passes on everything before `open` and keeps the rest.
    fn settle(&mut self, mut bytes: Zeroizing<Vec<u8>>, open: usize) -> Bytes {
        let kept = Zeroizing::new(bytes[open..].to_vec());
        let covered = self.mask(&mut bytes, open);
        let out = Bytes::copy_from_slice(bytes.get(self.released..open).unwrap_or_default());
        self.released = self.released.saturating_sub(open);
        self.covered = covered.saturating_sub(open).min(kept.len());
        self.pending = kept;
        out
    }

    /// Masks the values that begin before `open`; returns where they end.
    fn mask(&mut self, bytes: &mut [u8], open: usize) -> usize {
        let spans = self.finder.spans(bytes);
        bytes[..self.covered].fill(STAR);
        let mut covered = self.covered;
        for span in spans.iter().filter(|span| span.start < open) {
            bytes[span.start..span.end].fill(STAR);
            covered = covered.max(span.end);
            // What was passed on masked was already reported.
            if span.end > self.released && !self.found.contains(&span.secret) {
                self.found.push(span.secret);
            }
        }
        covered
    }
}

/// Bytes with every value masked, and the names of the secrets found; `None` if there were none.
#[must_use]
pub fn masked(finder: &SecretFinder, bytes: &[u8]) -> Option<(Vec<u8>, Vec<String>)> {
    let spans = finder.spans(bytes);
    if spans.is_empty() {
        return None;
    }
    let mut out = bytes.to_vec();
    let mut names: Vec<String> = Vec::new();
    for span in spans {
        out[span.start..span.end].fill(STAR);
        let name = finder.name(span.secret);
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    Some((out, names))
}

#[cfg(test)]
#[path = "mask_stream_tests.rs"]
mod tests;
