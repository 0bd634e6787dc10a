//! Counting what a daemon could leave on the host: only what can be told to be this daemon's, so that
//! tests that run side by side do not count each other's.

use std::path::Path;

/// What belongs to one state directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Mounts that name the state directory, in this namespace.
    mounts: Vec<String>,
    /// Processes whose arguments, root or environment name the state directory.
    processes: Vec<String>,
    /// Namespaces held by such processes.
    namespaces: Vec<String>,
    /// Control groups named after a sandbox of this state directory.
    cgroups: Vec<String>,
    /// Directories of sandboxes.
    directories: Vec<String>,
}

impl Counts {
    /// Looks now.
    pub(crate) fn now(state_dir: &Path) -> Self {
        let mark = state_dir.to_str().unwrap();
        let mut counts = Self::default();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        counts.mounts = mounts.lines().filter(|line| line.contains(mark)).map(str::to_owned).collect();
        counts.look_at_processes(mark);
        let ids = sandbox_ids(state_dir);
        find_cgroups(Path::new("/sys/fs/cgroup"), &ids, 0, &mut counts.cgroups);
        counts.directories = ids;
        counts
    }

    fn look_at_processes(&mut self, mark: &str) {
        let us = std::process::id().to_string();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_string_lossy().into_owned();
            if pid == us || !pid.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            let reads = |file: &str| {
                let bytes = std::fs::read(entry.path().join(file)).unwrap_or_default();
                String::from_utf8_lossy(&bytes).contains(mark)
            };
            // A sandbox's first process has its own mounts, whose sources name the state directory.
            if reads("cmdline") || reads("environ") || reads("mountinfo") && !same_mounts(&pid) {
                let words = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
                self.processes.push(format!("{pid} {}", words.replace('\0', " ")));
                for kind in ["mnt", "pid", "net", "user"] {
                    if let Ok(link) = std::fs::read_link(entry.path().join("ns").join(kind))
                        && std::fs::read_link(format!("/proc/self/ns/{kind}")).ok() != Some(link.clone())
                    {
                        self.namespaces.push(link.display().to_string());
                    }
                }
            }
        }
    }
}

/// Whether a process sees the same mounts as we do; then they tell nothing about it.
fn same_mounts(pid: &str) -> bool {
    let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    of(pid) == of("self")
}

/// Names below the state directory that are ids of sandboxes.
fn sandbox_ids(state_dir: &Path) -> Vec<String> {
    let mut ids = Vec::new();
    let mut open = vec![(state_dir.to_owned(), 0)];
    while let Some((directory, depth)) = open.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("sb_") {
                ids.push(name);
            } else if depth < 2 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push((entry.path(), depth + 1));
            }
        }
    }
    ids.sort();
    ids
}

fn find_cgroups(directory: &Path, ids: &[String], depth: usize, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if depth > 6 || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        if ids.iter().any(|id| name.contains(id.as_str())) {
            found.push(entry.path().display().to_string());
        }
        find_cgroups(&entry.path(), ids, depth + 1, found);
    }
}
