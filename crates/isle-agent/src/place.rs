//! What the guest's paths mean to this agent. In a container they mean themselves. A sandbox without
//! a root of its own has private directories on the host instead, and `/workspace`, `/home/sandbox`
//! and `/tmp` stand for them wherever a path reaches the agent. Never changes once it is settled.

use std::borrow::Cow;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;

use isle_linux::request::{Directories, MakeRequest};
use isle_linux::setup::landlock::Ruleset;
use isle_linux::setup::{CONTROL_DIRECTORY, SANDBOX_HOME};
use minicbor::bytes::ByteVec;

/// A sandbox among the host's processes.
#[derive(Debug)]
pub(crate) struct Private {
    directories: Directories,
    command: Ruleset,
    scope: Option<Ruleset>,
    file_size: Option<u64>,
    user: u32,
}

/// Empty in a container.
static PRIVATE: OnceLock<Private> = OnceLock::new();

/// The private directories, where there is no root of the sandbox's own.
pub(crate) fn private() -> Option<&'static Private> {
    PRIVATE.get()
}

/// Says that this agent is among the host's processes, once, before it serves.
pub(crate) fn settle(private: Private) {
    PRIVATE.get_or_init(|| private);
}

/// What a guest path is here.
pub(crate) fn real(path: &[u8]) -> Cow<'_, [u8]> {
    private().map_or(Cow::Borrowed(path), |private| private.real(path))
}

impl Private {
    pub(crate) fn new(
        request: &MakeRequest,
        directories: Directories,
        command: Ruleset,
        scope: Option<Ruleset>,
    ) -> Self {
        Self {
            directories,
            command,
            scope,
            file_size: Some(request.rlimit_file_size).filter(|&limit| limit > 0),
            user: rustix::process::geteuid().as_raw(),
        }
    }

    /// What a command is confined to.
    pub(crate) fn command_rules(&self) -> RawFd {
        self.command.as_raw_fd()
    }

    /// What keeps the signals of one run inside it.
    pub(crate) fn run_scope(&self) -> Option<RawFd> {
        self.scope.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Largest file.
    pub(crate) fn file_size(&self) -> Option<u64> {
        self.file_size
    }

    /// The host's id of the sandbox user.
    pub(crate) fn user(&self) -> u32 {
        self.user
    }

    fn real<'a>(&self, path: &'a [u8]) -> Cow<'a, [u8]> {
        let Directories { workspace, home, tmp, control, .. } = &self.directories;
        let own = [(&b"/workspace"[..], workspace), (SANDBOX_HOME.as_bytes(), home), (b"/tmp", tmp)];
        let control = control.iter().map(|real| (CONTROL_DIRECTORY.as_bytes(), real));
        for (guest, real) in own.into_iter().chain(control) {
            if let Some(rest) = path.strip_prefix(guest)
                && (rest.is_empty() || rest.starts_with(b"/"))
            {
                return Cow::Owned([&real[..], rest].concat());
            }
        }
        Cow::Borrowed(path)
    }

    /// Words that are guest paths as a whole become what they mean; text that merely contains one
    /// cannot.
    pub(crate) fn words(&self, words: &[ByteVec]) -> Vec<ByteVec> {
        words.iter().map(|word| self.real(word).into_owned().into()).collect()
    }

    /// The environment, with values that are guest paths replaced by what they mean, and where the
    /// workspace and the place for temporary files really are.
    pub(crate) fn environment(&self, environment: &[ByteVec]) -> Vec<ByteVec> {
        let mut result: Vec<ByteVec> = environment.iter().map(|entry| self.variable(entry).into()).collect();
        let Directories { workspace, tmp, .. } = &self.directories;
        // Git takes a configuration of the host that it may not read for a reason to give up.
        let added: [(&[u8], &[u8]); 3] =
            [(b"TMPDIR=", tmp), (b"ISLE_WORKSPACE=", workspace), (b"GIT_CONFIG_NOSYSTEM=", b"1")];
        for (name, value) in added {
            if !environment.iter().any(|entry| entry.starts_with(name)) {
                result.push([name, value].concat().into());
            }
        }
        result
    }

    fn variable(&self, entry: &[u8]) -> Vec<u8> {
        let Some(at) = entry.iter().position(|&byte| byte == b'=') else { return entry.to_vec() };
        let (name, value) = (&entry[..at], &entry[at + 1..]);
        let value = if name.ends_with(b"PATH") {
            let parts: Vec<Cow<'_, [u8]>> =
                value.split(|&byte| byte == b':').map(|part| self.real(part)).collect();
            parts.join(&b':')
        } else {
            self.real(value).into_owned()
        };
        [name, b"=", &value].concat()
    }
}
