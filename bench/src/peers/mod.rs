//! What Isle is compared with. A peer that is not installed or does not work here is skipped with
//! the reason; nothing is installed, and no service is started that would outlive the measurement.

pub(crate) mod bubblewrap;
pub(crate) mod docker;
pub(crate) mod mitmproxy;
pub(crate) mod oci;
pub(crate) mod podman;
pub(crate) mod rootfs;
pub(crate) mod slirp;
pub(crate) mod tinyproxy;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Where a program is, looked up as a shell would.
pub(crate) fn find(program: &str) -> Result<PathBuf, String> {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    path.split(':')
        .map(|directory| PathBuf::from(directory).join(program))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| "not installed".to_owned())
}

/// Runs a command of preparation or of cleaning up; its complaint is the reason to skip the peer.
pub(crate) fn prepare(command: &mut Command) -> Result<Output, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(output);
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let last = words.lines().last().unwrap_or_default();
    Err(format!("installed, but it does not work here: {} ({last})", output.status))
}
