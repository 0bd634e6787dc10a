//! The daemon through the command line: started on demand, one per state directory, gone without a
//! trace.

use std::process::Stdio;

use crate::harness::{Home, TestDaemon};

#[test]
fn a_command_starts_the_daemon_it_needs_and_stop_ends_it() {
    let home = Home::new();
    let isle = |arguments: &[&str]| {
        let output = home.isle(arguments).env_remove("ISLE_NO_AUTOSTART").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let status = isle(&["status", "--json"]);
    let pid = status["daemon"]["pid"].as_u64().unwrap();
    assert_eq!(isle(&["status", "--json"])["daemon"]["pid"], pid);
    assert_eq!(isle(&["stop", "--json"])["stopped"], pid);
    assert_eq!(isle(&["stop", "--json"])["stopped"], serde_json::Value::Null);
}

#[test]
fn an_orderly_stop_lets_go_of_everything() {
    let mut daemon = TestDaemon::start();
    daemon.shell("box", "true");
    // Its listener for ports is one more that holds on to the engine.
    daemon.succeeds(&["url", "box", "8000"]);
    let log = daemon.home().state_dir().join("isle.db-wal");
    assert!(log.exists(), "the database is in use");
    daemon.terminate();
    assert!(!log.exists(), "the database was not closed");
}

#[test]
fn the_log_of_a_running_daemon_is_rotated_when_it_is_large() {
    let home = Home::new();
    let isle = |arguments: &[&str]| {
        let output = home.isle(arguments).env_remove("ISLE_NO_AUTOSTART").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    isle(&["status"]);
    let log = find(home.path(), "daemon.log").expect("it has a log");
    let size = |path: &std::path::Path| path.metadata().map_or(0, |known| known.len());
    std::fs::OpenOptions::new().append(true).open(&log).unwrap().set_len(9 << 20).unwrap();
    crate::harness::until("the log is small again", || size(&log) < 1 << 20);
    assert_eq!(size(&log.with_extension("log.old")), 9 << 20, "what was in it is set aside");
    isle(&["stop"]);
    assert!(std::fs::read_to_string(&log).unwrap().contains("shutting down"), "it is still written to");
}

/// A file of that name below a directory.
fn find(directory: &std::path::Path, name: &str) -> Option<std::path::PathBuf> {
    std::fs::read_dir(directory).ok()?.flatten().find_map(|entry| {
        let path = entry.path();
        if path.is_dir() { find(&path, name) } else { (entry.file_name() == name).then_some(path) }
    })
}

#[test]
fn starters_at_the_same_time_get_the_same_daemon() {
    let home = Home::new();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let mut command = home.isle(&["status", "--json"]);
            command
                .env_remove("ISLE_NO_AUTOSTART")
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut pids: Vec<u64> = clients
        .into_iter()
        .map(|client| {
            let output = client.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["daemon"]["pid"]
                .as_u64()
                .unwrap()
        })
        .collect();
    pids.dedup();
    assert_eq!(pids.len(), 1);
    home.isle(&["stop"]).output().unwrap();
}

#[test]
fn a_second_daemon_is_refused_with_the_pid_of_the_first() {
    let daemon = TestDaemon::start();
    let output = daemon.isle(&["serve"]).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&format!("pid {}", daemon.pid())), "{said}");
}

#[test]
fn a_restart_brings_a_new_daemon_on_the_same_state() {
    let mut daemon = TestDaemon::start();
    let before = daemon.pid();
    daemon.kill();
    daemon.launch();
    assert_ne!(before, daemon.pid());
    assert!(
        daemon.succeeds(&["ls"]).starts_with("NAME") || daemon.succeeds(&["ls"]).starts_with("No sandboxes")
    );
}

#[test]
fn a_directory_others_can_write_is_no_place_for_the_socket() {
    let home = Home::new();
    let socket = home.write("open/x", "").with_file_name("isle.sock");
    let output = home.isle(&["serve", "--socket", socket.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("FORBIDDEN"), "{said}");
}
