//! Namespaces: which are the host's, and whether others can be made or entered.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::Attack;
use crate::kernel::{descriptor, errno_name, identity};
use crate::outcome::{NoCanary, Outcome, Tried};
use crate::target::Target;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new("ns.user", "share the host's user namespace", |target| shared(target, "user", "ns-user")),
    Attack::new("ns.pid", "share the host's process namespace", |target| shared(target, "pid", "ns-pid")),
    Attack::new("ns.mnt", "share the host's mount namespace", |target| shared(target, "mnt", "ns-mnt")),
    Attack::new("ns.net", "share the host's network namespace", |target| shared(target, "net", "ns-net")),
    Attack::new("ns.ipc", "share the host's IPC namespace", |target| shared(target, "ipc", "ns-ipc")),
    Attack::new("ns.uts", "share the host's host name namespace", |target| shared(target, "uts", "ns-uts")),
    Attack::new("ns.cgroup", "share the host's cgroup namespace", |target| {
        shared(target, "cgroup", "ns-cgroup")
    }),
    Attack::new("ns.uid_map", "have the host's root among the ids of the sandbox", uid_map),
    Attack::new("ns.setns", "enter a namespace", setns),
    Attack::new("ns.setns_process", "enter the namespaces of a process of the host", setns_process),
    Attack::new("ns.get_parent", "climb from a namespace to the one above", get_parent),
    Attack::new("ns.unshare_user", "make a user namespace", |_| Ok(unshare(libc::CLONE_NEWUSER))),
    Attack::new("ns.unshare_mnt", "make a mount namespace", |_| Ok(unshare(libc::CLONE_NEWNS))),
    Attack::new("ns.unshare_pid", "make a process namespace", |_| Ok(unshare(libc::CLONE_NEWPID))),
    Attack::new("ns.unshare_net", "make a network namespace", |_| Ok(unshare(libc::CLONE_NEWNET))),
    Attack::new("ns.unshare_ipc", "make an IPC namespace", |_| Ok(unshare(libc::CLONE_NEWIPC))),
    Attack::new("ns.unshare_uts", "make a host name namespace", |_| Ok(unshare(libc::CLONE_NEWUTS))),
    Attack::new("ns.unshare_cgroup", "make a cgroup namespace", |_| Ok(unshare(libc::CLONE_NEWCGROUP))),
    Attack::new("ns.unshare_time", "make a time namespace", |_| Ok(unshare(CLONE_NEWTIME))),
    Attack::new("ns.clone_flags", "start a process in a namespace of its own", clone_flags),
    Attack::new("ns.clone3", "the same with the newer call, whose flags no filter sees", clone3),
];

const CLONE_NEWTIME: libc::c_int = 0x80;

/// A descriptor of this process's namespace: through `/proc`, or through a descriptor of the process
/// itself, which needs no `/proc`.
fn own(kind: &str) -> io::Result<OwnedFd> {
    let through_proc = std::fs::File::open(format!("/proc/self/ns/{kind}"));
    if let Ok(file) = through_proc {
        return Ok(file.into());
    }
    let request: libc::Ioctl = match kind {
        "cgroup" => 0xff01,
        "ipc" => 0xff02,
        "mnt" => 0xff03,
        "net" => 0xff04,
        "pid" => 0xff05,
        "user" => 0xff09,
        _ => 0xff0a,
    };
    let process = descriptor(kernel_call!(libc::SYS_pidfd_open, std::process::id(), 0))?;
    descriptor(library_call!(ioctl(process.as_raw_fd(), request, 0)))
}

/// Which namespace this process is in.
pub(crate) fn inode(kind: &str) -> io::Result<u64> {
    if let Ok(meta) = std::fs::metadata(format!("/proc/self/ns/{kind}")) {
        return Ok(meta.ino());
    }
    identity(&own(kind)?).map(|(_, inode)| inode)
}

fn shared(target: &Target, kind: &'static str, canary: &'static str) -> Tried {
    let host: u64 = target.number(canary)?;
    Ok(match inode(kind) {
        Ok(ours) if ours == host => Outcome::escaped(format_args!("the host's, {ours}")),
        Ok(ours) => Outcome::contained(format_args!("its own, {ours}")),
        Err(error) => Outcome::not_testable(format_args!("cannot tell: {}", errno_name(&error))),
    })
}

/// Where a map cannot be read, the id itself tells.
fn uid_map(_: &Target) -> Tried {
    // SAFETY: cannot fail and takes nothing.
    let uid = unsafe { libc::getuid() };
    let Ok(map) = std::fs::read_to_string("/proc/self/uid_map") else {
        return Ok(if uid == 0 {
            Outcome::escaped("root, and no map to be seen")
        } else {
            Outcome::contained(format_args!("id {uid}, and no map to be seen"))
        });
    };
    let outside_root = map.lines().any(|line| {
        let mut numbers = line.split_whitespace().skip(1);
        numbers.next() == Some("0")
    });
    let seen = map.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(if outside_root { Outcome::escaped(seen) } else { Outcome::contained(seen) })
}

fn setns(_: &Target) -> Tried {
    let kinds = [("net", libc::CLONE_NEWNET), ("uts", libc::CLONE_NEWUTS), ("mnt", libc::CLONE_NEWNS)];
    Ok(Outcome::any(kinds.map(|(kind, flag)| match own(kind) {
        Ok(namespace) => {
            Outcome::of(format_args!("setns ({kind})"), &library_call!(setns(namespace.as_raw_fd(), flag)))
        }
        Err(error) => Outcome::not_testable(format_args!("no descriptor of it: {}", errno_name(&error))),
    })))
}

fn setns_process(target: &Target) -> Tried {
    let pid: i32 = target.number("pid")?;
    let entered = descriptor(kernel_call!(libc::SYS_pidfd_open, pid, 0)).and_then(|process| {
        library_call!(setns(process.as_raw_fd(), libc::CLONE_NEWNET | libc::CLONE_NEWUTS))
    });
    Ok(Outcome::of("setns (canary)", &entered))
}

/// What lies above is an escape when it is the host's.
fn get_parent(target: &Target) -> Tried {
    const OWNER: libc::Ioctl = 0xb701;
    const PARENT: libc::Ioctl = 0xb702;
    let hosts: [u64; 2] = [target.number("ns-user")?, target.number("ns-pid")?];
    Ok(Outcome::any([("net", OWNER), ("uts", OWNER), ("user", PARENT), ("pid", PARENT)].map(
        |(kind, request)| {
            let above = own(kind)
                .and_then(|namespace| descriptor(library_call!(ioctl(namespace.as_raw_fd(), request, 0))));
            match above.and_then(|above| identity(&above)) {
                Ok((_, inode)) if hosts.contains(&inode) || request == PARENT => {
                    Outcome::escaped(format_args!("above {kind} is {inode}"))
                }
                Ok((_, inode)) => {
                    Outcome::contained(format_args!("{kind} belongs to the sandbox's own, {inode}"))
                }
                Err(error) => Outcome::contained(format_args!("{kind}: {}", errno_name(&error))),
            }
        },
    )))
}

fn unshare(flag: libc::c_int) -> Outcome {
    Outcome::of("unshare", &library_call!(unshare(flag)))
}

/// The child of a raw clone: leaves at once.
fn leave_or(result: io::Result<libc::c_long>, what: &str) -> Outcome {
    if matches!(result, Ok(0)) {
        // SAFETY: leaves without running anything of the parent's.
        unsafe { libc::_exit(0) };
    }
    Outcome::of(what, &result)
}

fn clone_flags(_: &Target) -> Tried {
    let flags =
        [libc::CLONE_NEWUSER, libc::CLONE_NEWNS, libc::CLONE_NEWNET, libc::CLONE_NEWPID, libc::CLONE_NEWUTS];
    Ok(Outcome::any(flags.map(|flag| {
        let all = libc::c_long::from(flag | libc::SIGCHLD);
        leave_or(kernel_call!(libc::SYS_clone, all, 0usize, 0usize, 0usize, 0usize), "clone")
    })))
}

fn clone3(_: &Target) -> Tried {
    Ok(Outcome::any([libc::CLONE_NEWUSER, libc::CLONE_NEWNET].map(|flag| {
        let mut arguments = [0u64; 11];
        arguments[0] = u64::from(flag.unsigned_abs());
        arguments[4] = u64::from(libc::SIGCHLD.unsigned_abs());
        leave_or(kernel_call!(libc::SYS_clone3, arguments.as_ptr(), size_of_val(&arguments)), "clone3")
    })))
}

/// Whether `/proc` says that a process is the canary; `None` where it cannot be asked.
pub(crate) fn is_canary(pid: i32, target: &Target) -> Result<Option<bool>, NoCanary> {
    let secret = target.secret()?;
    if std::fs::read_dir("/proc").is_err() {
        return Ok(None);
    }
    let path = format!("/proc/{pid}/cmdline");
    Ok(Some(std::fs::read(Path::new(&path)).is_ok_and(|bytes| crate::kernel::contains(&bytes, &secret))))
}
