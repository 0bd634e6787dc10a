//! Regular expressions for searching text. Both sides of the wall compile the same expression with the
//! same bounds, so one that the host took is never refused inside. Matching takes linear time.

use regex::bytes::{Regex, RegexBuilder};

/// The longest expression.
const LONGEST: usize = 10_000;
/// Memory of a compiled one, and of what is learned while it runs.
const MEMORY: usize = 4 << 20;

/// The expression a caller means, as text for [`expression`].
#[must_use]
pub fn searched(pattern: &str, literal: bool, ignore_case: bool) -> String {
    let pattern = if literal { regex::escape(pattern) } else { pattern.to_owned() };
    if ignore_case { format!("(?i:{pattern})") } else { pattern }
}

/// Compiles an expression that is compared line by line.
pub fn expression(pattern: &str) -> Result<Regex, String> {
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
