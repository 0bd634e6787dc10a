//! The child's side of starting a program, from `clone` to `execve`. It mostly shares memory with the
//! suspended agent, so only raw system calls happen here: no allocation, no locks, no returning.

use std::os::fd::RawFd;
use std::time::Duration;

use isle_setup::{SANDBOX_ID, landlock, privileges};
use isle_wire::GuestUser;

use super::Plan;

/// Timeout for a child to execute its program. The agent is suspended until then, and from the moment the
/// child has the guest's UID any process of the sandbox can stop it.
pub(super) const TIME_TO_EXECUTE: Duration = Duration::from_secs(3);

/// The first descriptor an interpreter gets beside its input and output.
const CONTROL: RawFd = 3;

pub(super) const STEP_SETUP: i32 = 1;
pub(super) const STEP_DIRECTORY: i32 = 2;
pub(super) const STEP_EXECUTE: i32 = 3;

/// The main function of the child.
pub(super) extern "C" fn child_main(plan: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `plan` is the Plan passed to clone, alive and untouched by the suspended agent.
    let plan = unsafe { &mut *plan.cast::<Plan>() };
    let (step, errno) = match prepare(plan) {
        Err(errno) => (STEP_SETUP, errno),
        Ok(()) => match enter_directory(plan) {
            Err(errno) => (STEP_DIRECTORY, errno),
            Ok(()) => match become_guest(plan) {
                Err(errno) => (STEP_SETUP, errno),
                Ok(()) => (STEP_EXECUTE, execute(plan)),
            },
        },
    };
    plan.step = step;
    plan.errno = errno;
    if plan.tag == 0 {
        report(plan, &0u64.to_ne_bytes());
    }
    report(plan, &step.to_ne_bytes());
    report(plan, &errno.to_ne_bytes());
    // SAFETY: exits without running destructors of the agent.
    unsafe { libc::_exit(127) }
}

fn last_errno() -> i32 {
    // SAFETY: the location is always valid; the child shares it with the suspended agent.
    unsafe { *libc::__errno_location() }
}

/// The inode of this process's UTS namespace. Read through a pidfd, because the kernel would have to create
/// three `/proc` entries for a short-lived process otherwise. Descriptors opened here are closed with all
/// others before the program is executed.
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

fn must(result: libc::c_long) -> Result<(), i32> {
    if result == -1 { Err(last_errno()) } else { Ok(()) }
}

/// Has the kernel kill this process unless it executes a program in time, which removes the timer. So the
/// agent is never suspended for longer, whatever stops or delays this process.
fn arm_kill_timer() -> Result<(), i32> {
    // SAFETY: plain data for which zero is valid.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_SIGNAL;
    event.sigev_signo = libc::SIGKILL;
    let mut timer: libc::c_int = 0;
    let once = libc::itimerspec {
        it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: libc::timespec { tv_sec: TIME_TO_EXECUTE.as_secs().cast_signed(), tv_nsec: 0 },
    };
    // SAFETY: the kernel reads the event and the time and stores a number, all of which outlive the calls.
    unsafe {
        must(libc::syscall(libc::SYS_timer_create, libc::CLOCK_MONOTONIC, &raw const event, &raw mut timer))?;
        must(libc::syscall(
            libc::SYS_timer_settime,
            timer,
            0,
            &raw const once,
            std::ptr::null_mut::<libc::itimerspec>(),
        ))
    }
}

/// Enters the working directory with the rights of the guest user.
fn enter_directory(plan: &Plan) -> Result<(), i32> {
    // SAFETY: plain numbers, and a NUL-terminated path.
    unsafe {
        if plan.user == Some(GuestUser::Sandbox) {
            libc::syscall(libc::SYS_setfsgid, SANDBOX_ID);
            libc::syscall(libc::SYS_setfsuid, SANDBOX_ID);
        }
        must(libc::chdir(plan.cwd.as_ptr()).into())
    }
}

/// The last step before the program is executed: until here, no process of the guest user can signal this
/// one.
fn become_guest(plan: &Plan) -> Result<(), i32> {
    if plan.user == Some(GuestUser::Sandbox) {
        // SAFETY: plain numbers.
        unsafe {
            must(libc::syscall(libc::SYS_setresgid, SANDBOX_ID, SANDBOX_ID, SANDBOX_ID))?;
            must(libc::syscall(libc::SYS_setresuid, SANDBOX_ID, SANDBOX_ID, SANDBOX_ID))?;
        }
    }
    Ok(())
}

/// Reports to an agent that does not share this memory.
fn report(plan: &Plan, bytes: &[u8]) {
    if let Some(report) = plan.report {
        // SAFETY: the bytes outlive the call. A failure means that the agent has stopped waiting.
        unsafe { libc::write(report, bytes.as_ptr().cast(), bytes.len()) };
    }
}

fn prepare(plan: &mut Plan) -> Result<(), i32> {
    match plan.report {
        None => arm_kill_timer()?,
        // Moved away from the numbers an interpreter gets. The agent enforces the timeout.
        // SAFETY: plain numbers.
        Some(report) => unsafe {
            let moved = libc::fcntl(report, libc::F_DUPFD_CLOEXEC, CONTROL + 2);
            must(moved.into())?;
            plan.report = Some(moved);
        },
    }
    // SAFETY: raw system calls with plain numbers and pointers into the plan or to literals, all valid.
    unsafe {
        if plan.has_tag {
            plan.tag = own_uts_namespace()?;
            report(plan, &plan.tag.to_ne_bytes());
        }
        // The agent ignores SIGPIPE, as every Rust program does; a command must not inherit that.
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
                // One second between SIGXCPU and SIGKILL.
                let most = if resource == libc::RLIMIT_CPU { value.saturating_add(1) } else { value };
                // Limits of the whole sandbox stay; an unprivileged process could not raise them.
                limit.rlim_max = limit.rlim_max.min(most);
                limit.rlim_cur = limit.rlim_max.min(value);
                must(libc::setrlimit(resource, &raw const limit).into())?;
            }
        }
        if !plan.has_tag {
            // Killed with its supervisor, even if that is killed itself.
            must(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0).into())?;
        }
        if let Some(rules) = plan.command_rules {
            landlock::enforce(rules).map_err(|error| error.raw_os_error().unwrap_or(libc::EPERM))?;
        }
        match plan.user {
            Some(GuestUser::Root) => {
                privileges::set_capabilities(privileges::GUEST_ROOT)
                    .map_err(|error| error.raw_os_error().unwrap_or(libc::EPERM))?;
            }
            Some(GuestUser::Sandbox) => {
                privileges::bound_to_nothing()
                    .map_err(|error| error.raw_os_error().unwrap_or(libc::EPERM))?;
            }
            None => {}
        }
        // Last, because everything above may still use the descriptors with these numbers.
        let mut first_closed = CONTROL;
        if let Some(control) = plan.control {
            // Moved away from the target numbers first.
            let [receives, sends] = control.map(|one| libc::fcntl(one, libc::F_DUPFD, CONTROL + 2));
            must(libc::dup2(receives, CONTROL).into())?;
            must(libc::dup2(sends, CONTROL + 1).into())?;
            first_closed += 2;
        }
        if let Some(report) = plan.report {
            // Closed by the kernel when the program is executed.
            if report > first_closed {
                must(libc::syscall(libc::SYS_close_range, first_closed, report - 1, 0))?;
            }
            first_closed = report + 1;
        }
        must(libc::syscall(libc::SYS_close_range, first_closed, u32::MAX, 0))?;
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        must(libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()).into())
    }
}

/// Tries each candidate as a shell does; returns the error when none could be executed.
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
