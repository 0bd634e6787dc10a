//! Processes whose first thread has ended while others live. The kernel shows such a process as a zombie
//! without memory, descriptors or namespaces, although it runs: what it has is shown for its living threads.

use std::fs;
use std::path::PathBuf;

/// How often the threads of a process are read while they come and go faster than that.
const ATTEMPTS: u32 = 32;

/// The state of a thread or process, and how many threads its process has.
fn state(stat: &str) -> Option<(u8, u64)> {
    let stat = fs::read(stat).ok()?;
    // A process chooses its own name, which comes in brackets and need not be text.
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let mut fields = std::str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    Some((state, fields.nth(16)?.parse().ok()?))
}

/// Whether a thread in this state has ended.
#[must_use]
pub fn is_ended(state: u8) -> bool {
    matches!(state, b'Z' | b'X')
}

/// The threads of a process besides its first.
pub fn others(pid: i32) -> impl Iterator<Item = i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(move |&thread| thread != pid)
}

/// A living thread of a process: its first as a rule, another when that has ended. `None` when all ended.
#[must_use]
pub fn living(pid: i32) -> Option<i32> {
    for _ in 0..ATTEMPTS {
        let (first, count) = state(&format!("/proc/{pid}/stat"))?;
        if !is_ended(first) {
            return Some(pid);
        }
        if count <= 1 {
            return None;
        }
        let lives = |thread: &i32| {
            state(&format!("/proc/{pid}/task/{thread}/stat")).is_some_and(|(state, _)| !is_ended(state))
        };
        if let Some(thread) = others(pid).find(lives) {
            return Some(thread);
        }
    }
    // Threads come and go: none was caught, and there always was one.
    Some(pid)
}

/// The directory of `/proc` that shows what a living process has; `None` when it has ended.
#[must_use]
pub fn entry(pid: i32) -> Option<PathBuf> {
    let thread = living(pid)?;
    Some(PathBuf::from(if thread == pid {
        format!("/proc/{pid}")
    } else {
        format!("/proc/{pid}/task/{thread}")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_lives_until_its_last_thread_has_ended() {
        // SAFETY: the child only makes raw system calls on memory of its own.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let leave = || -> ! {
                // SAFETY: ends the calling thread only.
                unsafe { libc::syscall(libc::SYS_exit, 0) };
                std::process::abort()
            };
            std::thread::spawn(|| std::thread::sleep(std::time::Duration::from_secs(600)));
            leave();
        }
        let shown = || state(&format!("/proc/{child}/stat")).map(|(state, _)| state);
        while shown() != Some(b'Z') {
            std::thread::yield_now();
        }
        let thread = living(child).unwrap();
        assert_ne!(thread, child);
        assert!(entry(child).unwrap().join("exe").exists());
        // SAFETY: plain numbers; the child is waited for below.
        unsafe { libc::kill(child, libc::SIGKILL) };
        while living(child).is_some() {
            std::thread::yield_now();
        }
        // SAFETY: waits for the child above.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        assert_eq!(living(child), None);
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(living(own), Some(own));
    }
}
