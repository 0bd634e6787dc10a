//! Finding what to replace in a stream of bytes of which only the beginning may have arrived.

use std::fmt;
use std::sync::Arc;

use isle_core::values::{SHORTEST_EXPOSED, SecretName};
use isle_core::{Error, Result};

/// A range of bytes to replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Index of the marker that replaces them.
    pub(crate) marker: usize,
}

/// The result of a search.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// In order, not overlapping.
    pub(crate) spans: Vec<Span>,
    /// From this position on, the result depends on bytes that have not arrived.
    pub(crate) open: usize,
}

/// Finds what to replace. The result does not depend on how the input is split.
pub(crate) trait Finder {
    /// State carried over from earlier bytes.
    type Before: Default;

    /// Searches bytes; `last` marks the end of the input. On return `before` is the state at [`Found::open`].
    fn look(&self, before: &mut Self::Before, bytes: &[u8], last: bool) -> Found;

    /// The marker that replaces a span.
    fn marker(&self, span: Span) -> &str;
}

/// Finds values of secrets, in all their encodings.
pub struct Values {
    /// `None`: everything is masked, because the values are not available.
    finder: Option<Arc<isle_egress::SecretFinder>>,
    /// The marker of each secret.
    markers: Vec<String>,
}

impl fmt::Debug for Values {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Values").field("markers", &self.markers).finish_non_exhaustive()
    }
}

impl Values {
    /// For these values; `None` when none of them can be masked.
    pub fn new<'a>(values: impl IntoIterator<Item = (&'a SecretName, &'a str)>) -> Result<Option<Self>> {
        let values: Vec<(&str, &str)> = values
            .into_iter()
            .filter(|(_, value)| value.len() >= SHORTEST_EXPOSED)
            .map(|(name, value)| (name.as_str(), value))
            .collect();
        let markers = values.iter().map(|(name, _)| format!("[secret {name}]")).collect();
        let finder = isle_egress::SecretFinder::new(values).map_err(Error::internal)?;
        Ok(finder.map(|finder| Self { finder: Some(Arc::new(finder)), markers }))
    }

    /// Masks everything, because the values are not available.
    #[must_use]
    pub fn mask_everything() -> Self {
        Self { finder: None, markers: vec!["[withheld: the secrets are locked]".to_owned()] }
    }

    /// The search automaton; `None` when everything is masked.
    #[must_use]
    pub fn finder(&self) -> Option<&Arc<isle_egress::SecretFinder>> {
        self.finder.as_ref()
    }

    /// Length of the longest encoded form.
    pub(crate) fn longest(&self) -> usize {
        self.finder.as_ref().map_or(0, |finder| finder.longest())
    }
}

impl Finder for Values {
    type Before = ();

    fn look(&self, (): &mut (), bytes: &[u8], last: bool) -> Found {
        let Some(finder) = &self.finder else {
            let whole = Span { start: 0, end: bytes.len(), marker: 0 };
            return Found { spans: vec![whole; usize::from(!bytes.is_empty())], open: bytes.len() };
        };
        let open = if last { bytes.len() } else { finder.undecided_from(bytes) };
        let span = |found: isle_egress::SecretMatch| Span {
            start: found.start,
            end: found.end,
            marker: found.secret,
        };
        Found { spans: finder.spans(bytes).into_iter().map(span).collect(), open }
    }

    fn marker(&self, span: Span) -> &str {
        &self.markers[span.marker]
    }
}
