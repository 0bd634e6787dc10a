//! Starting a program: one `clone` that shares memory with its parent (the agent, or the run's
//! supervisor) until the program is executed, as cheap as the kernel can make it. Between clone and exec only raw system calls
//! happen, on a small stack of their own.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use isle_linux::setup::{SANDBOX_ID, landlock, privileges};
use isle_linux::sys::{c_string, check};
use isle_wire::{ExecRequest, Failure, FailureKind, GuestUser, RunLimits, StdinMode, TerminalSize};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::files;
use crate::kill_order;
use crate::place::{self, Private};
use crate::supervise::{NotStarted, supervise};
use crate::tree::{Tag, Tree};

/// A started program.
pub(crate) struct Spawned {
    pub(crate) pid: i32,
    pub(crate) tree: Tree,
    pub(crate) io: ProgramIo,
}

/// The agent's ends.
pub(crate) enum ProgramIo {
    Pipes { stdin: Option<OwnedFd>, stdout: OwnedFd, stderr: OwnedFd },
    Terminal { master: OwnedFd },
}

/// What the child needs, all of it allocated before the clone.
struct Plan {
    candidates: Vec<CString>,
    argv: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    cwd: CString,
    user: GuestUser,
    limits: RunLimits,
    stdio: [RawFd; 3],
    /// Becomes descriptor 3: how an interpreter speaks with the agent.
    control: Option<RawFd>,
    terminal: bool,
    way: Way,
    /// Written by the child.
    step: i32,
    errno: i32,
    tag: u64,
}

/// How the child comes to its rights.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// In a container: a UTS namespace as the run's tag, then one of the two guest users.
    Tagged,
    /// Among the host's processes: the same user as the agent, confined by these Landlock rules.
    Confined(RawFd),
}

/// Of the stack a child runs on until it executes its program.
const STACK_BYTES: usize = 64 * 1024;

/// The number of the descriptor an interpreter gets beside its input and output.
const CONTROL: RawFd = 3;

const STEP_SETUP: i32 = 1;
const STEP_DIRECTORY: i32 = 2;
const STEP_EXECUTE: i32 = 3;

/// Starts the program of `request`.
pub(crate) fn spawn(request: &ExecRequest) -> Result<Spawned, Failure> {
    spawn_with(request, None)
}

/// Starts the program of `request` with one more descriptor, its third.
pub(crate) fn spawn_with(request: &ExecRequest, control: Option<&OwnedFd>) -> Result<Spawned, Failure> {
    let other = |doing: &str| {
        let doing = doing.to_owned();
        move |error: io::Error| files::failure(&error, doing)
    };
    if place::private().is_some() && request.user == GuestUser::Root {
        let doing = "become root of the sandbox".into();
        return Err(Failure { kind: FailureKind::NoGuestRoot, errno: libc::EPERM, doing });
    }
    if request.make_cwd {
        files::make_directory(&request.cwd, request.user)?;
    }
    let (argv, environment) = match place::private() {
        None => (strings(&request.argv), strings(&request.env)),
        Some(private) => {
            (strings(&private.words(&request.argv)), strings(&private.environment(&request.env)))
        }
    };
    let argv = argv.map_err(other("read the arguments"))?;
    let environment = environment.map_err(other("read the environment"))?;
    let Some(program) = argv.first() else {
        return Err(Failure { kind: FailureKind::Other, errno: libc::EINVAL, doing: "run nothing".into() });
    };
    let (io, theirs) = open_io(request).map_err(other("open pipes"))?;
    let mut plan = Plan {
        candidates: candidates(program, &environment),
        argv: pointers(&argv),
        environment: pointers(&environment),
        cwd: c_string(place::real(&request.cwd).into_owned()).map_err(other("read the working directory"))?,
        user: request.user,
        limits: limits(request.limits),
        stdio: [theirs.0[0].as_raw_fd(), theirs.0[1].as_raw_fd(), theirs.0[2].as_raw_fd()],
        control: control.map(AsRawFd::as_raw_fd),
        terminal: matches!(io, ProgramIo::Terminal { .. }),
        way: place::private().map_or(Way::Tagged, |private| Way::Confined(private.command_rules())),
        step: 0,
        errno: 0,
        tag: 0,
    };
    let started = match place::private() {
        None => start_tagged(&mut plan),
        Some(private) => start_supervised(&mut plan, private),
    };
    let failed = match started.map_err(other("start a process"))? {
        Ok((pid, tree)) => return Ok(Spawned { pid, tree, io }),
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

/// The limits of a run, never above what holds for the whole sandbox.
pub(crate) fn limits(wanted: RunLimits) -> RunLimits {
    let most = place::private().and_then(Private::file_size);
    let file_size = [wanted.file_size, most].into_iter().flatten().min();
    RunLimits { file_size, ..wanted }
}

/// Starts the program as a child of the agent, in a UTS namespace of its own.
fn start_tagged(plan: &mut Plan) -> io::Result<Result<(i32, Tree), NotStarted>> {
    let started = kill_order::as_command(|| run_cloned(plan, libc::CLONE_NEWUTS))?;
    Ok(started.map(|pid| (pid, Tree::Tagged(Tag(plan.tag)))))
}

/// Starts the program as a child of a supervisor.
fn start_supervised(plan: &mut Plan, private: &Private) -> io::Result<Result<(i32, Tree), NotStarted>> {
    let [stdin, stdout, stderr] = plan.stdio;
    let mut keep = vec![stdin, stdout, stderr, private.command_rules()];
    keep.extend(plan.control);
    let start = || {
        let not_cloned =
            |error: io::Error| NotStarted { step: STEP_SETUP, errno: error.raw_os_error().unwrap_or(0) };
        run_cloned(plan, 0).map_err(not_cloned)?
    };
    let started = kill_order::as_command(|| supervise(&keep, private.run_scope(), start))?;
    Ok(started.map(|(pid, supervisor)| (pid, Tree::Supervised(supervisor))))
}

/// Clones, and waits until the program is executed or could not be.
fn run_cloned(plan: &mut Plan, namespaces: libc::c_int) -> io::Result<Result<i32, NotStarted>> {
    let pid = clone_and_run(plan, namespaces)?;
    if plan.errno == 0 {
        return Ok(Ok(pid));
    }
    // The child has left already; the reaper must not take it for an orphan of someone else.
    // SAFETY: waits for a child of ours that is about to be gone.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) };
    Ok(Err(NotStarted { step: plan.step, errno: plan.errno }))
}

fn strings(bytes: &[minicbor::bytes::ByteVec]) -> io::Result<Vec<CString>> {
    bytes.iter().map(|one| c_string(one.to_vec())).collect()
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|one| one.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Where the program may be: as named, or along the path of its environment.
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

/// The program's ends of its input and output.
struct Theirs([OwnedFd; 3]);

fn open_io(request: &ExecRequest) -> io::Result<(ProgramIo, Theirs)> {
    if let Some(size) = request.terminal {
        let (master, slave) = open_terminal(size)?;
        let copies = [slave.try_clone()?, slave.try_clone()?, slave];
        return Ok((ProgramIo::Terminal { master }, Theirs(copies)));
    }
    let (stdout, their_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, their_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stdin, their_stdin) = match request.stdin {
        StdinMode::Null => {
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
            (None, rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())?)
        }
        StdinMode::Stream => {
            let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
            (Some(ours), theirs)
        }
    };
    for ours in [Some(&stdout), Some(&stderr), stdin.as_ref()].into_iter().flatten() {
        rustix::io::ioctl_fionbio(ours, true)?;
    }
    Ok((ProgramIo::Pipes { stdin, stdout, stderr }, Theirs([their_stdin, their_stdout, their_stderr])))
}

fn open_terminal(size: TerminalSize) -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let slave = rustix::fs::open(&name, flags, rustix::fs::Mode::empty())?;
    if place::private().is_none() {
        // The sandbox user must be able to open its own terminal by name.
        rustix::fs::fchmod(&slave, rustix::fs::Mode::from_raw_mode(0o620))?;
        rustix::fs::fchown(
            &slave,
            Some(rustix::fs::Uid::from_raw(SANDBOX_ID)),
            Some(rustix::fs::Gid::from_raw(5)),
        )?;
    }
    resize(&master, size)?;
    rustix::io::ioctl_fionbio(&master, true)?;
    Ok((master, slave))
}

/// Sets the size of a terminal; the program is told by the kernel.
pub(crate) fn resize(terminal: &OwnedFd, size: TerminalSize) -> io::Result<()> {
    let size =
        rustix::termios::Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}

fn clone_and_run(plan: &mut Plan, namespaces: libc::c_int) -> io::Result<i32> {
    // Made once and used by one child at a time: nothing else runs here while a child uses it.
    thread_local! {
        static STACK: std::cell::RefCell<Box<[u8]>> =
            std::cell::RefCell::new(vec![0u8; STACK_BYTES].into_boxed_slice());
    }
    STACK.with_borrow_mut(|stack| clone_on(stack, plan, namespaces))
}

fn clone_on(stack: &mut [u8], plan: &mut Plan, namespaces: libc::c_int) -> io::Result<i32> {
    // SAFETY: one past the end of the allocation, aligned down to 16 as the ABI asks.
    let top = unsafe { stack.as_mut_ptr().add(stack.len()) }.map_addr(|address| address & !15);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD | namespaces;
    // SAFETY: plain data, filled by sigfillset; all signals are held back while memory is shared so that
    // nothing runs in the child but `child`.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: both sets are valid.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    // SAFETY: the stack outlives the child's use of it because CLONE_VFORK suspends this (only) thread
    // until the child has executed a program or left; `child` makes raw system calls only.
    let pid = unsafe { libc::clone(child, top.cast(), flags, std::ptr::from_mut(plan).cast()) };
    let result = check(pid.into());
    // SAFETY: restores the mask saved above.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    Ok(i32::try_from(result?).unwrap_or(-1))
}

/// Runs in the child, sharing memory with the agent: no allocation, no locks, no returning.
extern "C" fn child(plan: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `plan` is the Plan passed to clone, alive and untouched by the suspended agent.
    let plan = unsafe { &mut *plan.cast::<Plan>() };
    let (step, errno) = match prepare(plan) {
        Err(errno) => (STEP_SETUP, errno),
        Ok(()) => {
            // SAFETY: a NUL-terminated path.
            if unsafe { libc::chdir(plan.cwd.as_ptr()) } != 0 {
                (STEP_DIRECTORY, last_errno())
            } else {
                (STEP_EXECUTE, execute(plan))
            }
        }
    };
    plan.step = step;
    plan.errno = errno;
    // SAFETY: leaves without running anything of the agent's.
    unsafe { libc::_exit(127) }
}

fn last_errno() -> i32 {
    // SAFETY: the location is always valid; the child shares it with the suspended agent.
    unsafe { *libc::__errno_location() }
}

/// The number of this process's UTS namespace. Asked of a pidfd, without a trip through `/proc`, where
/// the kernel would have to make three entries for a process that is gone in a moment; descriptors
/// opened here are closed with all others before the program runs.
fn own_uts_namespace() -> Result<u64, i32> {
    const PIDFD_GET_UTS_NAMESPACE: libc::Ioctl = 0xff0a;
    // SAFETY: raw system calls with plain numbers, a literal and a buffer that outlives them.
    unsafe {
        let mut meta: libc::stat = std::mem::zeroed();
        let process = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
        if let Ok(process) = i32::try_from(process)
            && process >= 0
        {
            let namespace = libc::ioctl(process, PIDFD_GET_UTS_NAMESPACE, 0);
            if namespace >= 0 && libc::fstat(namespace, &raw mut meta) == 0 {
                return Ok(meta.st_ino);
            }
        }
        // A kernel before 6.11.
        if libc::stat(c"/proc/self/ns/uts".as_ptr(), &raw mut meta) != 0 {
            return Err(last_errno());
        }
        Ok(meta.st_ino)
    }
}

fn prepare(plan: &mut Plan) -> Result<(), i32> {
    let must = |result: libc::c_long| if result == -1 { Err(last_errno()) } else { Ok(()) };
    // SAFETY: raw system calls with plain numbers and pointers into the plan or to literals, all valid.
    unsafe {
        if let Way::Tagged = plan.way {
            plan.tag = own_uts_namespace()?;
        }
        // The agent ignores SIGPIPE as every Rust program does; a command must not inherit that.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
        must(libc::setsid().into())?;
        if plan.terminal {
            must(libc::ioctl(plan.stdio[0], libc::TIOCSCTTY, 0).into())?;
        }
        for (number, &descriptor) in (0..).zip(&plan.stdio) {
            must(libc::dup2(descriptor, number).into())?;
        }
        for (resource, value) in [
            (libc::RLIMIT_CPU, plan.limits.cpu_seconds),
            (libc::RLIMIT_FSIZE, plan.limits.file_size),
            (libc::RLIMIT_NOFILE, plan.limits.open_files),
            (libc::RLIMIT_NPROC, plan.limits.processes),
            (libc::RLIMIT_AS, plan.limits.address_space),
            (libc::RLIMIT_DATA, plan.limits.memory),
        ] {
            if let Some(value) = value {
                let mut limit: libc::rlimit = std::mem::zeroed();
                must(libc::getrlimit(resource, &raw mut limit).into())?;
                // One second between the signal that names the limit and the one nobody survives.
                let most = if resource == libc::RLIMIT_CPU { value.saturating_add(1) } else { value };
                // What holds for the whole sandbox stays, and nobody here could raise it.
                limit.rlim_max = limit.rlim_max.min(most);
                limit.rlim_cur = limit.rlim_max.min(value);
                must(libc::setrlimit(resource, &raw const limit).into())?;
            }
        }
        match (plan.way, plan.user) {
            (Way::Confined(rules), _) => {
                // Ends with its supervisor even if that is killed.
                must(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0).into())?;
                landlock::enforce(rules).map_err(|error| error.raw_os_error().unwrap_or(libc::EPERM))?;
            }
            (Way::Tagged, GuestUser::Root) => {
                privileges::set_capabilities(privileges::GUEST_ROOT)
                    .map_err(|error| error.raw_os_error().unwrap_or(libc::EPERM))?;
            }
            (Way::Tagged, GuestUser::Sandbox) => {
                privileges::bound_to_nothing()
                    .map_err(|error| error.raw_os_error().unwrap_or(libc::EPERM))?;
                must(libc::syscall(libc::SYS_setresgid, SANDBOX_ID, SANDBOX_ID, SANDBOX_ID))?;
                must(libc::syscall(libc::SYS_setresuid, SANDBOX_ID, SANDBOX_ID, SANDBOX_ID))?;
            }
        }
        // Last, because everything above may still need what has that number.
        let mut first_closed = CONTROL;
        if let Some(control) = plan.control {
            // A descriptor that is there already would stay marked as closing on exec.
            must(libc::dup2(control, CONTROL).into())?;
            must(libc::fcntl(CONTROL, libc::F_SETFD, 0).into())?;
            first_closed += 1;
        }
        must(libc::syscall(libc::SYS_close_range, first_closed, u32::MAX, 0))?;
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        must(libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()).into())
    }
}

/// Tries each candidate as a shell would; returns why none could be executed.
fn execute(plan: &Plan) -> i32 {
    let mut worst = libc::ENOENT;
    for candidate in &plan.candidates {
        // SAFETY: NUL-terminated path, null-terminated arrays of NUL-terminated strings.
        unsafe { libc::execve(candidate.as_ptr(), plan.argv.as_ptr(), plan.environment.as_ptr()) };
        match last_errno() {
            libc::ENOENT | libc::ENOTDIR => {}
            libc::EACCES => worst = libc::EACCES,
            errno => return errno,
        }
    }
    worst
}
