//! The kernel's own file systems and devices: settings, secrets, control groups, nodes.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::Attack;
use crate::kernel::{
    Scratch, beginning, c_path, descriptor, errno_name, open_to_read, open_to_write, scratch,
};
use crate::outcome::{Outcome, Tried};
use crate::target::Target;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new("fs.core_pattern", "choose the program that gets core dumps", |_| {
        Ok(writable(&["/proc/sys/kernel/core_pattern"]))
    }),
    Attack::new("fs.modprobe", "choose the program that loads modules", |_| {
        Ok(writable(&["/proc/sys/kernel/modprobe"]))
    }),
    Attack::new("fs.binfmt_misc", "choose the program that runs programs", |_| {
        Ok(writable(&[
            "/proc/sys/fs/binfmt_misc/register",
            "/proc/sys/fs/binfmt_misc/status",
            "/proc/sys/kernel/poweroff_cmd",
            "/proc/sys/kernel/hotplug",
        ]))
    }),
    Attack::new("fs.proc_sys_write", "change any setting of the kernel", proc_sys_write),
    Attack::new("fs.sysrq", "press the magic keys", |_| Ok(writable(&["/proc/sysrq-trigger"]))),
    Attack::new("fs.proc_write", "change what else /proc lets change", |_| {
        Ok(writable(&[
            "/proc/irq/default_smp_affinity",
            "/proc/mtrr",
            "/proc/acpi/wakeup",
            "/proc/scsi/scsi",
            "/proc/bus/pci/00/00.0",
            "/proc/timer_stats",
        ]))
    }),
    Attack::new("fs.kcore", "read the kernel's memory", |_| {
        Ok(readable(&["/proc/kcore", "/dev/core", "/proc/vmcore", "/dev/mem", "/dev/kmem", "/dev/port"]))
    }),
    Attack::new("fs.kmsg", "read the kernel's log", |_| Ok(readable(&["/proc/kmsg", "/dev/kmsg"]))),
    Attack::new("fs.kallsyms", "read where the kernel's code is", kallsyms),
    Attack::new("fs.keys", "read the kernel's keyrings", |_| {
        Ok(readable(&["/proc/keys", "/proc/key-users"]))
    }),
    Attack::new("fs.timer_list", "read the kernel's timers and queues", |_| {
        Ok(readable(&[
            "/proc/timer_list",
            "/proc/sched_debug",
            "/sys/kernel/debug/sched/debug",
            "/proc/latency_stats",
        ]))
    }),
    Attack::new("fs.page_maps", "read which memory is whose", |_| {
        Ok(readable(&[
            "/proc/kpagecount",
            "/proc/kpageflags",
            "/proc/kpagecgroup",
            "/proc/slabinfo",
            "/proc/vmallocinfo",
            "/proc/pagetypeinfo",
        ]))
    }),
    Attack::new("fs.sys_write", "change the kernel's objects", sys_write),
    Attack::new("fs.sys_secrets", "read firmware, debugging and security files", |_| {
        Ok(listable(&[
            "/sys/firmware",
            "/sys/kernel/debug",
            "/sys/kernel/tracing",
            "/sys/kernel/security",
            "/sys/fs/bpf",
            "/sys/class/dmi/id",
            "/sys/devices/virtual/powercap",
            "/sys/kernel/slab",
        ]))
    }),
    Attack::new("fs.cgroup_write", "change limits or the release agent of control groups", cgroup_write),
    Attack::new("fs.dev_nodes", "open devices of the host", dev_nodes),
    Attack::new("fs.dev_write", "make files in /dev", dev_write),
    Attack::new("fs.mknod_char", "make a character device", |_| Ok(mknod(libc::S_IFCHR, 1, 1))),
    Attack::new("fs.mknod_block", "make a block device", |_| Ok(mknod(libc::S_IFBLK, 7, 0))),
    Attack::new("fs.trusted_xattr", "set the attributes overlays trust", trusted_xattr),
    Attack::new("fs.setuid_file", "make a program that runs as its owner", setuid_file),
];

fn writable(paths: &[&str]) -> Outcome {
    Outcome::any(paths.iter().map(|path| Outcome::of(path, &open_to_write(Path::new(path)))))
}

/// Only content counts: a cover is empty.
fn readable(paths: &[&str]) -> Outcome {
    Outcome::any(paths.iter().map(|path| match beginning(Path::new(path)) {
        Ok(bytes) if bytes.is_empty() => Outcome::contained(format_args!("{path} is empty")),
        Ok(bytes) => Outcome::escaped(format_args!("{} bytes of {path}", bytes.len())),
        // Opened, and then nothing to be had just now.
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
            Outcome::escaped(format_args!("{path} opened"))
        }
        Err(error) => Outcome::contained(format_args!("{path}: {}", errno_name(&error))),
    }))
}

fn listable(paths: &[&str]) -> Outcome {
    Outcome::any(paths.iter().map(|path| match std::fs::read_dir(path).map(Iterator::count) {
        Ok(0) => Outcome::contained(format_args!("{path} is empty")),
        result => Outcome::of(path, &result),
    }))
}

/// Files below a directory, not more than `most`, not through links.
fn below(directory: &Path, depth: u32, most: usize, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if found.len() >= most {
            return;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth > 0 => below(&entry.path(), depth - 1, most, found),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

fn all_refused(files: Vec<PathBuf>, where_: &str) -> Outcome {
    let mut refused = 0usize;
    for path in files {
        match open_to_write(&path) {
            Ok(_) => return Outcome::escaped(format_args!("{} opened for writing", path.display())),
            Err(_) => refused += 1,
        }
    }
    Outcome::contained(format_args!("none of {refused} files of {where_} can be opened for writing"))
}

fn proc_sys_write(_: &Target) -> Tried {
    let mut files = Vec::new();
    below(Path::new("/proc/sys"), 8, 5000, &mut files);
    Ok(all_refused(files, "/proc/sys"))
}

fn kallsyms(_: &Target) -> Tried {
    Ok(match beginning(Path::new("/proc/kallsyms")) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            match text.lines().find(|line| !line.starts_with("0000000000000000") && line.len() > 16) {
                Some(_) => Outcome::escaped("addresses"),
                None => Outcome::contained(format_args!("{} bytes without addresses", bytes.len())),
            }
        }
        Err(error) => Outcome::contained(errno_name(&error)),
    })
}

fn sys_write(_: &Target) -> Tried {
    let mut files = Vec::new();
    for directory in ["/sys/kernel", "/sys/power", "/sys/module", "/sys/block", "/sys/class", "/sys/bus"] {
        below(Path::new(directory), 3, files.len() + 500, &mut files);
    }
    Ok(all_refused(files, "/sys"))
}

fn cgroup_write(_: &Target) -> Tried {
    const NAMES: &[&str] = &[
        "release_agent",
        "notify_on_release",
        "cgroup.procs",
        "cgroup.kill",
        "cgroup.freeze",
        "cgroup.subtree_control",
        "tasks",
        "memory.max",
        "memory.limit_in_bytes",
        "pids.max",
        "cpu.max",
        "cpu.cfs_quota_us",
        "devices.allow",
    ];
    let mut files = Vec::new();
    below(Path::new("/sys/fs/cgroup"), 4, 20_000, &mut files);
    files.retain(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| NAMES.contains(&name))
    });
    Ok(all_refused(files, "/sys/fs/cgroup"))
}

/// Opening does nothing to any of these. Some devices act when they are opened (watchdogs, tapes):
/// those are not here.
fn dev_nodes(_: &Target) -> Tried {
    const NODES: &[&str] = &[
        "/dev/kvm",
        "/dev/fuse",
        "/dev/net/tun",
        "/dev/loop-control",
        "/dev/loop0",
        "/dev/sda",
        "/dev/vda",
        "/dev/nvme0",
        "/dev/nvme0n1",
        "/dev/dm-0",
        "/dev/mapper/control",
        "/dev/vhost-net",
        "/dev/vhost-vsock",
        "/dev/vsock",
        "/dev/autofs",
        "/dev/btrfs-control",
        "/dev/uinput",
        "/dev/input/event0",
        "/dev/dri/card0",
        "/dev/snd/timer",
        "/dev/hpet",
        "/dev/rtc0",
        "/dev/nvram",
        "/dev/cpu/0/msr",
        "/dev/cuse",
        "/dev/ppp",
        "/dev/userfaultfd",
        "/dev/udmabuf",
        "/dev/vcs",
        "/dev/vcsa",
        "/dev/hwrng",
        "/dev/cpu_dma_latency",
        "/dev/ptp0",
        "/dev/sg0",
        "/dev/console",
        "/dev/tty0",
        "/dev/tty1",
        "/dev/ttyS0",
        "/dev/snapshot",
        "/dev/nvidia0",
        "/dev/sgx_enclave",
        "/dev/iommu",
        "/dev/vfio/vfio",
        "/dev/binder",
        "/dev/ashmem",
    ];
    Ok(Outcome::any(NODES.iter().map(|path| {
        let meta = std::fs::metadata(path);
        match meta {
            Ok(meta) if meta.file_type().is_char_device() || meta.file_type().is_block_device() => {
                Outcome::of(path, &open_to_read(Path::new(path)))
            }
            Ok(_) => Outcome::contained(format_args!("{path} is no device")),
            Err(error) => Outcome::contained(format_args!("{path}: {}", errno_name(&error))),
        }
    })))
}

fn dev_write(_: &Target) -> Tried {
    let path = Path::new("/dev").join(scratch("dev"));
    let made = std::fs::OpenOptions::new().write(true).create_new(true).open(&path);
    if made.is_ok() {
        drop(Scratch(path));
    }
    Ok(Outcome::of("a file in /dev", &made))
}

fn mknod(kind: libc::mode_t, major: u32, minor: u32) -> Outcome {
    let places = [PathBuf::from("."), PathBuf::from("/tmp"), PathBuf::from("/dev/shm")];
    Outcome::any(places.map(|place| {
        let path = place.join(scratch("node"));
        let made = c_path(&path)
            .and_then(|name| library_call!(mknod(name.as_ptr(), kind | 0o600, libc::makedev(major, minor))));
        if made.is_ok() {
            let opened = open_to_read(&path);
            drop(Scratch(path));
            return match opened {
                Ok(_) => Outcome::escaped("made and opened"),
                Err(error) => Outcome::escaped(format_args!("made; opening it: {}", errno_name(&error))),
            };
        }
        Outcome::of(format_args!("mknod in {}", place.display()), &made)
    }))
}

fn trusted_xattr(_: &Target) -> Tried {
    let names = [c"trusted.overlay.opaque", c"trusted.isle-probe", c"security.capability"];
    let directory = match Scratch::directory("xattr") {
        Ok(directory) => directory,
        Err(error) => return Ok(Outcome::not_testable(errno_name(&error))),
    };
    Ok(Outcome::any(names.map(|name| {
        let set = c_path(&directory.0).and_then(|path| {
            library_call!(setxattr(path.as_ptr(), name.as_ptr(), c"y".as_ptr().cast(), 1, 0))
        });
        match set {
            // With the permission to set capabilities the error is EINVAL, without it EPERM.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && name == c"security.capability" => {
                Outcome::contained("security.capability: EINVAL")
            }
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                Outcome::contained(format_args!("{}: EOPNOTSUPP", name.to_string_lossy()))
            }
            result => Outcome::of(name.to_string_lossy(), &result),
        }
    })))
}

/// The bit counts where the mount honours it and the process may still gain rights.
fn setuid_file(_: &Target) -> Tried {
    let gains = matches!(library_call!(prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)), Ok(0));
    let honours = |path: &Path| -> io::Result<bool> {
        let name = c_path(path)?;
        // SAFETY: plain data for which zero is valid.
        let mut about: libc::statvfs = unsafe { std::mem::zeroed() };
        library_call!(statvfs(name.as_ptr(), &raw mut about))?;
        Ok(about.f_flag & libc::ST_NOSUID == 0)
    };
    let places = [Path::new("."), Path::new("/tmp"), Path::new("/usr/bin")];
    let honoured: Vec<String> = places
        .iter()
        .filter(|place| honours(place).unwrap_or(false))
        .map(|place| place.display().to_string())
        .collect();
    Ok(match (gains, honoured.is_empty()) {
        (true, false) => Outcome::escaped(format_args!("the bit counts in {}", honoured.join(", "))),
        (true, true) => Outcome::contained("every mount ignores the bit"),
        (false, _) => Outcome::contained("no program gives rights"),
    })
}

/// Kept here for the attacks that need a descriptor of a directory.
pub(super) fn directory(path: &Path) -> io::Result<std::os::fd::OwnedFd> {
    let name = c_path(path)?;
    descriptor(library_call!(open(name.as_ptr(), libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC)))
}
