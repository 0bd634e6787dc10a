//! From what the caller wants to the words the kernel gets. Long text goes through a file with a
//! name nobody else has, because one argument cannot be longer than 128 KiB.

use bytes::Bytes;
use isle_wire::{CodeLanguage, GuestUser};
use minicbor::bytes::ByteVec;

use super::RunLimits;
use super::plan::{CodeSource, Input, OnDisconnect, Plan, Program, RunTarget, SimpleCommand};
use crate::agent::FileToWrite;
use crate::sandbox::Sandbox;
use isle_core::values::{ContextName, GuestPath, RunId};
use isle_core::{Code, Error, Result};

/// Text longer than this does not travel as an argument.
const LONGEST_ARGUMENT: usize = 100_000;

/// Text longer than this does not travel in one message.
const LONGEST_MESSAGE: usize = 512 * 1024;

/// A language Isle runs code in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    /// Python 3.
    Python,
    /// Node.js.
    Node,
    /// The shell.
    Shell,
}

impl Language {
    /// By name, endings included.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "python" | "python3" | "py" => Ok(Self::Python),
            "node" | "nodejs" | "javascript" | "js" => Ok(Self::Node),
            "shell" | "bash" | "sh" => Ok(Self::Shell),
            _ => Err(Error::new(Code::InvalidArgument, format!("there is no language {text:?}"))
                .next("use python, node or shell, or run any interpreter with exec")),
        }
    }

    /// As answers name it.
    pub(crate) fn as_str(self) -> &'static str {
        self.candidates().0
    }

    pub(super) fn candidates(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Python => ("python", &["python3", "python"]),
            Self::Node => ("node", &["node", "nodejs"]),
            Self::Shell => ("shell", &["bash", "sh"]),
        }
    }

    fn ending(self) -> &'static str {
        match self {
            Self::Python => "py",
            Self::Node => "js",
            Self::Shell => "sh",
        }
    }

    fn in_context(self) -> CodeLanguage {
        match self {
            Self::Python => CodeLanguage::Python,
            Self::Node => CodeLanguage::Node,
            Self::Shell => CodeLanguage::Shell,
        }
    }

    fn of_context(language: CodeLanguage) -> Self {
        match language {
            CodeLanguage::Python => Self::Python,
            CodeLanguage::Node => Self::Node,
            CodeLanguage::Shell => Self::Shell,
        }
    }

    fn by_ending(path: &str) -> Option<Self> {
        match path.rsplit_once('.')?.1 {
            "py" => Some(Self::Python),
            "js" | "mjs" | "cjs" => Some(Self::Node),
            "sh" | "bash" => Some(Self::Shell),
            _ => None,
        }
    }

    fn by_shebang(code: &str) -> Option<Self> {
        let line = code.strip_prefix("#!")?.lines().next()?;
        let mut words = line.split_whitespace();
        let program = words.next()?.rsplit('/').next()?;
        let program = if program == "env" { words.find(|word| !word.starts_with('-'))? } else { program };
        match program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') {
            "python" => Some(Self::Python),
            "node" | "nodejs" => Some(Self::Node),
            "sh" | "bash" | "dash" => Some(Self::Shell),
            _ => None,
        }
    }
}

/// The language of a piece of code: `#!` line, else the signs of each, else Python.
pub(crate) fn detect_language(code: &str) -> Language {
    if let Some(language) = Language::by_shebang(code) {
        return language;
    }
    const NODE: &[&str] =
        &["console.log(", "require(", "const ", "let ", "=> ", "function ", "process.std", "async function"];
    const SHELL: &[&str] = &[
        "echo ", "set -e", "fi\n", "done\n", "export ", "ls ", "cd ", "apt ", "git ", "$(", "sudo ", "cat ",
    ];
    const PYTHON: &[&str] = &["def ", "print(", "import ", "from ", "class ", "elif ", "lambda ", "with "];
    let count = |signs: &[&str]| {
        code.lines()
            .map(|line| format!("{}\n", line.trim_start()))
            .filter(|line| {
                signs
                    .iter()
                    .any(|sign| line.starts_with(sign) || (sign.ends_with('(') && line.contains(sign)))
            })
            .count()
    };
    let (node, shell, python) = (count(NODE), count(SHELL), count(PYTHON));
    if python >= node && python >= shell {
        Language::Python
    } else if node >= shell {
        Language::Node
    } else {
        Language::Shell
    }
}

/// Words for the kernel, and a file to remove afterwards.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) argv: Vec<ByteVec>,
    /// The program as the caller knows it, for errors.
    pub(super) named: String,
    pub(super) remove_after: Option<GuestPath>,
    /// The language whose interpreter this is.
    pub(super) language: Option<Language>,
    /// Code for an interpreter the agent keeps; `argv` is then the interpreter alone.
    pub(super) code: Option<KeptCode>,
    /// Several commands, in order; there is no `argv` then.
    pub(super) steps: Vec<Vec<ByteVec>>,
}

/// Code for an interpreter the agent keeps.
#[derive(Debug)]
pub(super) struct KeptCode {
    pub(super) language: CodeLanguage,
    pub(super) source: isle_wire::CodeSource,
    pub(super) args: Vec<ByteVec>,
    pub(super) context: Option<ContextName>,
}

/// Finds the program of a plan in the sandbox.
pub(super) async fn resolve(sandbox: &Sandbox, plan: &Plan, run: &RunId) -> Result<Resolved> {
    match &plan.program {
        Program::Argv(argv) => Ok(Resolved {
            argv: argv.iter().map(|word| word.clone().into_bytes().into()).collect(),
            named: argv.first().cloned().unwrap_or_default(),
            remove_after: None,
            language: None,
            code: None,
            steps: Vec::new(),
        }),
        Program::Tool { runner, arguments, .. } => {
            let (what, candidates) = runner.names();
            let found = sandbox.programs.find(sandbox, what, candidates).await?;
            let program = found.ok_or_else(|| no_interpreter(sandbox, what, candidates))?;
            let arguments = arguments.iter().map(|word| word.clone().into_bytes());
            Ok(Resolved {
                argv: words(std::iter::once(program).chain(arguments).collect()),
                named: what.into(),
                remove_after: None,
                language: None,
                code: None,
                steps: Vec::new(),
            })
        }
        Program::Commands { commands, .. } => {
            let shell = shell_in(sandbox).await?;
            let mut steps = Vec::with_capacity(commands.len());
            for (number, command) in (1..).zip(commands) {
                steps.push(match &command.program {
                    SimpleCommand::Argv(argv) => {
                        argv.iter().map(|word| word.clone().into_bytes().into()).collect()
                    }
                    SimpleCommand::Shell(text) if text.len() > LONGEST_ARGUMENT => {
                        let message = format!("command {number} is longer than {LONGEST_ARGUMENT} bytes");
                        return Err(Error::new(Code::TooLarge, message)
                            .next("write it to a file with write_files and run that"));
                    }
                    SimpleCommand::Shell(text) => {
                        words(vec![shell.clone(), b"-c".to_vec(), text.clone().into_bytes()])
                    }
                });
            }
            Ok(Resolved {
                argv: Vec::new(),
                named: "the commands".into(),
                remove_after: None,
                language: None,
                code: None,
                steps,
            })
        }
        Program::Shell(text) => {
            let shell = shell_in(sandbox).await?;
            let mut argv = vec![shell];
            let remove_after = if text.len() > LONGEST_ARGUMENT {
                let path = place(sandbox, plan.user, run, "sh", text).await?;
                argv.push(path.as_str().into());
                Some(path)
            } else {
                argv.extend([b"-c".to_vec(), text.clone().into_bytes()]);
                None
            };
            Ok(Resolved {
                argv: words(argv),
                named: "the shell".into(),
                remove_after,
                language: None,
                code: None,
                steps: Vec::new(),
            })
        }
        Program::Code { language, source, args, restricted, context } => {
            let language = match (language, context) {
                (None, Some(context)) => language_in(sandbox, context, source).await?,
                (language, _) => language_of(language.as_deref(), source)?,
            };
            if *restricted && language != Language::Shell {
                return Err(Error::new(Code::InvalidArgument, "restricted is for shell code only")
                    .next("leave restricted out, or set language to shell"));
            }
            let (name, candidates) = language.candidates();
            let interpreter =
                find(sandbox, language).await?.ok_or_else(|| no_interpreter(sandbox, name, candidates))?;
            if *restricted && !interpreter.ends_with(b"bash") {
                return Err(no_interpreter(sandbox, "restricted shell", &["bash"]));
            }
            if context.is_some() {
                check_context(plan, *restricted)?;
                if language == Language::Shell && !interpreter.ends_with(b"bash") {
                    return Err(no_interpreter(sandbox, "a shell that remembers", &["bash"]));
                }
            }
            if is_kept(plan, language, *restricted, context.is_some()) {
                return keep(sandbox, plan, run, language, interpreter, source, args, context.clone()).await;
            }
            let mut argv = vec![interpreter];
            if *restricted {
                argv.push(b"-r".to_vec());
            }
            let mut remove_after = None;
            match source {
                CodeSource::File(path) => {
                    sandbox.agent()?.stat(path, plan.user).await?;
                    argv.push(path.absolute().into_bytes());
                }
                CodeSource::Text(code) if code.len() > LONGEST_ARGUMENT => {
                    let path = place(sandbox, plan.user, run, language.ending(), code).await?;
                    argv.push(path.as_str().into());
                    remove_after = Some(path);
                }
                CodeSource::Text(code) => {
                    let (flag, before_arguments): (&[u8], &[&[u8]]) = match language {
                        Language::Python => (b"-c", &[]),
                        // Without the dashes node would take the arguments for its own.
                        Language::Node => (b"-e", &[b"--"]),
                        // The first word after the text is the shell's own name.
                        Language::Shell => (b"-c", &[b"shell"]),
                    };
                    argv.extend([flag.to_vec(), code.clone().into_bytes()]);
                    if !args.is_empty() {
                        argv.extend(before_arguments.iter().map(|word| word.to_vec()));
                    }
                }
            }
            argv.extend(args.iter().map(|word| word.clone().into_bytes()));
            Ok(Resolved {
                argv: words(argv),
                named: name.into(),
                remove_after,
                language: Some(language),
                code: None,
                steps: Vec::new(),
            })
        }
    }
}

/// Whether the agent runs this in an interpreter it keeps. What has no use of that starts the interpreter
/// as any program.
fn is_kept(plan: &Plan, language: Language, restricted: bool, in_context: bool) -> bool {
    let asked_by_call = matches!(plan.target, RunTarget::Named { .. } | RunTarget::Incarnation { .. })
        && matches!(plan.on_disconnect, OnDisconnect::Continue);
    // A shell starts as quickly as it could be woken.
    let gains = in_context || language != Language::Shell;
    asked_by_call && gains && !restricted
}

fn check_context(plan: &Plan, restricted: bool) -> Result<()> {
    let refuse = |why: &str, next: &str| Err(Error::new(Code::InvalidArgument, why).next(next));
    if restricted {
        return refuse("a restricted shell keeps nothing", "leave out `context` or `restricted`");
    }
    if plan.limits != RunLimits::default() {
        return refuse(
            "limits of one run cannot be set on an interpreter that is there already",
            "leave `limits` or `context` out; the limits of the sandbox always hold",
        );
    }
    if !matches!(plan.input, Input::Null) {
        return refuse(
            "code in a context has no standard input",
            "write the input to a file and read that, or leave `context` out",
        );
    }
    Ok(())
}

/// The language of a context that is there, or what the code looks like.
async fn language_in(sandbox: &Sandbox, context: &ContextName, source: &CodeSource) -> Result<Language> {
    let contexts = sandbox.agent()?.contexts().await?;
    match contexts.iter().find(|entry| entry.name == context.as_str()) {
        Some(entry) => Ok(Language::of_context(entry.language)),
        None => language_of(None, source),
    }
}

#[expect(clippy::too_many_arguments, reason = "all of them are parts of one piece of code")]
async fn keep(
    sandbox: &Sandbox,
    plan: &Plan,
    run: &RunId,
    language: Language,
    interpreter: Vec<u8>,
    source: &CodeSource,
    args: &[String],
    context: Option<ContextName>,
) -> Result<Resolved> {
    let (name, _) = language.candidates();
    let mut remove_after = None;
    let source = match source {
        CodeSource::File(path) => {
            sandbox.agent()?.stat(path, plan.user).await?;
            isle_wire::CodeSource::File(path.absolute().into_bytes().into())
        }
        CodeSource::Text(code) if code.len() > LONGEST_MESSAGE => {
            let path = place(sandbox, plan.user, run, language.ending(), code).await?;
            let file = isle_wire::CodeSource::File(path.as_str().as_bytes().to_vec().into());
            remove_after = Some(path);
            file
        }
        CodeSource::Text(code) => isle_wire::CodeSource::Text(code.clone().into_bytes().into()),
    };
    let args = args.iter().map(|word| word.clone().into_bytes().into()).collect();
    let code = KeptCode { language: language.in_context(), source, args, context };
    Ok(Resolved {
        argv: words(vec![interpreter]),
        named: name.into(),
        remove_after,
        language: Some(language),
        code: Some(code),
        steps: Vec::new(),
    })
}

/// The language, from its name, the file's ending, or the code.
pub(crate) fn language_of(named: Option<&str>, source: &CodeSource) -> Result<Language> {
    match (named, source) {
        (Some(name), _) => Language::parse(name),
        (None, CodeSource::Text(code)) => Ok(detect_language(code)),
        (None, CodeSource::File(path)) => Language::by_ending(path.as_str()).ok_or_else(|| {
            Error::new(Code::InvalidArgument, format!("the language of {path} cannot be told from its name"))
                .next("set language to python, node or shell")
        }),
    }
}

/// The error for a language without an interpreter.
pub(super) fn no_interpreter(sandbox: &Sandbox, language: &str, candidates: &[&str]) -> Error {
    Error::new(
        Code::RuntimeNotAvailable,
        format!(
            "the image {:?} has no interpreter for {language} ({})",
            sandbox.spec.image,
            candidates.join(", ")
        ),
    )
    .detail("looked_for", candidates.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
    .next("use another language, or install the interpreter where the image comes from")
}

impl Language {
    /// The error for this language without an interpreter.
    pub(super) fn missing(self, sandbox: &Sandbox) -> Error {
        let (name, candidates) = self.candidates();
        no_interpreter(sandbox, name, candidates)
    }
}

/// The shell that runs command lines.
async fn shell_in(sandbox: &Sandbox) -> Result<Vec<u8>> {
    Ok(find(sandbox, Language::Shell).await?.unwrap_or_else(|| b"/bin/sh".to_vec()))
}

async fn find(sandbox: &Sandbox, language: Language) -> Result<Option<Vec<u8>>> {
    let (name, candidates) = language.candidates();
    sandbox.programs.find(sandbox, name, candidates).await
}

async fn place(
    sandbox: &Sandbox,
    user: GuestUser,
    run: &RunId,
    ending: &str,
    text: &str,
) -> Result<GuestPath> {
    let path: GuestPath = format!("/tmp/.isle-{run}.{ending}").parse()?;
    let contents = Bytes::copy_from_slice(text.as_bytes());
    let file = FileToWrite::whole(path.clone(), Some(0o600), false, contents);
    sandbox.agent()?.write_files(user, vec![file]).await?;
    Ok(path)
}

fn words(argv: Vec<Vec<u8>>) -> Vec<ByteVec> {
    argv.into_iter().map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_is_told_from_the_code() {
        let cases = [
            ("print(1)", Language::Python),
            ("import os\nfor x in os.listdir():\n    print(x)", Language::Python),
            ("1+1", Language::Python),
            ("console.log([1].map(x => x))", Language::Node),
            ("const a = 1;\nlet b = 2;", Language::Node),
            ("echo hi\nls -l", Language::Shell),
            ("#!/usr/bin/env node\nprint(1)", Language::Node),
            ("#!/bin/bash\nprint(1)", Language::Shell),
            ("#!/usr/bin/env -S python3.11 -u\necho", Language::Python),
        ];
        for (code, language) in cases {
            assert_eq!(detect_language(code), language, "{code:?}");
        }
    }

    #[test]
    fn the_language_of_a_file_is_told_from_its_ending() {
        let file = |text: &str| CodeSource::File(text.parse().unwrap());
        assert_eq!(language_of(None, &file("a/b.py")).unwrap(), Language::Python);
        assert_eq!(language_of(None, &file("b.mjs")).unwrap(), Language::Node);
        assert_eq!(language_of(None, &file("x.sh")).unwrap(), Language::Shell);
        assert_eq!(language_of(Some("node"), &file("x.sh")).unwrap(), Language::Node);
        assert_eq!(language_of(None, &file("x.rs")).unwrap_err().code, Code::InvalidArgument);
        assert_eq!(Language::parse("cobol").unwrap_err().code, Code::InvalidArgument);
    }
}
