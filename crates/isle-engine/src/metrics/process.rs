//! The daemon's own process, under the names that every program with metrics uses.

use std::fs;

/// What the kernel says about this process; what it does not say is left out.
pub(super) struct Process {
    pub(super) cpu_seconds: f64,
    pub(super) start_seconds: f64,
    pub(super) virtual_bytes: f64,
    pub(super) resident_bytes: f64,
    pub(super) threads: f64,
    pub(super) open_fds: Option<f64>,
    pub(super) max_fds: Option<f64>,
}

/// Ticks of `/proc`: the same on every Linux that Isle runs on.
const TICKS: f64 = 100.0;

impl Process {
    pub(super) fn look() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The name, in brackets, may hold anything.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok());
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let max_fds = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max open files"))
            .and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        let open_fds = fs::read_dir("/proc/self/fd").ok().map(|entries| {
            // One of them is the directory being read.
            u32::try_from(entries.count().saturating_sub(1)).map_or(0.0, f64::from)
        });
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let of_status = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<f64>().ok()
        };
        Some(Self {
            cpu_seconds: (number(11)? + number(12)?) / TICKS,
            threads: of_status("Threads:")?,
            start_seconds: boot_time()? + number(19)? / TICKS,
            virtual_bytes: of_status("VmSize:")? * 1024.0,
            resident_bytes: of_status("VmRSS:")? * 1024.0,
            open_fds,
            max_fds,
        })
    }
}

fn boot_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_what_this_process_uses() {
        let process = Process::look().unwrap();
        assert!(process.resident_bytes > 1e6 && process.virtual_bytes >= process.resident_bytes);
        assert!(process.threads >= 1.0 && process.open_fds.unwrap() >= 3.0);
        assert!(process.start_seconds > 1e9);
    }
}
