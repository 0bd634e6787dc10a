//! Lists deleted files that processes of a sandbox still have open, for a daemon that lacks the permission.
//! It is not part of a sandbox: the daemon starts it outside, and it only reads.

use std::io::Write;
use std::process::ExitCode;

use isle_setup::tree::{UnlinkedFiles, enter_namespace_above};

/// Prints the files of these processes.
pub(crate) fn main(pids: Vec<i32>) -> ExitCode {
    // The namespaces of the agent, PID 1 of the sandbox, are not accessible; those of any other process are.
    if !pids.iter().any(|&pid| enter_namespace_above(pid).is_ok()) {
        return ExitCode::FAILURE;
    }
    let mut files = UnlinkedFiles::default();
    pids.into_iter().for_each(|pid| files.at(pid));
    match std::io::stdout().write_all(files.to_lines().as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
