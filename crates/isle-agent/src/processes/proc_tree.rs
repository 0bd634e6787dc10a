//! Parents and children of processes, as `/proc` shows them.

use std::fs;
use std::io;
use std::path::Path;

use isle_setup::threads;

/// The PID of this process.
pub(crate) fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Whether this process has no children.
pub(crate) fn has_no_children() -> bool {
    // SAFETY: plain data.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: `info` is valid for the call, which reaps nothing.
    let result = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags) };
    result == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD)
}

/// The children of a process, of all its threads.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|list| list.split_whitespace().filter_map(|one| one.parse().ok()).collect::<Vec<i32>>())
        .collect()
}

/// All descendants of a process, parents before children.
pub(crate) fn descendants(pid: i32) -> Vec<i32> {
    let mut found = children(pid);
    let mut next = 0;
    while next < found.len() {
        found.extend(children(found[next]));
        next += 1;
    }
    found
}

/// The parent of a process.
pub(crate) fn parent(pid: i32) -> Option<i32> {
    // The name is set by the process, is in parentheses and need not be UTF-8.
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    std::str::from_utf8(&stat[end + 1..]).ok()?.split_whitespace().nth(1)?.parse().ok()
}

/// CPU time of a process in microseconds.
pub(crate) fn cpu_time_us(pid: i32) -> u64 {
    super::proc_stat::cpu_clock(pid).and_then(|time| u64::try_from(time.as_micros()).ok()).unwrap_or(0)
}

/// Peak resident size of a process in KiB.
pub(crate) fn peak_rss_kib(pid: i32) -> u64 {
    let peak = |entry: &Path| -> Option<u64> {
        let status = fs::read_to_string(entry.join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.split_whitespace().next()?.parse().ok()
    };
    // When the first thread has exited, the entries of the others still show the memory.
    peak(Path::new(&format!("/proc/{pid}"))).or_else(|| peak(&threads::entry(pid)?)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn all_descendants_of_a_process_are_found_with_their_parent() {
        let mut shell = Command::new("sh")
            .args(["-c", "sh -c 'echo ready; exec sleep 600' & wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid = i32::try_from(shell.id()).unwrap();
        let below = descendants(pid);
        assert!(!below.is_empty());
        assert_eq!(parent(below[0]), Some(pid));
        assert_eq!(parent(pid), Some(own_pid()));
        assert!(peak_rss_kib(own_pid()) > 0 && cpu_time_us(own_pid()) > 0);
        // SAFETY: plain numbers; the shell waits for this child of its own.
        unsafe { libc::kill(below[0], libc::SIGKILL) };
        shell.wait().unwrap();
    }
}
