//! Text of others, made fit for one line of a log or a progress message.

use std::fmt::Write as _;

/// The first `limit` characters of a text with control characters escaped, and an ellipsis when
/// something was left out. A log line built from it cannot be forged by what it quotes.
#[must_use]
pub fn shorten(text: &str, limit: usize) -> String {
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
    use super::shorten;

    #[test]
    fn control_characters_cannot_forge_a_line() {
        assert_eq!(shorten("a\nINFO b\u{1b}[2J", 40), "a\\nINFO b\\u{1b}[2J");
    }

    #[test]
    fn a_long_text_is_cut_on_a_character() {
        assert_eq!(shorten("ääää", 2), "ää…");
        assert_eq!(shorten("ää", 2), "ää");
    }
}
