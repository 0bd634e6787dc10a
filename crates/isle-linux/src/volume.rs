//! Volumes of named sandboxes: the writable layer and the workspace, on disk, with a limit. As root
//! a volume is an ext4 image on a loop device, so the kernel itself says when it is full. Where that
//! cannot be, it is a directory and [`super::watch`] looks after its size.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use isle_core::values::{Address, ByteSize, SandboxId};
use isle_core::{Code, Error, Result};
use isle_fail::Point;

use super::record::Records;
use super::{Inner, MEASURED, failed, failpoint};
use isle_setup::SANDBOX_WORKSPACE;
use isle_setup::request::Volume;
use isle_setup::sys::check;
use isle_setup::tree::Measurement;

/// The smallest image that holds a file system worth the name.
const SMALLEST_IMAGE: u64 = 4 << 20;

/// How long the mounts of a sandbox that is gone may still hold its image.
const LET_GO: Duration = Duration::from_secs(20);

/// A volume ready to be shown to a sandbox.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) source: Volume,
    pub(super) loop_device: Option<OwnedFd>,
}

impl Prepared {
    pub(super) fn memory() -> Self {
        Self { source: Volume::Memory, loop_device: None }
    }
}

/// Whether images can be made and mounted here.
pub(super) fn images_possible() -> bool {
    rustix::process::geteuid().is_root()
        && Path::new("/dev/loop-control").exists()
        && make_file_system_program().is_some()
}

fn make_file_system_program() -> Option<PathBuf> {
    ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"]
        .iter()
        .map(PathBuf::from)
        .find(|path| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok())
}

/// Finds or makes the volume of a name. An image keeps the size it was made with.
pub(super) async fn prepare(inner: &Arc<Inner>, volume: &Address, limit: ByteSize) -> Result<Prepared> {
    let directory = inner.records.volume_path(volume);
    let image = directory.join("image");
    let data = directory.join("data");
    if data.exists() || !inner.facts.images {
        fs::create_dir_all(&data).map_err(|error| failed("create the volume", error))?;
        failpoint(Point::NativeVolumeMade)?;
        let source = Volume::Directory(format!("{}/data", Records::volume_name(volume)));
        return Ok(Prepared { source, loop_device: None });
    }
    let templates = inner.records.state().join("images");
    let path = image.clone();
    let opened = tokio::task::spawn_blocking(move || open_image(&path, &templates, limit, LET_GO)).await;
    let device = opened.map_err(Error::internal)?.map_err(|error| unusable(&image, error))?;
    Ok(Prepared { source: Volume::LoopDevice, loop_device: Some(device) })
}

/// Why an image could not be used, and what can be done about it.
fn unusable(image: &Path, error: io::Error) -> Error {
    let broken = failed("open the volume's image", error);
    if broken.code != Code::DiskBroken {
        return broken;
    }
    broken
        .next(format!(
            "repair the image with `e2fsck -f {}`, which asks before it discards anything",
            image.display()
        ))
        .next("if the workspace is not needed, destroy the sandbox with `wipe` and recreate it")
}

/// Bytes on disk of a sandbox's volume.
pub(super) async fn usage(inner: &Arc<Inner>, id: &SandboxId) -> Option<u64> {
    let record = inner.records.read(id)?;
    let image = inner.records.volume_path(&record.volume).join("image");
    if let Ok(meta) = fs::metadata(image) {
        return Some(meta.blocks() * 512);
    }
    let named = directory_usage(inner, &record.volume, MEASURED).await?;
    Some(named.bytes + inner.alive.unlinked(id))
}

/// What of a sandbox's own disk is scarce besides bytes, as the kernel counts it for the sandbox.
#[derive(Debug, Default)]
pub(super) struct Scarce {
    /// Files and directories, and how many there can be, where few more fit.
    pub(super) inodes: Option<(u64, u64)>,
    /// What came of a disk that was full when the sandbox started.
    pub(super) note: Option<&'static str>,
}

/// The share of the inodes that may be used before they are named.
const MANY_INODES: (u64, u64) = (9, 10);

const LAYER_IN_MEMORY: &str = "the disk was full when the sandbox started, so changes outside /workspace are kept in memory: remove files, then reset the sandbox";

/// Looks at the file systems of a sandbox that has an image, by way of its first process. The workspace is a
/// mount point there, which its guest cannot move or replace.
pub(super) fn scarce(inner: &Inner, id: &SandboxId) -> Scarce {
    let looked = || -> Option<Scarce> {
        let record = inner.records.read(id)?;
        if !inner.records.volume_path(&record.volume).join("image").exists() {
            return None;
        }
        let process = inner.alive.process(id)?;
        let pid = super::watch::pid_of(&process)?;
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        let root = rustix::fs::open(format!("/proc/{pid}/root"), flags, rustix::fs::Mode::empty()).ok()?;
        let flags = flags | rustix::fs::OFlags::NOFOLLOW;
        let name = SANDBOX_WORKSPACE.trim_start_matches('/');
        let workspace = rustix::fs::openat(&root, name, flags, rustix::fs::Mode::empty()).ok()?;
        let (root, workspace) = (rustix::fs::fstatvfs(&root).ok()?, rustix::fs::fstatvfs(&workspace).ok()?);
        // A process that is gone may have left its number to another.
        super::watch::pid_of(&process)?;
        let (limit, used) = (workspace.f_files, workspace.f_files.saturating_sub(workspace.f_ffree));
        let (part, whole) = MANY_INODES;
        let is_scarce = used.saturating_mul(whole) >= limit.saturating_mul(part);
        let is_elsewhere = (root.f_blocks, root.f_files) != (workspace.f_blocks, workspace.f_files);
        Some(Scarce {
            inodes: is_scarce.then_some((used, limit)),
            note: is_elsewhere.then_some(LAYER_IN_MEMORY),
        })
    };
    looked().unwrap_or_default()
}

/// What a sandbox whose own disk is full can still be helped with.
pub(super) fn own_limit_reached(error: Error, limit: ByteSize) -> Error {
    if error.code != Code::NoSpace {
        return error;
    }
    let message = format!("{}; the sandbox's disk limit of {limit} is reached", error.message);
    Error::new(Code::NoSpace, message)
        .next("destroy the sandbox with `wipe`, which deletes its files, and create it with a larger `disk`")
}

/// Bytes on disk of a volume that is a directory, as far as they can be counted in this time.
pub(super) async fn directory_usage(
    inner: &Inner,
    volume: &Address,
    longest: Duration,
) -> Option<Measurement> {
    let server = inner.fork_server().await.ok()?;
    server.measure(&Records::volume_name(volume), longest).await.ok()
}

/// Makes the image when it is missing, checks it when it was not closed well, puts it on a loop device.
fn open_image(image: &Path, templates: &Path, limit: ByteSize, patience: Duration) -> io::Result<OwnedFd> {
    if !image.exists() {
        let template = template(templates, limit.0.max(SMALLEST_IMAGE))?;
        let part = Part(image.with_extension("part"));
        copy_sparse(&template, &part.0)?;
        isle_fail::fail(Point::NativeImageCopied)?;
        fs::rename(&part.0, image)?;
        isle_fail::fail(Point::NativeImagePlaced)?;
    }
    let backing = fs::OpenOptions::new().read(true).write(true).open(image)?;
    have_alone(&backing, patience)?;
    if !closed_well(&backing)? {
        repair(image)?;
    }
    let device = attach(&backing)?;
    isle_fail::fail(Point::NativeLoopAttached)?;
    Ok(device)
}

/// Waits until the image is not in use. The lock belongs to the open file, which a loop device keeps open: it
/// lasts as long as the device, whichever process dies. The exit of a sandbox's first process does not mean
/// that its mounts are gone: a process of the host that reads its namespaces or its memory keeps them for a
/// moment, and a file system mounted twice destroys itself.
fn have_alone(image: &fs::File, patience: Duration) -> io::Result<()> {
    const PAUSE: Duration = Duration::from_millis(2);
    let begun = Instant::now();
    loop {
        match rustix::fs::flock(image, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < patience => std::thread::sleep(PAUSE),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(io::Error::new(
                    io::ErrorKind::ResourceBusy,
                    "another process still holds the mounts of an earlier sandbox with this volume",
                ));
            }
            result => return Ok(result?),
        }
    }
}

/// A file that is being made. Unless it was renamed by then, it goes with this.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        // Usually it is not there any more.
        fs::remove_file(&self.0).ok();
    }
}

/// An empty file system of this size, made once and copied for every volume.
fn template(directory: &Path, bytes: u64) -> io::Result<PathBuf> {
    let path = directory.join(format!("ext4-{bytes}"));
    if path.exists() {
        return Ok(path);
    }
    fs::create_dir_all(directory)?;
    let part = Part(directory.join(format!("ext4-{bytes}.{}.part", SandboxId::fresh())));
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part.0)?;
    file.set_len(bytes)?;
    let program = make_file_system_program().ok_or(io::ErrorKind::NotFound)?;
    // No journal: a volume is checked before use instead, and every sandbox is spared a kernel thread.
    let output = std::process::Command::new(program)
        .args([
            "-q",
            "-F",
            "-m",
            "0",
            "-O",
            "^has_journal,^resize_inode",
            "-E",
            "lazy_itable_init=1,nodiscard",
        ])
        .arg(&part.0)
        .env_clear()
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    fs::rename(&part.0, &path)?;
    isle_fail::fail(Point::NativeTemplateMade)?;
    Ok(path)
}

/// Copies the parts of a sparse file that hold data.
fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let source = fs::File::open(from)?;
    let target = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(to)?;
    let length = source.metadata()?.len();
    target.set_len(length)?;
    let mut buffer = vec![0u8; 64 * 1024];
    let mut at = 0;
    while at < length {
        let Ok(start) = rustix::fs::seek(&source, rustix::fs::SeekFrom::Data(at)) else { break };
        let end = rustix::fs::seek(&source, rustix::fs::SeekFrom::Hole(start))?;
        let mut offset = start;
        while offset < end {
            let want = usize::try_from(end - offset).unwrap_or(usize::MAX).min(buffer.len());
            let count = source.read_at(&mut buffer[..want], offset)?;
            if count == 0 {
                break;
            }
            target.write_all_at(&buffer[..count], offset)?;
            offset += count as u64;
        }
        at = end;
    }
    Ok(())
}

/// Whether the file system in an image says that it was unmounted, or never used.
fn closed_well(image: &fs::File) -> io::Result<bool> {
    const STATE: u64 = 1024 + 58;
    let mut state = [0u8; 2];
    image.read_exact_at(&mut state, STATE)?;
    Ok(u16::from_le_bytes(state) & 1 == 1)
}

fn repair(image: &Path) -> io::Result<()> {
    let output = std::process::Command::new("e2fsck").arg("-p").arg(image).output()?;
    // 0: nothing to do, 1: repaired.
    match output.status.code() {
        Some(0 | 1) => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "the volume is damaged beyond automatic repair: {}",
                String::from_utf8_lossy(&output.stdout).trim()
            ),
        )),
    }
}

/// The kernel's `struct loop_info64`.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// The kernel's `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    descriptor: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// Puts a file on a free loop device, which frees itself when its last user is gone.
fn attach(backing: &fs::File) -> io::Result<OwnedFd> {
    const GET_FREE: libc::Ioctl = 0x4C82;
    const CONFIGURE: libc::Ioctl = 0x4C0A;
    const AUTOCLEAR: u32 = 4;
    let control = fs::OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
    for _ in 0..64 {
        // SAFETY: takes no argument and returns a number.
        let number = check(unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE) }.into())?;
        let path = format!("/dev/loop{number}");
        let device = fs::OpenOptions::new().read(true).write(true).open(path)?;
        // SAFETY: plain data for which zero is a valid value.
        let mut config: LoopConfig = unsafe { std::mem::zeroed() };
        config.descriptor = backing.as_raw_fd().unsigned_abs();
        config.info.flags = AUTOCLEAR;
        // SAFETY: the kernel reads a loop_config, which outlives the call.
        match check(unsafe { libc::ioctl(device.as_raw_fd(), CONFIGURE, &raw const config) }.into()) {
            Ok(_) => return Ok(device.into()),
            // Another process took it first.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from_raw_os_error(libc::EBUSY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_on_one_loop_device_at_a_time() {
        isle_e2e::require!(isle_e2e::needs_root("use loop devices"));
        isle_e2e::require!(images_possible(), "this host has no loop devices or no mkfs.ext4");
        let directory = tempfile::tempdir().unwrap();
        let (image, templates) = (directory.path().join("image"), directory.path().join("templates"));
        let open = |patience| open_image(&image, &templates, ByteSize(SMALLEST_IMAGE), patience);
        let first = open(Duration::ZERO).unwrap();
        let refused = open(Duration::ZERO).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy, "{refused}");
        drop(first);
        open(Duration::from_secs(20)).unwrap();
    }
}
