//! Spans of time, as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Code, Error};

/// A span of time: `250ms`, `30s`, `5m`, `2h`, `1d`. A bare number is seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

impl Span {
    /// `count` seconds.
    #[must_use]
    pub const fn seconds(count: u64) -> Self {
        Self(Duration::from_secs(count))
    }
}

impl FromStr for Span {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = || {
            Error::new(Code::InvalidDuration, format!("{text:?} is not a duration"))
                .next("write a whole number with ms, s, m, h or d, such as 30s")
        };
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let number: u64 = trimmed[..digits].parse().map_err(|_| refuse())?;
        let factor = match &trimmed[digits..] {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(refuse()),
        };
        number.checked_mul(factor).map(|millis| Self(Duration::from_millis(millis))).ok_or_else(refuse)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        for (factor, unit) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
            if millis >= factor && millis.is_multiple_of(factor) {
                return write!(formatter, "{}{unit}", millis / factor);
            }
        }
        write!(formatter, "{millis}ms")
    }
}

super::text_value!(Span, "Span", "E.g. 30s.");

/// How long something may last: a span of time, or `none` for without an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Term {
    /// Without an end.
    Endless,
    /// So long.
    Span(Span),
}

impl Term {
    /// The span, when there is one.
    #[must_use]
    pub const fn span(self) -> Option<Span> {
        match self {
            Self::Endless => None,
            Self::Span(span) => Some(span),
        }
    }
}

impl From<Option<Span>> for Term {
    fn from(span: Option<Span>) -> Self {
        span.map_or(Self::Endless, Self::Span)
    }
}

impl FromStr for Term {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.trim() {
            "none" => Ok(Self::Endless),
            other => other.parse().map(Self::Span).map_err(|mut error: Error| {
                error.next_steps.push("or write none for without an end".into());
                error
            }),
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endless => formatter.write_str("none"),
            Self::Span(span) => span.fmt(formatter),
        }
    }
}

super::text_value!(Term, "Term", "E.g. 2h, or none.");
