//! The compiled program, run by a small interpreter: every verdict of the tables must come out.

use super::bpf::{Instruction, Policy, compile};

pub(super) const ALLOW: u32 = 0x7fff_0000;
pub(super) const NOTIFY: u32 = 0x7fc0_0000;
pub(super) const KILL: u32 = 0x8000_0000;

pub(super) fn errno(number: i32) -> u32 {
    0x0005_0000 | number.unsigned_abs()
}

pub(super) fn run(program: &[Instruction], arch: u32, number: i64, arguments: [u64; 3]) -> u32 {
    let mut data = [0u8; 64];
    data[0..4].copy_from_slice(&u32::try_from(number).unwrap().to_ne_bytes());
    data[4..8].copy_from_slice(&arch.to_ne_bytes());
    for (index, argument) in arguments.iter().enumerate() {
        data[16 + 8 * index..24 + 8 * index].copy_from_slice(&argument.to_ne_bytes());
    }
    let (mut at, mut accumulator) = (0usize, 0u32);
    loop {
        let step = program[at];
        at += 1;
        let mut branch = |taken: bool| at += usize::from(if taken { step.jt } else { step.jf });
        match step.code {
            0x20 => {
                let offset = step.k as usize;
                accumulator = u32::from_ne_bytes(data[offset..offset + 4].try_into().unwrap());
            }
            0x54 => accumulator &= step.k,
            0x05 => at += step.k as usize,
            0x15 => branch(accumulator == step.k),
            0x35 => branch(accumulator >= step.k),
            0x45 => branch(accumulator & step.k != 0),
            0x06 => return step.k,
            other => panic!("unknown instruction {other:#x}"),
        }
    }
}

pub(super) const ARCH: u32 = if cfg!(target_arch = "x86_64") { 0xC000_003E } else { 0xC000_00B7 };

fn container(number: i64, arguments: [u64; 3]) -> u32 {
    run(&compile(Policy::Container), ARCH, number, arguments)
}

#[test]
fn ordinary_calls_are_allowed() {
    for number in [libc::SYS_read, libc::SYS_execve, libc::SYS_openat, libc::SYS_futex, libc::SYS_statx, 452]
    {
        assert_eq!(container(number, [0; 3]), ALLOW);
    }
}

#[test]
fn refused_calls_are_reported_and_unknown_ones_do_not_exist() {
    for number in [libc::SYS_mount, libc::SYS_ptrace, libc::SYS_bpf, libc::SYS_unshare, libc::SYS_keyctl] {
        assert_eq!(container(number, [0; 3]), NOTIFY);
    }
    for number in [libc::SYS_clone3, libc::SYS_io_uring_setup, 2000] {
        assert_eq!(container(number, [0; 3]), errno(libc::ENOSYS));
    }
}

#[test]
fn another_instruction_set_dies_and_x32_does_not_exist() {
    let program = compile(Policy::Container);
    assert_eq!(run(&program, 0x4000_0003, 1, [0; 3]), KILL);
    assert_eq!(run(&program, ARCH, 0x4000_0000, [0; 3]), errno(libc::ENOSYS));
}

#[test]
fn clone_may_make_processes_and_threads_but_no_namespaces() {
    let flags = |value: i32| [u64::from(value.unsigned_abs()), 0, 0];
    assert_eq!(container(libc::SYS_clone, flags(libc::SIGCHLD)), ALLOW);
    assert_eq!(container(libc::SYS_clone, flags(libc::CLONE_VM | libc::CLONE_THREAD)), ALLOW);
    for flag in [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWCGROUP,
    ] {
        assert_eq!(container(libc::SYS_clone, flags(flag | libc::SIGCHLD)), NOTIFY);
    }
}

#[test]
fn sockets_by_family_and_tier() {
    let no_family = errno(libc::EAFNOSUPPORT);
    let socket = |family: i32, protocol: u64| [u64::from(family.unsigned_abs()), 1, protocol];
    for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
        assert_eq!(container(libc::SYS_socket, socket(family, 0)), ALLOW);
    }
    let process = |arguments| run(&compile(Policy::Process), ARCH, libc::SYS_socket, arguments);
    // The agent answers, and never with a socket of the internet.
    for family in [libc::AF_INET, libc::AF_INET6] {
        for protocol in [0, 6] {
            assert_eq!(process(socket(family, protocol)), NOTIFY);
        }
        for protocol in [1, 17, 132, 255, 262] {
            assert_eq!(process(socket(family, protocol)), no_family);
        }
        for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET] {
            let kind = u64::from(kind.unsigned_abs());
            assert_eq!(process([u64::from(family.unsigned_abs()), kind, 0]), no_family);
        }
    }
    for family in [libc::AF_UNIX, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_VSOCK] {
        assert_eq!(process(socket(family, 0)), no_family);
    }
    assert_eq!(container(libc::SYS_socket, socket(libc::AF_NETLINK, 0)), ALLOW);
    for protocol in [6, 12, 15] {
        assert_eq!(container(libc::SYS_socket, socket(libc::AF_NETLINK, protocol)), no_family);
    }
    for family in [libc::AF_ALG, libc::AF_VSOCK, libc::AF_PACKET, libc::AF_XDP, libc::AF_KEY, libc::AF_TIPC] {
        assert_eq!(container(libc::SYS_socket, socket(family, 0)), no_family);
    }
    assert_eq!(container(libc::SYS_socketpair, socket(libc::AF_UNIX, 0)), ALLOW);
    assert_eq!(container(libc::SYS_socketpair, socket(libc::AF_INET, 0)), no_family);
}

#[test]
fn terminal_injection_and_odd_personalities_are_refused() {
    for request in [0x5412, 0x541C, 0x5423, 0xb701, 0xb702] {
        assert_eq!(container(libc::SYS_ioctl, [0, request, 0]), NOTIFY);
    }
    for request in [0x5401, 0x5413, 0x5410] {
        assert_eq!(container(libc::SYS_ioctl, [0, request, 0]), ALLOW);
    }
    assert_eq!(container(libc::SYS_personality, [0xffff_ffff, 0, 0]), ALLOW);
    assert_eq!(container(libc::SYS_personality, [0, 0, 0]), ALLOW);
    assert_eq!(container(libc::SYS_personality, [0x0040_0000, 0, 0]), NOTIFY);
}

#[test]
fn system_v_ipc_is_private_to_containers_and_refused_to_processes() {
    assert_eq!(container(libc::SYS_shmget, [0; 3]), ALLOW);
    assert_eq!(run(&compile(Policy::Process), ARCH, libc::SYS_shmget, [0; 3]), NOTIFY);
}

#[test]
fn a_process_has_only_pairs_that_stay_connected_to_each_other() {
    let process = |number, arguments| run(&compile(Policy::Process), ARCH, number, arguments);
    let pair = |family: i32, kind: i32| [u64::from(family.unsigned_abs()), u64::from(kind.unsigned_abs()), 0];
    for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC] {
        assert_eq!(process(libc::SYS_socketpair, pair(libc::AF_UNIX, kind)), ALLOW);
    }
    for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK] {
        assert_eq!(process(libc::SYS_socketpair, pair(libc::AF_UNIX, kind)), errno(libc::EAFNOSUPPORT));
        assert_eq!(container(libc::SYS_socketpair, pair(libc::AF_UNIX, kind)), ALLOW);
    }
    assert_eq!(
        process(libc::SYS_socketpair, pair(libc::AF_TIPC, libc::SOCK_STREAM)),
        errno(libc::EAFNOSUPPORT)
    );
    for number in [libc::SYS_bind, libc::SYS_connect] {
        assert_eq!(process(number, [0; 3]), NOTIFY);
        assert_eq!(container(number, [0; 3]), ALLOW);
    }
}

#[test]
fn options_of_the_internet_are_taken_where_no_socket_is_of_it() {
    let process = |level| run(&compile(Policy::Process), ARCH, libc::SYS_setsockopt, [3, level, 1]);
    for level in [libc::IPPROTO_IP, libc::IPPROTO_TCP, libc::IPPROTO_IPV6] {
        assert_eq!(process(u64::from(level.unsigned_abs())), errno(0));
        assert_eq!(container(libc::SYS_setsockopt, [3, u64::from(level.unsigned_abs()), 1]), ALLOW);
    }
    for level in [libc::SOL_SOCKET, libc::IPPROTO_UDP, libc::SOL_NETLINK] {
        assert_eq!(process(u64::from(level.unsigned_abs())), ALLOW);
    }
}

#[test]
fn a_process_changes_limits_and_priorities_of_itself_only() {
    let process = |number, arguments| run(&compile(Policy::Process), ARCH, number, arguments);
    for number in [libc::SYS_prlimit64, libc::SYS_sched_setaffinity, libc::SYS_sched_setscheduler] {
        assert_eq!(process(number, [0; 3]), ALLOW);
        assert_eq!(process(number, [1234, 0, 0]), NOTIFY);
        assert_eq!(container(number, [1234, 0, 0]), ALLOW);
        assert_eq!(container(number, [1, 0, 0]), NOTIFY, "the agent's");
    }
    assert_eq!(process(libc::SYS_setpriority, [0, 0, 5]), ALLOW);
    assert_eq!(process(libc::SYS_setpriority, [0, 1234, 5]), NOTIFY);
    assert_eq!(process(libc::SYS_setpriority, [2, 0, 5]), NOTIFY);
    assert_eq!(process(libc::SYS_ioprio_set, [1, 0, 0]), ALLOW);
    assert_eq!(process(libc::SYS_ioprio_set, [3, 0, 0]), NOTIFY);
}
