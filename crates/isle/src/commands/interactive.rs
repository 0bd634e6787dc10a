//! What `run` and `exec` share: from arguments and settings to a request.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read};
use std::path::Path;

use isle_client::{AttachRequest, AttachTarget, Code as Script, Result, Terminal};
use isle_engine::engine::RunLimits;
use isle_engine::values::GuestPath;
use isle_engine::{Code, Error};

use super::Context;
use crate::arguments::{CommandArguments, Surroundings};
use crate::config::{Settings, Value, check_variable};
use crate::daemon;
use crate::places::cannot;
use crate::session::{Mode, Role, Session, stdin_is_wanted, window};

/// Size of a terminal when nobody knows better.
const USUAL_WINDOW: Terminal = Terminal { rows: 24, columns: 80 };

/// Builds the request. Everything a user can get wrong here is refused before a daemon is asked.
pub(super) fn request(
    target: AttachTarget,
    how: CommandArguments,
    settings: &Settings,
) -> Result<AttachRequest> {
    let mut env = settings.environment();
    env.extend(environment(&how.around.env)?);
    let mut limits = RunLimits::default();
    for text in &how.limit {
        limits
            .set(text)
            .map_err(|error| Error { message: format!("--limit: {}", error.message), ..error })?;
    }
    if let Some(cwd) = &how.around.cwd {
        GuestPath::parse_absolute(cwd)?;
    }
    let mut stdin = stdin_is_wanted();
    let (argv, code) = match script(&how.command, how.lang.as_deref())? {
        Some(Chosen { script, from_stdin }) => {
            stdin &= !from_stdin;
            (None, Some(script))
        }
        None => (Some(how.command), None),
    };
    Ok(AttachRequest {
        target,
        command: None,
        argv,
        code,
        cwd: how.around.cwd,
        env,
        user: how.around.user,
        timeout: settings.chosen("timeout"),
        limits,
        allow_downgrade: settings.chosen_value("allow_downgrade") == Some(&Value::Switch(true)),
        profile: how.profile,
        lock: false,
        allow: how.allow,
        secrets: how.secret,
        expose_secrets: how.expose_secret,
        terminal: how.tty.then(|| window().unwrap_or(USUAL_WINDOW)),
        stdin,
    })
}

/// Opens the request, starting the daemon when there is none, and passes everything through.
pub(super) async fn open(context: &Context, settings: &Settings, request: AttachRequest) -> Result<Session> {
    let places = context.places()?;
    let endpoint = daemon::endpoint(&places, settings)?;
    let user_file = context.global.config.as_ref();
    let (writer, reader) =
        daemon::reach(&places, &endpoint, user_file, async |endpoint| request.open(endpoint).await).await?;
    let mode = if request.terminal.is_some() { Mode::Terminal } else { Mode::Pipes };
    Ok(Session { writer, reader, mode, form: context.form, stdin: request.stdin, role: Role::Owner })
}

/// Adds what surrounds a command to the arguments of an operation.
pub(super) fn surround(input: &mut serde_json::Value, around: Surroundings) -> Result<()> {
    input["env"] = serde_json::json!(environment(&around.env)?);
    for (name, value) in [("cwd", around.cwd), ("user", around.user)] {
        if let Some(value) = value {
            input[name] = serde_json::Value::String(value);
        }
    }
    Ok(())
}

/// `NAME=VALUE`, or `NAME` for this shell's own value.
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
                        format!("the variable {text:?} is not set here"),
                    )
                    .next("write NAME=VALUE, or set it in this shell")
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
    script: Script,
    from_stdin: bool,
}

/// A script when the one argument is a file of this host with a known ending, or a language is named.
fn script(command: &[String], language: Option<&str>) -> Result<Option<Chosen>> {
    let language = language.map(known_language).transpose()?;
    match (command, language) {
        ([], None) => Err(Error::new(Code::InvalidArgument, "there is nothing to run")
            .next("write a command after `--`, such as `isle run -- uname -a`, or name a script")
            .into()),
        ([], Some(language)) => {
            if std::io::stdin().is_terminal() {
                return Err(Error::new(Code::InvalidArgument, "there is no code to run")
                    .next("name a script, or pipe the code to standard input")
                    .into());
            }
            let mut code = String::new();
            std::io::stdin()
                .read_to_string(&mut code)
                .map_err(|error| cannot("read", Path::new("standard input"), &error))?;
            let script = Script { language: Some(language.to_owned()), code };
            Ok(Some(Chosen { script, from_stdin: true }))
        }
        ([file], Some(language)) => read_script(file, language).map(Some),
        ([file], None) => match language_of(file) {
            Some(language) if Path::new(file).is_file() => read_script(file, language).map(Some),
            _ => Ok(None),
        },
        (_, Some(_)) => {
            Err(Error::new(Code::InvalidArgument, "--lang goes with one script and no arguments")
                .next("leave --lang away to run a command with arguments")
                .into())
        }
        (_, None) => Ok(None),
    }
}

fn read_script(file: &str, language: &str) -> Result<Chosen> {
    let code = std::fs::read_to_string(file).map_err(|error| cannot("read", Path::new(file), &error))?;
    Ok(Chosen { script: Script { language: Some(language.to_owned()), code }, from_stdin: false })
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
        _ => Err(Error::new(Code::InvalidArgument, format!("--lang: {text:?} is not a language Isle runs"))
            .next("choose python, node or shell")
            .into()),
    }
}
