//! Shared by `run`, `exec` and `shell`: converts arguments and settings to a request.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read};
use std::path::Path;

use isle_api::RunLimits;
use isle_api::session::{CodeText, FirstMessage, StartRequest, StartTarget, TerminalShape};
use isle_client::{Result, open_session};
use isle_core::values::GuestPath;
use isle_core::{Code, Error};

use super::Context;
use crate::arguments::{CommandArguments, ProcessArguments};
use crate::config::{Settings, Value, check_variable};
use crate::daemon;
use crate::paths::cannot;
use crate::session::{Mode, Role, Session, has_stdin, window};

/// Terminal size when the real one is unknown.
const DEFAULT_WINDOW: TerminalShape = TerminalShape { rows: 24, columns: 80 };

/// Builds the request. Invalid arguments are rejected before the daemon is contacted.
pub(super) fn request(
    target: StartTarget,
    how: CommandArguments,
    settings: &Settings,
) -> Result<StartRequest> {
    let mut env = settings.environment();
    env.extend(environment(&how.process.env)?);
    let mut limits = RunLimits::default();
    for text in &how.limit {
        limits
            .set(text)
            .map_err(|error| Error { message: format!("--limit: {}", error.message), ..error })?;
    }
    if let Some(cwd) = &how.process.cwd {
        GuestPath::parse_absolute(cwd)?;
    }
    let mut stdin = has_stdin();
    let (argv, code) = match script(&how.command, how.lang.as_deref())? {
        Some(Chosen { script, from_stdin }) => {
            stdin &= !from_stdin;
            (None, Some(script))
        }
        None => (Some(how.command), None),
    };
    Ok(StartRequest {
        target,
        command: None,
        argv,
        code,
        cwd: how.process.cwd,
        env,
        user: how.process.user,
        timeout: settings.chosen_as("timeout")?,
        limits,
        allow_downgrade: settings.chosen_value("allow_downgrade") == Some(&Value::Switch(true)),
        // That of files and of the environment is the daemon's business.
        backend: settings.clone().of_flags().chosen_as("backend")?,
        profile: how.profile,
        lock: false,
        allow: how.allow,
        secrets: how.secret,
        expose_secrets: how.expose_secret,
        terminal: how.tty.then(|| window().unwrap_or(DEFAULT_WINDOW)),
        stdin,
    })
}

/// Sends the request, starting the daemon if none is running, and opens the session.
pub(super) async fn open(context: &Context, settings: &Settings, request: StartRequest) -> Result<Session> {
    let paths = context.paths()?;
    let endpoint = daemon::endpoint(&paths, settings)?;
    let user_file = context.global.config.as_ref();
    let mode = if request.terminal.is_some() { Mode::Terminal } else { Mode::Pipes };
    let stdin = request.stdin;
    let first = FirstMessage::Start(Box::new(request));
    let (writer, reader) =
        daemon::reach(&paths, &endpoint, user_file, async |endpoint| open_session(endpoint, &first).await)
            .await?;
    Ok(Session { writer, reader, mode, form: context.form, stdin, role: Role::Owner })
}

/// Adds environment, working directory and user to the arguments of an operation.
pub(super) fn set_process_options(input: &mut serde_json::Value, process: ProcessArguments) -> Result<()> {
    input["env"] = serde_json::json!(environment(&process.env)?);
    for (name, value) in [("cwd", process.cwd), ("user", process.user)] {
        if let Some(value) = value {
            input[name] = serde_json::Value::String(value);
        }
    }
    Ok(())
}

/// Parses `NAME=VALUE`, or `NAME` for this shell's value.
pub(super) fn environment(given: &[String]) -> Result<BTreeMap<String, String>> {
    let mut env = BTreeMap::new();
    for text in given {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => match std::env::var(text) {
                Ok(value) => (text.as_str(), value),
                Err(_) => {
                    return Err(Error::new(
                        Code::InvalidArgument,
                        format!("environment variable {text:?} is not set"),
                    )
                    .next("use NAME=VALUE, or set the variable in this shell")
                    .into());
                }
            },
        };
        check_variable(name)?;
        env.insert(name.to_owned(), value);
    }
    Ok(env)
}

struct Chosen {
    script: CodeText,
    from_stdin: bool,
}

/// A script, if the only argument is a file of this host with a known extension, or a language is given.
fn script(command: &[String], language: Option<&str>) -> Result<Option<Chosen>> {
    let language = language.map(known_language).transpose()?;
    match (command, language) {
        ([], None) => Err(Error::new(Code::InvalidArgument, "no command given")
            .next("pass a command after `--`, such as `isle run -- uname -a`, or a script file")
            .into()),
        ([], Some(language)) => {
            if std::io::stdin().is_terminal() {
                return Err(Error::new(Code::InvalidArgument, "no code given")
                    .next("pass a script file, or pipe the code to standard input")
                    .into());
            }
            let mut code = String::new();
            std::io::stdin()
                .read_to_string(&mut code)
                .map_err(|error| cannot("read", Path::new("standard input"), &error))?;
            let script = CodeText { language: Some(language.to_owned()), code };
            Ok(Some(Chosen { script, from_stdin: true }))
        }
        ([file], Some(language)) => read_script(file, language).map(Some),
        ([file], None) => match language_of(file) {
            Some(language) if Path::new(file).is_file() => read_script(file, language).map(Some),
            _ => Ok(None),
        },
        (_, Some(_)) => Err(Error::new(Code::InvalidArgument, "--lang accepts one script and no arguments")
            .next("omit --lang to run a command with arguments")
            .into()),
        (_, None) => Ok(None),
    }
}

fn read_script(file: &str, language: &str) -> Result<Chosen> {
    let code = std::fs::read_to_string(file).map_err(|error| cannot("read", Path::new(file), &error))?;
    Ok(Chosen { script: CodeText { language: Some(language.to_owned()), code }, from_stdin: false })
}

fn language_of(file: &str) -> Option<&'static str> {
    match Path::new(file).extension()?.to_str()? {
        "py" => Some("python"),
        "js" | "mjs" | "cjs" => Some("node"),
        "sh" => Some("shell"),
        _ => None,
    }
}

fn known_language(text: &str) -> Result<&'static str> {
    match text {
        "python" | "python3" | "py" => Ok("python"),
        "node" | "nodejs" | "javascript" | "js" => Ok("node"),
        "shell" | "sh" | "bash" => Ok("shell"),
        _ => Err(Error::new(Code::InvalidArgument, format!("--lang: unsupported language: {text:?}"))
            .next("use python, node or shell")
            .into()),
    }
}
