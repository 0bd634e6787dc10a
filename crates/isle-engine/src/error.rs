//! The one error every door shows: a code for programs, a sentence for people, details, whether
//! trying again can help, and what to do next.

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
    InvalidPath "INVALID_PATH" 400 false "A path leaves the place it must stay in, or has the wrong form.";
    InvalidSize "INVALID_SIZE" 400 false "A size could not be read.";
    InvalidDuration "INVALID_DURATION" 400 false "A duration could not be read.";
    TtlInvalid "TTL_INVALID" 400 false "A time to live, an idle time or an extension is out of the range, which the message names.";
    Unauthenticated "UNAUTHENTICATED" 401 false "The token is missing or wrong.";
    Forbidden "FORBIDDEN" 403 false "The caller may not do this, or came from an origin that may not.";
    PolicyDenied "POLICY_DENIED" 403 false "A rule of the operator forbids this; the message names the rule.";
    SandboxNotFound "SANDBOX_NOT_FOUND" 404 false "There is no sandbox of that name.";
    RunNotFound "RUN_NOT_FOUND" 404 false "There is no run with that id.";
    ContextNotFound "CONTEXT_NOT_FOUND" 404 false "The sandbox has no context of that name.";
    JobNotFound "JOB_NOT_FOUND" 404 false "The sandbox has, and had, no job of that name.";
    FileNotFound "FILE_NOT_FOUND" 404 false "There is no such file or directory in the sandbox.";
    ProfileNotFound "PROFILE_NOT_FOUND" 404 false "The configuration has no profile of that name.";
    GrantNotFound "GRANT_NOT_FOUND" 404 false "The sandbox has no such grant.";
    RequestNotFound "REQUEST_NOT_FOUND" 404 false "There is no request for network with that id, or no longer.";
    PortNotFound "PORT_NOT_FOUND" 404 false "That port of the sandbox is not shown on this host.";
    SyncNotFound "SYNC_NOT_FOUND" 404 false "There is no live sync of that name.";
    NamespaceNotFound "NAMESPACE_NOT_FOUND" 404 false "There is no namespace of that name.";
    TokenNotFound "TOKEN_NOT_FOUND" 404 false "There is no token with that id.";
    WebhookNotFound "WEBHOOK_NOT_FOUND" 404 false "There is no webhook with that id.";
    SecretNotFound "SECRET_NOT_FOUND" 404 false "There is no secret of that name, or the sandbox does not have it.";
    OperationNotFound "OPERATION_NOT_FOUND" 404 false "There is no operation of that name.";
    IsDirectory "IS_DIRECTORY" 409 false "A directory stands where a file is due.";
    NotDirectory "NOT_DIRECTORY" 409 false "A file stands where a directory is due.";
    NotRegular "NOT_REGULAR" 409 false "The path is a pipe, socket or device.";
    AlreadyExists "ALREADY_EXISTS" 409 false "The sandbox exists with other settings.";
    PortTaken "PORT_TAKEN" 409 false "The port of this host is used by somebody else.";
    FileExists "FILE_EXISTS" 409 false "Something stands there already.";
    TextNotFound "TEXT_NOT_FOUND" 409 false "The text to be replaced is not in the file; nothing was changed.";
    TextNotUnique "TEXT_NOT_UNIQUE" 409 false "The text to be replaced is in the file more than once; nothing was changed.";
    ArchiveRefused "ARCHIVE_REFUSED" 400 false "An archive is damaged, or holds something that could lead elsewhere; nothing was unpacked.";
    HostPathRefused "HOST_PATH_REFUSED" 403 false "The host path is not below one of the configured host roots.";
    WatchEnded "WATCH_ENDED" 410 false "The watch of that cursor is over.";
    Expired "EXPIRED" 410 false "The time of the sandbox is up; it is being removed.";
    SecretExpired "SECRET_EXPIRED" 410 false "The secret has expired; it is given to nobody.";
    VaultLocked "VAULT_LOCKED" 409 false "The key of the secrets is missing or another one; nothing was changed.";
    Paused "PAUSED" 409 false "The sandbox is paused; nothing was started.";
    RunFinished "RUN_FINISHED" 409 false "The run has already ended.";
    JobExists "JOB_EXISTS" 409 false "A job of that name goes on in the sandbox.";
    InputClosed "INPUT_CLOSED" 409 false "The run has no standard input that could be written to.";
    SandboxFailed "SANDBOX_FAILED" 409 true "The sandbox died; the next call builds it anew.";
    TooLarge "TOO_LARGE" 413 false "The input or file is larger than the limit.";
    CommandNotFound "COMMAND_NOT_FOUND" 422 false "The program does not exist in the sandbox.";
    InstallFailed "INSTALL_FAILED" 422 false "The packages a piece of code needs could not be installed; the code was not run.";
    RuntimeNotAvailable "RUNTIME_NOT_AVAILABLE" 422 false "The sandbox's image has no interpreter for that language.";
    HostTooSmall "HOST_TOO_SMALL" 422 false "The host has less than was asked for; `details` say what it has.";
    CloneFailed "CLONE_FAILED" 422 false "The repository could not be cloned; nothing of it is left.";
    PermissionDenied "PERMISSION_DENIED" 403 false "The sandbox, or the user in it, may not do this.";
    NoSpace "NO_SPACE" 507 false "The sandbox's disk limit, or the host's disk, is full.";
    DiskBroken "DISK_BROKEN" 500 true "The disk under the state directory, or under a sandbox, gives errors.";
    LimitReached "LIMIT_REACHED" 429 true "A limit on processes, memory or sandboxes was reached.";
    Busy "BUSY" 429 true "Too much is going on; the call was not started.";
    Cancelled "CANCELLED" 499 false "The caller cancelled the call.";
    NothingListens "NOTHING_LISTENS" 502 true "Nothing listens on that port of the sandbox, or what listens gave no answer.";
    BackendUnavailable "BACKEND_UNAVAILABLE" 503 false "This host cannot offer the tier that was asked for.";
    DaemonUnavailable "DAEMON_UNAVAILABLE" 503 true "The daemon does not run or does not answer.";
    VersionMismatch "VERSION_MISMATCH" 409 false "Client and daemon are of different versions.";
    StateTooNew "STATE_TOO_NEW" 500 false "The state directory was written by a newer version.";
    StateDamaged "STATE_DAMAGED" 500 false "The state database is damaged, or not Isle's; nothing of it was touched. `isle repair` sets it aside.";
    ConfigInvalid "CONFIG_INVALID" 400 false "The configuration has an unknown key or a bad value.";
    Internal "INTERNAL" 500 true "Something failed that should not; the message says what.";
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
            .next("try again; if it happens again, `isle doctor` and the daemon's log tell more")
    }

    /// Says that something was done, and only its record is missing.
    #[must_use]
    pub(crate) fn unrecorded(mut self, done: &str) -> Self {
        self.message = format!("{done}, but that could not be recorded: {}", self.message);
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

/// Callers' words are quoted in sentences; nobody gets megabytes of their own back.
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
