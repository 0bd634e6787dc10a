//! The encodings in which a secret value is searched for: raw, and as programs commonly encode it.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

/// Every encoding of a value, each once: raw; base64 at any offset and in both alphabets; hexadecimal;
/// percent-encoded as browsers, forms and libraries do it, also every byte and twice; escaped as in JSON and
/// in HTML; UTF-16.
#[must_use]
pub fn encodings(value: &str) -> Vec<Zeroizing<Vec<u8>>> {
    let mut encodings: Vec<Zeroizing<Vec<u8>>> = vec![Zeroizing::new(value.as_bytes().to_vec())];
    for digits in in_base64(value.as_bytes()) {
        // In a URL, where two of the base64 digits are escaped.
        if let Ok(text) = std::str::from_utf8(&digits) {
            encodings.push(in_percent(text, "-_", "%20", true));
            encodings.push(in_percent(text, "-_", "%20", false));
        }
        encodings.push(digits);
    }
    for upper in [false, true] {
        encodings.push(in_hexadecimal(value.as_bytes(), upper));
        for (kept, space) in
            [("-._~", "%20"), ("-._~", "+"), ("-._~!'()*", "%20"), ("-._*", "+"), ("-._~/", "%20")]
        {
            let once = in_percent(value, kept, space, upper);
            if let Ok(text) = std::str::from_utf8(&once) {
                encodings.push(in_percent(text, "-._~!'()*/+", "%20", upper));
            }
            encodings.push(once);
        }
        let percent = |byte: &u8| [&b"%"[..], &in_hexadecimal(&[*byte], upper)].concat();
        encodings.push(Zeroizing::new(value.as_bytes().iter().flat_map(percent).collect()));
    }
    for (ascii, slash) in [(false, false), (false, true), (true, false), (true, true)] {
        for html in [false, true] {
            encodings.push(in_json(value, Escapes { ascii, slash, html }));
        }
    }
    encodings.push(each(value, |text, character| {
        for unit in character.encode_utf16(&mut [0u16; 2]) {
            let _ = write!(text, "\\u{unit:04x}");
        }
    }));
    encodings.push(each(value, |text, character| {
        let _ = write!(text, "&#{};", u32::from(character));
    }));
    encodings.push(each(value, |text, character| {
        let _ = write!(text, "&#x{:x};", u32::from(character));
    }));
    for (quote, apostrophe, slash) in [
        ("&quot;", "'", "/"),
        ("&quot;", "&#39;", "/"),
        ("&#34;", "&#39;", "/"),
        ("&quot;", "&#x27;", "/"),
        ("&quot;", "&#x27;", "&#x2F;"),
        ("\"", "'", "/"),
        ("&quot;", "&apos;", "/"),
    ] {
        encodings.push(in_html(value, quote, apostrophe, slash));
    }
    for style in [Escape::Unicode, Escape::Hexadecimal, Escape::Decimal, Escape::Entity, Escape::Padded] {
        encodings.push(escaped(value, style, |character| !character.is_ascii_alphanumeric()));
        encodings.push(escaped(value, style, |_| true));
    }
    for style in [Escape::Percent, Escape::PercentTwice, Escape::Quoted] {
        encodings.push(escaped(value, style, |character| !character.is_ascii_alphanumeric()));
        encodings.push(escaped(value, style, |_| true));
    }
    for spelled in [value.replace('+', " "), value.trim_end_matches('=').to_owned()] {
        // The rest of a short value would match everywhere.
        if spelled.len() >= SHORTEST_PART {
            encodings.push(Zeroizing::new(spelled.into_bytes()));
        }
    }
    let in_json_once = in_json(value, Escapes { ascii: false, slash: false, html: false });
    if let Ok(text) = std::str::from_utf8(&in_json_once) {
        encodings.push(in_json(text, Escapes { ascii: false, slash: false, html: false }));
        encodings.push(in_html(text, "&quot;", "&#39;", "/"));
    }
    encodings.push(in_html(value, "&quot;", "&#039;", "/"));
    encodings.extend(in_base64(&STANDARD.encode(value).into_bytes()));
    encodings.extend(in_base32(value.as_bytes()));
    encodings.push(Zeroizing::new(value.encode_utf16().flat_map(u16::to_le_bytes).collect()));
    encodings.push(Zeroizing::new(value.encode_utf16().flat_map(u16::to_be_bytes).collect()));
    encodings.sort_by(|one, other| one[..].cmp(&other[..]));
    encodings.dedup();
    encodings
}

/// Minimum length of a value without its padding to be searched for.
const SHORTEST_PART: usize = 8;

/// How a character is escaped.
#[derive(Clone, Copy)]
enum Escape {
    /// `\u002b`
    Unicode,
    /// `\x2b`
    Hexadecimal,
    /// `&#43;`
    Decimal,
    /// `&#x2b;`
    Entity,
    /// `&#043;`
    Padded,
    /// `%2b`
    Percent,
    /// `%252b`
    PercentTwice,
    /// `=2b`
    Quoted,
}

fn escaped(value: &str, style: Escape, is_escaped: impl Fn(char) -> bool) -> Zeroizing<Vec<u8>> {
    each(value, |text, character| {
        if !is_escaped(character) {
            text.push(character);
            return;
        }
        let code = u32::from(character);
        // Writing to a string cannot fail.
        let _ = match style {
            Escape::Decimal => write!(text, "&#{code};"),
            Escape::Entity => write!(text, "&#x{code:x};"),
            Escape::Padded => write!(text, "&#{code:03};"),
            Escape::Unicode => {
                character.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(text, "\\u{unit:04x}"))
            }
            Escape::Hexadecimal | Escape::Percent | Escape::PercentTwice | Escape::Quoted => {
                let sign = match style {
                    Escape::Hexadecimal => "\\x",
                    Escape::PercentTwice => "%25",
                    Escape::Quoted => "=",
                    _ => "%",
                };
                character
                    .encode_utf8(&mut [0; 4])
                    .bytes()
                    .try_for_each(|byte| write!(text, "{sign}{byte:02x}"))
            }
        };
    })
}

/// The digits that depend on the value alone, for each of the five offsets in a group of five bytes.
fn in_base32(value: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    const DIGITS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    (0..5)
        .map(|before| {
            let bit = |at: usize| {
                let byte = value.get(at / 8).copied().unwrap_or_default();
                usize::from(byte >> (7 - at % 8) & 1)
            };
            let first = (before * 8usize).div_ceil(5);
            let digits = (first..(before + value.len()) * 8 / 5).map(|digit| {
                let index = (0..5).fold(0, |index, at| index << 1 | bit(digit * 5 + at - before * 8));
                DIGITS[index]
            });
            Zeroizing::new(digits.collect())
        })
        .collect()
}

/// Encodes each character.
fn each(value: &str, write: impl Fn(&mut String, char)) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(String::with_capacity(value.len() * 8));
    value.chars().for_each(|character| write(&mut text, character));
    Zeroizing::new(text.as_bytes().to_vec())
}

fn in_html(value: &str, quote: &str, apostrophe: &str, slash: &str) -> Zeroizing<Vec<u8>> {
    each(value, |text, character| match character {
        '&' => text.push_str("&amp;"),
        '<' => text.push_str("&lt;"),
        '>' => text.push_str("&gt;"),
        '"' => text.push_str(quote),
        '\'' => text.push_str(apostrophe),
        '/' => text.push_str(slash),
        other => text.push(other),
    })
}

/// The digits that depend on the value alone, for each of the three offsets in a group of three bytes.
fn in_base64(value: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let mut all = Vec::new();
    for (before, skip) in [(0, 0), (1, 2), (2, 3)] {
        let mut padded = Zeroizing::new(vec![0u8; before]);
        padded.extend_from_slice(value);
        let whole = padded.len() * 8 / 6;
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            let text = Zeroizing::new(engine.encode(&*padded));
            if let Some(digits) = text.as_bytes().get(skip..whole) {
                all.push(Zeroizing::new(digits.to_vec()));
            }
        }
    }
    all
}

fn in_hexadecimal(value: &[u8], upper: bool) -> Zeroizing<Vec<u8>> {
    const LOWER: &[u8; 16] = b"0123456789abcdef";
    const UPPER: &[u8; 16] = b"0123456789ABCDEF";
    let digits = if upper { UPPER } else { LOWER };
    let both = |byte: &u8| [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]];
    Zeroizing::new(value.iter().flat_map(both).collect())
}

fn in_percent(value: &str, kept: &str, space: &str, upper: bool) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(Vec::with_capacity(value.len() * 3));
    for byte in value.bytes() {
        if byte == b' ' {
            text.extend_from_slice(space.as_bytes());
        } else if byte.is_ascii_alphanumeric() || kept.as_bytes().contains(&byte) {
            text.push(byte);
        } else {
            text.push(b'%');
            text.extend_from_slice(&in_hexadecimal(&[byte], upper));
        }
    }
    text
}

/// What is escaped besides the required characters.
#[derive(Clone, Copy)]
struct Escapes {
    ascii: bool,
    slash: bool,
    /// Characters with a meaning in HTML.
    html: bool,
}

fn in_json(value: &str, escapes: Escapes) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(String::with_capacity(value.len() * 2));
    for character in value.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '/' if escapes.slash => text.push_str("\\/"),
            other
                if other < ' '
                    || (escapes.ascii && !other.is_ascii())
                    || (escapes.html && "<>&".contains(other)) =>
            {
                let mut units = [0u16; 2];
                for unit in other.encode_utf16(&mut units) {
                    // Writing to a string cannot fail.
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
            other => text.push(other),
        }
    }
    Zeroizing::new(text.as_bytes().to_vec())
}

#[cfg(test)]
#[path = "encodings_tests.rs"]
mod tests;
