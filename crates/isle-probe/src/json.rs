//! JSON lines, written by hand: this program links nothing but libc.

use std::fmt::Write;

/// One line of an object whose values are texts.
pub(crate) fn line(fields: &[(&str, &str)]) -> String {
    let mut text = String::from("{");
    for (index, (name, value)) in fields.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        text.push_str(&format!("{comma}\"{name}\":\"{}\"", escaped(value)));
    }
    text.push('}');
    text
}

fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            control if control.is_control() => {
                // Writing to a text cannot fail.
                write!(text, "\\u{:04x}", u32::from(control)).ok();
            }
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_cannot_break_the_line() {
        assert_eq!(line(&[("a", "x"), ("b", "\"\\\n\u{7f}é")]), r#"{"a":"x","b":"\"\\\u000a\u007fé"}"#);
    }
}
