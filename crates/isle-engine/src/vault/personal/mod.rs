//! Personal data that can be told by its form: addresses of mail, payment cards, bank accounts, telephone
//! numbers, addresses of machines. What has a check sum is checked. Found in one pass, by looking ahead a
//! bounded number of bytes, so that nothing depends on the pieces in which a text comes.

mod numbers;
mod words;

use super::find::{Finder, Found, Span};
use crate::error::{Code, Error, Result};

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
pub struct Personal(u8);

impl Personal {
    /// Twice what the longest of them takes: whoever begins that far before a place has found its way.
    pub(super) const LONGEST: usize = 2 * (words::LONGEST_LOCAL + words::LONGEST_DOMAIN + 2);

    /// Reads kinds as settings name them.
    pub fn read(words: &[String]) -> Result<Self> {
        let mut personal = Self::default();
        for word in words {
            let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == word).ok_or_else(|| {
                let known = Kind::ALL.map(Kind::as_str).join(", ");
                Error::new(Code::InvalidArgument, format!("{word:?} is no personal data that can be masked"))
                    .next(format!("choose from {known}"))
            })?;
            personal.0 |= kind.bit();
        }
        Ok(personal)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// These, and those of another.
    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn without_addresses(self) -> Self {
        Self(self.0 & !Kind::Ip.bit())
    }

    fn has(self, kind: Kind) -> bool {
        self.0 & kind.bit() != 0
    }

    /// What begins at a place, and where it ends.
    fn begins(self, text: &Text<'_>, at: usize, before: &Before) -> Look<(Kind, usize)> {
        let Some(&byte) = text.bytes.get(at) else { return Ok(None) };
        if is_word(before.byte) {
            return Ok(None);
        }
        // The order matters: what waits for more of the text lets nothing after it begin.
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

/// What has to be known of the bytes before a place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Before {
    /// The last of them; a line end where there is none.
    byte: u8,
    /// How many digits there were at their end, and before the one space or dash in front of those.
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

/// More of the text has to come before something can be said.
struct More;

/// Something that is there, or nothing.
type Look<T> = std::result::Result<Option<T>, More>;

/// A text, or the beginning of one.
struct Text<'t> {
    bytes: &'t [u8],
    /// Whether it ends where the bytes end.
    last: bool,
}

impl Text<'_> {
    /// A byte of it; nothing after its end.
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

/// Letters, digits and what is part of names.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

impl Finder for Personal {
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
