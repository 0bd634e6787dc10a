//! The tables: which calls exist for a sandbox, which are refused loudly, which are looked at.

use libc::c_long;

/// A check of arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    /// `clone`: no new namespaces.
    CloneFlags,
    /// `socket`: families by tier.
    Socket,
    /// `socketpair`: Unix only; in the host's namespaces only kinds that stay connected to each other.
    SocketPair,
    /// The process named by the first argument: in the host's namespaces the caller itself (0), in its own
    /// any process but the agent, which is the first.
    OfProcess,
    /// `setpriority` and `ioprio_set`: the same for the second argument, where the first is the kind
    /// "process" or one of the two above it, "group" and "user".
    OfProcessByKind(u32),
    /// `ioctl`: no injecting into a terminal, no line disciplines, no climbing among namespaces.
    Ioctl,
    /// `personality`: only asking, or the plain one.
    Personality,
    /// `setsockopt`: options of the internet are taken and mean nothing, since no socket is of it.
    InternetOption,
    /// `connect` to an address as long as those of the internet: the agent looks where it leads.
    Connect,
}

/// Namespaces a process may not make for itself. The UTS namespace is missing on purpose: the agent
/// tags every run with one of its own, and a command lacks the capability to make another.
pub(super) const NAMESPACE_FLAGS: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET)
    .unsigned_abs();

/// `TIOCSTI`, `TIOCLINUX`, `TIOCSETD`; `NS_GET_USERNS` and `NS_GET_PARENT`, which climb from a namespace
/// to the one above.
pub(super) const REFUSED_IOCTLS: &[u32] = &[0x5412, 0x541C, 0x5423, 0xb701, 0xb702];

/// Queries the process of a pidfd. Denied where pidfds of the host's processes can be opened: it reports
/// users, parents and control groups of any process.
pub(super) const PIDFD_GET_INFO: u32 = 0xff0b;

pub(super) const CHECKED: &[(c_long, Check)] = &[
    (libc::SYS_clone, Check::CloneFlags),
    (libc::SYS_socket, Check::Socket),
    (libc::SYS_socketpair, Check::SocketPair),
    (libc::SYS_ioctl, Check::Ioctl),
    (libc::SYS_personality, Check::Personality),
];

/// Limits and priorities of processes. Where others of the same user are in reach, theirs are none of the
/// sandbox's business, and no other wall covers them. In a container the agent has the id of guest root,
/// and keeps limits: a command that takes away its descriptors or its CPU time would escape them.
pub(super) const CHECKED_OF_PROCESSES: &[(c_long, Check)] = &[
    (libc::SYS_prlimit64, Check::OfProcess),
    (libc::SYS_sched_setaffinity, Check::OfProcess),
    (libc::SYS_sched_setattr, Check::OfProcess),
    (libc::SYS_sched_setparam, Check::OfProcess),
    (libc::SYS_sched_setscheduler, Check::OfProcess),
    (libc::SYS_setpriority, Check::OfProcessByKind(0)),
    (libc::SYS_ioprio_set, Check::OfProcessByKind(1)),
];

/// Looked at where the host's sockets are in reach. What looks like a connection of the internet is one end
/// of a pair there, and programs give up when such an end does not take the options of the other kind.
pub(super) const CHECKED_AMONG_HOST_SOCKETS: &[(c_long, Check)] =
    &[(libc::SYS_setsockopt, Check::InternetOption)];

/// Looked at where sockets are the sandbox's own.
pub(super) const CHECKED_AMONG_OWN_SOCKETS: &[(c_long, Check)] = &[(libc::SYS_connect, Check::Connect)];

/// Of what is refused, allowed where processes are the sandbox's own. It is the agent that needs it; commands
/// get from it what one user's processes have from each other anyway, and the agent's memory and descriptors
/// are closed to all of them.
pub(super) const ALLOWED_AMONG_OWN_PROCESSES: &[c_long] = &[libc::SYS_pidfd_getfd];

/// How long addresses of the internet are: one of either family, and the room that holds any.
pub(super) const INTERNET_ADDRESSES: [u32; 3] = [16, 28, 128];

/// A length of either family's addresses that the kernel accepts as well, and that is not supervised: the agent's
/// own connections, which it could not answer while it waits for them.
pub const UNWATCHED_ADDRESS: u32 = 32;

/// Absent where no cgroup counts memory: files without a name, which are invisible once they are
/// closed and still mapped, or on their way through a socket.
pub(super) const UNCOUNTABLE: &[c_long] = &[libc::SYS_memfd_create];

/// Refused where the host's sockets are in reach, unless the agent has an answer of its own.
pub(super) const REFUSED_AMONG_HOST_SOCKETS: &[c_long] = &[libc::SYS_bind, libc::SYS_connect];

pub(super) const SYSTEM_V_IPC: &[c_long] = &[
    libc::SYS_msgctl,
    libc::SYS_msgget,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_semctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_shmget,
    libc::SYS_mq_getsetattr,
    libc::SYS_mq_notify,
    libc::SYS_mq_open,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_unlink,
];

macro_rules! table {
    ($(#[$meta:meta])* $name:ident: $($(#[$item:meta])* $call:ident)*) => {
        $(#[$meta])*
        pub(super) const $name: &[c_long] = &[$($(#[$item])* libc::$call,)*];
    };
}

macro_rules! named_table {
    ($(#[$meta:meta])* $name:ident, $names:ident: $($(#[$item:meta])* $call:ident)*) => {
        table! { $(#[$meta])* $name: $($(#[$item])* $call)* }
        const $names: &[(c_long, &str)] = &[$($(#[$item])* (libc::$call, stringify!($call)),)*];
    };
}

named_table! {
    /// Calls that reach into the kernel, the host or other processes. Refused, counted and reported.
    REFUSED, REFUSED_NAMES:
    SYS_acct SYS_add_key SYS_adjtimex SYS_bpf SYS_chroot SYS_clock_adjtime SYS_clock_settime
    SYS_delete_module SYS_fanotify_init SYS_fanotify_mark SYS_finit_module SYS_fsconfig SYS_fsmount SYS_fsopen
    SYS_fspick SYS_init_module SYS_kcmp SYS_kexec_file_load SYS_kexec_load SYS_keyctl SYS_lookup_dcookie
    SYS_mbind SYS_migrate_pages SYS_mount SYS_mount_setattr SYS_move_mount SYS_move_pages SYS_name_to_handle_at
    SYS_nfsservctl SYS_open_by_handle_at SYS_open_tree SYS_perf_event_open SYS_pidfd_getfd SYS_pivot_root
    SYS_process_vm_readv SYS_process_vm_writev SYS_ptrace SYS_quotactl SYS_reboot SYS_request_key
    SYS_set_mempolicy SYS_setdomainname SYS_sethostname SYS_setns SYS_settimeofday SYS_swapoff SYS_swapon
    SYS_syslog SYS_umount2 SYS_unshare SYS_userfaultfd SYS_vhangup
    #[cfg(target_arch = "x86_64")] SYS_ioperm
    #[cfg(target_arch = "x86_64")] SYS_iopl
    #[cfg(target_arch = "x86_64")] SYS_modify_ldt
    #[cfg(target_arch = "x86_64")] SYS__sysctl
    #[cfg(target_arch = "x86_64")] SYS_uselib
}

table! {
    /// What ordinary programs need. Contexts of asynchronous I/O (`io_setup`) are missing on purpose: the
    /// whole machine shares one small number of them, and nothing counts whose they are.
    ALLOWED:
    SYS_accept SYS_accept4 SYS_bind SYS_brk SYS_capget SYS_capset SYS_chdir SYS_clock_getres SYS_clock_gettime
    SYS_clock_nanosleep SYS_close SYS_close_range SYS_connect SYS_copy_file_range SYS_dup SYS_dup3
    SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2 SYS_execve SYS_execveat
    SYS_exit SYS_exit_group SYS_faccessat SYS_faccessat2 SYS_fadvise64 SYS_fallocate SYS_fchdir SYS_fchmod
    SYS_fchmodat SYS_fchown SYS_fchownat SYS_fcntl SYS_fdatasync SYS_fgetxattr SYS_flistxattr SYS_flock
    SYS_fremovexattr SYS_fsetxattr SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate SYS_futex SYS_futex_waitv
    SYS_get_mempolicy SYS_get_robust_list SYS_getcpu SYS_getcwd
    SYS_getdents64 SYS_getegid SYS_geteuid SYS_getgid SYS_getgroups SYS_getitimer SYS_getpeername SYS_getpgid
    SYS_getpid SYS_getppid SYS_getpriority SYS_getrandom SYS_getresgid SYS_getresuid SYS_getrlimit SYS_getrusage
    SYS_getsid SYS_getsockname SYS_getsockopt SYS_gettid SYS_gettimeofday SYS_getuid SYS_getxattr
    SYS_inotify_add_watch SYS_inotify_init1 SYS_inotify_rm_watch SYS_ioprio_get SYS_kill SYS_landlock_add_rule
    SYS_landlock_create_ruleset SYS_landlock_restrict_self SYS_lgetxattr SYS_linkat SYS_listen SYS_listxattr
    SYS_llistxattr SYS_lremovexattr SYS_lseek SYS_lsetxattr SYS_madvise SYS_membarrier SYS_memfd_create
    SYS_mincore SYS_mkdirat SYS_mknodat SYS_mlock SYS_mlock2 SYS_mlockall SYS_mmap SYS_mprotect SYS_mremap
    SYS_mseal SYS_msync SYS_munlock SYS_munlockall SYS_munmap SYS_nanosleep SYS_newfstatat SYS_openat SYS_openat2
    SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2 SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect SYS_ppoll
    SYS_prctl SYS_pread64 SYS_preadv SYS_preadv2 SYS_process_madvise SYS_process_mrelease
    SYS_pselect6 SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_read SYS_readahead SYS_readlinkat SYS_readv
    SYS_recvfrom SYS_recvmmsg SYS_recvmsg SYS_remap_file_pages SYS_removexattr SYS_renameat SYS_renameat2
    SYS_restart_syscall SYS_rseq SYS_rt_sigaction SYS_rt_sigpending SYS_rt_sigprocmask SYS_rt_sigqueueinfo
    SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigtimedwait SYS_rt_tgsigqueueinfo SYS_sched_get_priority_max
    SYS_sched_get_priority_min SYS_sched_getaffinity SYS_sched_getattr SYS_sched_getparam SYS_sched_getscheduler
    SYS_sched_rr_get_interval
    SYS_sched_yield SYS_seccomp SYS_sendfile SYS_sendmmsg SYS_sendmsg SYS_sendto SYS_set_robust_list
    SYS_set_tid_address SYS_setfsgid SYS_setfsuid SYS_setgid SYS_setgroups SYS_setitimer SYS_setpgid
    SYS_setregid SYS_setresgid SYS_setresuid SYS_setreuid SYS_setrlimit SYS_setsid
    SYS_setsockopt SYS_setuid SYS_setxattr SYS_shutdown SYS_sigaltstack SYS_signalfd4 SYS_splice SYS_statfs
    SYS_statx SYS_symlinkat SYS_sync SYS_sync_file_range SYS_syncfs SYS_sysinfo SYS_tee SYS_tgkill
    SYS_timer_create SYS_timer_delete SYS_timer_getoverrun SYS_timer_gettime SYS_timer_settime
    SYS_timerfd_create SYS_timerfd_gettime SYS_timerfd_settime SYS_times SYS_tkill SYS_truncate SYS_umask
    SYS_uname SYS_unlinkat SYS_utimensat SYS_vmsplice SYS_wait4 SYS_waitid SYS_write SYS_writev
    #[cfg(target_arch = "x86_64")] SYS_access
    #[cfg(target_arch = "x86_64")] SYS_alarm
    #[cfg(target_arch = "x86_64")] SYS_arch_prctl
    #[cfg(target_arch = "x86_64")] SYS_chmod
    #[cfg(target_arch = "x86_64")] SYS_chown
    #[cfg(target_arch = "x86_64")] SYS_creat
    #[cfg(target_arch = "x86_64")] SYS_dup2
    #[cfg(target_arch = "x86_64")] SYS_epoll_create
    #[cfg(target_arch = "x86_64")] SYS_epoll_wait
    #[cfg(target_arch = "x86_64")] SYS_eventfd
    #[cfg(target_arch = "x86_64")] SYS_fork
    #[cfg(target_arch = "x86_64")] SYS_futimesat
    #[cfg(target_arch = "x86_64")] SYS_getdents
    #[cfg(target_arch = "x86_64")] SYS_getpgrp
    #[cfg(target_arch = "x86_64")] SYS_inotify_init
    #[cfg(target_arch = "x86_64")] SYS_lchown
    #[cfg(target_arch = "x86_64")] SYS_link
    #[cfg(target_arch = "x86_64")] SYS_lstat
    #[cfg(target_arch = "x86_64")] SYS_mkdir
    #[cfg(target_arch = "x86_64")] SYS_mknod
    #[cfg(target_arch = "x86_64")] SYS_open
    #[cfg(target_arch = "x86_64")] SYS_pause
    #[cfg(target_arch = "x86_64")] SYS_pipe
    #[cfg(target_arch = "x86_64")] SYS_poll
    #[cfg(target_arch = "x86_64")] SYS_readlink
    #[cfg(target_arch = "x86_64")] SYS_rename
    #[cfg(target_arch = "x86_64")] SYS_rmdir
    #[cfg(target_arch = "x86_64")] SYS_select
    #[cfg(target_arch = "x86_64")] SYS_signalfd
    #[cfg(target_arch = "x86_64")] SYS_stat
    #[cfg(target_arch = "x86_64")] SYS_symlink
    #[cfg(target_arch = "x86_64")] SYS_time
    #[cfg(target_arch = "x86_64")] SYS_unlink
    #[cfg(target_arch = "x86_64")] SYS_utime
    #[cfg(target_arch = "x86_64")] SYS_utimes
    #[cfg(target_arch = "x86_64")] SYS_vfork
}

/// `fchmodat2`, which has this number on every architecture and a name in `libc` only on some.
pub(super) const ALLOWED_BY_NUMBER: &[c_long] = &[452];

/// The name of a refused or checked call, such as `mount`.
#[must_use]
pub fn call_name(number: c_long) -> String {
    const CHECKED_NAMES: &[(c_long, &str)] = &[
        (libc::SYS_clone, "clone (new namespace)"),
        (libc::SYS_ioctl, "ioctl (terminal injection, namespaces)"),
        (libc::SYS_personality, "personality"),
        (libc::SYS_bind, "bind"),
        (libc::SYS_connect, "connect"),
        (libc::SYS_socket, "socket"),
        (libc::SYS_ioprio_set, "ioprio_set (another process)"),
        (libc::SYS_prlimit64, "prlimit64 (another process)"),
        (libc::SYS_sched_setaffinity, "sched_setaffinity (another process)"),
        (libc::SYS_sched_setattr, "sched_setattr (another process)"),
        (libc::SYS_sched_setparam, "sched_setparam (another process)"),
        (libc::SYS_sched_setscheduler, "sched_setscheduler (another process)"),
        (libc::SYS_setpriority, "setpriority (another process)"),
        (libc::SYS_shmget, "shmget"),
        (libc::SYS_semget, "semget"),
        (libc::SYS_msgget, "msgget"),
        (libc::SYS_mq_open, "mq_open"),
    ];
    REFUSED_NAMES.iter().chain(CHECKED_NAMES).find(|(known, _)| *known == number).map_or_else(
        || format!("system call {number}"),
        |(_, name)| name.strip_prefix("SYS_").unwrap_or(name).to_owned(),
    )
}
