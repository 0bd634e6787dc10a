//! Which requests to a host a grant allows: methods and paths. The path is compared as it was sent; a path
//! that servers interpret differently matches nothing.

use std::fmt;

use crate::http::path_ambiguity::{ambiguity, undecodable};

/// Maximum number of methods, and length of a path.
const MOST_METHODS: usize = 16;
const LONGEST_PATH: usize = 1024;

/// Why request rules are not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestRulesError {
    /// A method that is not valid.
    #[error("methods are words such as GET, separated by commas; CONNECT and TRACE cannot be granted")]
    Method,
    /// A path that is not valid.
    #[error("the path must begin with a slash and have no query, dot segments or invalid characters")]
    Path,
}

/// The granted requests of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestRules {
    /// Sorted; empty means all.
    methods: Vec<String>,
    /// `*` at the end matches anything, elsewhere anything up to the next slash.
    path: Option<String>,
}

impl RequestRules {
    /// Parses a path, which may be empty, and optional methods.
    pub fn parse(path: &str, methods: Option<&str>) -> Result<Self, RequestRulesError> {
        let path = match path {
            "" | "/*" => None,
            path if is_pattern(path) => Some(path.to_owned()),
            _ => return Err(RequestRulesError::Path),
        };
        let mut methods = match methods {
            None => Vec::new(),
            Some(text) => text.split(',').map(parse_method).collect::<Result<Vec<_>, _>>()?,
        };
        methods.sort_unstable();
        methods.dedup();
        if methods.len() > MOST_METHODS {
            return Err(RequestRulesError::Method);
        }
        Ok(Self { methods, path })
    }

    /// Whether every request is allowed, so that none has to be inspected.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.methods.is_empty() && self.path.is_none()
    }

    /// Whether a request is allowed, or why not.
    pub(crate) fn judge(
        &self,
        method: &str,
        path: &str,
        override_header: Option<&str>,
    ) -> Result<(), RequestMismatch> {
        if self.is_all() {
            return Ok(());
        }
        if !self.methods.is_empty() && !self.methods.iter().any(|granted| granted == method) {
            return Err(RequestMismatch::Other);
        }
        let flaw = match &self.path {
            Some(_) if path != "*" => ambiguity(path),
            Some(_) | None => undecodable(path),
        };
        if let Some(flaw) = flaw {
            return Err(RequestMismatch::AmbiguousPath(flaw));
        }
        if self.path.as_ref().is_some_and(|pattern| !matches(pattern, path)) {
            return Err(RequestMismatch::Other);
        }
        if override_header.is_some() { Err(RequestMismatch::OverrideHeader) } else { Ok(()) }
    }

    /// Whether a request is allowed.
    #[must_use]
    pub fn allow(&self, method: &str, path: &str) -> bool {
        self.judge(method, path, None).is_ok()
    }
}

/// Why a request is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestMismatch {
    /// Another method or path.
    Other,
    /// Servers interpret its path differently; the reason.
    AmbiguousPath(&'static str),
    /// It would be allowed without a header that overrides the request line.
    OverrideHeader,
}

impl RequestRules {
    /// The method and the path, if they name a single request.
    #[must_use]
    pub fn single(&self) -> Option<(&str, &str)> {
        let [method] = self.methods.as_slice() else { return None };
        let path = self.path.as_deref().filter(|path| !path.contains('*'))?;
        Some((method, path))
    }
}

fn parse_method(text: &str) -> Result<String, RequestRulesError> {
    let is_word = !text.is_empty() && text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_alphabetic());
    let method = text.to_ascii_uppercase();
    if !is_word || ["CONNECT", "TRACE", "PRI"].contains(&method.as_str()) {
        return Err(RequestRulesError::Method);
    }
    Ok(method)
}

/// Whether a text is a valid path of a grant: a plain path that may have wildcards.
fn is_pattern(path: &str) -> bool {
    path.len() <= LONGEST_PATH && !path.contains("**") && ambiguity(path).is_none()
}

/// Whether a path matches a pattern. Wildcards are few and segments are short, so backtracking is cheap.
fn matches(pattern: &str, path: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == path };
    let Some(rest) = path.strip_prefix(before) else { return false };
    if after.is_empty() {
        return true;
    }
    let part_end = rest.find('/').unwrap_or(rest.len());
    (0..=part_end).any(|skipped| rest.get(skipped..).is_some_and(|rest| matches(after, rest)))
}

impl fmt::Display for RequestRules {
    /// The path, then the methods.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.path.as_deref().unwrap_or("/*"))?;
        if self.methods.is_empty() { Ok(()) } else { write!(formatter, " {}", self.methods.join(",")) }
    }
}

#[cfg(test)]
#[path = "request_rules_tests.rs"]
mod tests;
