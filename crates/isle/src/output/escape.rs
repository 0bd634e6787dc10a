//! Escapes untrusted text: nothing in a table may move the cursor, change colours or reorder characters.

/// The text with control characters, and characters that hide or reorder others, escaped.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push_str("\\t"),
            character if character.is_control() || misleads(character) => {
                safe.push_str(&format!("\\u{{{:x}}}", u32::from(character)));
            }
            character => safe.push(character),
        }
    }
    safe
}

/// Equivalent JSON in which such characters are escaped. Below U+0020, only line breaks between values occur
/// in JSON.
pub(crate) fn escaped_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for character in json.chars() {
        if character == '\n' || !character.is_control() && !misleads(character) {
            safe.push(character);
            continue;
        }
        let mut units = [0; 2];
        for unit in character.encode_utf16(&mut units) {
            safe.push_str(&format!("\\u{unit:04x}"));
        }
    }
    safe
}

/// Invisible characters and those that change the direction of writing.
fn misleads(character: char) -> bool {
    matches!(
        character,
        '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    )
}

/// Escaped and truncated to `width` characters with an ellipsis.
pub(crate) fn shortened(text: &str, width: usize) -> String {
    let safe = escaped(text);
    if safe.chars().count() <= width {
        return safe;
    }
    let mut cut: String = safe.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({"a\u{202e}": "x\u{9b}\u{7f}\u{e0001}\n漢"});
        let text = escaped_json(&format!("{value:#}"));
        assert!(!text.contains(['\u{202e}', '\u{9b}', '\u{7f}', '\u{e0001}']), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn escape_sequences_and_direction_marks_are_written_out() {
        assert_eq!(escaped("a\u{1b}[31mb\u{202e}c\u{9b}"), "a\\u{1b}[31mb\\u{202e}c\\u{9b}");
        assert_eq!(escaped("zwei\nZeilen äöü 漢字"), "zwei\\nZeilen äöü 漢字");
    }

    #[test]
    fn json_keeps_its_meaning_and_loses_its_power() {
        let text = "a\u{1b}[31m\u{9b}\u{202e}\u{e0001}\u{7f}ä\n";
        let json = format!("{:#}", serde_json::json!({ "text": text }));
        let safe = escaped_json(&json);
        assert!(safe.chars().all(|c| c == '\n' || !c.is_control() && !misleads(c)), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap()["text"], text);
    }

    #[test]
    fn long_text_is_cut_by_characters() {
        assert_eq!(shortened("ääääää", 4), "äää…");
    }
}
