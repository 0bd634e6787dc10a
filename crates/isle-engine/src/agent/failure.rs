//! What a failure inside the sandbox means to the caller: a code, a sentence and a next step.

use isle_wire::{Failure, FailureKind};

use isle_core::{Code, Error};

/// What an agent gives for a program that was not executed in time.
const ETIMEDOUT: i32 = 110;
/// What an agent gives for a file that is executed or under a lease.
const ETXTBSY: i32 = 26;

/// A failed file operation on `path`.
pub(crate) fn file_error(failure: &Failure, path: &str) -> Error {
    let error = match failure.kind {
        FailureKind::NotFound => {
            Error::new(Code::FileNotFound, format!("{path} does not exist in the sandbox"))
                .next("list the directory to see what is there")
        }
        FailureKind::Denied => {
            Error::new(Code::PermissionDenied, format!("the sandbox user may not do this to {path}"))
                .next("use a path below /workspace or /tmp, or user \"root\" of the sandbox")
        }
        FailureKind::IsDirectory => Error::new(Code::IsDirectory, format!("{path} is a directory"))
            .next("name a file; list_files shows what the directory holds"),
        FailureKind::NotDirectory => {
            Error::new(Code::NotDirectory, format!("a part of {path} is a file, not a directory"))
                .next("name a path whose parents are directories")
        }
        FailureKind::Escapes => Error::new(
            Code::InvalidPath,
            format!("{path} leads out of the workspace, or through a link the sandbox does not follow"),
        )
        .next("use a path that stays below /workspace, or an absolute path of the sandbox"),
        FailureKind::NoSpace => no_space(),
        FailureKind::DiskBroken => disk_broken(),
        FailureKind::NotRegular => {
            Error::new(Code::NotRegular, format!("{path} is a pipe, socket or device"))
                .next("name a regular file")
        }
        FailureKind::NotEmpty => {
            Error::new(Code::InvalidArgument, format!("{path} is a directory that is not empty"))
                .next("set recursive to remove it with all it holds")
        }
        FailureKind::Exists => Error::new(Code::FileExists, format!("something stands at {path} already"))
            .next("choose another place, or set replace"),
        FailureKind::TooLarge => Error::new(Code::TooLarge, format!("{path} is too large for this"))
            .next("use a program in the sandbox, such as sed, with exec"),
        FailureKind::OtherDevice => Error::new(
            Code::InvalidArgument,
            format!("{path} and its new place are on different file systems of the sandbox"),
        )
        .next("use `mv` in the sandbox with exec"),
        FailureKind::TooManyWatches => {
            Error::new(Code::LimitReached, "the kernel gives the sandbox no more watches")
                .next("end other watches, or watch a smaller directory")
        }
        FailureKind::NoSuchRun => Error::new(Code::RunFinished, "the run has already ended")
            .next("its record and output stay: see `logs` and `history`"),
        FailureKind::InputClosed => {
            Error::new(Code::InputClosed, "the run has no standard input, or it was ended")
                .next("start it with start_job and `input` or `pty` to be able to write to it")
        }
        FailureKind::NoProcesses => no_processes(),
        FailureKind::NoMemory => no_memory(),
        FailureKind::NoGuestRoot => no_guest_root(),
        FailureKind::Paused => paused(),
        FailureKind::NoDescriptorPassing | FailureKind::NotInThisMode => not_offered(failure),
        FailureKind::Other if failure.errno == ETXTBSY => Error::new(
            Code::Busy,
            format!("{path} is in use: a process of the sandbox executes it or holds a lease on it"),
        )
        .next("end that process, or try again when it has let go of the file"),
        FailureKind::NotExecutable
        | FailureKind::Other
        | FailureKind::OtherContext
        | FailureKind::TooManyContexts => {
            Error::internal(format!("{} failed in the sandbox: {}", failure.doing, system(failure.errno)))
        }
    };
    with_facts(error, failure)
}

/// The sandbox stands still.
pub(crate) fn paused() -> Error {
    Error::new(Code::Paused, "the sandbox is paused; nothing was started")
        .next("resume it first, or give exec `resume: true`")
}

/// A command that could not be started.
pub(crate) fn exec_error(failure: &Failure, program: &str) -> Error {
    let about_directory = ["enter ", "make "].iter().any(|step| failure.doing.starts_with(step));
    let error = match failure.kind {
        FailureKind::OtherContext => {
            Error::new(Code::InvalidArgument, "the context has another language or runs as another user")
                .next("leave `language` and `user` out to take the context's own, or choose another context")
        }
        FailureKind::TooManyContexts => {
            Error::new(Code::LimitReached, "the sandbox has as many contexts as it may have")
                .next("remove those that are no longer needed with `remove_context`")
        }
        FailureKind::NotFound | FailureKind::NotDirectory if about_directory => {
            Error::new(Code::FileNotFound, "the working directory does not exist in the sandbox")
                .next("make it first, or leave cwd out to start in /workspace")
        }
        FailureKind::NotFound => {
            Error::new(Code::CommandNotFound, format!("there is no program {program:?} in the sandbox"))
                .next("check the spelling, or give the whole line as `command` if it is shell text")
        }
        FailureKind::NoGuestRoot => no_guest_root(),
        FailureKind::Denied if about_directory => {
            Error::new(Code::PermissionDenied, "the sandbox user may not enter the working directory")
                .next("choose another cwd, or user \"root\" of the sandbox")
        }
        FailureKind::Denied | FailureKind::IsDirectory | FailureKind::NotDirectory => {
            Error::new(Code::PermissionDenied, format!("{program:?} is not executable for the sandbox user"))
                .next("make it executable (chmod +x), or run it with its interpreter")
        }
        FailureKind::NotExecutable => Error::new(
            Code::InvalidArgument,
            format!("{program:?} is not a program this machine can execute"),
        )
        .next("add a #! line, run it with its interpreter, or use a build for this processor"),
        FailureKind::NoProcesses => no_processes(),
        FailureKind::NoMemory => no_memory(),
        FailureKind::NoSpace => no_space(),
        FailureKind::DiskBroken => disk_broken(),
        FailureKind::Paused => paused(),
        FailureKind::NoDescriptorPassing | FailureKind::NotInThisMode => not_offered(failure),
        FailureKind::Other if failure.errno == ETIMEDOUT => Error::new(
            Code::Busy,
            format!("{program:?} was not executed in time and was killed before it began"),
        )
        .next("a process of the sandbox stopped it or holds a lease on its file: end that process, or reset the sandbox")
        .next("or the disk of the host is slow: try again"),
        FailureKind::Escapes
        | FailureKind::NotRegular
        | FailureKind::NoSuchRun
        | FailureKind::InputClosed
        | FailureKind::NotEmpty
        | FailureKind::Exists
        | FailureKind::TooLarge
        | FailureKind::OtherDevice
        | FailureKind::TooManyWatches
        | FailureKind::Other => {
            Error::internal(format!("{} failed in the sandbox: {}", failure.doing, system(failure.errno)))
        }
    };
    with_facts(error, failure)
}

/// The sandbox has no such thing, whatever is tried.
fn not_offered(failure: &Failure) -> Error {
    let why = match failure.kind {
        FailureKind::NoDescriptorPassing => "the connection to its agent cannot pass descriptors",
        _ => "its agent was started without it",
    };
    Error::new(Code::BackendUnavailable, format!("the sandbox cannot {}: {why}", failure.doing))
        .next("use a sandbox of another backend")
}

fn no_guest_root() -> Error {
    Error::new(Code::PermissionDenied, "the sandbox has no root user: tier `process` runs as one user only")
        .next("leave `user` out, or use a sandbox of tier `container`")
}

fn no_space() -> Error {
    Error::new(Code::NoSpace, "the sandbox has no space left")
        .next("remove files, or make the sandbox anew with a larger `disk`")
}

fn disk_broken() -> Error {
    Error::new(Code::DiskBroken, "the disk under the sandbox gives errors")
        .next("copy out what can still be read; the host's kernel log tells more of the disk")
        .next("destroying the sandbox works; with `wipe` nothing of what is broken stays")
}

fn no_processes() -> Error {
    Error::new(Code::LimitReached, "the sandbox's limit on processes was reached")
        .next("end some of its runs with `kill`, or make the sandbox anew with larger `pids`")
}

fn no_memory() -> Error {
    Error::new(Code::LimitReached, "the sandbox's memory limit was reached")
        .next("end some of its runs with `kill`, or make the sandbox anew with more `memory`")
}

fn with_facts(error: Error, failure: &Failure) -> Error {
    let error = if failure.doing.is_empty() { error } else { error.detail("doing", failure.doing.clone()) };
    if failure.errno == 0 { error } else { error.detail("errno", failure.errno) }
}

fn system(errno: i32) -> String {
    if errno == 0 { "no reason given".into() } else { std::io::Error::from_raw_os_error(errno).to_string() }
}
