//! Commands the operator does not want to see run, by pattern. A guard rail against mistakes, not a
//! wall: whoever wants around it writes the same thing in other words. The sandbox is the wall.

use regex::{RegexSet, RegexSetBuilder};

use crate::run::{CodeSource, PlannedCommand, Program, SimpleCommand};
use isle_core::{Code, Error, Result};

/// What one pattern may cost to hold.
const SIZE_LIMIT: usize = 1 << 20;

/// Patterns of commands that are refused. The default refuses nothing.
#[derive(Debug, Clone)]
pub struct DenyList {
    patterns: RegexSet,
}

impl Default for DenyList {
    fn default() -> Self {
        Self { patterns: RegexSet::empty() }
    }
}

impl DenyList {
    /// From regular expressions; one that cannot be read is an error that names it.
    pub fn new(patterns: &[String]) -> Result<Self> {
        for pattern in patterns {
            Self::check(pattern)?;
        }
        let limit = SIZE_LIMIT.saturating_mul(patterns.len().max(1));
        let patterns = RegexSetBuilder::new(patterns).size_limit(limit).build().map_err(|error| {
            Error::new(Code::ConfigInvalid, format!("the patterns cannot be held together: {error}"))
                .next("use fewer or shorter patterns")
        })?;
        Ok(Self { patterns })
    }

    /// Whether a pattern can be read.
    pub fn check(pattern: &str) -> Result<()> {
        let refuse = |why: String, next: &str| Err(Error::new(Code::ConfigInvalid, why).next(next));
        match regex::RegexBuilder::new(pattern).size_limit(SIZE_LIMIT).build() {
            Err(error) => {
                // The first lines draw the place; the last one says what is wrong there.
                let text = error.to_string();
                let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
                refuse(
                    format!("{pattern:?} is not a regular expression: {why}"),
                    "correct it; look-around and back-references do not exist here",
                )
            }
            Ok(regex) if regex.is_match("") => refuse(
                format!("{pattern:?} matches everything, the empty command too"),
                "write a pattern that needs at least one character",
            ),
            Ok(_) => Ok(()),
        }
    }

    /// Refuses a program that one of the patterns finds, as written or without its quotes.
    pub(crate) fn judge(&self, program: &Program) -> Result<()> {
        if self.patterns.is_empty() {
            return Ok(());
        }
        let hit = |text: &str| self.patterns.matches(text).iter().next();
        let hits = |text: String| hit(&text).or_else(|| hit(&simplified(&text)));
        let Some(index) = texts_of(program).into_iter().find_map(hits) else { return Ok(()) };
        let pattern = self.patterns.patterns().get(index).cloned().unwrap_or_default();
        Err(Error::new(Code::PolicyDenied, format!("the deny pattern {pattern:?} forbids this command"))
            .detail("pattern", pattern)
            .next("do it in another way; nothing was run")
            .next("if it is harmless, the operator can narrow the pattern in deny_patterns"))
    }
}

/// What is looked at: what was asked for, not what files hold; each of several commands by itself.
fn texts_of(program: &Program) -> Vec<String> {
    let joined = |first: &str, rest: &[String]| {
        std::iter::once(first).chain(rest.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
    };
    let one = match program {
        Program::Shell(text) => text.clone(),
        Program::Argv(argv) => argv.join(" "),
        // What an operation makes of it is not the caller's; what it is asked to do is.
        Program::Tool { shown, .. } => shown.clone(),
        Program::Code { source: CodeSource::Text(code), args, .. } => joined(code, args),
        Program::Code { source: CodeSource::File(path), args, .. } => joined(path.as_str(), args),
        Program::Commands { commands, .. } => {
            let text = |command: &PlannedCommand| match &command.program {
                SimpleCommand::Shell(text) => text.clone(),
                SimpleCommand::Argv(argv) => argv.join(" "),
            };
            return commands.iter().map(text).collect();
        }
    };
    vec![one]
}

/// Without quotes and backslashes, with single spaces: `r''m  -rf` is `rm -rf`.
fn simplified(text: &str) -> String {
    let bare: String = text.chars().filter(|c| !matches!(c, '\'' | '"' | '\\' | '`')).collect();
    bare.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(patterns: &[&str]) -> DenyList {
        DenyList::new(&patterns.iter().map(|&text| text.to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_hit_names_its_pattern_also_through_quotes() {
        let deny = list(&[r"\bmkfs\b", r"\brm\s+-rf\s+/(\s|$)"]);
        for text in ["rm -rf /", "true; rm   -rf / ", "r''m -rf /", "\"rm\" -rf '/'", "r\\m -rf /"] {
            let error = deny.judge(&Program::Shell(text.into())).unwrap_err();
            assert_eq!(error.code, Code::PolicyDenied, "{text}");
            assert_eq!(error.details["pattern"], r"\brm\s+-rf\s+/(\s|$)", "{text}");
        }
        let argv = Program::Argv(["rm", "-rf", "/"].map(str::to_owned).into());
        assert!(deny.judge(&argv).is_err());
        let one = |text: &str| PlannedCommand {
            program: SimpleCommand::Shell(text.into()),
            cwd: None,
            env: Vec::new(),
            allow_failure: false,
        };
        let several = |last: &str| Program::Commands {
            commands: vec![one("true"), one(last)],
            continue_on_error: false,
        };
        assert!(deny.judge(&several("rm -rf /")).is_err());
        assert!(deny.judge(&several("rm -rf build")).is_ok());
        for text in ["rm -rf /workspace/x", "echo charm -rf /", "cat /etc/mkfs_notes"] {
            assert!(deny.judge(&Program::Shell(text.into())).is_ok(), "{text}");
        }
        assert!(DenyList::default().judge(&argv).is_ok());
    }

    #[test]
    fn a_pattern_that_cannot_be_read_or_matches_everything_is_refused() {
        for pattern in ["(", "a(?=b)", "[z-a]", "", ".*", "x{1000}{1000}{1000}"] {
            let error = DenyList::check(pattern).unwrap_err();
            assert_eq!(error.code, Code::ConfigInvalid, "{pattern}");
            assert!(!error.next_steps.is_empty() && error.message.lines().count() == 1, "{error:?}");
        }
    }
}
