//! The canary: a process on the host, outside of the sandbox, with one of everything an attack could target.
//! It prints where each target is as `--name=value` arguments for the attacks, and exits, removing
//! everything, when its standard input ends.

mod objects;
mod serve;

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub(crate) use serve::serve;

use crate::target::secret_of;

/// The variable every canary has in its environment, and every daemon under test.
pub const VARIABLE: &str = "ISLE_PROBE_CANARY";

/// The descriptor at which the canary's file is open where descriptors might leak.
pub const LEAKED: i32 = 200;

/// A running canary.
#[derive(Debug)]
pub struct Canary {
    child: Child,
    token: String,
    arguments: Vec<String>,
}

impl Canary {
    /// Starts the program as a canary with its files in `directory`, which the caller creates and removes.
    pub fn spawn(program: &Path, directory: &Path) -> io::Result<Self> {
        let token = token()?;
        let secret = secret_of(&token);
        let mut child = Command::new(program)
            .arg("canary")
            .arg(directory)
            .arg(&secret)
            .env(VARIABLE, &secret)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let said = child.stdout.take().map(BufReader::new);
        let mut arguments = vec![format!("--token={token}")];
        for line in said.into_iter().flat_map(BufRead::lines) {
            let line = line?;
            if line.is_empty() {
                return Ok(Self { child, token, arguments });
            }
            arguments.push(line);
        }
        let status = child.wait()?;
        Err(io::Error::other(format!("the canary exited with {status}")))
    }

    /// The arguments of the attacks.
    #[must_use]
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Name and value of the variable that must not be visible inside.
    #[must_use]
    pub fn variable(&self) -> (&'static str, String) {
        (VARIABLE, secret_of(&self.token))
    }

    /// A unique text, to find processes again.
    #[must_use]
    pub fn mark(&self) -> String {
        format!("isle-leftover-{}", self.token)
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        // The canary exits at the end of its input.
        drop(self.child.stdin.take());
        self.child.wait().ok();
    }
}

fn token() -> io::Result<String> {
    let mut bytes = [0u8; 12];
    io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
