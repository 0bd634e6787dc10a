//! Sizes in bytes, as people write them.

use std::fmt;
use std::str::FromStr;

use crate::error::{Code, Error};

/// A number of bytes: `512M`, `2G`, `64KiB`, `1000000`. Suffixes count in 1024s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// `count` MiB.
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count * 1024 * 1024)
    }
}

impl FromStr for ByteSize {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = || {
            Error::new(Code::InvalidSize, format!("{text:?} is not a size"))
                .next("write a whole number with an optional K, M, G or T, such as 512M")
        };
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let number: u64 = trimmed[..digits].parse().map_err(|_| refuse())?;
        let unit = trimmed[digits..].trim().to_ascii_lowercase();
        let shift = match unit.as_str() {
            "" | "b" | "ib" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(refuse()),
        };
        number.checked_mul(1 << shift).map(Self).ok_or_else(refuse)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
            if self.0 >= 1 << shift && self.0.is_multiple_of(1 << shift) {
                return write!(formatter, "{}{unit}", self.0 >> shift);
            }
        }
        write!(formatter, "{}", self.0)
    }
}

super::text_value!(ByteSize, "ByteSize", "E.g. 512M.");
