//! Finding what is to be replaced in bytes that may be the beginning of more.

use std::fmt;

use aho_corasick::{AhoCorasick, MatchKind};
use zeroize::Zeroizing;

use super::forms::forms;
use super::secret::{SHORTEST_EXPOSED, SecretName};
use crate::error::{Error, Result};

/// Bytes to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Which of the finder's markers stands in their place.
    pub(super) marker: usize,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// In order, none overlapping another.
    pub(super) spans: Vec<Span>,
    /// From where on it depends on what comes next.
    pub(super) open: usize,
}

/// Finds what is to be replaced. Whatever comes in which pieces, the same has to be found.
pub(super) trait Finder {
    /// What has to be known of what came before.
    type Before: Default;

    /// Looks through bytes; `last` says that nothing more will come. Afterwards `before` is that of the
    /// place from where on it is open.
    fn look(&self, before: &mut Self::Before, bytes: &[u8], last: bool) -> Found;

    /// What stands in the place of a span.
    fn marker(&self, span: Span) -> &str;
}

/// Knows values of secrets, and finds them in all their forms.
pub(crate) struct Values {
    finder: AhoCorasick,
    /// Of each pattern: its bytes, and the secret it is a form of.
    patterns: Vec<(Zeroizing<Vec<u8>>, usize)>,
    /// What stands in the place of each secret.
    markers: Vec<String>,
    longest: usize,
    /// Whether everything is hidden, because nobody knows what to look for.
    withholds: bool,
}

impl fmt::Debug for Values {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Values").field("markers", &self.markers).finish_non_exhaustive()
    }
}

impl Values {
    /// These; `None` when there is none that can be masked.
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
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Everything to be replaced, in order; what overlaps is one.
    fn spans(&self, bytes: &[u8]) -> Vec<Span> {
        if self.withholds && !bytes.is_empty() {
            return vec![Span { start: 0, end: bytes.len(), marker: 0 }];
        }
        let mut spans: Vec<Span> = self
            .finder
            .find_overlapping_iter(bytes)
            .map(|found| Span {
                start: found.start(),
                end: found.end(),
                marker: self.patterns[found.pattern().as_usize()].1,
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
}

impl Finder for Values {
    type Before = ();

    fn look(&self, (): &mut (), bytes: &[u8], last: bool) -> Found {
        let open = if last { bytes.len() } else { self.open_end(bytes) };
        Found { spans: self.spans(bytes), open }
    }

    fn marker(&self, span: Span) -> &str {
        &self.markers[span.marker]
    }
}
