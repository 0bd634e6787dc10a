//! The rules that look at arguments, really executed under the filter: on a thread of its own, since a
//! filter applies to the thread that installs it only.

use std::io;
use std::sync::mpsc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::bpf::{Policy, compile};
use super::install::{Listener, install};
use crate::sys::{check, prctl};

/// Runs `work` on a thread under the filter, answering what is refused as the agent does.
fn under<T: Send + 'static>(policy: Policy, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (listeners, listener) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0).unwrap();
        let program = compile(policy);
        listeners.send(install(&program).unwrap()).unwrap();
        work()
    });
    let listener: Listener = listener.recv().unwrap();
    while !thread.is_finished() {
        let mut ready = [PollFd::new(&listener, PollFlags::IN)];
        let moment = Timespec { tv_sec: 0, tv_nsec: Duration::from_millis(5).subsec_nanos().into() };
        let heard = poll(&mut ready, Some(&moment)).is_ok() && ready[0].revents().contains(PollFlags::IN);
        if heard && let Ok(notification) = listener.receive() {
            listener.refuse(notification, libc::EPERM).unwrap();
        }
    }
    thread.join().unwrap()
}

/// What a call says: 0 when it worked, else the error number. Descriptors it made are closed.
fn call(number: libc::c_long, arguments: [u64; 5]) -> i32 {
    let [a, b, c, d, e] = arguments;
    // SAFETY: the tests pass plain numbers, null pointers, or pointers to what outlives the call.
    match check(unsafe { libc::syscall(number, a, b, c, d, e) }) {
        Ok(result) => {
            if [libc::SYS_socket].contains(&number)
                && let Ok(descriptor) = i32::try_from(result)
            {
                // SAFETY: just created, owned by nothing else.
                unsafe { libc::close(descriptor) };
            }
            0
        }
        Err(error) => error.raw_os_error().unwrap(),
    }
}

fn socket(family: i32, kind: i32, protocol: u64) -> i32 {
    call(libc::SYS_socket, [family.unsigned_abs().into(), kind.unsigned_abs().into(), protocol, 0, 0])
}

fn pair(family: i32, kind: i32) -> i32 {
    let mut two = [-1i32; 2];
    let result = call(
        libc::SYS_socketpair,
        [family.unsigned_abs().into(), kind.unsigned_abs().into(), 0, two.as_mut_ptr().addr() as u64, 0],
    );
    for descriptor in two.into_iter().filter(|&descriptor| descriptor >= 0) {
        // SAFETY: just created, owned by nothing else.
        unsafe { libc::close(descriptor) };
    }
    result
}

/// `clone` with these flags; the child leaves at once.
fn clone(flags: libc::c_int) -> i32 {
    let flags = u64::from((flags | libc::SIGCHLD).unsigned_abs());
    // SAFETY: without CLONE_VM the child has memory of its own and does nothing but leave.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if pid == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    match check(pid) {
        Ok(pid) => {
            // SAFETY: waits for the child just made.
            unsafe { libc::waitpid(i32::try_from(pid).unwrap(), std::ptr::null_mut(), libc::__WALL) };
            0
        }
        Err(error) => error.raw_os_error().unwrap(),
    }
}

const HIGH: u64 = 0xdead_beef << 32;

#[test]
fn a_containers_rules_hold_when_executed() {
    let found = under(Policy::Container, || {
        let own = u64::from(std::process::id());
        vec![
            ("fork", clone(0), 0),
            ("clone newuser", clone(libc::CLONE_NEWUSER), libc::EPERM),
            ("clone newns", clone(libc::CLONE_NEWNS), libc::EPERM),
            ("clone newpid and newnet", clone(libc::CLONE_NEWPID | libc::CLONE_NEWNET), libc::EPERM),
            ("clone newcgroup", clone(libc::CLONE_NEWCGROUP), libc::EPERM),
            ("clone newipc", clone(libc::CLONE_NEWIPC), libc::EPERM),
            ("clone3", call(libc::SYS_clone3, [0; 5]), libc::ENOSYS),
            ("unix", socket(libc::AF_UNIX, libc::SOCK_STREAM, 0), 0),
            ("inet", socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0), 0),
            (
                "icmp, which a host may keep for some",
                Some(socket(libc::AF_INET, libc::SOCK_DGRAM, 1))
                    .filter(|said| *said != libc::EACCES)
                    .unwrap_or(0),
                0,
            ),
            ("sctp", socket(libc::AF_INET, libc::SOCK_STREAM, 132), libc::EPROTONOSUPPORT),
            ("sctp, unnamed", socket(libc::AF_INET6, libc::SOCK_SEQPACKET, 0), libc::EPROTONOSUPPORT),
            ("mptcp", socket(libc::AF_INET, libc::SOCK_STREAM, 262), libc::EPROTONOSUPPORT),
            ("mptcp, disguised", socket(libc::AF_INET, libc::SOCK_STREAM, HIGH | 262), libc::EPROTONOSUPPORT),
            ("tcp, by name", socket(libc::AF_INET6, libc::SOCK_STREAM, 6), 0),
            ("routes", socket(libc::AF_NETLINK, libc::SOCK_RAW, 0), 0),
            ("netfilter", socket(libc::AF_NETLINK, libc::SOCK_RAW, 12), libc::EAFNOSUPPORT),
            (
                "routes, but not to the kernel",
                socket(libc::AF_NETLINK, libc::SOCK_RAW, HIGH | 6),
                libc::EAFNOSUPPORT,
            ),
            ("crypto", socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0), libc::EAFNOSUPPORT),
            ("packets", socket(libc::AF_PACKET, libc::SOCK_RAW, 0), libc::EAFNOSUPPORT),
            ("vsock", socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0), libc::EAFNOSUPPORT),
            ("a pair", pair(libc::AF_UNIX, libc::SOCK_DGRAM), 0),
            ("injection", call(libc::SYS_ioctl, [u64::MAX, 0x5412, 0, 0, 0]), libc::EPERM),
            ("injection, disguised", call(libc::SYS_ioctl, [u64::MAX, HIGH | 0x5412, 0, 0, 0]), libc::EPERM),
            ("another control", call(libc::SYS_ioctl, [u64::MAX, 0x5413, 0, 0, 0]), libc::EBADF),
            ("asking for the personality", call(libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0]), 0),
            ("another personality", call(libc::SYS_personality, [0x0004_0000, 0, 0, 0, 0]), libc::EPERM),
            (
                "another, disguised",
                call(libc::SYS_personality, [HIGH | 0x0002_0000, 0, 0, 0, 0]),
                libc::EPERM,
            ),
            ("a pidfd's question", call(libc::SYS_ioctl, [u64::MAX, 0xc040_ff0b, 0, 0, 0]), libc::EBADF),
            ("asynchronous i/o", call(libc::SYS_io_setup, [1, 0, 0, 0, 0]), libc::ENOSYS),
            ("mount", call(libc::SYS_mount, [0; 5]), libc::EPERM),
            ("io_uring", call(libc::SYS_io_uring_setup, [1, 0, 0, 0, 0]), libc::ENOSYS),
            ("an unassigned number", call(5000, [0; 5]), libc::ENOSYS),
            ("x32", call(0x4000_0000 | 39, [0; 5]), libc::ENOSYS),
            ("another's limits", call(libc::SYS_prlimit64, [own, 7, 0, 0, 0]), 0),
            ("the agent's limits", call(libc::SYS_prlimit64, [1, 7, 0, 0, 0]), libc::EPERM),
            ("the agent's turns", call(libc::SYS_sched_setscheduler, [1, 5, 0, 0, 0]), libc::EPERM),
            ("the agent's, disguised", call(libc::SYS_sched_setattr, [HIGH | 1, 0, 0, 0, 0]), libc::EPERM),
            ("the agent's CPUs", call(libc::SYS_sched_setaffinity, [1, 0, 0, 0, 0]), libc::EPERM),
            ("own priority", call(libc::SYS_setpriority, [0, 0, 19, 0, 0]), 0),
            ("the agent's priority", call(libc::SYS_setpriority, [0, 1, 19, 0, 0]), libc::EPERM),
            ("its group's priority", call(libc::SYS_setpriority, [1, 1, 19, 0, 0]), libc::EPERM),
            ("a user's priority", call(libc::SYS_setpriority, [2, 0, 19, 0, 0]), libc::EPERM),
            ("the agent's disks", call(libc::SYS_ioprio_set, [1, 1, 0, 0, 0]), libc::EPERM),
        ]
    });
    for (what, found, expected) in found {
        assert_eq!(found, expected, "{what}: {}", io::Error::from_raw_os_error(found));
    }
}

#[test]
fn the_rules_of_tier_process_hold_when_executed() {
    let found = under(Policy::Process, || {
        let own = u64::from(std::process::id());
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        let room = std::ptr::from_mut(&mut limit).addr() as u64;
        vec![
            ("fork", clone(0), 0),
            ("clone newuser", clone(libc::CLONE_NEWUSER), libc::EPERM),
            ("unix", socket(libc::AF_UNIX, libc::SOCK_STREAM, 0), libc::EAFNOSUPPORT),
            ("inet", socket(libc::AF_INET, libc::SOCK_DGRAM, 0), libc::EAFNOSUPPORT),
            ("raw", socket(libc::AF_INET6, libc::SOCK_RAW, 58), libc::EAFNOSUPPORT),
            ("tcp, which the agent refuses here", socket(libc::AF_INET, libc::SOCK_STREAM, 0), libc::EPERM),
            ("tcp, disguised", socket(libc::AF_INET6, libc::SOCK_STREAM, HIGH | 6), libc::EPERM),
            ("an option of tcp", call(libc::SYS_setsockopt, [u64::MAX, 6, 1, 0, 0]), 0),
            ("one of sockets", call(libc::SYS_setsockopt, [u64::MAX, 1, 2, 0, 0]), libc::EBADF),
            ("a connected pair", pair(libc::AF_UNIX, libc::SOCK_STREAM), 0),
            ("packets in order", pair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK), 0),
            ("datagrams", pair(libc::AF_UNIX, libc::SOCK_DGRAM), libc::EAFNOSUPPORT),
            ("bind", call(libc::SYS_bind, [u64::MAX, 0, 0, 0, 0]), libc::EPERM),
            ("connect", call(libc::SYS_connect, [u64::MAX, 0, 0, 0, 0]), libc::EPERM),
            ("own limits", call(libc::SYS_prlimit64, [0, 7, 0, room, 0]), 0),
            ("another's limits", call(libc::SYS_prlimit64, [own, 7, 0, room, 0]), libc::EPERM),
            ("own priority", call(libc::SYS_setpriority, [0, 0, 19, 0, 0]), 0),
            ("another's priority", call(libc::SYS_setpriority, [0, own, 19, 0, 0]), libc::EPERM),
            ("a user's priority", call(libc::SYS_setpriority, [2, 0, 19, 0, 0]), libc::EPERM),
            ("another's scheduler", call(libc::SYS_sched_setscheduler, [own, 0, 0, 0, 0]), libc::EPERM),
            ("another's affinity", call(libc::SYS_sched_setaffinity, [own, 0, 0, 0, 0]), libc::EPERM),
            ("a pidfd's question", call(libc::SYS_ioctl, [u64::MAX, 0xc040_ff0b, 0, 0, 0]), libc::EPERM),
            ("the same, longer", call(libc::SYS_ioctl, [u64::MAX, 0xc0ff_ff0b, 0, 0, 0]), libc::EPERM),
            ("its namespaces", call(libc::SYS_ioctl, [u64::MAX, 0xff0a, 0, 0, 0]), libc::EBADF),
            ("another control", call(libc::SYS_ioctl, [u64::MAX, 0x5413, 0, 0, 0]), libc::EBADF),
            ("shared memory", call(libc::SYS_shmget, [0, 4096, 0o600, 0, 0]), libc::EPERM),
            ("message queues", call(libc::SYS_mq_open, [0; 5]), libc::EPERM),
            ("ptrace", call(libc::SYS_ptrace, [16, own, 0, 0, 0]), libc::EPERM),
        ]
    });
    for (what, found, expected) in found {
        assert_eq!(found, expected, "{what}: {}", io::Error::from_raw_os_error(found));
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_call_by_the_old_gate_is_the_end() {
    let program = compile(Policy::Container);
    // SAFETY: the child makes system calls only, with what was prepared before, and never returns.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0).ok();
        let installed = install(&program).is_ok();
        // SAFETY: asks the kernel, by its 32-bit gate, for the process's number; it touches no memory.
        unsafe { std::arch::asm!("int 0x80", inlateout("rax") 20i64 => _, options(nostack)) };
        // SAFETY: ends the child.
        unsafe { libc::_exit(if installed { 1 } else { 2 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made; `status` is valid.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert!(libc::WIFSIGNALED(status), "{status:x}");
    assert_eq!(libc::WTERMSIG(status), libc::SIGSYS);
}
