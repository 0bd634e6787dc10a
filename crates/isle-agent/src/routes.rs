//! Attempts to reach an address directly. A sandbox has a route to none, so its kernel refuses them at once
//! and counts them; whose address it was is not counted.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use isle_wire::Exit;

use crate::place;

/// Longer than what the kernel says of either family.
const LONGEST: usize = 16 * 1024;

/// How long after a run that ended well it is caught up on: commands that follow each other closely are not
/// slowed down for it. One that fails within this time may be told of an attempt of the one before it.
const CALM: Duration = Duration::from_millis(100);

thread_local! {
    // The agent has one thread, and one network.
    static TOLD: Cell<u64> = const { Cell::new(0) };
    static CATCHING_UP: Cell<bool> = const { Cell::new(false) };
}

/// How many attempts there were until a run ended so, which no run was told of. Looked at when it did not
/// end well; after others it is caught up on when nobody waits.
pub(crate) fn attempts_before(exit: Exit) -> u64 {
    // Among the host's processes the network is the host's.
    if place::private().is_some() {
        return 0;
    }
    if exit != Exit::Code(0) {
        return look();
    }
    if !CATCHING_UP.replace(true) {
        tokio::task::spawn_local(async {
            tokio::time::sleep(CALM).await;
            CATCHING_UP.set(false);
            look();
        });
    }
    0
}

/// Attempts since it was looked the last time.
fn look() -> u64 {
    let mut buffer = [0; LONGEST];
    let mut now = 0;
    for path in ["/proc/self/net/snmp", "/proc/self/net/snmp6"] {
        let length = File::open(path).and_then(|file| file.read_at(&mut buffer, 0)).unwrap_or(0);
        now += count(&String::from_utf8_lossy(&buffer[..length]));
    }
    now.saturating_sub(TOLD.replace(now))
}

/// The number of attempts in what the kernel says: a column of a table in one family, a line in the other.
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
