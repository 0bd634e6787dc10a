//! What the canary creates: files, sockets, shared memory, a terminal. Each kind adds its arguments.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::LEAKED;
use crate::kernel::{c_text, descriptor};

/// The arguments collected so far.
pub(super) type Arguments = Vec<(String, String)>;

fn add(arguments: &mut Arguments, name: &str, value: impl ToString) {
    arguments.push((name.to_owned(), value.to_string()));
}

/// World-readable and, where named so, world-writable, so that only a sandbox denies access.
pub(super) fn files(directory: &Path, secret: &str, arguments: &mut Arguments) -> io::Result<()> {
    let write = |path: &Path, mode: u32| {
        fs::write(path, secret)?;
        fs::set_permissions(path, Permissions::from_mode(mode))
    };
    let file = directory.join("canary.txt");
    write(&file, 0o644)?;
    let meta = fs::metadata(&file)?;
    // Kept open for attacks that steal descriptors.
    let held = fs::File::open(&file)?;
    library_call!(dup2(held.as_raw_fd(), LEAKED))?;
    let drop = directory.join("drop");
    fs::create_dir_all(drop.join("full/inside"))?;
    fs::set_permissions(&drop, Permissions::from_mode(0o777))?;
    fs::set_permissions(drop.join("full"), Permissions::from_mode(0o777))?;
    let program = directory.join("program");
    fs::write(&program, "#!/bin/sh\nexit 0\n")?;
    fs::set_permissions(&program, Permissions::from_mode(0o755))?;
    let home = directory.join("home");
    for name in [".ssh/id_ed25519", ".aws/credentials", ".config/gh/hosts.yml", ".netrc"] {
        let path = home.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&home))?;
        write(&path, 0o644)?;
    }
    let link = directory.join("link");
    symlink(secret, &link)?;
    for (name, path) in [
        ("file", &file),
        ("directory", &directory.to_owned()),
        ("drop", &drop),
        ("program", &program),
        ("home", &home),
        ("link", &link),
    ] {
        add(arguments, name, path.display());
    }
    add(arguments, "device", meta.dev());
    add(arguments, "inode", meta.ino());
    Ok(())
}

/// The identity and namespaces of the canary, which a sandbox must not share.
pub(super) fn identity(secret: &'static str, arguments: &mut Arguments) -> io::Result<()> {
    add(arguments, "pid", std::process::id());
    add(arguments, "address", secret.as_ptr().addr());
    // SAFETY: cannot fail and takes nothing.
    add(arguments, "uid", unsafe { libc::getuid() });
    add(arguments, "session", library_call!(getsid(0))?);
    for kind in ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"] {
        let namespace = fs::metadata(format!("/proc/self/ns/{kind}"))?;
        add(arguments, &format!("ns-{kind}"), namespace.ino());
    }
    Ok(())
}

/// System V and POSIX objects; removed when dropped.
#[derive(Debug, Default)]
pub(super) struct Shared {
    semaphore: Option<i32>,
    queue: Option<i32>,
    posix_queue: Option<String>,
    posix_memory: Option<PathBuf>,
}

impl Shared {
    /// Each kind this kernel has.
    pub(super) fn make(secret: &str, token: &str, arguments: &mut Arguments) -> io::Result<Self> {
        let mut shared = Self::default();
        let number = |value: libc::c_long| i32::try_from(value).unwrap_or(-1);
        if let Ok(id) = library_call!(shmget(libc::IPC_PRIVATE, 4096, libc::IPC_CREAT | 0o666)) {
            let id = number(id);
            // SAFETY: the kernel chooses the address; the segment is one page, the secret is shorter.
            let address = unsafe { libc::shmat(id, std::ptr::null(), 0) };
            // Removed with its last user, the canary, however it exits.
            library_call!(shmctl(id, libc::IPC_RMID, std::ptr::null_mut()))?;
            if address.addr() != usize::MAX {
                // SAFETY: see above.
                unsafe { std::ptr::copy_nonoverlapping(secret.as_ptr(), address.cast(), secret.len()) };
                add(arguments, "shm", id);
            }
        }
        if let Ok(id) = library_call!(semget(libc::IPC_PRIVATE, 1, libc::IPC_CREAT | 0o666)) {
            shared.semaphore = Some(number(id));
            add(arguments, "sem", id);
        }
        if let Ok(id) = library_call!(msgget(libc::IPC_PRIVATE, libc::IPC_CREAT | 0o666)) {
            shared.queue = Some(number(id));
            add(arguments, "msg", id);
        }
        let name = format!("isle-canary-{token}");
        let c_name = c_text(&name)?;
        let flags = libc::O_CREAT | libc::O_RDWR | libc::O_CLOEXEC;
        let opened =
            kernel_call!(libc::SYS_mq_open, c_name.as_ptr(), flags, 0o666, std::ptr::null::<libc::mq_attr>());
        if let Ok(queue) = descriptor(opened) {
            library_call!(fchmod(queue.as_raw_fd(), 0o666))?;
            add(arguments, "mq", &name);
            shared.posix_queue = Some(name.clone());
        }
        let memory = Path::new("/dev/shm").join(&name);
        if fs::write(&memory, secret).is_ok() {
            fs::set_permissions(&memory, Permissions::from_mode(0o644))?;
            add(arguments, "posix-shm", memory.display());
            shared.posix_memory = Some(memory);
        }
        Ok(shared)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(id) = self.semaphore {
            library_call!(semctl(id, 0, libc::IPC_RMID)).ok();
        }
        if let Some(id) = self.queue {
            library_call!(msgctl(id, libc::IPC_RMID, std::ptr::null_mut())).ok();
        }
        if let Some(name) = self.posix_queue.as_deref().and_then(|name| c_text(name).ok()) {
            kernel_call!(libc::SYS_mq_unlink, name.as_ptr()).ok();
        }
        if let Some(path) = &self.posix_memory {
            fs::remove_file(path).ok();
        }
    }
}

/// A world-accessible terminal; exists as long as its master.
pub(super) fn terminal(arguments: &mut Arguments) -> Option<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    let master = descriptor(library_call!(posix_openpt(flags))).ok()?;
    let mut name: [libc::c_char; 64] = [0; 64];
    library_call!(grantpt(master.as_raw_fd())).ok()?;
    library_call!(unlockpt(master.as_raw_fd())).ok()?;
    library_call!(ptsname_r(master.as_raw_fd(), name.as_mut_ptr(), name.len())).ok()?;
    // SAFETY: the call above ended the name with a NUL.
    let name = unsafe { std::ffi::CStr::from_ptr(name.as_ptr()) }.to_str().ok()?.to_owned();
    fs::set_permissions(&name, Permissions::from_mode(0o666)).ok()?;
    add(arguments, "pty-device", fs::metadata(&name).ok()?.dev());
    add(arguments, "pty", name);
    Some(master)
}
