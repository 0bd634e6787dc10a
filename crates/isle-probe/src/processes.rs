//! Other processes: seeing them, signalling them, reading them, changing how they run.

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::Attack;
use crate::canary::{LEAKED, VARIABLE};
use crate::kernel::{contains, descriptor, errno_name, open_to_read, open_to_write, visible_processes};
use crate::namespaces::is_canary;
use crate::outcome::{Outcome, Tried};
use crate::target::Target;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new("proc.visible", "see processes of the host", visible),
    Attack::new("proc.exists", "find out which process numbers of the host are in use", exists),
    Attack::new("proc.pidfd_info", "ask whose a process of the host is", pidfd_info),
    Attack::new("proc.kill", "signal a process of the host", kill),
    Attack::new("proc.tgkill", "signal a thread of the host", tgkill),
    Attack::new("proc.pidfd_signal", "signal a process of the host through a descriptor", pidfd_signal),
    Attack::new("proc.sigqueue", "queue a signal to a process of the host", sigqueue),
    Attack::new("proc.kill_runtime", "signal the process that started this one", kill_runtime),
    Attack::new("proc.limit_runtime", "limit or slow down the process that started this one", limit_runtime),
    Attack::new("proc.ptrace", "trace a process of the host", ptrace),
    Attack::new("proc.vm_read", "read the memory of a process of the host", vm_read),
    Attack::new("proc.vm_write", "write the memory of a process of the host", vm_write),
    Attack::new("proc.mem", "open the memory of a process of the host", mem),
    Attack::new("proc.pidfd_getfd", "take a descriptor from a process of the host", pidfd_getfd),
    Attack::new("proc.kcmp", "compare with a process of the host", kcmp),
    Attack::new("proc.robust_list", "learn addresses of a process of the host", robust_list),
    Attack::new("proc.prlimit_other", "read or change limits of a process of the host", prlimit_other),
    Attack::new("proc.priority_other", "change the priority of a process of the host", priority_other),
    Attack::new("proc.affinity_other", "choose the CPUs of a process of the host", affinity_other),
    Attack::new("proc.environ", "read the environment of a process of the host", environ),
    Attack::new("proc.maps", "read the map of a process of the host", maps),
    Attack::new("sec.cmdline", "read secrets in command lines of the host", cmdline),
    Attack::new("sec.env_leak", "find the daemon's variables in the own environment", env_leak),
];

/// The outcome of a call on the canary's pid, which may also be the pid of a process in the sandbox.
fn on_canary<T>(target: &Target, pid: i32, what: &str, result: &io::Result<T>) -> Tried {
    if result.is_ok() && is_canary(pid, target)? == Some(false) {
        return Ok(Outcome::contained(format_args!("{what}: that number is a process of the sandbox")));
    }
    Ok(Outcome::of(what, result))
}

fn visible(target: &Target) -> Tried {
    let pid: i32 = target.number("pid")?;
    Ok(match visible_processes() {
        Ok(pids) if pids.contains(&pid) && is_canary(pid, target)? == Some(true) => {
            Outcome::escaped(format_args!("{} processes, the canary among them", pids.len()))
        }
        Ok(pids) => Outcome::contained(format_args!("{} processes, all of the sandbox", pids.len())),
        Err(error) => Outcome::contained(format_args!("/proc: {}", errno_name(&error))),
    })
}

/// Any error but "no such process" reveals that it exists.
fn exists(target: &Target) -> Tried {
    let pid: i32 = target.number("pid")?;
    let session = library_call!(getsid(pid));
    on_canary(target, pid, "getsid", &session)
}

/// The kernel reveals the user, parent and cgroup of any process for which there is a descriptor.
fn pidfd_info(target: &Target) -> Tried {
    const GET_INFO: libc::Ioctl = 0xc040_ff0b;
    let pid: i32 = target.number("pid")?;
    let mut information = [0u64; 8];
    information[0] = 0b11;
    let told = descriptor(kernel_call!(libc::SYS_pidfd_open, pid, 0))
        .and_then(|process| library_call!(ioctl(process.as_raw_fd(), GET_INFO, information.as_mut_ptr())));
    on_canary(target, pid, "PIDFD_GET_INFO", &told)
}

fn kill(target: &Target) -> Tried {
    let pid: i32 = target.number("pid")?;
    on_canary(target, pid, "kill", &library_call!(kill(pid, 0)))
}

fn tgkill(target: &Target) -> Tried {
    let pid: i32 = target.number("pid")?;
    on_canary(target, pid, "tgkill", &kernel_call!(libc::SYS_tgkill, pid, pid, 0))
}

fn pidfd_signal(target: &Target) -> Tried {
    let pid: i32 = target.number("pid")?;
    let sent = descriptor(kernel_call!(libc::SYS_pidfd_open, pid, 0))
        .and_then(|process| kernel_call!(libc::SYS_pidfd_send_signal, process.as_raw_fd(), 0, 0usize, 0));
    on_canary(target, pid, "pidfd_send_signal", &sent)
}

/// `SIGURG` is ignored by default.
fn sigqueue(target: &Target) -> Tried {
    let pid: i32 = target.number("pid")?;
    // SAFETY: plain data for which zero is valid.
    let mut information: libc::siginfo_t = unsafe { std::mem::zeroed() };
    information.si_signo = libc::SIGURG;
    information.si_code = libc::SI_QUEUE;
    let sent = kernel_call!(libc::SYS_rt_sigqueueinfo, pid, libc::SIGURG, &raw const information);
    on_canary(target, pid, "rt_sigqueueinfo", &sent)
}

/// The parent of the attack program and the first process, which are not the sandbox's own.
fn kill_runtime(_: &Target) -> Tried {
    // SAFETY: cannot fail and takes nothing.
    let program = unsafe { libc::getppid() };
    let above = crate::privileges::parent_of_program();
    let tried = [above, 1].into_iter().filter(|pid| *pid > 0 && *pid != program);
    Ok(Outcome::any(tried.map(|pid| Outcome::of(format_args!("kill {pid}"), &library_call!(kill(pid, 0))))))
}

/// To the current values, for the parent of the attack program and the first process.
fn limit_runtime(_: &Target) -> Tried {
    let mut outcomes = Vec::new();
    // SAFETY: cannot fail and takes nothing.
    let program = unsafe { libc::getppid() };
    let tried = [crate::privileges::parent_of_program(), 1];
    for pid in tried.into_iter().filter(|pid| *pid > 0 && *pid != program) {
        let (mut limit, mut set) = ([0u64; 2], [0u64; 16]);
        let files = kernel_call!(libc::SYS_prlimit64, pid, libc::RLIMIT_NOFILE, 0usize, limit.as_mut_ptr())
            .and_then(|_| {
                kernel_call!(libc::SYS_prlimit64, pid, libc::RLIMIT_NOFILE, limit.as_ptr(), 0usize)
            });
        let processors = kernel_call!(libc::SYS_sched_getaffinity, pid, size_of_val(&set), set.as_mut_ptr())
            .and_then(|_| kernel_call!(libc::SYS_sched_setaffinity, pid, size_of_val(&set), set.as_ptr()));
        // The call itself gives 20 less the value that is set.
        let priority = kernel_call!(libc::SYS_getpriority, libc::PRIO_PROCESS, pid)
            .and_then(|value| kernel_call!(libc::SYS_setpriority, libc::PRIO_PROCESS, pid, 20 - value));
        outcomes.extend([
            Outcome::of(format_args!("limits of {pid}"), &files),
            Outcome::of(format_args!("processors of {pid}"), &processors),
            Outcome::of(format_args!("priority of {pid}"), &priority),
        ]);
    }
    Ok(Outcome::any(outcomes))
}

fn ptrace(target: &Target) -> Tried {
    let pid: i32 = target.number("pid")?;
    let traced = kernel_call!(libc::SYS_ptrace, libc::c_long::from(libc::PTRACE_SEIZE), pid, 0usize, 0usize);
    on_canary(target, pid, "ptrace", &traced)
}

fn vectors(target: &Target, local: &mut [u8]) -> Result<[libc::iovec; 2], crate::outcome::NoCanary> {
    let address: usize = target.number("address")?;
    let remote = std::ptr::without_provenance_mut(address);
    Ok([
        libc::iovec { iov_base: local.as_mut_ptr().cast(), iov_len: local.len() },
        libc::iovec { iov_base: remote, iov_len: local.len() },
    ])
}

fn vm_read(target: &Target) -> Tried {
    let bytes = vec![0u8; target.secret()?.len()];
    across(target, bytes, libc::SYS_process_vm_readv, "process_vm_readv")
}

/// Writes the current value.
fn vm_write(target: &Target) -> Tried {
    let bytes = target.secret()?.into_bytes();
    across(target, bytes, libc::SYS_process_vm_writev, "process_vm_writev")
}

/// Copies between memories: `bytes` here, the canary's secret there.
fn across(target: &Target, mut bytes: Vec<u8>, call: libc::c_long, name: &str) -> Tried {
    let pid: i32 = target.number("pid")?;
    let [local, remote] = vectors(target, &mut bytes)?;
    let copied = kernel_call!(
        call,
        libc::c_long::from(pid),
        &raw const local,
        1usize,
        &raw const remote,
        1usize,
        0usize
    );
    on_canary(target, pid, name, &copied)
}

fn mem(target: &Target) -> Tried {
    let pid: i32 = target.number("pid")?;
    let path = format!("/proc/{pid}/mem");
    let opened = open_to_read(Path::new(&path)).and_then(|_| open_to_write(Path::new(&path)));
    on_canary(target, pid, "/proc/PID/mem", &opened)
}

fn pidfd_getfd(target: &Target) -> Tried {
    let pid: i32 = target.number("pid")?;
    let taken = descriptor(kernel_call!(libc::SYS_pidfd_open, pid, 0))
        .and_then(|process| descriptor(kernel_call!(libc::SYS_pidfd_getfd, process.as_raw_fd(), LEAKED, 0)));
    on_canary(target, pid, "pidfd_getfd", &taken)
}

fn kcmp(target: &Target) -> Tried {
    let pid: i32 = target.number("pid")?;
    let us = std::process::id();
    let compared = kernel_call!(libc::SYS_kcmp, us, pid, 1, 0usize, 0usize);
    on_canary(target, pid, "kcmp", &compared)
}

fn robust_list(target: &Target) -> Tried {
    let pid: i32 = target.number("pid")?;
    let (mut head, mut length) = (0usize, 0usize);
    let got = kernel_call!(libc::SYS_get_robust_list, pid, &raw mut head, &raw mut length);
    on_canary(target, pid, "get_robust_list", &got)
}

fn prlimit_other(target: &Target) -> Tried {
    let pid: i32 = target.number("pid")?;
    let mut limit = [0u64; 2];
    let got = kernel_call!(libc::SYS_prlimit64, pid, libc::RLIMIT_NOFILE, 0usize, limit.as_mut_ptr());
    on_canary(target, pid, "prlimit64", &got)
}

/// To the current value.
fn priority_other(target: &Target) -> Tried {
    let pid: u32 = target.number("pid")?;
    let set = library_call!(setpriority(libc::PRIO_PROCESS, pid, 0));
    on_canary(target, i32::try_from(pid).unwrap_or(0), "setpriority", &set)
}

fn affinity_other(target: &Target) -> Tried {
    let pid: i32 = target.number("pid")?;
    let mut set = [0u64; 16];
    let changed = kernel_call!(libc::SYS_sched_getaffinity, pid, size_of_val(&set), set.as_mut_ptr())
        .and_then(|_| kernel_call!(libc::SYS_sched_setaffinity, pid, size_of_val(&set), set.as_ptr()));
    on_canary(target, pid, "sched_setaffinity", &changed)
}

/// Looks for the secret in a file of every process.
fn search(target: &Target, file: &str) -> Tried {
    let secret = target.secret()?;
    let pids = match visible_processes() {
        Ok(pids) => pids,
        Err(error) => return Ok(Outcome::contained(format_args!("/proc: {}", errno_name(&error)))),
    };
    for pid in &pids {
        if std::fs::read(format!("/proc/{pid}/{file}")).is_ok_and(|bytes| contains(&bytes, &secret)) {
            return Ok(Outcome::escaped(format_args!("the secret, from /proc/{pid}/{file}")));
        }
    }
    Ok(Outcome::contained(format_args!("not in /proc/*/{file} of {} processes", pids.len())))
}

fn environ(target: &Target) -> Tried {
    let us = std::process::id().to_string();
    // The own environment is another attack.
    let path = Path::new("/proc").join(&us).join("environ");
    let own = std::fs::read(path).is_ok_and(|bytes| contains(&bytes, VARIABLE));
    let pid: i32 = target.number("pid")?;
    if own {
        let path = format!("/proc/{pid}/environ");
        let secret = target.secret()?;
        return Ok(match std::fs::read(&path) {
            Ok(bytes) if contains(&bytes, &secret) => {
                Outcome::escaped(format_args!("the secret, from {path}"))
            }
            Ok(_) => Outcome::contained(format_args!("{path} is another's")),
            Err(error) => Outcome::contained(format_args!("{path}: {}", errno_name(&error))),
        });
    }
    search(target, "environ")
}

fn maps(target: &Target) -> Tried {
    let pid: i32 = target.number("pid")?;
    let read = std::fs::read(format!("/proc/{pid}/maps"));
    on_canary(target, pid, "/proc/PID/maps", &read)
}

fn cmdline(target: &Target) -> Tried {
    search(target, "cmdline")
}

fn env_leak(target: &Target) -> Tried {
    let secret = target.secret()?;
    let found = std::env::vars_os().find(|(_, value)| contains(value.as_encoded_bytes(), &secret));
    Ok(match found {
        Some((name, _)) => Outcome::escaped(format_args!("the secret, in {}", name.display())),
        None => Outcome::contained("the secret is in no variable"),
    })
}
