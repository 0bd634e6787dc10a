//! The kernel's attack surface: system calls that exploits use and ordinary programs do not need. The
//! arguments are chosen so that nothing happens to a host on which root runs this.

use std::io;

use crate::Attack;
use crate::kernel::descriptor;
use crate::outcome::{Outcome, Tried};
use crate::target::Target;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new("surf.io_uring", "set up io_uring", io_uring),
    Attack::new("surf.bpf", "load BPF maps and programs", bpf),
    Attack::new("surf.perf_event", "count events of the CPU", perf_event),
    Attack::new("surf.userfaultfd", "handle page faults", userfaultfd),
    Attack::new("surf.keyctl", "use the kernel's keyrings", keyctl),
    Attack::new("surf.ptrace", "be traced", ptrace),
    Attack::new("surf.modules", "load or remove kernel modules", modules),
    Attack::new("surf.kexec", "load another kernel", kexec),
    Attack::new("surf.reboot", "restart the machine", reboot),
    Attack::new("surf.swap_acct", "change swap and accounting", swap_acct),
    Attack::new("surf.syslog", "read the kernel's log by system call", syslog),
    Attack::new("surf.clock", "set the clock", clock),
    Attack::new("surf.hostname", "change the host name", hostname),
    Attack::new("surf.tiocsti", "type into a terminal", tiocsti),
    Attack::new("surf.line_discipline", "load a line discipline", line_discipline),
    Attack::new("surf.int80", "make 32-bit system calls", int80),
    Attack::new("surf.x32", "make x32 system calls", x32),
    Attack::new("surf.modify_ldt", "change the local descriptor table", modify_ldt),
    Attack::new("surf.io_ports", "use the machine's ports", io_ports),
    Attack::new("surf.personality", "turn off address randomisation", personality),
    Attack::new("surf.vsyscall", "read the vsyscall page", vsyscall),
    Attack::new("surf.af_alg", "use the kernel's cryptography sockets", |_| {
        Ok(socket(&[(libc::AF_ALG, libc::SOCK_SEQPACKET)]))
    }),
    Attack::new("surf.af_rare", "use sockets of rare families", af_rare),
    Attack::new("surf.inet_rare", "speak rare protocols of the Internet", inet_rare),
    Attack::new("surf.netlink", "use netlink beyond listing interfaces", netlink),
    Attack::new("surf.memory_policy", "move memory between nodes", memory_policy),
    Attack::new("surf.fanotify", "watch whole file systems", fanotify),
    Attack::new("surf.quota", "change quotas", quota),
    Attack::new("surf.memfd_secret", "hide memory from the kernel", memfd_secret),
    Attack::new("surf.vhangup", "hang up terminals", vhangup),
];

fn io_uring(_: &Target) -> Tried {
    let mut parameters = [0u64; 15];
    let ring = descriptor(kernel_call!(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()));
    let registered = kernel_call!(libc::SYS_io_uring_register, -1, 0, 0usize, 0);
    let entered = kernel_call!(libc::SYS_io_uring_enter, -1, 0, 0, 0, 0usize, 0usize);
    Ok(Outcome::any([
        Outcome::of("io_uring_setup", &ring),
        Outcome::of_right("io_uring_register", &registered),
        Outcome::of_right("io_uring_enter", &entered),
    ]))
}

fn bpf(_: &Target) -> Tried {
    let mut map = [0u32; 32];
    // An array of one entry.
    map[..4].copy_from_slice(&[2, 4, 4, 1]);
    let made = descriptor(kernel_call!(libc::SYS_bpf, 0, map.as_ptr(), 48));
    let mut next = [0u32; 32];
    let listed = kernel_call!(libc::SYS_bpf, 11, next.as_mut_ptr(), 12);
    Ok(Outcome::any([Outcome::of("a BPF map", &made), Outcome::of_right("listing BPF programs", &listed)]))
}

fn perf_event(_: &Target) -> Tried {
    let mut attributes = [0u64; 16];
    // Software event, the size of the structure; user code only.
    attributes[0] = 1 | (128 << 32);
    attributes[5] = 0b110_0000;
    let opened = descriptor(kernel_call!(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 0usize));
    Ok(Outcome::of("perf_event_open", &opened))
}

fn userfaultfd(_: &Target) -> Tried {
    let opened = [1, 0].map(|flags| {
        Outcome::of("userfaultfd", &descriptor(kernel_call!(libc::SYS_userfaultfd, flags | libc::O_CLOEXEC)))
    });
    Ok(Outcome::any(opened))
}

fn keyctl(_: &Target) -> Tried {
    const SESSION: i32 = -3;
    let asked = kernel_call!(libc::SYS_keyctl, 0, SESSION, 0);
    let added = kernel_call!(
        libc::SYS_add_key,
        c"isle-probe-no-such-type".as_ptr(),
        c"x".as_ptr(),
        0usize,
        0usize,
        SESSION
    );
    let requested = kernel_call!(libc::SYS_request_key, c"user".as_ptr(), c"isle-probe".as_ptr(), 0usize, 0);
    Ok(Outcome::any([
        Outcome::of_right("keyctl", &asked),
        Outcome::of_right("add_key", &added),
        Outcome::of_right("request_key", &requested),
    ]))
}

/// Being traced by the parent is harmless; the call itself is what exploits use.
fn ptrace(_: &Target) -> Tried {
    let traced = kernel_call!(libc::SYS_ptrace, libc::c_long::from(libc::PTRACE_TRACEME), 0, 0usize, 0usize);
    Ok(Outcome::of("ptrace", &traced))
}

fn modules(_: &Target) -> Tried {
    let loaded = kernel_call!(libc::SYS_init_module, 0usize, 0usize, c"".as_ptr());
    let from_file = kernel_call!(libc::SYS_finit_module, -1, c"".as_ptr(), 0);
    let removed =
        kernel_call!(libc::SYS_delete_module, c"isle_probe_no_such_module".as_ptr(), libc::O_NONBLOCK);
    Ok(Outcome::any([
        Outcome::of_right("init_module", &loaded),
        Outcome::of_right("finit_module", &from_file),
        Outcome::of_right("delete_module", &removed),
    ]))
}

fn kexec(_: &Target) -> Tried {
    const NO_SUCH_FLAGS: libc::c_ulong = 0xffff;
    let loaded = kernel_call!(libc::SYS_kexec_load, 0usize, 0usize, 0usize, NO_SUCH_FLAGS);
    let from_file = kernel_call!(libc::SYS_kexec_file_load, -1, -1, 0usize, c"".as_ptr(), NO_SUCH_FLAGS);
    Ok(Outcome::any([
        Outcome::of_right("kexec_load", &loaded),
        Outcome::of_right("kexec_file_load", &from_file),
    ]))
}

/// Without the magic numbers nothing happens.
fn reboot(_: &Target) -> Tried {
    Ok(Outcome::of_right("reboot", &kernel_call!(libc::SYS_reboot, 0, 0, 0, 0usize)))
}

fn swap_acct(_: &Target) -> Tried {
    let nowhere = c"/isle-probe-nowhere".as_ptr();
    Ok(Outcome::any([
        Outcome::of_right("swapon", &kernel_call!(libc::SYS_swapon, nowhere, 0)),
        Outcome::of_right("swapoff", &kernel_call!(libc::SYS_swapoff, nowhere)),
        Outcome::of_right("acct", &kernel_call!(libc::SYS_acct, nowhere)),
    ]))
}

fn syslog(_: &Target) -> Tried {
    let mut piece = [0u8; 256];
    let size = kernel_call!(libc::SYS_syslog, 10, 0usize, 0);
    let read = kernel_call!(libc::SYS_syslog, 3, piece.as_mut_ptr(), 256);
    Ok(Outcome::any([Outcome::of("syslog", &read), Outcome::of("syslog", &size)]))
}

fn clock(_: &Target) -> Tried {
    // SAFETY: plain data for which zero is valid.
    let mut times: libc::timex = unsafe { std::mem::zeroed() };
    // An invalid value: the permission is checked before.
    times.modes = libc::ADJ_TICK;
    times.tick = 1;
    let adjusted = kernel_call!(libc::SYS_adjtimex, &raw mut times);
    let adjusted_clock = kernel_call!(libc::SYS_clock_adjtime, libc::CLOCK_REALTIME, &raw mut times);
    let set = kernel_call!(libc::SYS_settimeofday, 0usize, 0usize);
    Ok(Outcome::any([
        Outcome::of_right("adjtimex", &adjusted),
        Outcome::of_right("clock_adjtime", &adjusted_clock),
        Outcome::of_right("settimeofday", &set),
    ]))
}

/// An invalid length: the permission is checked before.
fn hostname(_: &Target) -> Tried {
    let named = kernel_call!(libc::SYS_sethostname, c"".as_ptr(), -1);
    let domain = kernel_call!(libc::SYS_setdomainname, c"".as_ptr(), -1);
    Ok(Outcome::any([Outcome::of_right("sethostname", &named), Outcome::of_right("setdomainname", &domain)]))
}

/// A line end typed into the own terminal. The second request has bits the kernel does not look at.
fn tiocsti(_: &Target) -> Tried {
    let key = c"\n".as_ptr();
    let requests: [libc::c_ulong; 2] = [libc::TIOCSTI, libc::TIOCSTI | (1 << 32)];
    Ok(Outcome::any(requests.map(|request| {
        let typed = kernel_call!(libc::SYS_ioctl, 0, request, key);
        Outcome::of("TIOCSTI", &typed)
    })))
}

/// No permission is needed: the call itself loads modules.
fn line_discipline(_: &Target) -> Tried {
    let plain = 0i32;
    let changed = kernel_call!(libc::SYS_ioctl, 0, libc::TIOCSETD, &raw const plain);
    Ok(Outcome::of("TIOCSETD", &changed))
}

#[cfg(target_arch = "x86_64")]
fn int80(_: &Target) -> Tried {
    let answer: i64;
    // SAFETY: asks for the process's number through the 32-bit entry; clobbers what that entry does.
    unsafe {
        std::arch::asm!(
            "int 0x80",
            inlateout("rax") 20i64 => answer,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    Ok(if answer == i64::from(std::process::id()) {
        Outcome::escaped("getpid answered")
    } else {
        Outcome::contained(format_args!("answered {answer}"))
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn int80(_: &Target) -> Tried {
    Ok(Outcome::contained("this machine has no such entry"))
}

fn x32(_: &Target) -> Tried {
    let asked: io::Result<libc::c_long> = kernel_call!(0x4000_0000 | libc::SYS_getpid);
    Ok(Outcome::of("getpid", &asked))
}

#[cfg(target_arch = "x86_64")]
fn modify_ldt(_: &Target) -> Tried {
    let mut table = [0u8; 16];
    Ok(Outcome::of("modify_ldt", &kernel_call!(libc::SYS_modify_ldt, 0, table.as_mut_ptr(), 16usize)))
}

#[cfg(target_arch = "x86_64")]
fn io_ports(_: &Target) -> Tried {
    let raised = kernel_call!(libc::SYS_iopl, 3);
    let opened = kernel_call!(libc::SYS_ioperm, 0x80usize, 1usize, 1);
    Ok(Outcome::any([Outcome::of("iopl", &raised), Outcome::of("ioperm", &opened)]))
}

#[cfg(not(target_arch = "x86_64"))]
fn modify_ldt(_: &Target) -> Tried {
    Ok(Outcome::contained("this machine has none"))
}

#[cfg(not(target_arch = "x86_64"))]
fn io_ports(_: &Target) -> Tried {
    Ok(Outcome::contained("this machine has none"))
}

fn personality(_: &Target) -> Tried {
    const NO_RANDOMIZE: libc::c_ulong = 0x004_0000;
    const READ_IMPLIES_EXEC: libc::c_ulong = 0x040_0000;
    Ok(Outcome::any(
        [NO_RANDOMIZE, READ_IMPLIES_EXEC]
            .map(|wanted| Outcome::of("personality", &kernel_call!(libc::SYS_personality, wanted))),
    ))
}

fn vsyscall(_: &Target) -> Tried {
    let page: *const u8 = std::ptr::without_provenance(0xffff_ffff_ff60_0000);
    // SAFETY: a fault kills only this process, which exists for this test.
    let byte = unsafe { page.read_volatile() };
    Ok(Outcome::escaped(format_args!("read {byte:#x}")))
}

fn socket(kinds: &[(libc::c_int, libc::c_int)]) -> Outcome {
    Outcome::any(kinds.iter().map(|(family, kind)| {
        let made = descriptor(library_call!(socket(*family, *kind, 0)));
        Outcome::of(format_args!("a socket of family {family}"), &made)
    }))
}

fn af_rare(_: &Target) -> Tried {
    const RARE: &[libc::c_int] = &[
        libc::AF_VSOCK,
        libc::AF_XDP,
        29,
        30,
        21,
        33,
        15,
        42,
        43,
        31,
        36,
        24,
        26,
        9,
        3,
        6,
        11,
        5,
        4,
        35,
        37,
        45,
        41,
        39,
        8,
    ];
    let kinds = [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_STREAM, libc::SOCK_SEQPACKET];
    let all: Vec<_> = RARE.iter().flat_map(|family| kinds.map(|kind| (*family, kind))).collect();
    Ok(socket(&all))
}

fn inet_rare(_: &Target) -> Tried {
    // SCTP, DCCP, UDP-Lite, multipath TCP, and what a kernel takes for the kind alone.
    const RARE: &[(libc::c_int, libc::c_int)] = &[
        (libc::SOCK_STREAM, 132),
        (libc::SOCK_SEQPACKET, 132),
        (libc::SOCK_SEQPACKET, 0),
        (6, 33),
        (libc::SOCK_DGRAM, 136),
        (libc::SOCK_STREAM, 262),
        (libc::SOCK_STREAM, 256),
        (libc::SOCK_DGRAM, 115),
    ];
    let families = [libc::AF_INET, libc::AF_INET6];
    Ok(Outcome::any(families.into_iter().flat_map(|family| {
        RARE.iter().map(move |&(kind, protocol)| {
            let made = descriptor(library_call!(socket(family, kind | libc::SOCK_CLOEXEC, protocol)));
            Outcome::of(format_args!("protocol {protocol}, kind {kind}"), &made)
        })
    })))
}

fn netlink(_: &Target) -> Tried {
    // XFRM, netfilter, audit, socket monitoring, connector, generic, cryptography, events.
    let protocols = [6, 12, 9, 4, 11, 16, 21, 15];
    Ok(Outcome::any(protocols.map(|protocol| {
        let made = descriptor(library_call!(socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            protocol
        )));
        Outcome::of(format_args!("netlink {protocol}"), &made)
    })))
}

fn memory_policy(_: &Target) -> Tried {
    let policy = kernel_call!(libc::SYS_set_mempolicy, 0, 0usize, 0usize);
    let bound = kernel_call!(libc::SYS_mbind, 0usize, 0usize, 0, 0usize, 0usize, 0);
    let moved = kernel_call!(libc::SYS_move_pages, 0, 0usize, 0usize, 0usize, 0usize, 0);
    let migrated = kernel_call!(libc::SYS_migrate_pages, 0, 0usize, 0usize, 0usize);
    Ok(Outcome::any([
        Outcome::of_right("set_mempolicy", &policy),
        Outcome::of_right("mbind", &bound),
        Outcome::of_right("move_pages", &moved),
        Outcome::of_right("migrate_pages", &migrated),
    ]))
}

fn fanotify(_: &Target) -> Tried {
    const REPORT_FID: libc::c_uint = 0x200;
    Ok(Outcome::any([0, REPORT_FID].map(|flags| {
        Outcome::of(
            "fanotify_init",
            &descriptor(kernel_call!(libc::SYS_fanotify_init, flags, libc::O_RDONLY)),
        )
    })))
}

fn quota(_: &Target) -> Tried {
    // Switching quotas on for a device that is not there.
    const ON: libc::c_int = 0x0080_0002u32.cast_signed() << 8;
    let nowhere = c"/isle-probe-nowhere".as_ptr();
    Ok(Outcome::of_right("quotactl", &kernel_call!(libc::SYS_quotactl, ON, nowhere, 0, 0usize)))
}

fn memfd_secret(_: &Target) -> Tried {
    Ok(Outcome::of("memfd_secret", &descriptor(kernel_call!(447, 0))))
}

/// In a session without a terminal, so that no terminal is affected.
fn vhangup(_: &Target) -> Tried {
    // SAFETY: there is only one thread, so the child may run any code.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let alone = library_call!(setsid());
        let hung_up = alone.and_then(|_| kernel_call!(libc::SYS_vhangup));
        let error = hung_up.err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EINVAL));
        // SAFETY: leaves without running anything of the parent's.
        unsafe { libc::_exit(error) };
    }
    let mut status = 0;
    library_call!(waitpid(child, &raw mut status, 0)).ok();
    let result = match libc::WEXITSTATUS(status) {
        0 if libc::WIFEXITED(status) => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    };
    Ok(Outcome::of("vhangup", &result))
}
