//! What `/proc` says about memory and family.

use std::fs;
use std::io;

/// Resident memory of a process, in bytes.
pub(crate) fn resident(pid: u32) -> io::Result<u64> {
    kilobytes(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// Proportional memory of a process, in bytes: what it shares is divided among all who share it.
pub(crate) fn proportional(pid: u32) -> io::Result<u64> {
    kilobytes(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// Memory the kernel itself uses and cannot give back, in bytes.
pub(crate) fn kernel() -> io::Result<u64> {
    ["SUnreclaim:", "KernelStack:", "PageTables:", "Percpu:"]
        .iter()
        .map(|field| kilobytes("/proc/meminfo", field))
        .sum()
}

fn kilobytes(path: &str, field: &str) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.split_whitespace().next()?.parse::<u64>().ok());
    value.map(|value| value * 1024).ok_or_else(|| io::Error::other(format!("{path} has no {field}")))
}

/// Children of a process.
pub(crate) fn children(parent: u32) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // Exited since the directory was read.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        if after_name.split_whitespace().nth(1).and_then(|word| word.parse().ok()) == Some(parent) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// All descendants of a process.
pub(crate) fn descendants(ancestor: u32) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    let mut next = vec![ancestor];
    while let Some(parent) = next.pop() {
        let born = children(parent)?;
        found.extend_from_slice(&born);
        next.extend(born);
    }
    Ok(found)
}
