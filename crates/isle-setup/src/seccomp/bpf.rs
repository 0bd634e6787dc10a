//! From the tables in `calls` to a BPF program: one architecture check, a binary search over the
//! call's number, and short argument checks for the few calls that need one. Written by hand
//! because the answers differ per call (allow, refuse loudly, `EAFNOSUPPORT`, `ENOSYS`), and
//! because this is a page one should be able to read.

use super::calls::{self, Check};

/// One BPF instruction, as the kernel takes it.
pub type Instruction = libc::sock_filter;

/// Which tier the filter is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Own namespaces: internet sockets reach only the sandbox's own loopback, System V IPC is private.
    Container,
    /// The host's namespaces: no sockets but connected pairs, one of which the agent may give to a program that
    /// asks for TCP; no System V IPC, no limits or priorities of other processes.
    Process,
}

#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xC000_00B7;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const OFFSET_ARGUMENTS: u32 = 16;
/// Set in the number of every x32 call.
const X32: u32 = 0x4000_0000;

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const JUMP_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const JUMP_ANY_BIT: u16 = 0x45; // BPF_JMP | BPF_JSET | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K
const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K

const ALLOW: u32 = 0x7fff_0000;
const KILL: u32 = 0x8000_0000;
const NOTIFY: u32 = 0x7fc0_0000;
const ERRNO: u32 = 0x0005_0000;

const NOT_A_CALL: u32 = ERRNO | libc::ENOSYS.unsigned_abs();
const DONE: u32 = ERRNO;
const NO_FAMILY: u32 = ERRNO | libc::EAFNOSUPPORT.unsigned_abs();
const NO_PROTOCOL: u32 = ERRNO | libc::EPROTONOSUPPORT.unsigned_abs();

/// The part of a socket's type that is not a flag.
const SOCKET_KIND: u32 = 0xf;
/// The part of an `ioctl` that says what it is, whatever size its argument has.
const IOCTL_NUMBER: u32 = 0xffff;

/// Processes by number: the caller, and the first of a pid namespace.
const ITSELF: u32 = 0;
const AGENT: u32 = 1;

/// What is done with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Return(u32),
    Check(Check),
}

/// Builds the program.
#[must_use]
pub fn compile(policy: Policy) -> Vec<Instruction> {
    compile_without(policy, &[])
}

/// The same for a sandbox whose memory only its agent counts: without the calls whose memory cannot
/// be seen from outside a process. Programs that would use them fall back to files.
#[must_use]
pub fn compile_countable(policy: Policy) -> Vec<Instruction> {
    compile_without(policy, calls::UNCOUNTABLE)
}

fn compile_without(policy: Policy, absent: &[libc::c_long]) -> Vec<Instruction> {
    let mut program = vec![
        step(LOAD, OFFSET_ARCH),
        jump(JUMP_EQUAL, AUDIT_ARCH, 1, 0),
        step(RETURN, KILL),
        step(LOAD, OFFSET_NUMBER),
        jump(JUMP_AT_LEAST, X32, 0, 1),
        step(RETURN, NOT_A_CALL),
    ];
    program.extend(search(&ranges(policy, absent), policy));
    program
}

/// Consecutive numbers with the same verdict, covering everything from 0 up.
fn ranges(policy: Policy, absent: &[libc::c_long]) -> Vec<(u32, Verdict)> {
    let mut verdicts: Vec<(u32, Verdict)> = Vec::new();
    let mut add = |numbers: &[libc::c_long], verdict: Verdict| {
        verdicts.extend(numbers.iter().filter_map(|&number| Some((u32::try_from(number).ok()?, verdict))));
    };
    let (refused, checked) = match policy {
        Policy::Container => ([].as_slice(), calls::CHECKED_AMONG_OWN_SOCKETS),
        Policy::Process => (calls::REFUSED_AMONG_HOST_SOCKETS, calls::CHECKED_AMONG_HOST_SOCKETS),
    };
    let special = |number: &libc::c_long| {
        refused.contains(number) || checked.iter().any(|(checked, _)| checked == number)
    };
    let allowed: Vec<libc::c_long> = calls::ALLOWED
        .iter()
        .copied()
        .filter(|number| !special(number) && !absent.contains(number))
        .collect();
    add(&allowed, Verdict::Return(ALLOW));
    add(calls::ALLOWED_BY_NUMBER, Verdict::Return(ALLOW));
    let own = match policy {
        Policy::Container => calls::ALLOWED_AMONG_OWN_PROCESSES,
        Policy::Process => &[],
    };
    let always: Vec<libc::c_long> =
        calls::REFUSED.iter().copied().filter(|number| !own.contains(number)).collect();
    add(&always, Verdict::Return(NOTIFY));
    add(own, Verdict::Return(ALLOW));
    match policy {
        Policy::Container => add(calls::SYSTEM_V_IPC, Verdict::Return(ALLOW)),
        Policy::Process => add(calls::SYSTEM_V_IPC, Verdict::Return(NOTIFY)),
    }
    add(refused, Verdict::Return(NOTIFY));
    for &(number, check) in calls::CHECKED.iter().chain(calls::CHECKED_OF_PROCESSES).chain(checked) {
        add(&[number], Verdict::Check(check));
    }
    verdicts.sort_by_key(|&(number, _)| number);

    let mut ranges = vec![];
    let mut next = 0;
    let mut push = |start: u32, verdict: Verdict| {
        if ranges.last().is_none_or(|&(_, last)| last != verdict) {
            ranges.push((start, verdict));
        }
    };
    for (number, verdict) in verdicts {
        if number > next {
            push(next, Verdict::Return(NOT_A_CALL));
        }
        push(number, verdict);
        next = number + 1;
    }
    push(next, Verdict::Return(NOT_A_CALL));
    ranges
}

/// A binary search: every path ends in a return, so the halves just follow each other.
fn search(ranges: &[(u32, Verdict)], policy: Policy) -> Vec<Instruction> {
    match ranges {
        [] => vec![step(RETURN, NOT_A_CALL)],
        [(_, Verdict::Return(value))] => vec![step(RETURN, *value)],
        [(_, Verdict::Check(check))] => examine(*check, policy),
        _ => {
            let (low, high) = ranges.split_at(ranges.len() / 2);
            let low_code = search(low, policy);
            let mut code = match u8::try_from(low_code.len()) {
                Ok(distance) => vec![jump(JUMP_AT_LEAST, high[0].0, distance, 0)],
                Err(_) => vec![
                    jump(JUMP_AT_LEAST, high[0].0, 0, 1),
                    step(JUMP, u32::try_from(low_code.len()).unwrap_or(u32::MAX)),
                ],
            };
            code.extend(low_code);
            code.extend(search(high, policy));
            code
        }
    }
}

/// Argument checks. Only the low half of an argument is looked at where the kernel itself only
/// uses an `int`; where it uses a long, the high half must be empty.
fn examine(check: Check, policy: Policy) -> Vec<Instruction> {
    match check {
        Check::CloneFlags => vec![
            load_argument(0),
            jump(JUMP_ANY_BIT, calls::NAMESPACE_FLAGS, 0, 1),
            step(RETURN, NOTIFY),
            step(RETURN, ALLOW),
        ],
        Check::Socket => match policy {
            Policy::Container => vec![
                load_argument(0),
                jump(JUMP_EQUAL, number(libc::AF_UNIX), 16, 0),
                jump(JUMP_EQUAL, number(libc::AF_INET), 4, 0),
                jump(JUMP_EQUAL, number(libc::AF_INET6), 3, 0),
                jump(JUMP_EQUAL, number(libc::AF_NETLINK), 0, 14),
                load_argument(2),
                jump(JUMP_EQUAL, 0, 11, 12), // NETLINK_ROUTE: reading one's own interfaces
                // Of the internet's protocols those that everybody speaks: the others are rare, and their
                // code in the kernel is seldom looked at, or even loaded for the first who asks.
                load_argument(1),
                step(AND, SOCKET_KIND),
                jump(JUMP_EQUAL, number(libc::SOCK_STREAM), 2, 0),
                jump(JUMP_EQUAL, number(libc::SOCK_DGRAM), 1, 0),
                jump(JUMP_EQUAL, number(libc::SOCK_RAW), 0, 8), // which needs a capability that is never granted
                load_argument(2),
                jump(JUMP_EQUAL, 0, 4, 0),
                jump(JUMP_EQUAL, number(libc::IPPROTO_ICMP), 3, 0),
                jump(JUMP_EQUAL, number(libc::IPPROTO_TCP), 2, 0),
                jump(JUMP_EQUAL, number(libc::IPPROTO_UDP), 1, 0),
                jump(JUMP_EQUAL, number(libc::IPPROTO_ICMPV6), 0, 2),
                step(RETURN, ALLOW),
                step(RETURN, NO_FAMILY),
                step(RETURN, NO_PROTOCOL),
            ],
            // TCP is the agent's to answer: there it is never more than one end of a pair.
            Policy::Process => vec![
                load_argument(0),
                jump(JUMP_EQUAL, number(libc::AF_INET), 1, 0),
                jump(JUMP_EQUAL, number(libc::AF_INET6), 0, 6),
                load_argument(1),
                step(AND, SOCKET_KIND),
                jump(JUMP_EQUAL, number(libc::SOCK_STREAM), 0, 3),
                load_argument(2),
                jump(JUMP_EQUAL, 0, 2, 0),
                jump(JUMP_EQUAL, number(libc::IPPROTO_TCP), 1, 0),
                step(RETURN, NO_FAMILY),
                step(RETURN, NOTIFY),
            ],
        },
        Check::SocketPair => match policy {
            Policy::Container => vec![
                load_argument(0),
                jump(JUMP_EQUAL, number(libc::AF_UNIX), 0, 1),
                step(RETURN, ALLOW),
                step(RETURN, NO_FAMILY),
            ],
            // A datagram socket, even of a pair, can be pointed at any socket of the host later.
            Policy::Process => vec![
                load_argument(0),
                jump(JUMP_EQUAL, number(libc::AF_UNIX), 0, 4),
                load_argument(1),
                step(AND, SOCKET_KIND),
                jump(JUMP_EQUAL, number(libc::SOCK_STREAM), 2, 0),
                jump(JUMP_EQUAL, number(libc::SOCK_SEQPACKET), 1, 0),
                step(RETURN, NO_FAMILY),
                step(RETURN, ALLOW),
            ],
        },
        Check::OfProcess => {
            let (who, named, another) = match policy {
                Policy::Container => (AGENT, NOTIFY, ALLOW),
                Policy::Process => (ITSELF, ALLOW, NOTIFY),
            };
            vec![load_argument(0), jump(JUMP_EQUAL, who, 0, 1), step(RETURN, named), step(RETURN, another)]
        }
        Check::OfProcessByKind(process) => match policy {
            Policy::Container => vec![
                load_argument(0),
                jump(JUMP_EQUAL, process + 2, 3, 0), // a user: the agent's may be the caller's
                load_argument(1),
                jump(JUMP_EQUAL, AGENT, 1, 0),
                step(RETURN, ALLOW),
                step(RETURN, NOTIFY),
            ],
            Policy::Process => vec![
                load_argument(0),
                jump(JUMP_EQUAL, process, 0, 3),
                load_argument(1),
                jump(JUMP_EQUAL, ITSELF, 0, 1),
                step(RETURN, ALLOW),
                step(RETURN, NOTIFY),
            ],
        },
        Check::Ioctl => {
            // Its size is part of the number, and grows with the kernel's versions.
            let of_processes = match policy {
                Policy::Container => vec![],
                Policy::Process => {
                    vec![step(AND, IOCTL_NUMBER), jump(JUMP_EQUAL, calls::PIDFD_GET_INFO, 1, 0)]
                }
            };
            let mut code = vec![load_argument(1)];
            let count = u8::try_from(calls::REFUSED_IOCTLS.len() + of_processes.len()).unwrap_or(u8::MAX);
            for (index, &request) in (0u8..).zip(calls::REFUSED_IOCTLS) {
                code.push(jump(JUMP_EQUAL, request, count - index, 0));
            }
            code.extend(of_processes);
            code.extend([step(RETURN, ALLOW), step(RETURN, NOTIFY)]);
            code
        }
        Check::InternetOption => vec![
            load_argument(1),
            jump(JUMP_EQUAL, number(libc::IPPROTO_IP), 3, 0),
            jump(JUMP_EQUAL, number(libc::IPPROTO_TCP), 2, 0),
            jump(JUMP_EQUAL, number(libc::IPPROTO_IPV6), 1, 0),
            step(RETURN, ALLOW),
            step(RETURN, DONE),
        ],
        Check::Connect => {
            let [four, six, either] = calls::INTERNET_ADDRESSES;
            vec![
                load_argument(2),
                jump(JUMP_EQUAL, four, 3, 0),
                jump(JUMP_EQUAL, six, 2, 0),
                jump(JUMP_EQUAL, either, 1, 0),
                step(RETURN, ALLOW),
                step(RETURN, NOTIFY),
            ]
        }
        Check::Personality => vec![
            load_argument(0),
            jump(JUMP_EQUAL, 0, 1, 0),
            jump(JUMP_EQUAL, u32::MAX, 0, 1),
            step(RETURN, ALLOW),
            step(RETURN, NOTIFY),
        ],
    }
}

fn number(value: libc::c_int) -> u32 {
    value.unsigned_abs()
}

fn load_argument(index: u32) -> Instruction {
    step(LOAD, OFFSET_ARGUMENTS + 8 * index)
}

fn step(code: u16, k: u32) -> Instruction {
    Instruction { code, jt: 0, jf: 0, k }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code, jt, jf, k }
}
