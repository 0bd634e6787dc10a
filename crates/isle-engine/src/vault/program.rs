//! Programs that are asked for the key: they get little, say little, and are not waited for without end.

use std::io::{Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(20);
/// More than any key takes.
pub(super) const LONGEST: u64 = 1024;

/// What a program said.
pub(super) struct Answer {
    pub(super) status: ExitStatus,
    pub(super) output: Zeroizing<String>,
    /// What it said to its error output.
    pub(super) complaint: String,
}

/// Runs a program to its end; what went wrong is in words that follow its name.
pub(super) fn run(program: &str, arguments: &[&str], input: Option<&str>) -> Result<Answer, String> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot be started: {error}"))?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        // One that does not read it says so by how it ends.
        stdin.write_all(input.as_bytes()).ok();
    }
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK),
            Ok(None) | Err(_) => {
                // It is ours, and nobody waits for it any more.
                let _ = child.kill();
                let _ = child.wait();
                return Err("gave no answer in time".to_owned());
            }
        }
    };
    let mut output = Zeroizing::new(String::new());
    if let Some(stdout) = child.stdout.take() {
        stdout.take(LONGEST).read_to_string(&mut output).map_err(|error| error.to_string())?;
    }
    let mut complaint = String::new();
    if let Some(stderr) = child.stderr.take() {
        // It helps if it can be read, and is not needed.
        stderr.take(LONGEST).read_to_string(&mut complaint).ok();
    }
    Ok(Answer { status, output, complaint })
}
