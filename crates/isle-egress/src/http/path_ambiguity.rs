//! Whether all servers interpret a path in the same way. Servers and reverse proxies decode, normalize and
//! map paths differently; a path for which that could make a difference is ambiguous and matches no grant.

/// What makes a path ambiguous; `None` if it is not.
pub(crate) fn ambiguity(path: &str) -> Option<&'static str> {
    let Some(rest) = path.strip_prefix('/') else { return Some("it does not begin with a slash") };
    let odd = |byte: u8| !byte.is_ascii_graphic() || b"\\?#\"<>^`{|};".contains(&byte);
    if path.bytes().any(odd) {
        return Some("it has a character that servers interpret differently");
    }
    if let Some(what) = undecodable(path) {
        return Some(what);
    }
    if escapes(path).any(|byte| b"./\\%;?#*\"<>|".contains(&byte)) {
        return Some("it has an encoded dot, slash, backslash, percent sign, semicolon or the like");
    }
    let decoded = decode(path).unwrap_or_default();
    if decoded.chars().any(is_look_alike) {
        return Some("it has a character that some servers treat as a dot, a slash or nothing");
    }
    let parts: Vec<&str> = rest.split('/').collect();
    if parts.iter().rev().skip(1).any(|part| part.is_empty()) {
        return Some("it has an empty segment");
    }
    let ragged = |part: &str| part.ends_with(['.', ' ']) || part.starts_with(' ');
    if decoded.split('/').any(|part| part.starts_with("..") || part == "." || ragged(part)) {
        return Some(
            "a segment consists of dots, ends in a dot or a space, or begins with two dots or a space",
        );
    }
    None
}

/// What cannot be decoded, or decodes to bytes that no path has; checked for every grant of some requests.
pub(crate) fn undecodable(path: &str) -> Option<&'static str> {
    let Some(bytes) = decode_bytes(path) else {
        return Some("it has a percent sign without two hexadecimal digits");
    };
    let Ok(text) = String::from_utf8(bytes) else {
        return Some("it decodes to bytes that are not UTF-8, or not in its shortest form");
    };
    text.chars().any(char::is_control).then_some("it has an encoded control character")
}

/// The percent-encoded bytes.
fn escapes(path: &str) -> impl Iterator<Item = u8> {
    path.split('%').skip(1).filter_map(|after| u8::from_str_radix(after.get(..2)?, 16).ok())
}

fn decode(path: &str) -> Option<String> {
    String::from_utf8(decode_bytes(path)?).ok()
}

fn decode_bytes(path: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'%' {
            decoded.push(*byte);
            continue;
        }
        let digit = |at: usize| after.get(at).and_then(|&byte| char::from(byte).to_digit(16));
        let value = digit(0)? * 16 + digit(1)?;
        decoded.push(u8::try_from(value).ok()?);
        rest = &after[2..];
    }
    Some(decoded)
}

/// Characters that Unicode normalization or Windows code pages turn into path separators, and invisible
/// characters.
fn is_look_alike(character: char) -> bool {
    matches!(
        character,
        // Dots.
        '\u{b7}' | '\u{2024}'..='\u{2027}' | '\u{2488}'..='\u{249b}' | '\u{3002}' | '\u{fe12}' | '\u{fe19}'
        | '\u{fe30}' | '\u{fe52}' | '\u{ff0e}' | '\u{ff61}'
        // Slashes and backslashes.
        | '\u{a5}' | '\u{20a9}' | '\u{2044}' | '\u{2100}' | '\u{2101}' | '\u{2105}' | '\u{2106}' | '\u{2215}'
        | '\u{2216}' | '\u{244a}' | '\u{27cb}' | '\u{27cd}' | '\u{29f5}' | '\u{29f8}' | '\u{29f9}' | '\u{fe68}'
        | '\u{ff0f}' | '\u{ff3c}' | '\u{337}' | '\u{338}'
        // Percent signs, semicolons, question marks, number signs.
        | '\u{37e}' | '\u{2047}'..='\u{2049}' | '\u{fe14}' | '\u{fe16}' | '\u{fe54}' | '\u{fe56}' | '\u{fe5f}'
        | '\u{fe6a}' | '\u{ff03}' | '\u{ff05}' | '\u{ff1b}' | '\u{ff1f}'
        // Spaces and invisible characters.
        | '\u{a0}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{1680}' | '\u{17b4}'
        | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}'
        | '\u{205f}'..='\u{206f}' | '\u{3000}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{ffff}' | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
#[path = "path_ambiguity_tests.rs"]
mod tests;
