//! Names, ids, durations, sizes and paths: text becomes a value that cannot be wrong, or nothing.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use isle_core::Error;
use isle_core::values::{ByteSize, GuestPath, RunId, SandboxId, SandboxName, Span};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(name) = same::<SandboxName>(text) {
        assert!(name.as_str() == text && name.parts().count() <= 3, "{text:?}");
        for part in text.split('/') {
            assert!((1..=63).contains(&part.len()), "{text:?}");
            assert!(part.as_bytes()[0].is_ascii_alphanumeric(), "{text:?}");
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            assert!(part.bytes().all(plain), "{text:?}");
        }
    }
    for (id, prefix) in [
        (same::<RunId>(text).map(|id| id.to_string()), "run_"),
        (same::<SandboxId>(text).map(|id| id.to_string()), "sb_"),
    ] {
        if let Some(id) = id {
            assert!(id == text && id.len() == prefix.len() + 26 && id.starts_with(prefix), "{text:?}");
        }
    }
    if same::<Span>(text).is_some() {
        assert!(written(text, &["", "ms", "s", "m", "h", "d"], false), "{text:?}");
    }
    if same::<ByteSize>(text).is_some() {
        let units = ["", "b", "k", "kb", "kib", "m", "mb", "mib", "g", "gb", "gib", "t", "tb", "tib", "ib"];
        assert!(written(&text.to_ascii_lowercase(), &units, true), "{text:?}");
    }
    if let Some(path) = same::<GuestPath>(text) {
        assert!(!text.is_empty() && text.len() <= 4095 && !text.contains('\0'));
        assert!(text.split('/').all(|part| part != ".."), "{text:?}");
        let absolute = path.absolute();
        assert!(absolute.starts_with('/') && absolute.split('/').all(|part| part != ".."), "{absolute:?}");
    }
    drop(GuestPath::parse_absolute(text));
}

/// A value that is read, written and read again is the same; a refusal says what to do.
fn same<T: FromStr<Err = Error> + Display + PartialEq + Debug>(text: &str) -> Option<T> {
    match text.parse::<T>() {
        Ok(value) => {
            assert_eq!(value.to_string().parse::<T>().as_ref().ok(), Some(&value), "{text:?}");
            Some(value)
        }
        Err(error) => {
            assert!(!error.next_steps.is_empty() && error.message.len() < 5000, "{error:?}");
            None
        }
    }
}

/// Digits, perhaps a gap, and one of the units.
fn written(text: &str, units: &[&str], gap: bool) -> bool {
    let text = text.trim();
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let unit = if gap { unit.trim() } else { unit };
    text.starts_with(|c: char| c.is_ascii_digit()) && units.contains(&unit)
}
