//! A daemon of another version than the program: said clearly at every door, and replaced without
//! losing a sandbox.

use std::io::Write;
use std::process::Stdio;

use crate::harness::{TestDaemon, Watchdog, finish};

const OTHER: &str = "99.1.2";

#[test]
fn a_daemon_of_another_version_is_named_and_replaced_without_losing_sandboxes() {
    let daemon = TestDaemon::start();
    daemon.succeeds(&["exec", "box", "--", "sh", "-c", "echo kept > /tmp/file"]);
    daemon.succeeds(&["stop"]);
    // The same state under a daemon that says it is another version, as after an upgrade.
    let started = finish(daemon.isle_starting(&["restart"]).env("ISLE_CLAIMED_VERSION", OTHER));
    let said = String::from_utf8(started.stdout).unwrap();
    assert!(started.status.success() && said.contains(OTHER), "restarting works across versions: {said}");

    let ours = env!("CARGO_PKG_VERSION");
    let message = format!("the daemon is version {OTHER}, this program is version {ours}");
    for arguments in [
        &["ls"][..],
        &["status", "box"],
        &["exec", "box", "--", "touch", "/tmp/should-not-be"],
        &["run", "--", "true"],
        &["logs", "run_00000000000000000000000000", "--follow"],
        &["call", "exec", r#"{"sandbox": "other", "command": "true"}"#],
    ] {
        let output = finish(&mut daemon.isle(arguments));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(said.contains("VERSION_MISMATCH") && said.contains(&message), "{arguments:?}: {said}");
        assert!(said.contains("isle restart"), "the next step: {said}");
    }

    let replaced = finish(&mut daemon.isle_starting(&["restart"]));
    assert!(replaced.status.success(), "{}", String::from_utf8_lossy(&replaced.stderr));
    assert_eq!(daemon.succeeds(&["exec", "box", "--", "sh", "-c", "cat /tmp/*"]), "kept\n");
    daemon.succeeds(&["stop"]);
}

#[test]
fn an_mcp_client_works_with_a_daemon_of_another_version_and_is_told() {
    let daemon = TestDaemon::start();
    daemon.succeeds(&["stop"]);
    let started = finish(daemon.isle_starting(&["restart"]).env("ISLE_CLAIMED_VERSION", OTHER));
    assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    let mut child = daemon
        .isle(&["mcp"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _watch = Watchdog::over(&child);
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;
    writeln!(child.stdin.take().unwrap(), "{hello}").unwrap();
    let output = child.wait_with_output().unwrap();
    let (answered, said) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(answered.contains("serverInfo"), "{answered}");
    assert!(said.contains(OTHER) && said.contains("isle restart"), "{said}");
    daemon.succeeds(&["stop"]);
}
