//! `isle-ctl`: the client of the control socket, for people and programs inside a sandbox. It is the agent's
//! program under another name, so it needs nothing of the sandbox's image.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use isle_setup::{CONTROL_CALL, CONTROL_SOCKET};
use serde_json::{Map, Value, json};

use crate::control_socket::{DISCONNECTED, NOT_CONNECTED};

/// The name of the program.
pub(crate) const NAME: &str = "isle-ctl";

const USAGE: &str = "\
Manage child sandboxes of this sandbox

Usage: isle-ctl [--json] COMMAND

Commands:
  ping                                 Check that the daemon responds
  spawn [--name N] [--image I] [--cpus C] [--memory M] [--ttl T]
                                       Create a child and print its name
  list                                 List children
  exec NAME [--timeout T] [--workdir D] -- COMMAND…
                                       Run a command in a child
  run [--image I] [--cpus C] [--memory M] [--timeout T] [--workdir D] -- COMMAND…
                                       Create a child, run a command in it, destroy it
  destroy NAME                         Destroy a child

The exit code of exec and run is that of the command. The socket is $ISLE_CTL_SOCK, or
/run/isle/ctl.sock.
";

/// Maximum length of an answer.
const MAX_ANSWER: u64 = 1 << 20;
/// Timeout for an answer when none was given, and how much is added to one that was.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(330);
const EXTRA_TIME: Duration = Duration::from_secs(60);
/// Delay before the second attempt.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// A parsed command line.
struct Invocation {
    json: bool,
    method: &'static str,
    params: Value,
    timeout: Duration,
}

/// Why there is no answer.
enum RequestError {
    /// The request was not sent: a retry is safe.
    NotSent(String),
    /// The request was sent; whether it was executed is unknown.
    Sent(String),
}

pub(crate) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Option<Vec<String>> = arguments.map(|word| word.into_string().ok()).collect();
    let invocation = match words.as_deref().map(read) {
        Some(Ok(Some(invocation))) => invocation,
        Some(Ok(None)) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Some(Err(what)) => return usage(&what),
        None => return usage("an argument is not UTF-8"),
    };
    match send_request(&invocation) {
        Ok(answer) => show(&invocation, &answer),
        Err(RequestError::NotSent(what) | RequestError::Sent(what)) => {
            eprintln!("{NAME}: {what}");
            ExitCode::FAILURE
        }
    }
}

fn usage(what: &str) -> ExitCode {
    eprintln!("{NAME}: {what}\n\n{USAGE}");
    ExitCode::from(2)
}

/// Parses the command line; `None` when it asks for help.
fn read(words: &[String]) -> Result<Option<Invocation>, String> {
    let (before, command) = match words.iter().position(|word| word == "--") {
        Some(at) => (&words[..at], Some(&words[at + 1..])),
        None => (words, None),
    };
    let (mut json, mut plain, mut params) = (false, Vec::new(), Map::new());
    let mut given = Vec::new();
    let mut left = before.iter();
    while let Some(word) = left.next() {
        match word.as_str() {
            "-h" | "--help" | "help" => return Ok(None),
            "--json" => json = true,
            flag if flag.starts_with("--") => {
                let (name, value) = match flag.split_once('=') {
                    Some((name, value)) => (name, value.to_owned()),
                    None => (flag, left.next().ok_or_else(|| format!("{flag} needs a value"))?.clone()),
                };
                given.push((name.trim_start_matches("--").to_owned(), value));
            }
            _ => plain.push(word.as_str()),
        }
    }
    let (method, flags, takes_name, takes_command): (_, &[&str], _, _) = match plain.first() {
        None => return Ok(None),
        Some(&"ping") => ("ping", &[], false, false),
        Some(&"spawn") => ("spawn", &["name", "image", "cpus", "memory", "ttl"], false, false),
        Some(&"list") => ("list", &[], false, false),
        Some(&"exec") => ("exec", &["timeout", "workdir"], true, true),
        Some(&"run") => ("run", &["image", "cpus", "memory", "timeout", "workdir"], false, true),
        Some(&"destroy") => ("destroy", &[], true, false),
        Some(other) => return Err(format!("unknown command {other:?}")),
    };
    let mut rest = plain.into_iter().skip(1);
    if takes_name {
        params.insert("name".into(), json!(rest.next().ok_or("the name of a child is missing")?));
    }
    if let Some(strange) = rest.next() {
        return Err(format!("unexpected argument {strange:?}; put the command after `--`"));
    }
    match (takes_command, command) {
        (true, Some(words)) if !words.is_empty() => drop(params.insert("command".into(), json!(words))),
        (true, _) => return Err("the command is missing; put it after `--`".into()),
        (false, Some(_)) => return Err(format!("{method} takes no command")),
        (false, None) => {}
    }
    let mut timeout = DEFAULT_TIMEOUT;
    for (name, value) in given {
        if !flags.contains(&name.as_str()) {
            return Err(format!("{method} has no --{name}"));
        }
        let value = match name.as_str() {
            "cpus" => {
                let cpus: f64 = value.parse().map_err(|_| format!("--cpus: {value:?} is not a number"))?;
                json!(cpus)
            }
            _ => json!(value),
        };
        if name == "timeout" {
            timeout = EXTRA_TIME + seconds(value.as_str().unwrap_or_default());
        }
        params.insert(name, value);
    }
    Ok(Some(Invocation { json, method, params: Value::Object(params), timeout }))
}

/// Parses a duration roughly: the daemon validates it.
fn seconds(text: &str) -> Duration {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let number: u64 = digits.parse().unwrap_or(300);
    let factor = match &text[digits.len()..] {
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => 1,
    };
    Duration::from_secs(number.saturating_mul(factor))
}

/// Sends the request, and again when the daemon could not be reached.
fn send_request(invocation: &Invocation) -> Result<Value, RequestError> {
    let is_read_only = matches!(invocation.method, "ping" | "list");
    match send_once(invocation) {
        Err(RequestError::NotSent(_)) => {}
        Err(RequestError::Sent(_)) if is_read_only => {}
        other => return other,
    }
    std::thread::sleep(RETRY_DELAY);
    send_once(invocation)
}

fn send_once(invocation: &Invocation) -> Result<Value, RequestError> {
    let chosen = std::env::var_os("ISLE_CTL_SOCK");
    let socket = chosen.clone().unwrap_or_else(|| CONTROL_SOCKET.into());
    let before = |error: io::Error| RequestError::NotSent(format!("{}: {error}", socket.display()));
    let passed = if chosen.is_none() { from_agent() } else { None };
    let mut stream = passed.map_or_else(|| UnixStream::connect(&socket), Ok).map_err(before)?;
    stream.set_read_timeout(Some(invocation.timeout)).map_err(before)?;
    let mut line = json!({ "id": 1, "method": invocation.method, "params": invocation.params }).to_string();
    line.push('\n');
    // A server that disconnects at once has sent the reason before.
    stream.write_all(line.as_bytes()).ok();
    let after = |what: String| RequestError::Sent(format!("no answer: {what}"));
    let mut text = String::new();
    BufReader::new((&stream).take(MAX_ANSWER))
        .read_line(&mut text)
        .map_err(|error| after(error.to_string()))?;
    if !text.ends_with('\n') {
        return Err(after(if text.is_empty() {
            "the daemon disconnected".into()
        } else {
            "it is too long".into()
        }));
    }
    let answer: Value = serde_json::from_str(&text).map_err(|error| after(error.to_string()))?;
    // These come from the agent and not from the daemon.
    match answer["error"]["message"].as_str() {
        Some(message) if message == NOT_CONNECTED => Err(RequestError::NotSent(message.to_owned())),
        Some(message) if message == DISCONNECTED => Err(RequestError::Sent(message.to_owned())),
        _ => Ok(answer),
    }
}

/// A connection from the agent, in a sandbox where programs cannot create sockets.
fn from_agent() -> Option<UnixStream> {
    // SAFETY: the number is not a descriptor and there is no address, so that the call itself does nothing.
    let descriptor = unsafe { libc::connect(CONTROL_CALL, std::ptr::null(), 0) };
    // SAFETY: the agent answers with a new descriptor of this process.
    (descriptor >= 0).then(|| unsafe { UnixStream::from_raw_fd(descriptor) })
}

fn show(invocation: &Invocation, answer: &Value) -> ExitCode {
    let ran = &answer["result"]["result"];
    let code = if answer["error"].is_object() { 1 } else { exit_code(ran) };
    if invocation.json {
        println!("{answer}");
        return ExitCode::from(code);
    }
    if let Some(error) = answer["error"].as_object() {
        let field = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
        eprintln!("{NAME}: {}: {}", field("code"), field("message"));
        for (name, value) in error.get("details").and_then(Value::as_object).into_iter().flatten() {
            eprintln!("  {name}: {value}");
        }
        for step in error.get("next_steps").and_then(Value::as_array).into_iter().flatten() {
            eprintln!("hint: {}", step.as_str().unwrap_or_default());
        }
        return ExitCode::from(code);
    }
    let result = &answer["result"];
    match invocation.method {
        "exec" | "run" => {
            io::stdout().write_all(text(ran, "stdout").as_bytes()).ok();
            io::stderr().write_all(text(ran, "stderr").as_bytes()).ok();
            if ran["timed_out"] == true {
                eprintln!("{NAME}: timed out");
            }
        }
        "list" => list(result),
        "ping" => println!("ok: {}", text(result, "parent")),
        _ => println!("{}", text(result, "name")),
    }
    ExitCode::from(code)
}

fn list(result: &Value) {
    println!("{:<24} {:<10} {:>5} {:>8} {:>6}", "NAME", "IMAGE", "CPUS", "MEM", "TTL");
    for child in result["children"].as_array().into_iter().flatten() {
        println!(
            "{:<24} {:<10} {:>5} {:>8} {:>5}s",
            text(child, "name"),
            text(child, "image"),
            child["cpus"],
            text(child, "memory"),
            child["ttl_seconds"]
        );
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// The exit code of the command; 128 plus the signal when one killed it; 1 when that does not fit.
fn exit_code(ran: &Value) -> u8 {
    if ran.is_null() {
        return 0;
    }
    let code = ran["exit_code"].as_i64().or_else(|| ran["signal"].as_i64().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
