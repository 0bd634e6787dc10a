//! Personal data (PII) that is recognized by its form: email addresses, payment cards, IBANs, phone numbers, IP
//! addresses. Checksums are verified. One pass with a bounded lookahead, so that the result does not depend on how the
//! text is split.

mod numbers;
mod words;

use super::find::{Finder, Found, Span};
use isle_core::{Code, Error, Result};

/// A kind of personal data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Email,
    Card,
    Iban,
    Phone,
    Ip,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Email, Self::Card, Self::Iban, Self::Phone, Self::Ip];

    fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Card => "card",
            Self::Iban => "iban",
            Self::Phone => "phone",
            Self::Ip => "ip",
        }
    }

    fn marker(self) -> &'static str {
        match self {
            Self::Email => "[email]",
            Self::Card => "[card]",
            Self::Iban => "[iban]",
            Self::Phone => "[phone]",
            Self::Ip => "[ip]",
        }
    }

    fn bit(self) -> u8 {
        1 << (self as u8)
    }
}

/// The kinds of personal data that are masked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PiiKinds(u8);

impl PiiKinds {
    /// Twice the longest match: a search that starts this far before a position agrees with one from the start.
    pub(crate) const LONGEST: usize = 2 * (words::LONGEST_LOCAL + words::LONGEST_DOMAIN + 2);

    /// Parses kinds by the names that settings use.
    pub fn read(words: &[String]) -> Result<Self> {
        let mut kinds = Self::default();
        for word in words {
            let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == word).ok_or_else(|| {
                let known = Kind::ALL.map(Kind::as_str).join(", ");
                Error::new(Code::InvalidArgument, format!("unknown kind of personal data {word:?}"))
                    .next(format!("choose from {known}"))
            })?;
            kinds.0 |= kind.bit();
        }
        Ok(kinds)
    }

    /// Whether nothing is masked.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The union of both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn without_addresses(self) -> Self {
        Self(self.0 & !Kind::Ip.bit())
    }

    fn has(self, kind: Kind) -> bool {
        self.0 & kind.bit() != 0
    }

    /// The match that begins at a position, and its end.
    fn begins(self, text: &Text<'_>, at: usize, before: &Before) -> Look<(Kind, usize)> {
        let Some(&byte) = text.bytes.get(at) else { return Ok(None) };
        if is_word(before.byte) {
            return Ok(None);
        }
        // The order matters: a kind that needs more input keeps those after it from matching.
        if self.has(Kind::Email)
            && is_word(byte)
            && let Some(end) = words::email(text, at)?
        {
            return Ok(Some((Kind::Email, end)));
        }
        if self.has(Kind::Iban)
            && byte.is_ascii_uppercase()
            && let Some(end) = numbers::iban(text, at)?
        {
            return Ok(Some((Kind::Iban, end)));
        }
        if self.has(Kind::Phone)
            && byte == b'+'
            && before.byte != b'+'
            && let Some(end) = numbers::phone(text, at)?
        {
            return Ok(Some((Kind::Phone, end)));
        }
        if self.has(Kind::Card)
            && byte.is_ascii_digit()
            && let Some(end) = numbers::card(text, at, before)?
        {
            return Ok(Some((Kind::Card, end)));
        }
        if self.has(Kind::Ip)
            && (byte.is_ascii_hexdigit() || byte == b':')
            && !b":.-".contains(&before.byte)
            && let Some(end) = words::address(text, at)?
        {
            return Ok(Some((Kind::Ip, end)));
        }
        Ok(None)
    }
}

/// What is known of the bytes before a position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    /// The last of them; a newline at the start.
    byte: u8,
    /// Digits at their end, and digits before the one space or dash in front of those.
    digits: u8,
    group: u8,
}

impl Default for Before {
    fn default() -> Self {
        Self { byte: b'\n', digits: 0, group: 0 }
    }
}

impl Before {
    fn pass(&mut self, byte: u8) {
        self.byte = byte;
        if byte.is_ascii_digit() {
            self.digits = self.digits.saturating_add(1);
        } else {
            self.group = if byte == b' ' || byte == b'-' { self.digits } else { 0 };
            self.digits = 0;
        }
    }
}

/// More input is needed to decide.
struct More;

/// A match, or none.
type Look<T> = std::result::Result<Option<T>, More>;

/// A text, or its beginning.
struct Text<'t> {
    bytes: &'t [u8],
    /// Whether the bytes are all of it.
    last: bool,
}

impl Text<'_> {
    /// A byte; `None` after the end.
    fn get(&self, at: usize) -> Look<u8> {
        match self.bytes.get(at) {
            Some(&byte) => Ok(Some(byte)),
            None if self.last => Ok(None),
            None => Err(More),
        }
    }

    fn has(&self, at: usize, is: impl Fn(u8) -> bool) -> std::result::Result<bool, More> {
        Ok(self.get(at)?.is_some_and(is))
    }
}

/// Letters, digits and `_`.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

impl Finder for PiiKinds {
    type Before = Before;

    fn look(&self, before: &mut Before, bytes: &[u8], last: bool) -> Found {
        let text = Text { bytes, last };
        let mut found = Found::default();
        while let Some(&byte) = bytes.get(found.open) {
            let start = found.open;
            let end = match self.begins(&text, start, before) {
                Ok(None) => {
                    before.pass(byte);
                    found.open += 1;
                    continue;
                }
                Ok(Some((kind, end))) => {
                    found.spans.push(Span { start, end, marker: kind as usize });
                    end
                }
                Err(More) => break,
            };
            bytes[start..end].iter().for_each(|&byte| before.pass(byte));
            found.open = end;
        }
        found
    }

    fn marker(&self, span: Span) -> &str {
        Kind::ALL.get(span.marker).map_or("", |kind| kind.marker())
    }
}

#[cfg(test)]
mod tests;
