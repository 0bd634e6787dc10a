//! Privileges of this process: identity, capabilities, filters, limits, terminal.

use std::io;
use std::path::Path;
use std::sync::OnceLock;

use crate::Attack;
use crate::kernel::{errno_name, open_to_read, open_to_write};
use crate::outcome::{Outcome, Tried};
use crate::target::Target;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new("proc.uid", "run as the host's root", uid),
    Attack::new("proc.own_uid", "run as the user who started the sandbox", own_uid),
    Attack::new("proc.groups", "keep groups of the user who started the sandbox", groups),
    Attack::new("proc.setuid", "become another user", setuid),
    Attack::new("proc.no_new_privs", "gain rights by running a program", no_new_privs),
    Attack::new("proc.seccomp", "make system calls without a filter", seccomp),
    Attack::new("proc.caps", "use capabilities", caps),
    Attack::new("proc.caps_bounding", "get capabilities back by running a program", caps_bounding),
    Attack::new("proc.session", "share a session with the user who started the sandbox", session),
    Attack::new("proc.tty", "open the terminal of the user who started the sandbox", tty),
    Attack::new("proc.oom_adj", "be the last process that the OOM killer kills", oom_adj),
    Attack::new("proc.realtime", "run with real-time priority", realtime),
    Attack::new("proc.deadline", "reserve CPU time", deadline),
    Attack::new("proc.nice", "raise the own priority", nice),
    Attack::new("proc.ioprio", "raise the own priority for disks", ioprio),
    Attack::new("proc.rlimit_raise", "raise the own limits", rlimit_raise),
    Attack::new("proc.mlock", "keep any amount of memory from being swapped out", mlock),
];

static INHERITED: OnceLock<(Vec<i32>, i32)> = OnceLock::new();

/// Open descriptors beyond the first three; read before the program opens any itself.
pub(crate) fn open_descriptors() -> Vec<i32> {
    (3..1024).filter(|number| library_call!(fcntl(*number, libc::F_GETFD)).is_ok()).collect()
}

/// Records the state at the start, and the parent process.
pub(crate) fn remember_inherited(descriptors: Vec<i32>) {
    // SAFETY: cannot fail and takes nothing.
    let parent = unsafe { libc::getppid() };
    INHERITED.get_or_init(|| (descriptors, parent));
}

/// The state at the start.
pub(crate) fn inherited() -> &'static [i32] {
    INHERITED.get().map_or(&[], |(descriptors, _)| descriptors)
}

/// The parent process.
pub(crate) fn parent_of_program() -> i32 {
    INHERITED.get().map_or(0, |(_, parent)| *parent)
}

fn current_uid() -> u32 {
    // SAFETY: cannot fail and takes nothing.
    unsafe { libc::geteuid() }
}

/// Whether this user namespace has its own map; `false` if unknown.
fn has_own_map() -> bool {
    std::fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"])
}

fn uid(_: &Target) -> Tried {
    let uid = current_uid();
    Ok(match (uid, has_own_map()) {
        (0, false) => Outcome::escaped("root"),
        (0, true) => Outcome::contained("root of its own user namespace"),
        (uid, _) => Outcome::contained(format_args!("id {uid}")),
    })
}

fn own_uid(target: &Target) -> Tried {
    let (uid, host): (u32, u32) = (current_uid(), target.number("uid")?);
    Ok(if uid == host && !has_own_map() {
        Outcome::escaped(format_args!("id {uid}, as outside"))
    } else {
        Outcome::contained(format_args!("id {uid}"))
    })
}

fn groups(_: &Target) -> Tried {
    let mut list = [0; 256];
    let count = library_call!(getgroups(256, list.as_mut_ptr()));
    Ok(match count {
        Ok(0) => Outcome::contained("none"),
        Ok(count) => {
            let count = usize::try_from(count).unwrap_or(0).min(list.len());
            Outcome::escaped(format_args!("{:?}", &list[..count]))
        }
        Err(error) => Outcome::contained(errno_name(&error)),
    })
}

/// Ids outside of small maps, and the host's root.
fn setuid(_: &Target) -> Tried {
    if current_uid() == 0 && has_own_map() {
        let outside = kernel_call!(libc::SYS_setresuid, 4_000_000_000u32, -1, -1);
        return Ok(Outcome::of("setresuid to an id of the host", &outside));
    }
    Ok(Outcome::any([0u32, 2, 65534].into_iter().filter(|id| *id != current_uid()).map(|id| {
        Outcome::of(format_args!("setresuid {id}"), &kernel_call!(libc::SYS_setresuid, id, id, id))
    })))
}

fn no_new_privs(_: &Target) -> Tried {
    Ok(match library_call!(prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)) {
        Ok(1) => Outcome::contained("set"),
        other => Outcome::escaped(format_args!("not set ({other:?})")),
    })
}

fn seccomp(_: &Target) -> Tried {
    Ok(match library_call!(prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0)) {
        Ok(0) => Outcome::escaped("mode 0"),
        Ok(mode) => Outcome::contained(format_args!("mode {mode}")),
        Err(error) => Outcome::contained(errno_name(&error)),
    })
}

fn caps(_: &Target) -> Tried {
    let header = [0x2008_0522u32, 0];
    let mut sets = [0u32; 6];
    if let Err(error) = kernel_call!(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) {
        return Ok(Outcome::contained(format_args!("capget: {}", errno_name(&error))));
    }
    let ambient = (0..64)
        .filter(|number| {
            matches!(
                library_call!(prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_IS_SET, *number, 0, 0)),
                Ok(1)
            )
        })
        .count();
    let set = |low: usize| u64::from(sets[low]) | (u64::from(sets[low + 3]) << 32);
    let (effective, permitted, inheritable) = (set(0), set(1), set(2));
    let seen = format!(
        "effective {effective:#x}, permitted {permitted:#x}, inheritable {inheritable:#x}, {ambient} ambient"
    );
    Ok(if (effective | permitted | inheritable) == 0 && ambient == 0 {
        Outcome::contained(seen)
    } else {
        Outcome::escaped(seen)
    })
}

/// Relevant only if running a program can still give privileges.
fn caps_bounding(_: &Target) -> Tried {
    let bounding = (0..64)
        .filter(|number| matches!(library_call!(prctl(libc::PR_CAPBSET_READ, *number, 0, 0, 0)), Ok(1)))
        .count();
    let gains = matches!(library_call!(prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)), Ok(0));
    Ok(match (bounding, gains) {
        (0, _) => Outcome::contained("none"),
        (count, false) => Outcome::contained(format_args!("{count}, but no program gives rights")),
        (count, true) => Outcome::escaped(format_args!("{count}")),
    })
}

/// A session whose leader is not visible has the id 0. In a separate pid namespace other ids are not
/// comparable.
fn session(target: &Target) -> Tried {
    let host: i64 = target.number("session")?;
    let (ours, theirs): (_, u64) = (crate::namespaces::inode("pid"), target.number("ns-pid")?);
    let own_numbers = ours.is_ok_and(|ours| ours != theirs);
    Ok(match library_call!(getsid(0)) {
        Ok(0) => Outcome::escaped("the session is out of sight"),
        Ok(ours) if ours == host && !own_numbers => {
            Outcome::escaped(format_args!("session {ours}, as outside"))
        }
        Ok(ours) => Outcome::contained(format_args!("session {ours}")),
        Err(error) => Outcome::not_testable(errno_name(&error)),
    })
}

fn tty(_: &Target) -> Tried {
    Ok(Outcome::of("/dev/tty", &open_to_read(Path::new("/dev/tty"))))
}

/// One less than the current value; a process that may do that may do more.
fn oom_adj(_: &Target) -> Tried {
    let path = Path::new("/proc/self/oom_score_adj");
    let lowered = std::fs::read_to_string(path).and_then(|text| {
        let now: i32 = text.trim().parse().map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        let mut file = open_to_write(path)?;
        io::Write::write_all(&mut file, (now - 1).max(-999).to_string().as_bytes())
    });
    Ok(Outcome::of("oom_score_adj", &lowered))
}

fn realtime(_: &Target) -> Tried {
    let parameters = libc::sched_param { sched_priority: 1 };
    Ok(Outcome::any([libc::SCHED_FIFO, libc::SCHED_RR].map(|policy| {
        Outcome::of(
            "sched_setscheduler",
            &kernel_call!(libc::SYS_sched_setscheduler, 0, policy, &raw const parameters),
        )
    })))
}

fn deadline(_: &Target) -> Tried {
    // Size, policy, flags, nice, priority, runtime, deadline, period.
    let words: [u64; 6] = [48 | (6 << 32), 0, 0, 10_000_000, 1_000_000_000, 1_000_000_000];
    Ok(Outcome::of("sched_setattr", &kernel_call!(libc::SYS_sched_setattr, 0, words.as_ptr(), 0)))
}

fn nice(_: &Target) -> Tried {
    Ok(Outcome::of("setpriority", &library_call!(setpriority(libc::PRIO_PROCESS, 0, -5))))
}

fn ioprio(_: &Target) -> Tried {
    const REALTIME: i32 = 1 << 13;
    Ok(Outcome::of("ioprio_set", &kernel_call!(libc::SYS_ioprio_set, 1, 0, REALTIME)))
}

fn rlimit_raise(_: &Target) -> Tried {
    let resources = [
        libc::RLIMIT_NOFILE,
        libc::RLIMIT_CORE,
        libc::RLIMIT_NICE,
        libc::RLIMIT_RTPRIO,
        libc::RLIMIT_MEMLOCK,
    ];
    Ok(Outcome::any(resources.map(|resource| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        let raised = library_call!(getrlimit(resource, &raw mut limit)).and_then(|_| {
            if limit.rlim_max == libc::RLIM_INFINITY {
                return Ok(0);
            }
            limit.rlim_max += 1;
            library_call!(setrlimit(resource, &raw const limit))
        });
        Outcome::of(format_args!("limit {resource}"), &raised)
    })))
}

/// Sixteen mebibytes: twice what a sandbox may.
fn mlock(_: &Target) -> Tried {
    let mut memory = vec![0u8; 16 << 20];
    let locked = library_call!(mlock(memory.as_ptr().cast(), memory.len()));
    memory[0] = 1;
    Ok(Outcome::of("mlock of 16 MiB", &locked))
}
