//! The one error every door shows: a code for programs, a message for people, details, whether a retry can
//! help, and next steps.

use serde::Serialize;
use serde_json::{Map, Value};

/// Shorthand.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! codes {
    ($($variant:ident $text:literal $status:literal $retryable:literal $meaning:literal;)*) => {
        /// What went wrong, for programs. The list is the same at every door.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $(#[doc = $meaning] $variant,)* }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The code as text.
            #[must_use]
            pub fn as_str(self) -> &'static str { match self { $(Self::$variant => $text,)* } }

            /// The HTTP status it travels with.
            #[must_use]
            pub fn http_status(self) -> u16 { match self { $(Self::$variant => $status,)* } }

            /// Whether the same call may succeed later without a change.
            #[must_use]
            pub fn retryable(self) -> bool { match self { $(Self::$variant => $retryable,)* } }

            /// What it means, for the documentation.
            #[must_use]
            pub fn meaning(self) -> &'static str { match self { $(Self::$variant => $meaning,)* } }
        }
    };
}

codes! {
    InvalidArgument "INVALID_ARGUMENT" 400 false "An argument is missing, contradicts another, or has the wrong form.";
    InvalidName "INVALID_NAME" 400 false "A name does not follow the rules for names.";
    InvalidPath "INVALID_PATH" 400 false "A path escapes the directory it must stay in, or has the wrong form.";
    InvalidSize "INVALID_SIZE" 400 false "A size could not be parsed.";
    InvalidDuration "INVALID_DURATION" 400 false "A duration could not be parsed.";
    TtlInvalid "TTL_INVALID" 400 false "A TTL, an idle timeout or an extension is out of range; the message states the range.";
    Unauthenticated "UNAUTHENTICATED" 401 false "The token is missing or wrong.";
    Forbidden "FORBIDDEN" 403 false "The caller is not permitted to do this, or its origin is not.";
    PolicyDenied "POLICY_DENIED" 403 false "A rule of the operator denies this; the message names the rule.";
    SandboxNotFound "SANDBOX_NOT_FOUND" 404 false "No sandbox has this name.";
    RunNotFound "RUN_NOT_FOUND" 404 false "No run has this id.";
    ContextNotFound "CONTEXT_NOT_FOUND" 404 false "No context in the sandbox has this name.";
    JobNotFound "JOB_NOT_FOUND" 404 false "No job in the sandbox has, or had, this name.";
    FileNotFound "FILE_NOT_FOUND" 404 false "No such file or directory in the sandbox.";
    ProfileNotFound "PROFILE_NOT_FOUND" 404 false "The configuration has no profile with this name for this caller.";
    GrantNotFound "GRANT_NOT_FOUND" 404 false "The sandbox has no such grant.";
    RequestNotFound "REQUEST_NOT_FOUND" 404 false "No pending network request has this id.";
    PortNotFound "PORT_NOT_FOUND" 404 false "This port of the sandbox is not forwarded.";
    SyncNotFound "SYNC_NOT_FOUND" 404 false "No running sync has this name.";
    NamespaceNotFound "NAMESPACE_NOT_FOUND" 404 false "No namespace has this name.";
    TokenNotFound "TOKEN_NOT_FOUND" 404 false "No token has this id.";
    WebhookNotFound "WEBHOOK_NOT_FOUND" 404 false "No webhook has this id.";
    SecretNotFound "SECRET_NOT_FOUND" 404 false "No secret has this name, or it is not attached to the sandbox.";
    OperationNotFound "OPERATION_NOT_FOUND" 404 false "No operation has this name.";
    IsDirectory "IS_DIRECTORY" 409 false "The path is a directory.";
    NotDirectory "NOT_DIRECTORY" 409 false "The path, or a parent of it, is not a directory.";
    NotRegular "NOT_REGULAR" 409 false "The path is a pipe, socket or device.";
    AlreadyExists "ALREADY_EXISTS" 409 false "The sandbox exists with different settings.";
    PortTaken "PORT_TAKEN" 409 false "The host port is already in use.";
    FileExists "FILE_EXISTS" 409 false "The path already exists.";
    TextNotFound "TEXT_NOT_FOUND" 409 false "The text to replace was not found in the file; nothing was changed.";
    TextNotUnique "TEXT_NOT_UNIQUE" 409 false "The text to replace occurs more than once in the file; nothing was changed.";
    ArchiveRefused "ARCHIVE_REFUSED" 400 false "The archive is damaged, or contains an entry that could escape the target directory; nothing was unpacked.";
    HostPathRefused "HOST_PATH_REFUSED" 403 false "The host path is not below one of the configured host roots.";
    GitDirectoryRefused "GIT_DIRECTORY_REFUSED" 403 false "The files are, or would become, part of a git directory of the host, from which git runs programs; nothing was copied.";
    GitFailed "GIT_FAILED" 422 false "The commits of the sandbox could not be fetched; the host's repository is unchanged.";
    WatchEnded "WATCH_ENDED" 410 false "The watch of this cursor has ended.";
    Expired "EXPIRED" 410 false "The sandbox has expired and is being removed.";
    SecretExpired "SECRET_EXPIRED" 410 false "The secret has expired and is no longer usable.";
    VaultLocked "VAULT_LOCKED" 409 false "The vault key is missing or does not match; nothing was changed.";
    Paused "PAUSED" 409 false "The sandbox is paused; nothing was started.";
    RunFinished "RUN_FINISHED" 409 false "The run has already finished.";
    JobExists "JOB_EXISTS" 409 false "A job with this name is already running in the sandbox.";
    InputClosed "INPUT_CLOSED" 409 false "The standard input of the run is closed or was never open.";
    SandboxFailed "SANDBOX_FAILED" 409 true "The sandbox died; the next call recreates it.";
    SandboxUnresponsive "SANDBOX_UNRESPONSIVE" 504 true "The agent of the sandbox does not respond. The sandbox works again when it does, and can be destroyed meanwhile.";
    TooLarge "TOO_LARGE" 413 false "The input or file is larger than the limit.";
    CommandNotFound "COMMAND_NOT_FOUND" 422 false "The program does not exist in the sandbox.";
    InstallFailed "INSTALL_FAILED" 422 false "The packages the code needs could not be installed; the code was not run.";
    RuntimeNotAvailable "RUNTIME_NOT_AVAILABLE" 422 false "The image of the sandbox has no interpreter for this language.";
    HostTooSmall "HOST_TOO_SMALL" 422 false "The host has fewer resources than requested; `details` lists what it has.";
    CloneFailed "CLONE_FAILED" 422 false "The repository could not be cloned; nothing was left behind.";
    PermissionDenied "PERMISSION_DENIED" 403 false "The sandbox, or its user, is not permitted to do this.";
    NoSpace "NO_SPACE" 507 false "The sandbox's disk limit, or the host's disk, is full.";
    DiskBroken "DISK_BROKEN" 500 true "The disk of the state directory, or of a sandbox, returns I/O errors.";
    LimitReached "LIMIT_REACHED" 429 true "A limit on processes, memory or sandboxes was reached.";
    Busy "BUSY" 429 true "The daemon is at its limit of concurrent work; the call was not started. Retry later.";
    Cancelled "CANCELLED" 499 false "The caller cancelled the call.";
    NothingListens "NOTHING_LISTENS" 502 true "Nothing listens on this port of the sandbox, or the listener did not respond.";
    BackendUnavailable "BACKEND_UNAVAILABLE" 503 false "No backend on this host offers what was asked for: the backend, the tier, or what it needs.";
    DaemonUnavailable "DAEMON_UNAVAILABLE" 503 true "The daemon is not running or does not respond.";
    WrongDaemon "WRONG_DAEMON" 421 false "The daemon that responded serves another state directory; nothing was done.";
    VersionMismatch "VERSION_MISMATCH" 409 false "Client and daemon have different versions.";
    StateTooNew "STATE_TOO_NEW" 500 false "The state directory was written by a newer version.";
    StateDamaged "STATE_DAMAGED" 500 false "The state database is damaged, or not Isle's; it was not changed. `isle repair` moves it aside.";
    ConfigInvalid "CONFIG_INVALID" 400 false "The configuration has an unknown key or a bad value.";
    Internal "INTERNAL" 500 true "An unexpected failure; the message says what failed.";
}

/// An error as every door shows it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// For programs.
    pub code: Code,
    /// For people.
    pub message: String,
    /// Facts, such as the names that do exist.
    pub details: Map<String, Value>,
    /// What to do next, most useful first.
    pub next_steps: Vec<String>,
}

impl Error {
    /// An error with a code and a sentence.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: bounded(message.into()), details: Map::new(), next_steps: Vec::new() }
    }

    /// Something that should not have failed.
    #[must_use]
    pub fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(Code::Internal, message.to_string())
            .next("retry; if it happens again, check `isle doctor` and the daemon's log")
    }

    /// Says that something was done, but could not be recorded.
    #[must_use]
    pub fn unrecorded(mut self, done: &str) -> Self {
        self.message = format!("{done}, but recording it failed: {}", self.message);
        self
    }

    /// Adds a next step.
    #[must_use]
    pub fn next(mut self, step: impl Into<String>) -> Self {
        self.next_steps.push(bounded(step.into()));
        self
    }

    /// Adds a fact.
    #[must_use]
    pub fn detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    /// The form that travels: `{"code", "message", "details", "retryable", "next_steps"}`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        serde_json::json!({
            "code": self.code.as_str(),
            "message": self.message,
            "details": self.details,
            "retryable": self.code.retryable(),
            "next_steps": self.next_steps,
        })
    }
}

/// Messages quote input of callers; this bounds their length.
fn bounded(mut sentence: String) -> String {
    const LONGEST: usize = 4096;
    if sentence.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|end| sentence.is_char_boundary(*end)).unwrap_or(0);
        sentence.truncate(end);
        sentence.push('…');
        sentence.shrink_to_fit();
    }
    sentence
}

impl Serialize for Error {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}
