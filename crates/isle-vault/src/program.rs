//! Runs programs that provide the key, with a timeout and bounded output.

use std::io::{Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

/// Timeout of a program.
const TIMEOUT: Duration = Duration::from_secs(15);
/// How often its exit is polled.
const POLL: Duration = Duration::from_millis(20);
/// Upper bound of output; longer than any key.
pub(crate) const LONGEST: u64 = 1024;

/// Exit status and output of a program.
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Zeroizing<String>,
    pub(crate) stderr: String,
}

/// Runs a program until it exits. The error text is meant to follow the name of the program.
pub(crate) fn run(program: &str, arguments: &[&str], input: Option<&str>) -> Result<Output, String> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot be started: {error}"))?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        // A program that does not read it reports that by its exit status.
        stdin.write_all(input.as_bytes()).ok();
    }
    let deadline = Instant::now() + TIMEOUT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL),
            Ok(None) | Err(_) => {
                // Reaped here: nothing else waits for this child.
                let _ = child.kill();
                let _ = child.wait();
                return Err("timed out after 15s".to_owned());
            }
        }
    };
    let mut stdout_text = Zeroizing::new(String::new());
    if let Some(stdout) = child.stdout.take() {
        stdout.take(LONGEST).read_to_string(&mut stdout_text).map_err(|error| error.to_string())?;
    }
    let mut stderr_text = String::new();
    if let Some(stderr) = child.stderr.take() {
        // Only used in messages.
        stderr.take(LONGEST).read_to_string(&mut stderr_text).ok();
    }
    Ok(Output { status, stdout: stdout_text, stderr: stderr_text })
}
