//! The parent's side of starting a program: three ways to clone, chosen by how the processes of a run are
//! found and by whether a process of the guest could stop the child.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;

use isle_setup::sys::{Cloned, check, clone_process};
use rustix::pipe::{PipeFlags, pipe_with};

use super::Plan;
use super::child::{STEP_EXECUTE, STEP_SETUP, TIME_TO_EXECUTE, child_main};
use super::starting::{self, Starting};
use crate::async_fd::register;
use crate::oom_score::{self, OomScore};
use crate::processes::RunProcesses;
use crate::processes::supervisor::{NotStarted, supervise};
use crate::processes::uts_tag::Tag;

/// Size of the stack a child uses until it executes its program.
const STACK_BYTES: usize = 64 * 1024;

/// A child that has executed its program: its PID, how its processes are found, and a guard until its run
/// is registered; or why it was not executed.
pub(super) type Started = io::Result<Result<(i32, RunProcesses, Option<Starting>), NotStarted>>;

/// Starts the program as a child of the agent, in a UTS namespace of its own. The child shares memory with
/// the agent until it executes the program, which is the cheapest way the kernel offers.
pub(super) fn start_tagged(plan: &mut Plan, score: Option<&OomScore>) -> Started {
    let started = oom_score::as_command(score, || run_cloned(plan, libc::CLONE_NEWUTS))?;
    Ok(started.map(|pid| (pid, RunProcesses::Tagged(Tag(plan.tag)), None)))
}

/// The same in a child with memory of its own, so that stopping the child does not block the agent.
pub(super) async fn start_tagged_forked(plan: &mut Plan, score: Option<&OomScore>) -> Started {
    let (reports, report) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&reports, true)?;
    let reports = register(reports)?;
    plan.report = Some(report.as_raw_fd());
    // SAFETY: this process has one thread.
    let cloned = oom_score::as_command(score, || unsafe { clone_process(libc::CLONE_NEWUTS, None) })?;
    let Cloned::Parent { pid, .. } = cloned else {
        child_main(std::ptr::from_mut(plan).cast());
        // SAFETY: `child_main` has exited already.
        unsafe { libc::_exit(127) }
    };
    let starting = Starting::new(pid);
    drop(report);
    let reported = match tokio::time::timeout(TIME_TO_EXECUTE, starting::read_report(&reports)).await {
        Ok(reported) => reported?,
        Err(_) => return Ok(Err(NotStarted { step: STEP_EXECUTE, errno: libc::ETIMEDOUT })),
    };
    let number =
        |at: usize| reported.get(at..at + 4)?.first_chunk::<4>().map(|bytes| i32::from_ne_bytes(*bytes));
    match (reported.first_chunk::<8>(), number(8), number(12)) {
        (Some(_), Some(step), Some(errno)) => Ok(Err(NotStarted { step, errno })),
        (Some(tag), None, None) => {
            Ok(Ok((pid, RunProcesses::Tagged(Tag(u64::from_ne_bytes(*tag))), Some(starting))))
        }
        // Killed before it could report.
        _ => Err(io::Error::from_raw_os_error(libc::ECHILD)),
    }
}

/// Starts the program as a child of a supervisor, in a Landlock domain when there is a `scope`.
pub(super) fn start_supervised(plan: &mut Plan, scope: Option<RawFd>, score: Option<&OomScore>) -> Started {
    let [stdin, stdout, stderr] = plan.stdio;
    let mut keep = vec![stdin, stdout, stderr];
    keep.extend(plan.command_rules);
    keep.extend(plan.control.into_iter().flatten());
    let start = || {
        let not_cloned =
            |error: io::Error| NotStarted { step: STEP_SETUP, errno: error.raw_os_error().unwrap_or(0) };
        run_cloned(plan, 0).map_err(not_cloned)?
    };
    let started = oom_score::as_command(score, || supervise(&keep, scope, start))?;
    Ok(started.map(|(pid, supervisor)| (pid, RunProcesses::Supervised(supervisor), None)))
}

/// Clones, and waits until the program was executed or could not be.
fn run_cloned(plan: &mut Plan, namespaces: libc::c_int) -> io::Result<Result<i32, NotStarted>> {
    let began = Instant::now();
    let pid = clone_and_run(plan, namespaces)?;
    if plan.errno == 0 {
        if began.elapsed() < TIME_TO_EXECUTE || !(was_killed(pid) || has_not_executed(pid)) {
            return Ok(Ok(pid));
        }
        (plan.step, plan.errno) = (STEP_EXECUTE, libc::ETIMEDOUT);
    }
    // The child has exited already; the reaper must not take it for an orphan.
    // SAFETY: waits for a child that is about to exit: no process of the sandbox can trace it.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) };
    Ok(Err(NotStarted { step: plan.step, errno: plan.errno }))
}

/// Whether a child was killed. It is not reaped.
fn was_killed(pid: i32) -> bool {
    // SAFETY: plain data.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: `info` is valid for the calls, which reap nothing.
    unsafe {
        libc::waitid(libc::P_PID, pid.unsigned_abs(), &raw mut info, flags) == 0
            && info.si_pid() == pid
            && info.si_code == libc::CLD_KILLED
    }
}

/// Whether a child has never executed a program. A killed child releases the shared memory before it can be
/// waited for, so it may look like one that is still running.
fn has_not_executed(pid: i32) -> bool {
    /// `PF_FORKNOEXEC` of the kernel.
    const FORKED_ONLY: u64 = 0x40;
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name is set by the process, is in parentheses and need not be UTF-8.
    let end = stat.iter().rposition(|&byte| byte == b')').map_or(stat.len(), |end| end + 1);
    let fields = std::str::from_utf8(&stat[end..]).unwrap_or_default();
    let flags = fields.split_ascii_whitespace().nth(6).and_then(|flags| flags.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & FORKED_ONLY != 0)
}

fn clone_and_run(plan: &mut Plan, namespaces: libc::c_int) -> io::Result<i32> {
    // Allocated once and used by one child at a time: the agent is suspended while a child uses it.
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
    // SAFETY: plain data, filled by sigfillset; all signals are blocked while memory is shared so that
    // nothing runs in the child but `child_main`.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: both sets are valid.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    // SAFETY: the stack outlives the child's use of it because CLONE_VFORK suspends this (only) thread
    // until the child has executed a program or exited; `child_main` makes raw system calls only.
    let pid = unsafe { libc::clone(child_main, top.cast(), flags, std::ptr::from_mut(plan).cast()) };
    let result = check(pid.into());
    // SAFETY: restores the mask saved above.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    Ok(i32::try_from(result?).unwrap_or(-1))
}
