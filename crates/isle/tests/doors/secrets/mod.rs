//! Secrets through every door: set and never told again, seen by sandboxes as placeholders, or as values
//! that are masked in everything that comes out.

mod give;
mod lock;
mod mask;
mod set;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::harness::{TestDaemon, Watchdog};

const REVISION: &str = "2025-11-25";

/// A value nobody else has.
fn value(what: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    format!("s3cr3t.{what}.{}.{:x}", std::process::id(), now.as_nanos())
}

fn set(daemon: &TestDaemon, name: &str, value: &str) -> Value {
    daemon.post("/v1/secrets", json!({"name": name, "value": value, "hosts": ["api.test"]}))
}

fn attach(daemon: &TestDaemon, sandbox: &str, body: Value) -> Value {
    daemon.post(&format!("/v1/sandboxes/{sandbox}/secrets"), body)
}

/// Runs the program with something on its standard input.
fn with_input(mut command: Command, input: &str) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _watchdog = Watchdog::over(&child);
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}
