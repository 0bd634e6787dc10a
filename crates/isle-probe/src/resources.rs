//! Resources: using more than the limits of the sandbox. Each attack stops a little above its limit, so that
//! a host without a sandbox is not harmed.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Attack;
use crate::kernel::{c_text, descriptor, errno_name, scratch};
use crate::outcome::{Outcome, Tried};
use crate::target::Target;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new("res.fork", "start more processes than the limit", fork),
    Attack::new("res.fork_ids", "start more processes than the limit, as many users", fork_ids),
    Attack::new("res.threads", "start more threads than the limit", threads),
    Attack::new("res.memory", "use more memory than the limit", memory),
    Attack::new("res.memory_many", "use more memory than the limit, in several processes", memory_many),
    Attack::new("res.memfd", "use more memory than the limit, as an anonymous file", memfd),
    Attack::new("res.shm_fill", "use more memory than the limit, in /dev/shm", shm_fill),
    Attack::new("res.sysv_memory", "use more memory than the limit, as System V shared memory", sysv_memory),
    Attack::new("res.disk", "write more than the limit", disk),
    Attack::new("res.inodes", "make more files than the limit", inodes),
    Attack::new("res.nofile", "open more files than the limit", nofile),
    Attack::new("res.pty", "open more terminals than a sandbox has", pty),
    Attack::new("res.aio", "take contexts of asynchronous I/O, of which the whole host has few", aio),
    Attack::new("res.core", "leave core dumps", core),
    Attack::new("res.cpu", "use more CPU time than the limit", cpu),
    Attack::new("res.zombies", "leave zombie processes", zombies),
];

const MIB: u64 = 1 << 20;

/// Clearly above the limit.
fn beyond(limit: u64) -> u64 {
    limit + 64 * MIB
}

fn stopped(error: &io::Error, at: impl std::fmt::Display) -> Outcome {
    Outcome::contained(format_args!("{} at {at}", errno_name(error)))
}

/// Preferred by the OOM killer, so that nothing else in the sandbox is killed.
fn volunteer() {
    // Without it the kernel kills the largest process. Memory in files is not counted there.
    std::fs::write("/proc/self/oom_score_adj", "1000").ok();
    map(8 * MIB).ok();
}

fn fork(target: &Target) -> Tried {
    Ok(start_many(target.number::<usize>("pids")? + 32, |_| true))
}

/// Every child becomes another user, so that a per-user process limit has no effect.
fn fork_ids(target: &Target) -> Tried {
    const IDS: usize = 32;
    let become_another = |index: usize| {
        let id = 1 + u32::try_from(index % IDS).unwrap_or(0);
        kernel_call!(libc::SYS_setresuid, id, id, id).is_ok()
    };
    Ok(start_many(target.number::<usize>("pids")? + 32, become_another))
}

/// Starts children that wait for the end of a pipe, since the parent may not be permitted to kill them. They
/// have to keep running for a while: a polled limit may act late.
fn start_many(most: usize, ready: impl Fn(usize) -> bool) -> Outcome {
    let (mut ends, mut hold) = ([0; 2], [0; 2]);
    for pipe in [&mut ends, &mut hold] {
        if let Err(error) = library_call!(pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC)) {
            return Outcome::not_testable(errno_name(&error));
        }
    }
    let mut children = Vec::new();
    let mut refused = None;
    while children.len() < most && refused.is_none() {
        // SAFETY: one thread only; the child does nothing but get ready and wait for its end.
        match unsafe { libc::fork() } {
            -1 => refused = Some(io::Error::last_os_error()),
            0 => {
                let mut word = u8::from(ready(children.len()));
                kernel_call!(libc::SYS_write, ends[1], &raw const word, 1usize).ok();
                library_call!(close(ends[1])).ok();
                library_call!(close(hold[1])).ok();
                kernel_call!(libc::SYS_read, hold[0], &raw mut word, 1usize).ok();
                // SAFETY: leaves without running anything of the parent's.
                unsafe { libc::_exit(0) };
            }
            child => children.push(child),
        }
    }
    library_call!(close(ends[1])).ok();
    // The pipe ends when every child has written or exited.
    let (mut word, mut not_ready) = (0u8, 0);
    while matches!(kernel_call!(libc::SYS_read, ends[0], &raw mut word, 1usize), Ok(1)) {
        not_ready += usize::from(word == 0);
    }
    let count = children.len();
    let outcome = match refused {
        Some(error) => stopped(&error, format_args!("{count} processes")),
        None if not_ready > 0 => Outcome::contained("they cannot become what they should"),
        None if all_stay(&children) => Outcome::escaped(format_args!("{count} processes")),
        None => Outcome::contained(format_args!("{count} processes, for a moment")),
    };
    library_call!(close(hold[1])).ok();
    for child in children {
        library_call!(waitpid(child, std::ptr::null_mut(), 0)).ok();
    }
    outcome
}

fn threads(target: &Target) -> Tried {
    let most = target.number::<usize>("pids")? + 32;
    for count in 0..most {
        let started = std::thread::Builder::new().stack_size(64 << 10).spawn(|| {
            loop {
                std::thread::park();
            }
        });
        if let Err(error) = started {
            return Ok(stopped(&error, format_args!("{count} threads")));
        }
    }
    // A polled limit may act late.
    std::thread::sleep(Duration::from_secs(1));
    Ok(Outcome::escaped(format_args!("{most} threads")))
}

/// Writes a byte into every page.
fn touch(address: *mut libc::c_void, length: u64) {
    let start: *mut u8 = address.cast();
    for offset in (0..usize::try_from(length).unwrap_or(0)).step_by(4096) {
        // SAFETY: the caller has mapped `length` bytes at `address` for writing.
        unsafe { start.add(offset).write_volatile(1) };
    }
}

/// Maps and fills that much.
fn map(length: u64) -> io::Result<()> {
    let size = usize::try_from(length).unwrap_or(usize::MAX);
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh private mapping at an address the kernel chooses.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), size, access, kind, -1, 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    touch(address, length);
    Ok(())
}

fn memory(target: &Target) -> Tried {
    volunteer();
    let most = beyond(target.number("memory")?);
    let mut used = 0;
    while used < most {
        if let Err(error) = map(4 * MIB) {
            return Ok(stopped(&error, format_args!("{} MiB", used / MIB)));
        }
        used += 4 * MIB;
    }
    Ok(Outcome::escaped(format_args!("{} MiB", used / MIB)))
}

/// Four processes with half of the limit each, all at once.
fn memory_many(target: &Target) -> Tried {
    const COUNT: usize = 4;
    let each = target.number::<u64>("memory")? / 2;
    let mut ends = [0; 2];
    if let Err(error) = library_call!(pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC)) {
        return Ok(Outcome::not_testable(errno_name(&error)));
    }
    let children: Vec<i32> = (0..COUNT)
        .filter_map(|_| {
            // SAFETY: there is only one thread, so the child may run any code.
            let child = unsafe { libc::fork() };
            if child == 0 {
                volunteer();
                let full = map(each).is_ok();
                kernel_call!(libc::SYS_write, ends[1], &raw const full, 1usize).ok();
                library_call!(close(ends[1])).ok();
                loop {
                    // SAFETY: waits for a signal.
                    unsafe { libc::pause() };
                }
            }
            (child > 0).then_some(child)
        })
        .collect();
    library_call!(close(ends[1])).ok();
    // The pipe ends when every child has written or exited.
    let mut words = Vec::new();
    let mut word = 0u8;
    while matches!(kernel_call!(libc::SYS_read, ends[0], &raw mut word, 1usize), Ok(1)) {
        words.push(word);
    }
    let full = words.iter().filter(|word| **word == 1).count();
    let kept = full == COUNT && all_stay(&children);
    for child in &children {
        library_call!(kill(*child, libc::SIGKILL)).ok();
        library_call!(waitpid(*child, std::ptr::null_mut(), 0)).ok();
    }
    let each = each / MIB;
    Ok(if kept {
        Outcome::escaped(format_args!("{full} of {COUNT} processes have {each} MiB each"))
    } else if full == COUNT {
        Outcome::contained(format_args!("{full} of {COUNT} processes had {each} MiB each, for a moment"))
    } else {
        Outcome::contained(format_args!("{full} of {COUNT} processes have {each} MiB each"))
    })
}

/// Whether they all keep running for a while: a polled limit may act late.
fn all_stay(children: &[i32]) -> bool {
    const WHILE: Duration = Duration::from_secs(3);
    let began = Instant::now();
    while began.elapsed() < WHILE {
        let gone = |child: &i32| {
            library_call!(waitpid(*child, std::ptr::null_mut(), libc::WNOHANG))
                .is_ok_and(|found| found == i64::from(*child))
        };
        if children.iter().any(gone) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Fills unnamed files, which are removed with this process: many, each smaller than any file size limit.
fn fill(most: u64, mut make: impl FnMut(u64) -> io::Result<File>) -> Outcome {
    const EACH: u64 = 4;
    let piece = vec![1u8; 1 << 20];
    let mut files = Vec::new();
    while files.len() < usize::try_from(most / (EACH * MIB)).unwrap_or(usize::MAX) {
        let done = EACH * u64::try_from(files.len()).unwrap_or(0);
        let written = make(done).and_then(|mut file| {
            for _ in 0..EACH {
                file.write_all(&piece)?;
            }
            Ok(file)
        });
        match written {
            // Kept open, or the space would be freed.
            Ok(file) => files.push(file),
            Err(error) => return stopped(&error, format_args!("{done} MiB")),
        }
    }
    Outcome::escaped(format_args!("{} MiB", most / MIB))
}

fn nameless(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

fn memfd(target: &Target) -> Tried {
    volunteer();
    Ok(fill(beyond(target.number("memory")?), |_| {
        let name = c_text("isle-probe")?;
        descriptor(library_call!(memfd_create(name.as_ptr(), libc::MFD_CLOEXEC))).map(File::from)
    }))
}

fn shm_fill(target: &Target) -> Tried {
    volunteer();
    Ok(fill(beyond(target.number("memory")?), |index| {
        nameless(&Path::new("/dev/shm").join(scratch(&format!("fill-{index}"))))
    }))
}

fn sysv_memory(target: &Target) -> Tried {
    volunteer();
    let most = beyond(target.number("memory")?);
    let size = usize::try_from(most).unwrap_or(usize::MAX);
    let made = library_call!(shmget(libc::IPC_PRIVATE, size, libc::IPC_CREAT | 0o600));
    let id = match made {
        Ok(id) => i32::try_from(id).unwrap_or(-1),
        Err(error) => return Ok(stopped(&error, "the start")),
    };
    // SAFETY: the kernel chooses the address.
    let address = unsafe { libc::shmat(id, std::ptr::null(), 0) };
    let failed = io::Error::last_os_error();
    // Removed with its last user, this process.
    library_call!(shmctl(id, libc::IPC_RMID, std::ptr::null_mut())).ok();
    if address.addr() == usize::MAX {
        return Ok(stopped(&failed, "attaching"));
    }
    touch(address, most);
    Ok(Outcome::escaped(format_args!("{} MiB", most / MIB)))
}

fn disk(target: &Target) -> Tried {
    let limit: u64 = target.number("disk")?;
    Ok(fill(limit + 32 * MIB, |index| nameless(&scratch(&format!("disk-{index}")))))
}

fn inodes(target: &Target) -> Tried {
    let most = target.number::<u64>("disk")? / 4096 + 2048;
    let directory = scratch("inodes");
    if let Err(error) = std::fs::create_dir(&directory) {
        return Ok(stopped(&error, "the start"));
    }
    let mut outcome = Outcome::escaped(format_args!("{most} files"));
    for index in 0..most {
        let path: PathBuf = directory.join(index.to_string());
        if let Err(error) = OpenOptions::new().write(true).create_new(true).open(path) {
            outcome = stopped(&error, format_args!("{index} files"));
            break;
        }
    }
    std::fs::remove_dir_all(&directory).ok();
    Ok(outcome)
}

fn nofile(target: &Target) -> Tried {
    let most = target.number::<usize>("files")? + 64;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    library_call!(getrlimit(libc::RLIMIT_NOFILE, &raw mut limit)).ok();
    limit.rlim_cur = limit.rlim_max;
    library_call!(setrlimit(libc::RLIMIT_NOFILE, &raw const limit)).ok();
    for count in 3..most {
        if let Err(error) = library_call!(dup(0)) {
            return Ok(stopped(&error, format_args!("{count} descriptors")));
        }
    }
    Ok(Outcome::escaped(format_args!("{most} descriptors")))
}

fn pty(_: &Target) -> Tried {
    const MOST: usize = 300;
    let mut masters: Vec<OwnedFd> = Vec::new();
    while masters.len() < MOST {
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        match descriptor(library_call!(posix_openpt(flags))) {
            Ok(master) => masters.push(master),
            Err(error) => return Ok(stopped(&error, format_args!("{} terminals", masters.len()))),
        }
    }
    Ok(Outcome::escaped(format_args!("{} terminals, the last is {}", MOST, masters[MOST - 1].as_raw_fd())))
}

fn aio(_: &Target) -> Tried {
    let mut context = 0usize;
    let made = kernel_call!(libc::SYS_io_setup, 64, &raw mut context);
    if made.is_ok() {
        kernel_call!(libc::SYS_io_destroy, context).ok();
    }
    Ok(Outcome::of("io_setup", &made))
}

fn core(_: &Target) -> Tried {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    Ok(match library_call!(getrlimit(libc::RLIMIT_CORE, &raw mut limit)) {
        Ok(_) if limit.rlim_max == 0 => Outcome::contained("no core dumps"),
        Ok(_) => Outcome::escaped(format_args!("up to {} bytes", limit.rlim_max)),
        Err(error) => Outcome::not_testable(errno_name(&error)),
    })
}

/// CPU time of exited children.
fn spent() -> Duration {
    // SAFETY: plain data for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    library_call!(getrusage(libc::RUSAGE_CHILDREN, &raw mut usage)).ok();
    let of = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    of(usage.ru_utime) + of(usage.ru_stime)
}

/// Busy loops, each in a separate session, since schedulers share by session. On a busy host they may get
/// less than the limit, which proves nothing, so there are several attempts.
fn cpu(target: &Target) -> Tried {
    const PERIOD: Duration = Duration::from_millis(1000);
    let limit: f64 = target.number("cpus")?;
    let mut most = 0.0f64;
    for _ in 0..3 {
        let (before, began) = (spent(), Instant::now());
        let children: Vec<i32> = (0..6)
            .filter_map(|_| {
                // SAFETY: one thread only; the child only computes and leaves.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    library_call!(setsid()).ok();
                    while began.elapsed() < PERIOD {
                        std::hint::spin_loop();
                    }
                    // SAFETY: leaves without running anything of the parent's.
                    unsafe { libc::_exit(0) };
                }
                (child > 0).then_some(child)
            })
            .collect();
        for child in children {
            library_call!(waitpid(child, std::ptr::null_mut(), 0)).ok();
        }
        most = most.max((spent() - before).as_secs_f64() / began.elapsed().as_secs_f64());
        if most > limit * 1.3 {
            return Ok(Outcome::escaped(format_args!("more than {limit} CPUs, with a margin")));
        }
    }
    Ok(Outcome::contained(format_args!("at most {limit} CPUs, with a margin")))
}

/// Orphans that exit at once: the process that adopted them has to reap them.
fn zombies(_: &Target) -> Tried {
    const COUNT: usize = 20;
    let mut orphans = Vec::new();
    for _ in 0..COUNT {
        let mut ends = [0; 2];
        if let Err(error) = library_call!(pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC)) {
            return Ok(Outcome::not_testable(errno_name(&error)));
        }
        // SAFETY: there is only one thread, so the child may run any code.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            let orphan = unsafe { libc::fork() };
            if orphan > 0 {
                kernel_call!(libc::SYS_write, ends[1], &raw const orphan, size_of_val(&orphan)).ok();
            }
            // SAFETY: leaves without running anything of the parent's.
            unsafe { libc::_exit(0) };
        }
        library_call!(waitpid(child, std::ptr::null_mut(), 0)).ok();
        let mut orphan = 0i32;
        library_call!(close(ends[1])).ok();
        if matches!(kernel_call!(libc::SYS_read, ends[0], &raw mut orphan, size_of_val(&orphan)), Ok(4)) {
            orphans.push(orphan);
        }
        library_call!(close(ends[0])).ok();
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        orphans.retain(|orphan| library_call!(kill(*orphan, 0)).is_ok());
        if orphans.is_empty() {
            return Ok(Outcome::contained(format_args!("all {COUNT} are gone")));
        }
        if Instant::now() > deadline {
            return Ok(Outcome::escaped(format_args!("{} of {COUNT} are still there", orphans.len())));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
