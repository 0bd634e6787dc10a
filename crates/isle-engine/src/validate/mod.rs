//! Looking at code before it runs: is it code at all, what in it is dangerous, what could be put right,
//! which hosts does it name. Python and JavaScript are read by the sandbox's own interpreters, which
//! run nothing of it; what they say comes from inside a sandbox and is bounded and read with care. All
//! of it is advice: what really holds code back is the sandbox.

mod shell;

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;

use crate::context::CallContext;
use crate::engine::EngineConfig;
use crate::run::{Input, Language, OnCancel, Plan, Program, RunKind, Runner, Runs, named_target};
use isle_api::shapes::RunState;
use isle_core::values::{SandboxName, Span};
use isle_core::{Code, Error, Result};

/// More code than this is not looked at.
pub(crate) const LARGEST: usize = 256 * 1024;
/// Findings, fixes and hosts of one piece of code.
const MOST: usize = 100;
const LONGEST_MESSAGE: usize = 500;
const TIME: Span = Span::seconds(30);
const PYTHON: &str = include_str!("check.py");
const NODE: &str = include_str!("check.js");

/// Every danger that is looked for, by name, with what it means.
pub(crate) const FINDINGS: &[(&str, &str)] = &[
    ("delete_tree", "removes everything below a directory"),
    ("disk_write", "writes to a device or makes a file system"),
    ("dynamic_import", "loads a module whose name is known only while it runs"),
    ("endless_loop", "loops without anything that ends it"),
    ("eval", "runs text as code"),
    ("fork_loop", "starts processes without end"),
    ("introspection", "reaches into the interpreter"),
    ("native_code", "calls code outside the language"),
    ("pipe_to_shell", "runs what it fetches unseen"),
    ("privilege", "asks for more rights"),
    ("shell", "hands text to a shell or starts programs"),
    ("system_write", "writes to directories of the system"),
    ("unsafe_load", "loads data that may run code"),
];

/// Where the code is wrong. Counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Problem {
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) message: String,
}

/// Something dangerous.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Finding {
    pub(crate) name: String,
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) message: String,
}

/// Something that was put right.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Fix {
    pub(crate) name: String,
    pub(crate) line: u32,
    pub(crate) message: String,
}

/// What is known of a piece of code.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Findings {
    pub(crate) errors: Vec<Problem>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) fixes: Vec<Fix>,
    /// What to insert where, in bytes of the code, in order.
    edits: Vec<(usize, String)>,
    #[serde(rename = "domains")]
    pub(crate) hosts: Vec<String>,
    pub(crate) notes: Vec<String>,
    /// The code with the fixes in it.
    #[serde(skip)]
    pub(crate) fixed: Option<String>,
}

/// Checks code by running an interpreter of the sandbox over it; the code itself is not run.
pub(crate) struct CodeChecker {
    config: Arc<EngineConfig>,
    runs: Arc<Runs>,
}

impl CodeChecker {
    pub(crate) fn new(config: Arc<EngineConfig>, runs: Arc<Runs>) -> Self {
        Self { config, runs }
    }

    /// Looks at code in a sandbox, without running it.
    pub(crate) async fn check(
        &self,
        context: &CallContext,
        sandbox: &SandboxName,
        language: Language,
        code: &str,
        fix: bool,
    ) -> Result<Findings> {
        let fix_word = if fix { vec!["fix".to_owned()] } else { Vec::new() };
        let words = |before: &[&str], script: &str| -> Vec<String> {
            before.iter().map(|&word| word.to_owned()).chain([script.to_owned()]).collect()
        };
        let (name, mut arguments) = match language {
            // Isolated: nothing the guest could have put in its way is loaded.
            Language::Python => ("python", words(&["-I", "-S", "-c"], PYTHON)),
            Language::Node => (
                "node",
                words(&["--expose-internals", "--experimental-vm-modules", "--no-warnings", "-e"], NODE),
            ),
            Language::Shell => ("shell", vec!["-n".to_owned()]),
        };
        match language {
            Language::Python => arguments.extend(fix_word),
            Language::Node => arguments.extend(std::iter::once("--".to_owned()).chain(fix_word)),
            Language::Shell => {}
        }
        let program = Program::Tool {
            shown: format!("validate {} bytes of {name}", code.len()),
            runner: Runner::Interpreter(language),
            arguments,
            variables: false,
        };
        let plan = Plan {
            timeout: Some(TIME.min(self.config.max_timeout)),
            input: Input::Bytes(Bytes::copy_from_slice(code.as_bytes())),
            ..Plan::new(RunKind::Validate, named_target(Some(sandbox.clone())), program)
        };
        let run = self.runs.start(context, plan).await?;
        run.wait(context, TIME.0 * 2, OnCancel::Kill).await?;
        let (stdout, stderr) = run.kept();
        let finish = run.finish();
        if let Some(error) = finish.as_ref().and_then(|finish| finish.error.clone()) {
            return Err(error);
        }
        let state = run.state();
        let said = String::from_utf8_lossy(&stderr.head).into_owned();
        let found = match (language, state) {
            (Language::Shell, RunState::Completed | RunState::Failed) => {
                let mut found = Findings::default();
                if state == RunState::Failed {
                    found.errors.push(shell::problem(&said, code));
                } else {
                    (found.findings, found.hosts) = shell::look(code);
                }
                found
            }
            (Language::Python | Language::Node, RunState::Completed) => {
                let answer = [stdout.head, stdout.tail].concat();
                serde_json::from_slice(&answer)
                    .map_err(|_| gave_up(name, "it answered in words nobody knows"))?
            }
            (_, RunState::TimedOut) => return Err(gave_up(name, "it took too long")),
            // An interpreter that dies over a text cannot run it either.
            _ => {
                let last = said.lines().last().unwrap_or("it died").to_owned();
                let message = format!("the interpreter gave up on it: {last}");
                Findings { errors: vec![Problem { line: 1, column: 1, message }], ..Findings::default() }
            }
        };
        found.bounded(code)
    }
}

fn gave_up(name: &str, why: &str) -> Error {
    Error::new(Code::Internal, format!("the code could not be checked by {name}: {why}"))
        .next("check a smaller part of it, or try again")
}

impl Findings {
    /// Takes from what an interpreter says only what can be so.
    fn bounded(mut self, code: &str) -> Result<Self> {
        let short = |text: &mut String| {
            if let Some((end, _)) = text.char_indices().nth(LONGEST_MESSAGE) {
                text.truncate(end);
            }
        };
        self.errors.truncate(1);
        self.findings.retain(|finding| FINDINGS.iter().any(|(name, _)| *name == finding.name));
        self.findings.truncate(MOST);
        self.fixes.retain(|fix| ["missing_import", "last_value"].contains(&fix.name.as_str()));
        self.fixes.truncate(MOST);
        self.notes.truncate(3);
        self.errors.iter_mut().for_each(|problem| short(&mut problem.message));
        self.findings.iter_mut().for_each(|finding| short(&mut finding.message));
        self.fixes.iter_mut().for_each(|fix| short(&mut fix.message));
        self.notes.iter_mut().for_each(short);
        self.hosts.retain(|host| is_host(host));
        self.hosts.sort();
        self.hosts.dedup();
        self.hosts.truncate(MOST);
        if !self.fixes.is_empty() && self.errors.is_empty() {
            self.fixed = applied(code, &self.edits);
        }
        if self.fixed.is_none() {
            self.fixes.clear();
        }
        Ok(self)
    }
}

/// The code with what is inserted; `None` when that makes no sense.
fn applied(code: &str, edits: &[(usize, String)]) -> Option<String> {
    const MOST_INSERTED: usize = 64 * 1024;
    let mut fixed = String::with_capacity(code.len() + 256);
    let mut at = 0;
    for (offset, inserted) in edits {
        if inserted.len() > MOST_INSERTED || fixed.len() > code.len() + MOST_INSERTED {
            return None;
        }
        fixed.push_str(code.get(at..*offset)?);
        fixed.push_str(inserted);
        at = *offset;
    }
    fixed.push_str(code.get(at..)?);
    (!edits.is_empty()).then_some(fixed)
}

fn is_host(text: &str) -> bool {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' || c == '-';
    !text.is_empty() && text.len() <= 253 && text.chars().all(good)
}

/// Hosts of the addresses in a text.
fn hosts_in(text: &str) -> Vec<String> {
    const SCHEMES: &[&str] = &["http", "https", "ws", "wss", "ftp", "ftps", "ssh", "git"];
    let mut found = Vec::new();
    let mut before = "";
    for part in text.split("://") {
        let scheme = before.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        if SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()) {
            let authority = part.split(|c: char| c == '/' || c.is_whitespace()).next().unwrap_or_default();
            let host = authority.rsplit('@').next().unwrap_or_default();
            let host: String =
                host.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-')).collect();
            let host = host.trim_matches('.').to_ascii_lowercase();
            if is_host(&host) {
                found.push(host);
            }
        }
        before = part;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_that_make_no_sense_change_nothing() {
        let edit = |at: usize| vec![(at, "x".to_owned())];
        assert_eq!(applied("aé", &edit(1)).as_deref(), Some("axé"));
        assert_eq!(applied("aé", &edit(2)), None, "inside a character");
        assert_eq!(applied("aé", &edit(9)), None);
        assert_eq!(applied("ab", &[edit(2), edit(1)].concat()), None, "backwards");
        assert_eq!(applied("ab", &[]), None);
        assert_eq!(applied("ab", &[(0, "y".repeat(1 << 20))]), None);
    }

    #[test]
    fn what_an_interpreter_says_is_taken_only_as_far_as_it_can_be_so() {
        let told = serde_json::json!({
            "findings": [{"name": "made_up", "line": 1, "column": 1, "message": "x"},
                {"name": "eval", "line": 1, "column": 1, "message": "y".repeat(10_000)}],
            "domains": ["fine.example", "bad host", "x".repeat(300), ""],
            "edits": [[0, "import os\n"]],
            "fixes": [],
        });
        let found: Findings = serde_json::from_value(told).unwrap();
        let found = found.bounded("code").unwrap();
        assert_eq!(found.findings.len(), 1);
        assert_eq!(found.findings[0].message.len(), LONGEST_MESSAGE);
        assert_eq!(found.hosts, ["fine.example"]);
        assert_eq!(found.fixed, None, "no fix was named");
    }

    #[test]
    fn every_danger_is_on_the_page() {
        let page = include_str!("../../../../docs/use/validation.md");
        for (name, meaning) in FINDINGS {
            assert!(page.contains(&format!("| `{name}` | {meaning} |")), "{name}");
        }
    }
}
