//! Headers that override the request line: the method, the path or the host. Frameworks and reverse proxies
//! follow them, so a grant of some methods or paths could be bypassed with them.

/// Parts of words: a header with one of them in a word of its name overrides the request.
const PARTS: &[&str] =
    &["forward", "method", "original", "override", "redirect", "rewrit", "subrequest", "copysource"];

/// Endings and beginnings of such words.
const ENDS: &[&str] = &["host", "path", "uri", "url", "verb"];
const BEGINNINGS: &[&str] = &["host", "path", "uri", "url"];

/// Whole words.
const WORDS: &[&str] = &[
    "authority",
    "backend",
    "destination",
    "domain",
    "endpoint",
    "prefix",
    "rename",
    "route",
    "target",
    "upstream",
];

/// Pairs of adjacent words.
const PAIRS: &[(&str, &str)] =
    &[("copy", "from"), ("copy", "source"), ("request", "line"), ("script", "name"), ("server", "name")];

/// Common headers with such words that override nothing, or are checked elsewhere.
const HARMLESS: &[&str] = &[
    "access-control-request-method",
    "host",
    "x-amz-target",
    "x-forwarded-client-cert",
    "x-forwarded-for",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-protocol",
    "x-forwarded-scheme",
    "x-forwarded-ssl",
    "x-restli-method",
];

/// What a header overrides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Override {
    /// Nothing.
    None,
    /// Another path or another host.
    Target,
    /// Another method, at least.
    Method,
}

/// The first header that overrides the request, among these names.
pub(crate) fn override_header<'n>(names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let mut names = names;
    names.find(|name| override_of(name) != Override::None)
}

/// Longer names are ignored: no server gives them a meaning.
const LONGEST: usize = 64;

/// What a header of this name overrides. Names are matched by their words, so that unknown headers are
/// covered as well.
pub(crate) fn override_of(name: &str) -> Override {
    let mut plain = [0; LONGEST];
    let Some(plain) = plain.get_mut(..name.len()) else { return Override::None };
    for (to, from) in plain.iter_mut().zip(name.bytes()) {
        // Interfaces that pass headers as variables (CGI, WSGI, PHP) treat all other characters the same.
        *to = if from.is_ascii_alphanumeric() { from.to_ascii_lowercase() } else { b'-' };
    }
    let Ok(name) = std::str::from_utf8(plain) else { return Override::None };
    if HARMLESS.contains(&name) {
        return Override::None;
    }
    let (mut found, mut place, mut before) = (Override::None, false, "");
    for word in name.split('-').filter(|word| !word.is_empty()) {
        if word.contains("method") || word.ends_with("verb") {
            return Override::Method;
        }
        let names_place = WORDS.contains(&word)
            || BEGINNINGS.iter().any(|beginning| word.starts_with(beginning))
            || ENDS.iter().any(|end| word.ends_with(end)) && word != "curl";
        place |= names_place;
        if names_place || PARTS.iter().any(|part| word.contains(part)) || PAIRS.contains(&(before, word)) {
            found = Override::Target;
        }
        before = word;
    }
    // "Override" without an object means the method.
    if !place && name.contains("override") { Override::Method } else { found }
}

#[cfg(test)]
#[path = "override_headers_tests.rs"]
mod tests;
