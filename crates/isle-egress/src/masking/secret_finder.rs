//! Search for secret values, in all their encodings, in a stream of bytes. Used for the output of sandboxes
//! as well as for the responses of servers.

use std::fmt;

use aho_corasick::{AhoCorasick, MatchKind};
use zeroize::Zeroizing;

use crate::masking::encodings::encodings;

/// A match of a secret value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretMatch {
    /// The start.
    pub start: usize,
    /// The end, exclusive.
    pub end: usize,
    /// The index of the value.
    pub secret: usize,
}

/// Finds secret values in all their encodings.
pub struct SecretFinder {
    automaton: AhoCorasick,
    /// The bytes of each pattern, and the index of its secret.
    patterns: Vec<(Zeroizing<Vec<u8>>, usize)>,
    names: Vec<String>,
    longest: usize,
}

impl fmt::Debug for SecretFinder {
    /// Without the values.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SecretFinder").field("names", &self.names).finish_non_exhaustive()
    }
}

/// Why a finder cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("cannot search for secret values: {0}")]
pub struct SecretFinderError(#[from] aho_corasick::BuildError);

impl SecretFinder {
    /// A finder for these values, each with the name of its secret; `None` when there are none.
    pub fn new<'a>(
        values: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Option<Self>, SecretFinderError> {
        let (mut patterns, mut names) = (Vec::new(), Vec::new());
        for (name, value) in values.into_iter().filter(|(_, value)| !value.is_empty()) {
            let secret = names.len();
            names.push(name.to_owned());
            patterns.extend(
                encodings(value).into_iter().filter(|form| !form.is_empty()).map(|form| (form, secret)),
            );
        }
        if patterns.is_empty() {
            return Ok(None);
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            // Servers change the case of what they return: in header names, in domains, in hexadecimal.
            .ascii_case_insensitive(true)
            .build(patterns.iter().map(|(form, _)| &form[..]))?;
        let longest = patterns.iter().map(|(form, _)| form.len()).max().unwrap_or(0);
        Ok(Some(Self { automaton, patterns, names, longest }))
    }

    /// The length of the longest pattern.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The name of a matched secret.
    #[must_use]
    pub fn name(&self, secret: usize) -> &str {
        self.names.get(secret).map_or("", String::as_str)
    }

    /// All matches in order; overlapping ones are merged.
    #[must_use]
    pub fn spans(&self, bytes: &[u8]) -> Vec<SecretMatch> {
        let mut spans: Vec<SecretMatch> = self
            .automaton
            .find_overlapping_iter(bytes)
            .map(|found| SecretMatch {
                start: found.start(),
                end: found.end(),
                secret: self.patterns[found.pattern().as_usize()].1,
            })
            .collect();
        // The longest match at a position determines the name.
        spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
        let mut merged: Vec<SecretMatch> = Vec::with_capacity(spans.len());
        for span in spans {
            match merged.last_mut() {
                Some(last) if span.start < last.end => last.end = last.end.max(span.end),
                _ => merged.push(span),
            }
        }
        merged
    }

    /// The position from which a match could extend into later bytes. It depends on the length only, so that
    /// the delayed bytes reveal nothing.
    #[must_use]
    pub fn undecided_from(&self, bytes: &[u8]) -> usize {
        bytes.len().saturating_sub(self.longest.saturating_sub(1))
    }
}
