//! Regular expressions for searching text. The host and the agent compile them with the same limits, so one
//! that the host accepts is never rejected inside. Matching takes linear time.

use regex::bytes::{Regex, RegexBuilder};

/// Maximum length of an expression.
const LONGEST: usize = 10_000;
/// Memory limit of a compiled expression and of its DFA cache.
const MEMORY: usize = 4 << 20;

/// The pattern of a search, for [`compile_regex`].
#[must_use]
pub fn regex_pattern(pattern: &str, literal: bool, ignore_case: bool) -> String {
    let pattern = if literal { regex::escape(pattern) } else { pattern.to_owned() };
    if ignore_case { format!("(?i:{pattern})") } else { pattern }
}

/// Compiles an expression for matching line by line.
pub fn compile_regex(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > LONGEST {
        return Err(format!("it is longer than {LONGEST} bytes"));
    }
    RegexBuilder::new(pattern)
        .multi_line(true)
        .size_limit(MEMORY)
        .dfa_size_limit(MEMORY)
        .build()
        .map_err(|error| error.to_string())
}
