//! `isle-ctl`: the client of the control socket, for people and programs inside a sandbox. The agent's own
//! program under another name, so it needs nothing of the sandbox's image.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use isle_linux::setup::{CONTROL_CALL, CONTROL_SOCKET};
use serde_json::{Map, Value, json};

/// What it is called.
pub(crate) const NAME: &str = "isle-ctl";

const USAGE: &str = "\
Children of this sandbox.

Usage: isle-ctl [--json] COMMAND

Commands:
  ping                                 Is the daemon there?
  spawn [--name N] [--image I] [--cpus C] [--memory M] [--ttl T]
                                       Make a child; prints its name
  list                                 List children
  exec NAME [--timeout T] [--workdir D] -- COMMAND…
                                       Run a command in a child
  run [--image I] [--cpus C] [--memory M] [--timeout T] [--workdir D] -- COMMAND…
                                       Make a child, run a command in it, end it
  destroy NAME                         End a child

The exit code of exec and run is that of the command. The socket is ISLE_CTL_SOCK, or
/run/isle/ctl.sock.
";

/// Longest answer.
const LONGEST: u64 = 1 << 20;
/// How long an answer may take when no time was given, and how much longer than a time that was.
const PATIENCE: Duration = Duration::from_secs(330);
const GRACE: Duration = Duration::from_secs(60);
/// Between the two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// What a command line asks for.
struct Wish {
    json: bool,
    method: &'static str,
    params: Value,
    patience: Duration,
}

/// Why there is no answer.
enum Trouble {
    /// Nothing was asked yet: asking again is safe.
    Before(String),
    /// It was asked; what became of it is not known.
    After(String),
}

pub(crate) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Option<Vec<String>> = arguments.map(|word| word.into_string().ok()).collect();
    let wish = match words.as_deref().map(read) {
        Some(Ok(Some(wish))) => wish,
        Some(Ok(None)) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Some(Err(what)) => return usage(&what),
        None => return usage("an argument is not UTF-8"),
    };
    match ask(&wish) {
        Ok(answer) => show(&wish, &answer),
        Err(Trouble::Before(what) | Trouble::After(what)) => {
            eprintln!("{NAME}: {what}");
            ExitCode::FAILURE
        }
    }
}

fn usage(what: &str) -> ExitCode {
    eprintln!("{NAME}: {what}\n\n{USAGE}");
    ExitCode::from(2)
}

/// Reads the command line; `None` when it asks for help.
fn read(words: &[String]) -> Result<Option<Wish>, String> {
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
        Some(other) => return Err(format!("there is no command {other:?}")),
    };
    let mut rest = plain.into_iter().skip(1);
    if takes_name {
        params.insert("name".into(), json!(rest.next().ok_or("the name of a child is missing")?));
    }
    if let Some(strange) = rest.next() {
        return Err(format!("{strange:?} is one word too many; a command comes behind `--`"));
    }
    match (takes_command, command) {
        (true, Some(words)) if !words.is_empty() => drop(params.insert("command".into(), json!(words))),
        (true, _) => return Err("the command is missing; write it behind `--`".into()),
        (false, Some(_)) => return Err(format!("{method} takes no command")),
        (false, None) => {}
    }
    let mut patience = PATIENCE;
    for (name, value) in given {
        if !flags.contains(&name.as_str()) {
            return Err(format!("{method} has no --{name}"));
        }
        let value = match name.as_str() {
            "cpus" => {
                let cpus: f64 = value.parse().map_err(|_| format!("--cpus: {value:?} is no number"))?;
                json!(cpus)
            }
            _ => json!(value),
        };
        if name == "timeout" {
            patience = GRACE + seconds(value.as_str().unwrap_or_default());
        }
        params.insert(name, value);
    }
    Ok(Some(Wish { json, method, params: Value::Object(params), patience }))
}

/// A time as people write it, roughly: the daemon reads it properly.
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

/// Asks once, and once more when nobody was there.
fn ask(wish: &Wish) -> Result<Value, Trouble> {
    let asks_only = matches!(wish.method, "ping" | "list");
    match ask_once(wish) {
        Err(Trouble::Before(_)) => {}
        Err(Trouble::After(_)) if asks_only => {}
        other => return other,
    }
    std::thread::sleep(PAUSE);
    ask_once(wish)
}

fn ask_once(wish: &Wish) -> Result<Value, Trouble> {
    let chosen = std::env::var_os("ISLE_CTL_SOCK");
    let socket = chosen.clone().unwrap_or_else(|| CONTROL_SOCKET.into());
    let before = |error: io::Error| Trouble::Before(format!("{}: {error}", socket.display()));
    let handed = if chosen.is_none() { handed() } else { None };
    let mut stream = handed.map_or_else(|| UnixStream::connect(&socket), Ok).map_err(before)?;
    stream.set_read_timeout(Some(wish.patience)).map_err(before)?;
    let mut line = json!({ "id": 1, "method": wish.method, "params": wish.params }).to_string();
    line.push('\n');
    // Who hangs up at once says why before.
    stream.write_all(line.as_bytes()).ok();
    let after = |what: String| Trouble::After(format!("no answer: {what}"));
    let mut text = String::new();
    BufReader::new((&stream).take(LONGEST)).read_line(&mut text).map_err(|error| after(error.to_string()))?;
    if !text.ends_with('\n') {
        return Err(after(if text.is_empty() {
            "the daemon went away".into()
        } else {
            "it is too long".into()
        }));
    }
    let answer: Value = serde_json::from_str(&text).map_err(|error| after(error.to_string()))?;
    // An answer to nobody is one to the connection: nothing was done about the request.
    if answer["id"].is_null() && answer["error"]["message"].as_str().is_some_and(|text| text.contains("away"))
    {
        let what = answer["error"]["message"].as_str().unwrap_or_default().to_owned();
        return Err(if what.contains("is away") { Trouble::Before(what) } else { Trouble::After(what) });
    }
    Ok(answer)
}

/// A connection from the agent, in a sandbox where nobody has sockets.
fn handed() -> Option<UnixStream> {
    // SAFETY: the number is no descriptor and there is no address, so that by itself the call does nothing.
    let descriptor = unsafe { libc::connect(CONTROL_CALL, std::ptr::null(), 0) };
    // SAFETY: what the agent answers with is a descriptor of our own, made for this call.
    (descriptor >= 0).then(|| unsafe { UnixStream::from_raw_fd(descriptor) })
}

fn show(wish: &Wish, answer: &Value) -> ExitCode {
    let ran = &answer["result"]["result"];
    let code = if answer["error"].is_object() { 1 } else { exit_code(ran) };
    if wish.json {
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
            eprintln!("  → {}", step.as_str().unwrap_or_default());
        }
        return ExitCode::from(code);
    }
    let result = &answer["result"];
    match wish.method {
        "exec" | "run" => {
            io::stdout().write_all(text(ran, "stdout").as_bytes()).ok();
            io::stderr().write_all(text(ran, "stderr").as_bytes()).ok();
            if ran["timed_out"] == true {
                eprintln!("{NAME}: its time was up");
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

/// That of the command; 128 and the signal when one ended it; nothing else is above 255.
fn exit_code(ran: &Value) -> u8 {
    if ran.is_null() {
        return 0;
    }
    let code = ran["exit_code"].as_i64().or_else(|| ran["signal"].as_i64().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
