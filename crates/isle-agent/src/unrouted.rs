//! Attempts to reach an address directly. A network namespace without routes rejects them at once and counts
//! them; which address it was is not recorded.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use isle_wire::Exit;

use crate::mode::{Mode, NetworkAccess};

/// Longer than either file.
const LONGEST: usize = 16 * 1024;

/// Delay of reading the counters after a successful run, so that a sequence of commands is not slowed down.
/// A run that fails within this time may report an attempt of the one before it.
const DELAY: Duration = Duration::from_millis(100);

thread_local! {
    // The agent has one thread, and one network.
    static REPORTED: Cell<u64> = const { Cell::new(0) };
    static READ_SCHEDULED: Cell<bool> = const { Cell::new(false) };
}

/// The number of attempts that no earlier run reported. Read at once when a run has failed, later otherwise.
pub(crate) fn attempts_before(mode: &Mode, exit: Exit) -> u64 {
    if mode.network != NetworkAccess::OwnNamespace {
        return 0;
    }
    if exit != Exit::Code(0) {
        return read_new();
    }
    if !READ_SCHEDULED.replace(true) {
        tokio::task::spawn_local(async {
            tokio::time::sleep(DELAY).await;
            READ_SCHEDULED.set(false);
            read_new();
        });
    }
    0
}

/// Attempts since the last call.
fn read_new() -> u64 {
    let mut buffer = [0; LONGEST];
    let mut now = 0;
    for path in ["/proc/self/net/snmp", "/proc/self/net/snmp6"] {
        let length = File::open(path).and_then(|file| file.read_at(&mut buffer, 0)).unwrap_or(0);
        now += count(&String::from_utf8_lossy(&buffer[..length]));
    }
    now.saturating_sub(REPORTED.replace(now))
}

/// The counter in one of the files: a column of a table for IPv4, a line for IPv6.
fn count(text: &str) -> u64 {
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(number) = line.strip_prefix("Ip6OutNoRoutes") {
            return number.trim().parse().unwrap_or(0);
        }
        if line.starts_with("Ip: ") {
            let column = line.split(' ').position(|name| name == "OutNoRoutes");
            let numbers = lines.next().unwrap_or_default();
            let number = column.and_then(|column| numbers.split(' ').nth(column)?.parse().ok());
            return number.unwrap_or(0);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_read_from_both_families() {
        let four =
            "Ip: Forwarding OutDiscards OutNoRoutes ReasmTimeout\nIp: 1 5 7 9\nIcmp: InMsgs\nIcmp: 3\n";
        assert_eq!(count(four), 7);
        let six =
            "Ip6InReceives                   \t4\nIp6OutNoRoutes                  \t12\nIcmp6InMsgs \t1\n";
        assert_eq!(count(six), 12);
        for other in ["", "Ip: OutNoRoutes\n", "Ip: A B\nIp: 1 2\n", "Ip: OutNoRoutes\nIp: x\n"] {
            assert_eq!(count(other), 0, "{other}");
        }
    }
}
