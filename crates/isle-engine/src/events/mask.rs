//! What events must not say. Every text and every value of an event goes through [`mask`] before anybody
//! can read it: values of secrets are taken out, and long texts cut.

use serde_json::Value;

use super::Event;
use crate::run::looks_secret;
use isle_vault::Masker;

/// Characters of one text that are kept.
const LONGEST: usize = 300;
/// What stands in the place of a secret.
const MASKED: &str = "***";
/// Values shorter than this are no secrets: taking every `1` out would leave nothing to read.
const SHORTEST_SECRET: usize = 4;

/// The values of those variables whose names look like secrets.
pub(crate) fn secret_values<'a>(
    variables: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Vec<String> {
    let mut values: Vec<String> = variables
        .into_iter()
        .filter(|(name, value)| value.len() >= SHORTEST_SECRET && looks_secret(name))
        .map(|(_, value)| value.clone())
        .collect();
    // One that contains another goes first, or its rest would stay.
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    values
}

impl Event {
    /// Takes values of the vault out of it, in all their forms.
    pub(super) fn hide(&mut self, masker: Option<&Masker>) {
        if let Some(masker) = masker {
            masker.mask_text(&mut self.message);
            masker.mask_json(&mut self.data);
        }
    }
}

/// Takes secrets out of an event and cuts what is long.
pub(super) fn mask(event: &mut Event, secrets: &[String]) {
    mask_text(&mut event.message, secrets);
    mask_value(&mut event.data, secrets);
}

fn mask_value(value: &mut Value, secrets: &[String]) {
    match value {
        Value::String(text) => mask_text(text, secrets),
        Value::Array(items) => items.iter_mut().for_each(|item| mask_value(item, secrets)),
        Value::Object(fields) => fields.values_mut().for_each(|field| mask_value(field, secrets)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn mask_text(text: &mut String, secrets: &[String]) {
    for secret in secrets {
        if text.contains(secret.as_str()) {
            *text = text.replace(secret.as_str(), MASKED);
        }
    }
    if text.contains('=') {
        *text = without_assignments(text);
    }
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push('…');
    }
}

/// The text with the values of assignments such as `API_KEY=…` taken out.
fn without_assignments(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('=') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        masked.push_str(before);
        masked.push('=');
        rest = after;
        let name = before.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
        if !name.is_empty() && looks_secret(name) {
            let end = end_of_value(after);
            if end > 0 {
                masked.push_str(MASKED);
            }
            rest = &after[end..];
        }
    }
    masked.push_str(rest);
    masked
}

/// Where a value ends that a shell would read here.
fn end_of_value(text: &str) -> usize {
    let mut quote = None;
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            _ if escaped => escaped = false,
            (None | Some('"'), '\\') => escaped = true,
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, _) if character.is_whitespace() || "&;|<>()".contains(character) => return at,
            (None, _) => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::events::EventKind;

    fn masked(text: &str, secrets: &[&str]) -> String {
        let mut event = Event::new(EventKind::RunStarted, &isle_core::values::Namespace::default(), text)
            .data(json!({ "deep": [{ "er": text }] }));
        mask(&mut event, &secrets.iter().map(|secret| (*secret).to_owned()).collect::<Vec<_>>());
        assert_eq!(event.data["deep"][0]["er"], event.message);
        event.message
    }

    #[test]
    fn values_of_secrets_are_taken_out_wherever_they_stand() {
        assert_eq!(masked("curl -H 'X: hunter22' hunter22", &["hunter22"]), "curl -H 'X: ***' ***");
        assert_eq!(masked("API_KEY=abc GITHUB_TOKEN='d e' make", &[]), "API_KEY=*** GITHUB_TOKEN=*** make");
        assert_eq!(masked("export DB_PASSWORD=\"a\\\" b\"; ls", &[]), "export DB_PASSWORD=***; ls");
        assert_eq!(masked("KEYBOARD=us a==b PUBLIC_KEY=x", &[]), "KEYBOARD=us a==b PUBLIC_KEY=x");
        assert_eq!(masked("TOKEN=", &[]), "TOKEN=");
        assert_eq!(masked("SECRET='never closed", &[]), "SECRET=***");
    }

    #[test]
    fn a_secret_inside_another_leaves_no_rest() {
        let variables = [
            ("A_TOKEN".to_owned(), "abcd".to_owned()),
            ("B_TOKEN".to_owned(), "abcdefgh".to_owned()),
            ("C_TOKEN".to_owned(), "1".to_owned()),
            ("PLAIN".to_owned(), "visible".to_owned()),
        ];
        let secrets = secret_values(variables.iter().map(|(name, value)| (name, value)));
        assert_eq!(secrets, ["abcdefgh", "abcd"]);
        let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
        assert_eq!(masked("abcdefgh abcd 1 visible", &secrets), "*** *** 1 visible");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let text = masked(&"é".repeat(1000), &[]);
        assert_eq!(text.chars().count(), LONGEST + 1);
        assert!(text.ends_with('…'));
    }
}
