//! Escapes and truncates untrusted text for a log line or a progress message.

use std::fmt::Write as _;

/// The first `limit` characters of a text with control characters escaped, followed by an ellipsis if it was
/// truncated. Quoted text cannot forge a log line.
#[must_use]
pub fn truncate_escaped(text: &str, limit: usize) -> String {
    let mut short = String::with_capacity(text.len().min(limit));
    for (position, character) in text.chars().enumerate() {
        if position == limit {
            short.push('…');
            break;
        }
        if character.is_control() {
            // Writing to a string cannot fail.
            let _ = write!(short, "{}", character.escape_default());
        } else {
            short.push(character);
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::truncate_escaped;

    #[test]
    fn control_characters_cannot_forge_a_line() {
        assert_eq!(truncate_escaped("a\nINFO b\u{1b}[2J", 40), "a\\nINFO b\\u{1b}[2J");
    }

    #[test]
    fn a_long_text_is_cut_on_a_character() {
        assert_eq!(truncate_escaped("ääää", 2), "ää…");
        assert_eq!(truncate_escaped("ää", 2), "ää");
    }
}
