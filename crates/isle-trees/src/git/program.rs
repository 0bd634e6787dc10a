//! Running the host's git so that neither files from a sandbox nor the repository's settings can make it run
//! other programs: no hooks, no monitors, no transports but files, no prompts.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::bundle::GitError;

/// Timeout.
const LONGEST: Duration = Duration::from_secs(900);
/// Maximum length of stored output.
const SAID: u64 = 64 * 1024;

/// Settings that override those of the repository.
const SETTINGS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.askPass=",
    "core.sshCommand=false",
    "core.pager=cat",
    "credential.helper=",
    "protocol.allow=never",
    "protocol.file.allow=always",
    "transfer.fsckObjects=true",
    "fetch.fsckObjects=true",
    "fetch.fsck.hasDot=error",
    "fetch.fsck.hasDotdot=error",
    "fetch.fsck.hasDotgit=error",
    "fetch.recurseSubmodules=false",
    "fetch.writeCommitGraph=false",
    "fetch.unpackLimit=1",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "log.showSignature=false",
    "pack.threads=1",
];

/// Which other settings git reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settings {
    /// Those of the repository only.
    Repository,
    /// Also those of the user and the host, to create a repository as the user would.
    OfUser,
}

/// The result of a program.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) success: bool,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Runs git in an open directory.
pub(super) fn git(
    directory: BorrowedFd<'_>,
    settings: Settings,
    arguments: &[&str],
    stdin: &str,
) -> Result<Ended, GitError> {
    let mut command = Command::new("git");
    command.env_clear();
    let inherited: &[&str] =
        if settings == Settings::OfUser { &["PATH", "HOME", "XDG_CONFIG_HOME"] } else { &["PATH"] };
    for name in inherited {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    for (name, value) in [
        ("LC_ALL", "C"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_NO_LAZY_FETCH", "1"),
        ("GIT_NO_REPLACE_OBJECTS", "1"),
        ("GIT_OPTIONAL_LOCKS", "0"),
        ("GIT_ATTR_NOSYSTEM", "1"),
        ("GIT_ADVICE", "0"),
    ] {
        command.env(name, value);
    }
    if settings == Settings::Repository {
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        command.args(["--git-dir=.git", "--work-tree=."]);
    }
    for setting in SETTINGS {
        command.args(["-c", setting]);
    }
    command.args(arguments);
    // By descriptor: the path could be another directory by then.
    command.current_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| GitError::NoGitHere(error.to_string()))?;
    let input = child.stdin.take();
    let text = stdin.to_owned();
    let writing = std::thread::spawn(move || input.map(|mut input| input.write_all(text.as_bytes())));
    let stdout = reading(child.stdout.take());
    let stderr = reading(child.stderr.take());
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if began.elapsed() > LONGEST {
            child.kill().ok();
            child.wait()?;
            return Err(GitError::TimedOut(LONGEST.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    // Git may exit without reading everything.
    drop(writing.join());
    let joined = |thread: std::thread::JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&thread.join().unwrap_or_default()).into_owned()
    };
    Ok(Ended { success: status.success(), stdout: joined(stdout), stderr: joined(stderr) })
}

/// Runs git and returns its output; fails if git fails.
pub(super) fn succeed(
    directory: BorrowedFd<'_>,
    settings: Settings,
    arguments: &[&str],
    stdin: &str,
) -> Result<String, GitError> {
    let ended = git(directory, settings, arguments, stdin)?;
    if ended.success {
        return Ok(ended.stdout);
    }
    let said: String = ended.stderr.trim().chars().take(1000).collect();
    Err(GitError::Failed(said))
}

fn reading(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        if let Some(mut from) = from {
            // Excess output is read and discarded, so that git does not block.
            from.by_ref().take(SAID * 64).read_to_end(&mut kept).ok();
            std::io::copy(&mut from, &mut std::io::sink()).ok();
        }
        kept
    })
}
