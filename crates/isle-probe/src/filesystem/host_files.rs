//! Reading what is the host's: by path, by link, through other processes, through what was left open.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Attack;
use crate::kernel::{
    Scratch, beginning, c_path, contains, descriptor, errno_name, identity, open_to_read, open_to_write,
    scratch, visible_processes,
};
use crate::outcome::{Outcome, Tried};
use crate::target::Target;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new("fs.canary_read", "read a file of the host that anybody may read", canary_read),
    Attack::new("fs.canary_stat", "look up the size of a file of the host", canary_stat),
    Attack::new("fs.canary_list", "list a directory of the host", canary_list),
    Attack::new("fs.canary_execute", "run a program from a directory of the host", canary_execute),
    Attack::new("fs.path_open", "hold on to a file of the host without opening it", path_open),
    Attack::new("fs.readlink_host", "read where a link of the host points", readlink_host),
    Attack::new("fs.chdir_host", "change into a directory of the host", chdir_host),
    Attack::new("fs.watch_host", "watch what happens to a file of the host", watch_host),
    Attack::new("fs.symlink_read", "follow a link made inside to a file of the host", symlink_read),
    Attack::new("fs.dotdot", "climb out with ..", dotdot),
    Attack::new("fs.shadow", "read the host's password hashes", shadow),
    Attack::new("fs.host_keys", "read the host's private keys and rights", host_keys),
    Attack::new("fs.credentials", "read credentials in a home directory", credentials),
    Attack::new("fs.daemon_state", "read the state of the sandbox's own daemon", daemon_state),
    Attack::new("fs.proc_root", "reach files through the root or directory of a process", proc_root),
    Attack::new("fs.proc_fd", "reach files through what a process has open", proc_fd),
    Attack::new("fs.runtime_exe", "open the program that started this one", runtime_exe),
    Attack::new("fs.runtime_exe_write", "overwrite the program that started this one", runtime_exe_write),
    Attack::new("fs.fd_leak", "use descriptors somebody left open", fd_leak),
    Attack::new("fs.cwd_inside", "start in a directory of the host", cwd_inside),
    Attack::new("fs.host_pty", "open a terminal of the host", host_pty),
    Attack::new(
        "fs.runtime_sockets",
        "connect to the socket of a container runtime or daemon",
        runtime_sockets,
    ),
    Attack::new("fs.k8s_token", "read the token of a Kubernetes service account", k8s_token),
    Attack::new("fs.overlay_paths", "reach the layers the root is made of", overlay_paths),
    Attack::new("fs.open_by_handle", "open a file by its handle, past all paths", open_by_handle),
];

/// Reading anything is an escape; reading the secret says so.
fn reads(target: &Target, path: &Path) -> Outcome {
    match beginning(path) {
        Ok(bytes) if target.secret().is_ok_and(|secret| contains(&bytes, &secret)) => {
            Outcome::escaped(format_args!("the secret, from {}", path.display()))
        }
        Ok(bytes) => Outcome::escaped(format_args!("{} bytes of {}", bytes.len(), path.display())),
        Err(error) => Outcome::contained(format_args!("{}: {}", path.display(), errno_name(&error))),
    }
}

/// The same where another file of that name may be the sandbox's own: only the secret counts.
fn finds_secret(target: &Target, path: &Path) -> Result<Outcome, crate::outcome::NoCanary> {
    let secret = target.secret()?;
    Ok(match beginning(path) {
        Ok(bytes) if contains(&bytes, &secret) => {
            Outcome::escaped(format_args!("the secret, from {}", path.display()))
        }
        Ok(_) => Outcome::contained(format_args!("{} is another file", path.display())),
        Err(error) => Outcome::contained(format_args!("{}: {}", path.display(), errno_name(&error))),
    })
}

fn canary_read(target: &Target) -> Tried {
    Ok(reads(target, &target.path("file")?))
}

fn canary_stat(target: &Target) -> Tried {
    let meta = std::fs::metadata(target.path("file")?);
    Ok(Outcome::of("stat", &meta))
}

fn canary_list(target: &Target) -> Tried {
    Ok(Outcome::of("readdir", &std::fs::read_dir(target.path("directory")?)))
}

fn canary_execute(target: &Target) -> Tried {
    let program = target.path("program")?;
    let status =
        Command::new(program).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    Ok(Outcome::of("execve", &status))
}

fn path_open(target: &Target) -> Tried {
    let Ok(path) = c_path(&target.path("file")?) else { return Ok(Outcome::not_testable("an odd path")) };
    let opened = descriptor(library_call!(open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC)));
    Ok(Outcome::of("open(O_PATH)", &opened))
}

fn readlink_host(target: &Target) -> Tried {
    Ok(Outcome::of("readlink", &std::fs::read_link(target.path("link")?)))
}

fn chdir_host(target: &Target) -> Tried {
    Ok(Outcome::of("chdir", &std::env::set_current_dir(target.path("directory")?)))
}

fn watch_host(target: &Target) -> Tried {
    let Ok(path) = c_path(&target.path("file")?) else { return Ok(Outcome::not_testable("an odd path")) };
    let watch = descriptor(library_call!(inotify_init1(libc::IN_CLOEXEC))).and_then(|inotify| {
        use std::os::fd::AsRawFd;
        library_call!(inotify_add_watch(inotify.as_raw_fd(), path.as_ptr(), libc::IN_ALL_EVENTS))
    });
    Ok(Outcome::of("inotify_add_watch", &watch))
}

fn symlink_read(target: &Target) -> Tried {
    let link = scratch("symlink");
    let file = target.path("file")?;
    if let Err(error) = symlink(&file, &link) {
        return Ok(Outcome::contained(format_args!("symlink: {}", errno_name(&error))));
    }
    let link = Scratch(link);
    Ok(reads(target, &link.0))
}

fn dotdot(target: &Target) -> Tried {
    let file = target.path("file")?;
    let inside = file.strip_prefix("/").unwrap_or(&file);
    let up: PathBuf = std::iter::repeat_n("..", 64).collect();
    Ok(reads(target, &up.join(inside)))
}

fn shadow(_: &Target) -> Tried {
    Ok(Outcome::any(["/etc/shadow", "/etc/gshadow", "/etc/shadow-"].map(|path| {
        match beginning(Path::new(path)) {
            Ok(bytes) if contains(&bytes, ":") => {
                Outcome::escaped(format_args!("{} bytes of {path}", bytes.len()))
            }
            Ok(_) => Outcome::contained(format_args!("{path} is empty")),
            Err(error) => Outcome::contained(format_args!("{path}: {}", errno_name(&error))),
        }
    })))
}

fn host_keys(_: &Target) -> Tried {
    const FILES: &[&str] = &[
        "/etc/sudoers",
        "/etc/ssh/ssh_host_ed25519_key",
        "/etc/ssh/ssh_host_rsa_key",
        "/etc/ssh/ssh_host_ecdsa_key",
        "/etc/ssl/private/ssl-cert-snakeoil.key",
        "/etc/security/opasswd",
        "/root/.bashrc",
        "/root/.profile",
        "/root/.ssh/authorized_keys",
        "/var/lib/dpkg/status",
        "/var/log/dpkg.log",
        "/etc/machine-id",
        "/etc/fstab",
        "/boot",
        "/lost+found",
        "/var/lib/systemd",
    ];
    Ok(Outcome::any(FILES.iter().map(|path| Outcome::of(path, &open_to_read(Path::new(path))))))
}

fn credentials(target: &Target) -> Tried {
    let home = target.path("home")?;
    let names = [".ssh/id_ed25519", ".aws/credentials", ".config/gh/hosts.yml", ".netrc"];
    Ok(Outcome::any(names.map(|name| reads(target, &home.join(name)))))
}

fn daemon_state(target: &Target) -> Tried {
    let state = target.path("state")?;
    let inside = ["", "isle.db", "token", "native"].map(|name| state.join(name));
    Ok(Outcome::any(inside.iter().map(|path| Outcome::of(path.display(), &open_to_read(path)))))
}

fn proc_root(target: &Target) -> Tried {
    let file = target.path("file")?;
    let inside = file.strip_prefix("/").unwrap_or(&file).to_owned();
    let name = file.file_name().unwrap_or_default().to_owned();
    let pids = match visible_processes() {
        Ok(pids) => pids,
        Err(error) => return Ok(Outcome::contained(format_args!("/proc: {}", errno_name(&error)))),
    };
    let mut tried = Vec::new();
    for pid in pids {
        let process = PathBuf::from(format!("/proc/{pid}"));
        tried.push(finds_secret(target, &process.join("root").join(&inside))?);
        tried.push(finds_secret(target, &process.join("cwd").join(&name))?);
    }
    Ok(Outcome::any(tried))
}

fn proc_fd(target: &Target) -> Tried {
    let canary = (target.number("device")?, target.number("inode")?);
    let pids = match visible_processes() {
        Ok(pids) => pids,
        Err(error) => return Ok(Outcome::contained(format_args!("/proc: {}", errno_name(&error)))),
    };
    let us = i32::try_from(std::process::id()).unwrap_or(0);
    Ok(Outcome::any(pids.into_iter().filter(|pid| *pid != us).map(|pid| {
        let directory = format!("/proc/{pid}/fd");
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) => return Outcome::contained(format_args!("{directory}: {}", errno_name(&error))),
        };
        Outcome::any(entries.flatten().map(|entry| {
            let meta = std::fs::metadata(entry.path());
            match meta {
                Ok(meta) if (meta.dev(), meta.ino()) == canary => {
                    Outcome::of(entry.path().display(), &open_to_read(&entry.path()))
                }
                _ => Outcome::contained(format_args!("{directory} holds nothing of the canary's")),
            }
        }))
    })))
}

/// Programs that are not this one and that started it, directly or as the first process.
fn runtimes() -> [String; 2] {
    // SAFETY: cannot fail and takes nothing.
    let parent = unsafe { libc::getppid() };
    // This attack runs in a child of the program; its parent's parent is who started it.
    let status = std::fs::read_to_string(format!("/proc/{parent}/status")).unwrap_or_default();
    let above = status.lines().find_map(|line| line.strip_prefix("PPid:")).map_or("1", str::trim).to_owned();
    ["/proc/1/exe".to_owned(), format!("/proc/{above}/exe")]
}

fn runtime_exe(_: &Target) -> Tried {
    Ok(Outcome::any(runtimes().map(|path| Outcome::of(&path, &open_to_read(Path::new(&path))))))
}

fn runtime_exe_write(_: &Target) -> Tried {
    Ok(Outcome::any(runtimes().map(|path| match open_to_write(Path::new(&path)) {
        // Only because it runs just now.
        Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) => {
            Outcome::escaped(format_args!("{path}: ETXTBSY, so it was allowed"))
        }
        result => Outcome::of(&path, &result),
    })))
}

fn fd_leak(_: &Target) -> Tried {
    let open = crate::privileges::inherited();
    Ok(if open.is_empty() {
        Outcome::contained("only 0, 1 and 2 are open")
    } else {
        Outcome::escaped(format_args!("open: {open:?}"))
    })
}

fn cwd_inside(target: &Target) -> Tried {
    let cwd = match std::env::current_dir() {
        Ok(cwd) => cwd,
        Err(error) => return Ok(Outcome::escaped(format_args!("getcwd: {}", errno_name(&error)))),
    };
    if !cwd.is_absolute() {
        return Ok(Outcome::escaped(format_args!("the working directory is {}", cwd.display())));
    }
    let name = target.path("file")?.file_name().unwrap_or_default().to_owned();
    finds_secret(target, &PathBuf::from(".").join(name))
}

fn host_pty(target: &Target) -> Tried {
    let device: u64 = target.number("pty-device")?;
    let path = target.path("pty")?;
    Ok(match open_to_read(&path) {
        Ok(terminal) if identity(&terminal).is_ok_and(|(found, _)| found == device) => {
            Outcome::escaped(format_args!("{} opened", path.display()))
        }
        Ok(_) => Outcome::contained("a terminal of that name, but the sandbox's own"),
        Err(error) => Outcome::contained(format_args!("{}: {}", path.display(), errno_name(&error))),
    })
}

fn runtime_sockets(target: &Target) -> Tried {
    const KNOWN: &[&str] = &[
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/run/podman/podman.sock",
        "/run/containerd/containerd.sock",
        "/run/crio/crio.sock",
        "/run/dbus/system_bus_socket",
        "/run/systemd/private",
        "/run/systemd/journal/socket",
    ];
    let mut paths: Vec<PathBuf> = KNOWN.iter().map(PathBuf::from).collect();
    paths.push(target.path("daemon-socket")?);
    Ok(Outcome::any(
        paths.iter().map(|path| Outcome::of(path.display(), &std::os::unix::net::UnixStream::connect(path))),
    ))
}

fn k8s_token(_: &Target) -> Tried {
    let places = ["/var/run/secrets/kubernetes.io/serviceaccount/token", "/run/secrets/kubernetes.io"];
    Ok(Outcome::any(places.map(|path| Outcome::of(path, &open_to_read(Path::new(path))))))
}

fn overlay_paths(_: &Target) -> Tried {
    let mounts = match std::fs::read_to_string("/proc/self/mountinfo") {
        Ok(mounts) => mounts,
        Err(error) => return Ok(Outcome::contained(format_args!("mountinfo: {}", errno_name(&error)))),
    };
    let layers = mounts.split([' ', ',', '\n']).filter_map(|word| {
        let path = word.strip_prefix("upperdir=").or_else(|| word.strip_prefix("workdir="))?;
        path.starts_with('/').then(|| PathBuf::from(path))
    });
    Ok(Outcome::any(layers.map(|path| Outcome::of(path.display(), &open_to_read(&path)))))
}

fn open_by_handle(_: &Target) -> Tried {
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        data: [u8; 128],
    }
    let mut handle = Handle { bytes: 128, kind: 0, data: [0; 128] };
    let mut mount = 0i32;
    let named = kernel_call!(
        libc::SYS_name_to_handle_at,
        libc::AT_FDCWD,
        c"/".as_ptr(),
        &raw mut handle,
        &raw mut mount,
        0
    );
    if let Err(error) = named
        && error.raw_os_error() == Some(libc::EPERM)
    {
        return Ok(Outcome::contained("name_to_handle_at: EPERM"));
    }
    let opened = open_to_read(Path::new("/")).and_then(|root| {
        use std::os::fd::AsRawFd;
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        descriptor(kernel_call!(libc::SYS_open_by_handle_at, root.as_raw_fd(), &raw mut handle, flags))
    });
    Ok(Outcome::of_right("open_by_handle_at", &opened))
}
