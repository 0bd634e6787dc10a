//! The forms in which a value is looked for: as it is, and as programs commonly write such a thing down.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

/// Every form of a value, each once: raw; base64 wherever it may stand in what is encoded, in both
/// alphabets; hexadecimal; percent-encoded as browsers, forms and libraries do it; escaped as in JSON.
pub(crate) fn forms(value: &str) -> Vec<Zeroizing<Vec<u8>>> {
    let mut forms: Vec<Zeroizing<Vec<u8>>> = vec![Zeroizing::new(value.as_bytes().to_vec())];
    forms.extend(in_base64(value.as_bytes()));
    for upper in [false, true] {
        forms.push(in_hexadecimal(value.as_bytes(), upper));
        for (kept, space) in
            [("-._~", "%20"), ("-._~", "+"), ("-._~!'()*", "%20"), ("-._*", "+"), ("-._~/", "%20")]
        {
            forms.push(in_percent(value, kept, space, upper));
        }
    }
    for (ascii, slash) in [(false, false), (false, true), (true, false), (true, true)] {
        forms.push(in_json(value, ascii, slash));
    }
    forms.sort_by(|one, other| one[..].cmp(&other[..]));
    forms.dedup();
    forms
}

/// The digits that depend on the value alone, for each of the three places it may have in a group of
/// three bytes.
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

fn in_json(value: &str, ascii: bool, slash: bool) -> Zeroizing<Vec<u8>> {
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
            '/' if slash => text.push_str("\\/"),
            other if other < ' ' || (ascii && !other.is_ascii()) => {
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
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};

    use super::*;

    const VALUE: &str = "p@ss w/ö\"rd\\>?~é\n";

    fn found(text: &str) -> bool {
        forms(VALUE).iter().any(|form| text.as_bytes().windows(form.len()).any(|window| window == &form[..]))
    }

    #[test]
    fn a_value_is_found_in_base64_wherever_it_stands() {
        for before in 0..7 {
            for after in 0..4 {
                let plain = format!("{}{VALUE}{}", "x".repeat(before), "\u{7f}".repeat(after));
                assert!(found(&STANDARD.encode(&plain)), "{before} {after}");
                assert!(found(&URL_SAFE.encode(&plain)), "{before} {after}");
            }
        }
    }

    #[test]
    fn a_value_is_found_as_programs_write_it() {
        let hex: String = VALUE.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(found(&hex) && found(&hex.to_uppercase()));
        assert!(found(VALUE));
        assert!(found(&serde_json::to_string(VALUE).unwrap()));
        for text in [
            // JavaScript's encodeURIComponent, Python's quote, quote_plus, PHP's json_encode, and small digits.
            "p%40ss%20w%2F%C3%B6%22rd%5C%3E%3F~%C3%A9%0A",
            "p%40ss%20w/%C3%B6%22rd%5C%3E%3F~%C3%A9%0A",
            "p%40ss+w%2F%C3%B6%22rd%5C%3E%3F~%C3%A9%0A",
            "p@ss w\\/\\u00f6\\\"rd\\\\>?~\\u00e9\\n",
            "p%40ss%20w%2f%c3%b6%22rd%5c%3e%3f~%c3%a9%0a",
        ] {
            assert!(found(text), "{text}");
        }
        assert!(!found("p@ss w/o\"rd"));
    }

    #[test]
    fn a_plain_value_has_few_forms() {
        let all = forms("abcdefgh");
        assert!(all.len() <= 10, "{}", all.len());
        assert!(all.iter().all(|form| form.len() >= 8), "{all:?}");
    }
}
