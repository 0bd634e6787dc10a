//! Glob patterns over paths. Each is translated to a regular expression, so that matching takes linear time.

use regex::bytes::Regex;

/// Maximum length of a pattern.
const LONGEST: usize = 1000;

/// A pattern. Without a slash it matches the last component of a path, with one the whole path.
#[derive(Debug, Clone)]
pub struct Glob {
    expression: Regex,
    whole: bool,
}

/// A pattern that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GlobError(String);

impl Glob {
    /// Parses a pattern: `*`, `?`, `[a-z]`, `{one,other}`, and `**` for any number of directories.
    pub fn new(text: &str) -> Result<Self, GlobError> {
        if text.is_empty() || text.len() > LONGEST {
            return Err(GlobError(format!("a glob has 1 to {LONGEST} bytes")));
        }
        let trimmed = text.trim_start_matches("./").trim_start_matches('/');
        let expression = format!("^(?:{})$", translate(trimmed)?);
        let expression =
            Regex::new(&expression).map_err(|_| GlobError(format!("the glob {text:?} is too complex")))?;
        Ok(Self { expression, whole: text.contains('/') })
    }

    /// Whether a relative path matches.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        let last = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        self.expression.is_match(if self.whole { path } else { &path[last..] })
    }
}

fn translate(glob: &str) -> Result<String, GlobError> {
    const ANY: &str = "(?s-u:[^/])";
    let mut out = String::new();
    let mut open = 0u32;
    let mut rest = glob.chars().peekable();
    let mut at_start = true;
    while let Some(letter) = rest.next() {
        let starts_part = at_start;
        at_start = letter == '/';
        match letter {
            '*' if rest.peek() == Some(&'*') => {
                while rest.next_if_eq(&'*').is_some() {}
                // `**/` matches any number of directories, including none; elsewhere `**` matches anything.
                if starts_part && rest.next_if_eq(&'/').is_some() {
                    out.push_str("(?s-u:.*/)?");
                    at_start = true;
                } else {
                    out.push_str("(?s-u:.)*");
                }
            }
            '*' => {
                out.push_str(ANY);
                out.push('*');
            }
            '?' => out.push_str("(?:[^/]|(?s-u:[^/]))"),
            '[' => out.push_str(&class(&mut rest)?),
            '{' => {
                open += 1;
                out.push_str("(?:");
            }
            '}' if open > 0 => {
                open -= 1;
                out.push(')');
            }
            ',' if open > 0 => out.push('|'),
            '\\' => match rest.next() {
                Some(next) => out.push_str(&regex::escape(&next.to_string())),
                None => return Err(GlobError("a glob cannot end with a backslash".into())),
            },
            other => out.push_str(&regex::escape(&other.to_string())),
        }
    }
    if open > 0 {
        return Err(GlobError("a `{` in the glob is not closed".into()));
    }
    Ok(out)
}

fn class(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<String, GlobError> {
    let mut out = String::from("[");
    if rest.next_if(|&letter| letter == '!' || letter == '^').is_some() {
        out.push_str("^/");
    }
    let mut is_first = true;
    for letter in rest.by_ref() {
        match letter {
            ']' if !is_first => {
                out.push(']');
                return Ok(out);
            }
            '-' if !is_first => out.push('-'),
            other => out.push_str(&regex::escape(&other.to_string())),
        }
        is_first = false;
    }
    Err(GlobError("a `[` in the glob is not closed".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_in_a_shell() {
        let cases: &[(&str, &[u8], bool)] = &[
            ("*.rs", b"a.rs", true),
            ("*.rs", b"deep/er/a.rs", true),
            ("*.rs", b"a.rs.txt", false),
            ("src/*.rs", b"src/a.rs", true),
            ("src/*.rs", b"src/b/a.rs", false),
            ("src/**/*.rs", b"src/a.rs", true),
            ("src/**/*.rs", b"src/b/c/a.rs", true),
            ("**/a", b"a", true),
            ("**/a", b"x/y/a", true),
            ("/a", b"a", true),
            ("./a", b"x/a", false),
            ("a?c", "aéc".as_bytes(), true),
            ("a?c", b"a\xffc", true),
            ("a?c", b"a/c", false),
            ("[a-c]x", b"bx", true),
            ("[!a-c]x", b"bx", false),
            ("[]]", b"]", true),
            ("*.{rs,toml}", b"Cargo.toml", true),
            ("\\*", b"*", true),
            ("\\*", b"x", false),
            ("a.b", b"axb", false),
            (".*", b".git", true),
            ("*\n*", b"one\ntwo", true),
        ];
        for (glob, path, expected) in cases {
            assert_eq!(Glob::new(glob).unwrap().matches(path), *expected, "{glob} on {path:?}");
        }
    }

    #[test]
    fn an_invalid_glob_is_rejected() {
        for bad in ["", "[a", "{a", "a\\", &"x".repeat(1001), "[z-a]"] {
            assert!(Glob::new(bad).is_err(), "{bad}");
        }
    }
}
