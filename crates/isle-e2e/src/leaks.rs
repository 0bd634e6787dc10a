//! Counting what a daemon could leave on the host: only what can be told to be this daemon's, so that
//! tests that run side by side do not count each other's.

use std::fs::DirEntry;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// What belongs to one state directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Mounts that name the state directory, in this namespace.
    pub mounts: Vec<String>,
    /// Processes whose arguments, environment, mounts or cgroups name this daemon.
    pub processes: Vec<(i32, String)>,
    /// Namespaces held by such processes.
    pub namespaces: Vec<String>,
    /// Control groups of this daemon, its own directory included.
    pub cgroups: Vec<String>,
    /// Records of sandboxes in the state directory.
    pub directories: Vec<String>,
    /// Loop devices that show a file of the state directory.
    pub loop_devices: Vec<String>,
    /// Sockets in the runtime directory.
    pub sockets: Vec<String>,
    /// Files in the state directory that nobody finished.
    pub unfinished: Vec<String>,
}

impl Counts {
    /// Looks now.
    pub fn now(state_dir: &Path, runtime_dir: &Path) -> Self {
        let mark = state_dir.to_str().unwrap();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut counts = Self {
            mounts: mounts.lines().filter(|line| line.contains(mark)).map(str::to_owned).collect(),
            directories: sandbox_ids(state_dir),
            loop_devices: loop_devices(mark),
            ..Self::default()
        };
        let instance = instance(state_dir);
        counts.look_at_processes(mark, &instance);
        find_cgroups(Path::new("/sys/fs/cgroup"), &instance, 0, &mut counts.cgroups);
        let is_socket = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_socket());
        find_files(runtime_dir, &is_socket, &mut counts.sockets);
        let is_unfinished = |entry: &DirEntry| entry.path().extension() == Some("part".as_ref());
        // What sandboxes wrote is their own affair.
        for directory in ["native/images", "native/records", "native/volumes"] {
            find_files(&state_dir.join(directory), &is_unfinished, &mut counts.unfinished);
        }
        counts
    }

    fn look_at_processes(&mut self, mark: &str, instance: &str) {
        let us = i32::try_from(std::process::id()).unwrap();
        for pid in pids().filter(|pid| *pid != us) {
            let names = |file: &str, text: &str| {
                let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                String::from_utf8_lossy(&bytes).contains(text)
            };
            // A sandbox's first process has its own mounts, whose sources name the state directory.
            if names("cmdline", mark)
                || names("environ", mark)
                || names("cgroup", instance)
                || !same_mounts(pid) && names("mountinfo", mark)
            {
                self.processes.push((pid, command_line(pid)));
                for kind in ["mnt", "pid", "net", "user"] {
                    if let Ok(link) = std::fs::read_link(format!("/proc/{pid}/ns/{kind}"))
                        && std::fs::read_link(format!("/proc/self/ns/{kind}")).ok() != Some(link.clone())
                    {
                        self.namespaces.push(link.display().to_string());
                    }
                }
            }
        }
    }
}

/// Processes whose command line contains a text only the test knows, wherever they run.
pub fn processes_with(marker: &str) -> Vec<i32> {
    pids().filter(|pid| command_line(*pid).contains(marker)).collect()
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn command_line(pid: i32) -> String {
    // One whose first thread has ended shows its words for the others.
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut words = threads.filter_map(|thread| std::fs::read(thread.path().join("cmdline")).ok());
    let bytes = words.find(|words| !words.is_empty()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// Whether a process sees the same mounts as we do; then they tell nothing about it.
fn same_mounts(pid: i32) -> bool {
    let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    of(&pid.to_string()) == of("self")
}

/// What the daemon of a state directory names its control groups after: the identity of the directory, which
/// has none before the first daemon.
pub fn instance(state_dir: &Path) -> String {
    let text = std::fs::read(state_dir.join("instance")).unwrap_or_default();
    let written: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    format!("isle-{}", written["id"].as_str().unwrap_or("without-identity"))
}

fn sandbox_ids(state_dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(state_dir.join("native/records")).into_iter().flatten().flatten();
    let mut ids: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    ids.sort();
    ids
}

fn loop_devices(mark: &str) -> Vec<String> {
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    devices
        .filter_map(|device| {
            let file = std::fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
            file.contains(mark).then(|| format!("{}: {}", device.file_name().display(), file.trim()))
        })
        .collect()
}

fn find_cgroups(directory: &Path, instance: &str, depth: usize, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        // Other daemons are none of ours.
        let of_another = name.len() == instance.len()
            && name != *instance
            && name.as_encoded_bytes().starts_with(b"isle-");
        if depth > 6 || of_another || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if path.to_string_lossy().contains(instance) {
            found.push(path.display().to_string());
        }
        find_cgroups(&path, instance, depth + 1, found);
    }
}

fn find_files(directory: &Path, wanted: &dyn Fn(&DirEntry) -> bool, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if wanted(&entry) {
            found.push(entry.path().display().to_string());
        } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) && entry.file_name() != "data" {
            find_files(&entry.path(), wanted, found);
        }
    }
}
