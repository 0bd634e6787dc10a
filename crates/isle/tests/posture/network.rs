//! A network namespace may serve one one-shot after another, but only if nothing was ever done in it.

use std::collections::HashSet;

use serde_json::json;

use crate::harness::TestDaemon;

/// Prints what names the namespace for ever (its inode number may be used again, this is not), after
/// doing something in it.
fn cookie_after(daemon: &TestDaemon, deed: &str) -> String {
    let script = format!(
        "import socket, errno\n\
         {deed}\n\
         asked = socket.socket(socket.AF_INET, socket.SOCK_STREAM)\n\
         print(int.from_bytes(asked.getsockopt(socket.SOL_SOCKET, 71, 8), 'little'))"
    );
    let run = daemon.post("/v1/runs", json!({ "argv": ["python3", "-c", script] }));
    assert_eq!(run["exit_code"], 0, "{run}");
    run["stdout"].as_str().unwrap().trim().to_owned()
}

#[test]
fn a_network_namespace_in_which_nothing_happened_serves_again() {
    let daemon = TestDaemon::start_with(&[("ISLE_POOL_SIZE", "0")]);
    let seen: Vec<String> = (0..12).map(|_| cookie_after(&daemon, "pass")).collect();
    let different: HashSet<&String> = seen.iter().collect();
    assert!(different.len() < seen.len(), "each had one of its own: {seen:?}");
}

#[test]
fn a_network_namespace_in_which_anything_happened_does_not() {
    let deeds = [
        // A packet on its loopback, over either family.
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
        "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'x', ('::1', 9))",
        "socket.socket(socket.AF_INET, socket.SOCK_STREAM).connect_ex(('127.0.0.1', 9))",
        // An attempt to leave: nothing is sent, but it is counted.
        "try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9)); raise SystemExit(7)\n\
         except OSError as error: assert error.errno == errno.ENETUNREACH",
        "try: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'x', ('2001:db8::1', 9)); raise SystemExit(7)\n\
         except OSError as error: assert error.errno == errno.ENETUNREACH",
    ];
    let daemon = TestDaemon::start_with(&[("ISLE_POOL_SIZE", "0")]);
    for deed in deeds {
        let mut touched = HashSet::new();
        for _ in 0..4 {
            assert!(touched.insert(cookie_after(&daemon, deed)), "used again after {deed}");
        }
        let untouched = cookie_after(&daemon, "pass");
        assert!(!touched.contains(&untouched), "used again after {deed}");
    }
}
