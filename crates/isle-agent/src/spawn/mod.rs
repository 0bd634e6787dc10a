//! Starting a program. What the child needs is allocated before the clone (`Plan`); `parent` clones, `child`
//! runs until the program is executed.

mod child;
mod parent;
pub(crate) mod starting;
mod stdio;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use isle_setup::sys::c_string;
use isle_wire::{ExecRequest, Failure, FailureKind, GuestUser, RunLimits};

use crate::files;
use crate::mode::{GuestUsers, Mode};
use crate::processes::{ProcessFinder, RunProcesses};
use child::{STEP_DIRECTORY, STEP_EXECUTE};
use parent::{start_supervised, start_tagged, start_tagged_forked};
use starting::Starting;
use stdio::open_io;

pub(crate) use stdio::{ProgramIo, resize};

/// A started program.
pub(crate) struct Spawned {
    pub(crate) pid: i32,
    pub(crate) processes: RunProcesses,
    pub(crate) io: ProgramIo,
    /// Until its run is registered, where the agent was not suspended until the program was executed.
    pub(crate) starting: Option<Starting>,
}

/// What the child needs.
struct Plan {
    candidates: Vec<CString>,
    argv: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    cwd: CString,
    /// The guest user to switch to; `None` where everything runs as the agent's user.
    user: Option<GuestUser>,
    limits: RunLimits,
    stdio: [RawFd; 3],
    /// Become descriptors 3 and 4, on which an interpreter communicates with the agent.
    control: Option<[RawFd; 2]>,
    terminal: bool,
    /// Whether the child is in a UTS namespace of its own; otherwise it has a supervisor.
    has_tag: bool,
    /// Landlock rules to enforce.
    command_rules: Option<RawFd>,
    /// Where a child that does not share memory with the agent reports.
    report: Option<RawFd>,
    /// Written by the child.
    step: i32,
    errno: i32,
    tag: u64,
}

/// Starts the program of `request`.
pub(crate) async fn spawn(mode: &Mode, request: &ExecRequest) -> Result<Spawned, Failure> {
    spawn_with(mode, request, None).await
}

/// Starts the program of `request` with two more descriptors.
pub(crate) async fn spawn_with(
    mode: &Mode,
    request: &ExecRequest,
    control: Option<&[OwnedFd; 2]>,
) -> Result<Spawned, Failure> {
    let other = |doing: &str| {
        let doing = doing.to_owned();
        move |error: io::Error| files::failure(&error, doing)
    };
    let user = match (mode.users, request.user) {
        (GuestUsers::Switched, user) => Some(user),
        (GuestUsers::AgentOnly(_), GuestUser::Sandbox) => None,
        (GuestUsers::AgentOnly(_), GuestUser::Root) => {
            let doing = "become root of the sandbox".into();
            return Err(Failure { kind: FailureKind::NoGuestRoot, errno: libc::EPERM, doing });
        }
    };
    if request.make_cwd {
        files::make_directory(mode, &request.cwd, request.user)?;
    }
    let argv = strings(&mode.paths.arguments(&request.argv)).map_err(other("read the arguments"))?;
    let environment =
        strings(&mode.paths.environment(&request.env)).map_err(other("read the environment"))?;
    let Some(program) = argv.first() else {
        let doing = "run a command without a program".into();
        return Err(Failure { kind: FailureKind::Other, errno: libc::EINVAL, doing });
    };
    let (io, ends) = open_io(mode.users, request).map_err(other("open pipes"))?;
    let mut plan = Plan {
        candidates: candidates(program, &environment),
        argv: pointers(&argv),
        environment: pointers(&environment),
        cwd: c_string(mode.paths.resolve(&request.cwd).into_owned())
            .map_err(other("read the working directory"))?,
        user,
        limits: mode.run_limits(request.limits),
        stdio: [ends.0[0].as_raw_fd(), ends.0[1].as_raw_fd(), ends.0[2].as_raw_fd()],
        control: control.map(|both| [both[0].as_raw_fd(), both[1].as_raw_fd()]),
        terminal: matches!(io, ProgramIo::Terminal { .. }),
        has_tag: matches!(mode.processes, ProcessFinder::UtsTag),
        command_rules: mode.command_rules.as_ref().map(AsRawFd::as_raw_fd),
        report: None,
        step: 0,
        errno: 0,
        tag: 0,
    };
    if request.user == GuestUser::Root {
        starting::root_command_starts();
    }
    let score = mode.oom_score.as_ref();
    let started = match &mode.processes {
        ProcessFinder::UtsTag if starting::had_root() => start_tagged_forked(&mut plan, score).await,
        ProcessFinder::UtsTag => start_tagged(&mut plan, score),
        ProcessFinder::Supervisor(scope) => start_supervised(&mut plan, Some(scope.as_raw_fd()), score),
        ProcessFinder::Descendants => start_supervised(&mut plan, None, score),
    };
    let failed = match started.map_err(other("start a process"))? {
        Ok((pid, processes, starting)) => return Ok(Spawned { pid, processes, io, starting }),
        Err(failed) => failed,
    };
    let name = request.argv.first().map(|program| files::shown(program)).unwrap_or_default();
    let cwd = String::from_utf8_lossy(&request.cwd).into_owned();
    let doing = match failed.step {
        STEP_EXECUTE => format!("run {name}"),
        STEP_DIRECTORY => format!("enter {cwd}"),
        _ => "prepare the process".to_owned(),
    };
    Err(files::failure(&io::Error::from_raw_os_error(failed.errno), doing))
}

fn strings(bytes: &[minicbor::bytes::ByteVec]) -> io::Result<Vec<CString>> {
    bytes.iter().map(|one| c_string(one.to_vec())).collect()
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|one| one.as_ptr()).chain([std::ptr::null()]).collect()
}

/// The paths to try: the program as given, or along the `PATH` of its environment.
fn candidates(program: &CString, environment: &[CString]) -> Vec<CString> {
    let name = program.as_bytes();
    if name.contains(&b'/') || name.is_empty() {
        return vec![program.clone()];
    }
    let path =
        environment.iter().find_map(|one| one.as_bytes().strip_prefix(b"PATH=")).unwrap_or(b"/usr/bin:/bin");
    path.split(|&byte| byte == b':')
        .filter(|directory| !directory.is_empty())
        .filter_map(|directory| c_string([directory, b"/", name].concat()).ok())
        .collect()
}
