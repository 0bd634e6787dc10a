//! Every rule, every number, every architecture, with allowed and perturbed arguments: the compiled
//! program must give the verdict of a model that is written down once more here, in words instead of
//! jumps.

use std::collections::BTreeSet;

use super::bpf::{Policy, compile, compile_countable};
use super::bpf_tests::{ALLOW, ARCH, KILL, NOTIFY, errno, run};
use super::calls;

const POLICIES: [Policy; 2] = [Policy::Container, Policy::Process];
/// Beyond every number any architecture has.
const HIGHEST: i64 = 1100;

/// Values that decide something somewhere, and their neighbours.
const VALUES: &[u64] = &[
    0,
    1,
    2,
    3,
    5,
    6,
    7,
    10,
    15,
    16,
    17,
    28,
    32,
    38,
    40,
    41,
    44,
    262,
    0x801,
    0x802,
    0x11,
    58,
    110,
    128,
    132,
    0x5411,
    0x5412,
    0x5413,
    0x541B,
    0x541C,
    0x5423,
    0xb701,
    0xb702,
    0xb703,
    0xff0a,
    0xff0b,
    0xc040_ff0b,
    0x8_0000,
    0x0002_0000,
    0x0004_0000,
    0x0200_0000,
    0x0400_0000,
    0x0800_0000,
    0x1000_0000,
    0x2000_0000,
    0x4000_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
];

/// The same values with something in the half that the kernel does not look at.
fn values() -> impl Iterator<Item = u64> {
    VALUES.iter().flat_map(|&value| [value, value | 1 << 32, value | 0xffff_ffff << 32])
}

/// What a kernel that takes an `int` sees.
fn int(value: u64) -> u32 {
    u32::try_from(value & 0xffff_ffff).unwrap()
}

/// What is to become of a call, by the text of the rules.
fn model(policy: Policy, number: i64, arguments: [u64; 3]) -> u32 {
    let [first, second, third] = arguments.map(int);
    let says = |allowed: bool, otherwise: u32| if allowed { ALLOW } else { otherwise };
    let no_family = errno(libc::EAFNOSUPPORT);
    let process = policy == Policy::Process;
    match number {
        // No namespace but the UTS one, which tags a run.
        libc::SYS_clone => {
            let forbidden = [
                libc::CLONE_NEWNS,
                libc::CLONE_NEWCGROUP,
                libc::CLONE_NEWIPC,
                libc::CLONE_NEWUSER,
                libc::CLONE_NEWPID,
                libc::CLONE_NEWNET,
            ];
            says(forbidden.iter().all(|flag| first & flag.unsigned_abs() == 0), NOTIFY)
        }
        // Unix and internet; of netlink only routes, to read one's own interfaces.
        // Of the internet's protocols the usual ones only.
        libc::SYS_socket if !process && matches!(first, 2 | 10) => {
            let usual = matches!(second & 0xf, 1..=3) && matches!(third, 0 | 1 | 6 | 17 | 58);
            says(usual, errno(libc::EPROTONOSUPPORT))
        }
        libc::SYS_socket if !process => says(first == 1 || (first == 16 && third == 0), no_family),
        // Streams of the internet, TCP by name or by silence, are for the agent to answer.
        libc::SYS_socket => {
            let tcp = matches!(first, 2 | 10) && second & 0xf == 1 && matches!(third, 0 | 6);
            if tcp { NOTIFY } else { no_family }
        }
        // Options of IP, TCP and IPv6 are taken, and nothing comes of it.
        libc::SYS_setsockopt => says(!process || !matches!(second, 0 | 6 | 41), errno(0)),
        libc::SYS_socketpair if !process => says(first == 1, no_family),
        // Streams and sequenced packets, with whatever flags.
        libc::SYS_socketpair => says(first == 1 && matches!(second & 0xf, 1 | 5), no_family),
        libc::SYS_ioctl => {
            let asks_of_a_process = second & 0xffff == 0xff0b;
            let refused = matches!(second, 0x5412 | 0x541C | 0x5423 | 0xb701 | 0xb702);
            says(!(refused || process && asks_of_a_process), NOTIFY)
        }
        libc::SYS_personality => says(matches!(first, 0 | 0xffff_ffff), NOTIFY),
        libc::SYS_bind => says(!process, NOTIFY),
        // As long as an address of the internet, or the room for one.
        libc::SYS_connect => says(!process && !matches!(third, 16 | 28 | 128), NOTIFY),
        libc::SYS_pidfd_getfd => says(!process, NOTIFY),
        libc::SYS_prlimit64
        | libc::SYS_sched_setaffinity
        | libc::SYS_sched_setattr
        | libc::SYS_sched_setparam
        | libc::SYS_sched_setscheduler => says(if process { first == 0 } else { first != 1 }, NOTIFY),
        libc::SYS_setpriority if process => says(first == 0 && second == 0, NOTIFY),
        libc::SYS_ioprio_set if process => says(first == 1 && second == 0, NOTIFY),
        // Of any process but the agent, and not of whole users.
        libc::SYS_setpriority => says(first != 2 && second != 1, NOTIFY),
        libc::SYS_ioprio_set => says(first != 3 && second != 1, NOTIFY),
        number if calls::SYSTEM_V_IPC.contains(&number) => says(!process, NOTIFY),
        number if calls::REFUSED.contains(&number) => NOTIFY,
        number if calls::ALLOWED.contains(&number) || calls::ALLOWED_BY_NUMBER.contains(&number) => ALLOW,
        _ => errno(libc::ENOSYS),
    }
}

#[test]
fn every_call_gets_the_verdict_of_its_rule_whatever_its_arguments() {
    let tables = [
        calls::CHECKED,
        calls::CHECKED_OF_PROCESSES,
        calls::CHECKED_AMONG_HOST_SOCKETS,
        calls::CHECKED_AMONG_OWN_SOCKETS,
    ];
    let looked_at: BTreeSet<i64> = tables.into_iter().flatten().map(|&(number, _)| number).collect();
    for policy in POLICIES {
        let program = compile(policy);
        for number in 0..=HIGHEST {
            let check = |arguments: [u64; 3]| {
                let found = run(&program, ARCH, number, arguments);
                let expected = model(policy, number, arguments);
                assert_eq!(found, expected, "{policy:?}: call {number} with {arguments:x?}");
            };
            if looked_at.contains(&number) {
                // All that any rule looks at, in every combination.
                for first in values() {
                    for second in values() {
                        check([first, second, 0]);
                        check([first, second, 6]);
                        check([first, second, 12]);
                    }
                    for third in values() {
                        check([first, 1, third]);
                    }
                }
            } else {
                for value in values() {
                    check([value, value, value]);
                }
            }
        }
    }
}

#[test]
fn where_memory_is_counted_by_looking_only_what_cannot_be_seen_is_absent() {
    for policy in POLICIES {
        let (plain, countable) = (compile(policy), compile_countable(policy));
        for number in 0..=HIGHEST {
            let expected = if number == libc::SYS_memfd_create {
                errno(libc::ENOSYS)
            } else {
                run(&plain, ARCH, number, [0; 3])
            };
            assert_eq!(run(&countable, ARCH, number, [0; 3]), expected, "{policy:?}: call {number}");
        }
        assert_eq!(run(&plain, ARCH, libc::SYS_memfd_create, [0; 3]), ALLOW);
    }
}

#[test]
fn no_number_of_another_instruction_set_is_served() {
    // i386, arm, the other of our two, riscv, s390x, mips, powerpc, nonsense.
    let other = if cfg!(target_arch = "x86_64") { 0xC000_00B7 } else { 0xC000_003E };
    let foreign =
        [0x4000_0003, 0x4000_0028, other, 0xC000_00F3, 0x8000_0016, 0x8000_0008, 0xC000_0015, 0, u32::MAX];
    for policy in POLICIES {
        let program = compile(policy);
        for arch in foreign {
            for number in 0..=HIGHEST {
                assert_eq!(run(&program, arch, number, [0; 3]), KILL, "{arch:x} {number}");
            }
        }
        // x32, and numbers that would be negative.
        for base in [0x4000_0000i64, 0x8000_0000, 0xffff_f000] {
            for number in (base..base + 600).filter(|&number| number <= 0xffff_ffff) {
                assert_eq!(run(&program, ARCH, number, [0; 3]), errno(libc::ENOSYS), "{number:x}");
            }
        }
    }
}

#[test]
fn no_call_is_in_two_tables_and_the_dangerous_ones_are_in_none_that_allows() {
    let tables: [&[i64]; 3] = [calls::ALLOWED, calls::REFUSED, calls::SYSTEM_V_IPC];
    let checked = calls::CHECKED.iter().chain(calls::CHECKED_OF_PROCESSES).map(|&(number, _)| number);
    let mut seen = BTreeSet::new();
    for number in tables.into_iter().flatten().copied().chain(checked) {
        assert!(seen.insert(number), "call {number} stands in two tables");
    }
    for number in [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_clone3,
        libc::SYS_quotactl_fd,
        libc::SYS_io_setup,
        libc::SYS_io_submit,
        libc::SYS_memfd_secret,
    ] {
        assert!(!seen.contains(&number), "call {number} must not exist for a sandbox");
    }
}
