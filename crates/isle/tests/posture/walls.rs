//! What the postures promise, tried once where no number in `/proc` tells it: Landlock domains, and the
//! mounts of a sandbox.

use std::collections::BTreeMap;

use serde_json::json;

use crate::harness::{TestDaemon, needs_tier, part, processes_with, until_some};
use crate::look::{Private, command_line};

#[test]
fn landlock_holds_where_file_permissions_would_not() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "true");
    if daemon.enforces("box", "landlock") {
        // The root directory belongs to guest root; only Landlock says no.
        let run = daemon.exec("box", json!({"command": "mkdir /elsewhere", "user": "root"}));
        assert!(run["stderr"].as_str().unwrap().contains("Permission denied"), "{run}");
        let run = daemon.exec("box", json!({"command": "mkdir /etc/there", "user": "root"}));
        assert_eq!(run["state"], "completed", "where it may write it can: {run}");
    }
    if !part(needs_tier("process")) {
        return;
    }
    daemon.post("/v1/sandboxes", json!({"sandbox": "plain", "tier": "process"}));
    // Anybody may list these by their permissions.
    for place in ["/", "/var", "/proc", "/dev"] {
        let run = daemon.exec("plain", json!({"argv": ["ls", place]}));
        assert!(run["stderr"].as_str().unwrap().contains("Permission denied"), "{place}: {run}");
    }
    assert_ne!(daemon.shell("plain", "ls /usr"), "");
}

/// Whether a mount is a part of the host's own programs and data.
fn is_system(place: &str) -> bool {
    ["/bin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/sbin", "/usr", "/nix", "/gnu"]
        .iter()
        .any(|top| place == *top || place.starts_with(&format!("{top}/")))
}

#[test]
fn a_container_has_exactly_the_expected_mounts() {
    let daemon = TestDaemon::start();
    let marker = format!("83100{:07}", std::process::id());
    daemon.exec("box", json!({"argv": ["sleep", marker], "wait": "0s"}));
    let pid = until_some("the command runs", || {
        let found = processes_with(&format!("sleep {marker}"));
        found.into_iter().find(|&pid| command_line(pid).starts_with("sleep"))
    });
    let mut mounts = BTreeMap::new();
    for line in Private::of(pid, i32::try_from(daemon.pid()).unwrap()).mounts {
        let (left, right) = line.split_once(" - ").unwrap();
        let (left, kind) = (left.split(' ').collect::<Vec<_>>(), right.split(' ').next().unwrap());
        let (place, options) = (left[4], left[5]);
        let mut wanted: Vec<&str> = options
            .split(',')
            .filter(|option| ["ro", "rw", "nosuid", "nodev", "noexec"].contains(option))
            .collect();
        wanted.sort_unstable();
        if is_system(place) {
            assert!(
                wanted.contains(&"ro") && wanted.contains(&"nosuid") && wanted.contains(&"nodev"),
                "{line}"
            );
            continue;
        }
        let propagation: Vec<&&str> = left[6..].iter().filter(|field| !field.is_empty()).collect();
        assert!(propagation.is_empty(), "nothing that happens to mounts outside may show inside: {line}");
        if place.starts_with("/proc/") && place != "/proc/sys" {
            assert!(wanted.contains(&"ro"), "what is covered stays covered: {line}");
            continue;
        }
        mounts.insert(place.to_owned(), format!("{kind} {}", wanted.join(" ")));
    }
    let named = if rustix::process::geteuid().is_root() { "ext4" } else { "" };
    for place in ["/workspace", "/home/sandbox/.cache", "/var/cache"] {
        let found = mounts.remove(place).unwrap();
        assert!(found.starts_with(named) && found.ends_with(" nodev nosuid rw"), "{place}: {found}");
    }
    for (place, expected) in [
        ("/", "overlay nodev nosuid rw"),
        ("/proc", "proc nodev noexec nosuid rw"),
        ("/proc/sys", "proc nodev noexec nosuid ro"),
        ("/sys", "tmpfs nodev noexec nosuid ro"),
        ("/dev/shm", "tmpfs nodev nosuid rw"),
        ("/dev/pts", "devpts noexec nosuid rw"),
    ] {
        assert_eq!(mounts.remove(place).as_deref(), Some(expected), "{place}");
    }
    let dev = mounts.remove("/dev").unwrap();
    assert!(dev.contains("nosuid") && dev.contains("noexec") && dev.contains("ro"), "/dev: {dev}");
    let devices: Vec<&String> = mounts.keys().collect();
    assert_eq!(
        devices,
        ["/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero"],
        "and nothing else: {mounts:?}"
    );
    for (place, found) in &mounts {
        assert!(found.ends_with(" noexec nosuid ro"), "{place}: {found}");
    }
}
