//! Which requests of a host a grant allows: methods, and paths. What is compared is what was sent; a path
//! that servers read in different ways fits nothing.

use std::fmt;

/// Most methods, and most characters of a path, one grant names.
const MOST_METHODS: usize = 16;
const LONGEST_PATH: usize = 1024;

/// Why a text names no requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestsError {
    /// A method that is none.
    #[error("methods are words such as GET, separated by commas; CONNECT and TRACE cannot be granted")]
    Method,
    /// A path that is none.
    #[error("the path has to begin with a slash, without a query, dots as parts, or characters no path has")]
    Path,
}

/// The requests of a host that are granted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Requests {
    /// Sorted; none means all.
    methods: Vec<String>,
    /// `*` at its end stands for anything, elsewhere for anything up to the next slash.
    path: Option<String>,
}

impl Requests {
    /// Reads a path, which may be empty, and methods, if there are any.
    pub fn parse(path: &str, methods: Option<&str>) -> Result<Self, RequestsError> {
        let path = match path {
            "" | "/*" => None,
            path if is_pattern(path) => Some(path.to_owned()),
            _ => return Err(RequestsError::Path),
        };
        let mut methods = match methods {
            None => Vec::new(),
            Some(text) => text.split(',').map(parse_method).collect::<Result<Vec<_>, _>>()?,
        };
        methods.sort_unstable();
        methods.dedup();
        if methods.len() > MOST_METHODS {
            return Err(RequestsError::Method);
        }
        Ok(Self { methods, path })
    }

    /// Whether every request is allowed, so that nobody has to look.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.methods.is_empty() && self.path.is_none()
    }

    /// Whether a request is among them.
    #[must_use]
    pub fn allow(&self, method: &str, path: &str) -> bool {
        (self.methods.is_empty() || self.methods.iter().any(|granted| granted == method))
            && self.path.as_ref().is_none_or(|pattern| is_plain(path) && fits(pattern, path))
    }
}

impl Requests {
    /// The method and the path, where they name one request.
    #[must_use]
    pub fn single(&self) -> Option<(&str, &str)> {
        let [method] = self.methods.as_slice() else { return None };
        let path = self.path.as_deref().filter(|path| !path.contains('*'))?;
        Some((method, path))
    }
}

fn parse_method(text: &str) -> Result<String, RequestsError> {
    let is_word = !text.is_empty() && text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_alphabetic());
    let method = text.to_ascii_uppercase();
    if !is_word || ["CONNECT", "TRACE", "PRI"].contains(&method.as_str()) {
        return Err(RequestsError::Method);
    }
    Ok(method)
}

/// Whether a text can stand in a grant: a plain path in which stars may occur.
fn is_pattern(path: &str) -> bool {
    path.len() <= LONGEST_PATH && !path.contains("**") && is_plain(path)
}

/// Whether everybody reads a path in the same way: no empty parts, none of dots, also not in disguise.
pub(crate) fn is_plain(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    let lower = path.to_ascii_lowercase();
    let odd =
        ["%2e", "%2f", "%5c", "%25", "%00", "%3b", "%3f", "%23"].iter().any(|code| lower.contains(code));
    let characters = path.bytes().all(|byte| byte.is_ascii_graphic() && !b"\\?#\"<>^`{|}".contains(&byte));
    let mut parts = rest.split('/').peekable();
    let mut plain = true;
    while let Some(part) = parts.next() {
        // What follows a semicolon is taken off by some servers.
        let name = part.split(';').next().unwrap_or_default();
        let is_slash_at_the_end = part.is_empty() && parts.peek().is_none();
        plain &= !matches!(name, "." | "..") && (!name.is_empty() || is_slash_at_the_end);
    }
    !odd && characters && plain
}

/// Whether a path fits a pattern. Stars are few and parts are short, so trying is good enough.
fn fits(pattern: &str, path: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == path };
    let Some(rest) = path.strip_prefix(before) else { return false };
    if after.is_empty() {
        return true;
    }
    let part_end = rest.find('/').unwrap_or(rest.len());
    (0..=part_end).any(|skipped| rest.get(skipped..).is_some_and(|rest| fits(after, rest)))
}

impl fmt::Display for Requests {
    /// The path, then the methods.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.path.as_deref().unwrap_or("/*"))?;
        if self.methods.is_empty() { Ok(()) } else { write!(formatter, " {}", self.methods.join(",")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(path: &str, methods: Option<&str>, request: (&str, &str)) -> bool {
        Requests::parse(path, methods).unwrap().allow(request.0, request.1)
    }

    #[test]
    fn a_star_at_the_end_stands_for_anything_and_elsewhere_for_one_part() {
        for (pattern, path, fits) in [
            ("", "/anything/at/all", true),
            ("/*", "/anything", true),
            ("/v1/*", "/v1/", true),
            ("/v1/*", "/v1/a/b", true),
            ("/v1/*", "/v1", false),
            ("/v1/*", "/v2/a", false),
            ("/v1/*", "/V1/a", false),
            ("/v1", "/v1", true),
            ("/v1", "/v1/", false),
            ("/repos/*/issues", "/repos/me/issues", true),
            ("/repos/*/issues", "/repos/me/you/issues", false),
            ("/repos/*/issues/*", "/repos/me/issues/1/x", true),
            ("/repos/*/issues", "/repos//issues", false),
            ("/a*b/c", "/axbxb/c", true),
            ("/a*b/c", "/ax/b/c", false),
        ] {
            assert_eq!(allows(pattern, None, ("GET", path)), fits, "{pattern} {path}");
        }
    }

    #[test]
    fn a_path_that_servers_read_differently_fits_nothing() {
        for path in [
            "/v1/../admin",
            "/v1/./a",
            "/v1/..",
            "/v1/%2e%2e/admin",
            "/v1/%2E./admin",
            "/v1/..%2fadmin",
            "/v1/..;/admin",
            "/v1/;x/../admin",
            "/v1//admin",
            "//v1/a",
            "/v1/a\\..\\b",
            "/v1/%5c..",
            "/v1/%252e%252e/admin",
            "/v1/a%00",
            "v1/a",
            "*",
            "",
        ] {
            assert!(!allows("/v1/*", None, ("GET", path)), "{path}");
        }
        // Where every path is granted, all of them are.
        assert!(allows("", Some("GET"), ("GET", "/v1/../admin")));
    }

    #[test]
    fn methods_are_whole_words() {
        assert!(allows("/a", Some("get,POST"), ("GET", "/a")));
        assert!(!allows("/a", Some("GET,POST"), ("get", "/a")));
        assert!(!allows("/a", Some("GET,POST"), ("DELETE", "/a")));
        for methods in ["", "GET,", "G ET", "CONNECT", "trace", "GET;POST", "*"] {
            assert_eq!(Requests::parse("", Some(methods)), Err(RequestsError::Method), "{methods}");
        }
    }

    #[test]
    fn only_plain_paths_can_be_granted() {
        for path in ["v1", "/a/../b", "/a//b", "/a?b", "/a#b", "/a b", "/**", "/a%2fb", "/ü"] {
            assert_eq!(Requests::parse(path, None), Err(RequestsError::Path), "{path}");
        }
        for (path, methods, form) in
            [("", Some("POST,GET"), "/* GET,POST"), ("/v1/*", None, "/v1/*"), ("/", Some("GET"), "/ GET")]
        {
            assert_eq!(Requests::parse(path, methods).unwrap().to_string(), form);
        }
    }
}
