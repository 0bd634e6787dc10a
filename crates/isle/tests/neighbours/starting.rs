//! Commands while a daemon is starting, stopping or has just been killed: they wait for it, or say who
//! holds the state directory and what it is doing.

use std::process::{Child, Stdio};

use serde_json::Value;

use crate::harness::{Home, TestDaemon, finish};

fn said(child: Child) -> (bool, String) {
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn many_starters_during_kills_all_get_an_answer() {
    let home = Home::new();
    for round in 0..4 {
        let clients: Vec<Child> = (0..8)
            .map(|number| {
                let arguments: &[&str] = match number {
                    0 => &["restart", "--json"],
                    _ => &["status", "--json"],
                };
                let mut command = home.isle(arguments);
                command.env_remove("ISLE_NO_AUTOSTART").env("ISLE_POOL_SIZE", "0");
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        for client in clients {
            let (good, text) = said(client);
            assert!(good, "round {round}: {text}");
            assert!(!text.contains("ALREADY_EXISTS") && !text.contains("No daemon"), "{text}");
        }
        let status = finish(&mut home.isle(&["status", "--json"]));
        let status: Value = serde_json::from_slice(&status.stdout).unwrap_or_else(|_| panic!("{status:?}"));
        let pid = i32::try_from(status["daemon"]["pid"].as_i64().unwrap()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    // One more, so that nothing is left of those that were killed.
    assert!(finish(home.isle(&["restart"]).env("ISLE_POOL_SIZE", "0")).status.success());
    assert!(finish(&mut home.isle(&["stop"])).status.success());
}

#[test]
fn a_daemon_that_is_starting_is_waited_for() {
    let home = Home::new();
    // A start that takes a while, as one with many sandboxes to find does.
    let mut slow = home.isle(&["serve"]);
    slow.env("ISLE_TEST_SLOW_START_MS", "1500").stdout(Stdio::null()).stderr(Stdio::piped());
    let mut daemon = slow.spawn().unwrap();
    crate::harness::until("it holds the lock", || {
        std::fs::read_to_string(home.state_dir().join("isle.lock")).is_ok_and(|text| !text.is_empty())
    });
    // Also where nothing may be started: there is one to wait for.
    let listed = finish(&mut home.isle(&["status", "--json"]));
    let status: Value = serde_json::from_slice(&listed.stdout).unwrap_or_else(|_| panic!("{listed:?}"));
    assert_eq!(status["daemon"]["pid"], daemon.id(), "{status}");
    let stopped = finish(&mut home.isle(&["stop", "--json"]));
    let stopped: Value = serde_json::from_slice(&stopped.stdout).unwrap_or_else(|_| panic!("{stopped:?}"));
    assert_eq!(stopped["stopped"], daemon.id());
    daemon.wait().unwrap();
}

#[test]
fn stop_waits_for_a_daemon_that_is_starting() {
    let home = Home::new();
    let mut slow = home.isle(&["serve"]);
    slow.env("ISLE_TEST_SLOW_START_MS", "1500").stdout(Stdio::null()).stderr(Stdio::null());
    let mut daemon = slow.spawn().unwrap();
    crate::harness::until("it holds the lock", || {
        std::fs::read_to_string(home.state_dir().join("isle.lock")).is_ok_and(|text| !text.is_empty())
    });
    let stopped = finish(&mut home.isle(&["stop", "--json"]));
    let answer: Value = serde_json::from_slice(&stopped.stdout).unwrap_or_else(|_| panic!("{stopped:?}"));
    assert_eq!(answer["stopped"], daemon.id(), "{stopped:?}");
    daemon.wait().unwrap();
    let stopped = finish(&mut home.isle(&["stop"]));
    let text = String::from_utf8_lossy(&stopped.stdout).into_owned();
    assert!(text.contains("No daemon") && text.contains("state"), "{text}");
}

#[test]
fn a_holder_that_does_not_answer_is_described() {
    let mut daemon = TestDaemon::start();
    let pid = rustix::process::Pid::from_raw(i32::try_from(daemon.pid()).unwrap()).unwrap();
    // Its socket is gone, and it holds the state directory all the same. Stopped, it restores nothing.
    let socket = daemon.socket();
    let kept = socket.with_extension("kept");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    std::fs::rename(&socket, &kept).unwrap();
    for arguments in [&["ls"][..], &["run", "--", "true"], &["restart"], &["stop"]] {
        let mut command = daemon.isle_starting(&[&["--json"], arguments].concat());
        let output = finish(command.env("ISLE_TEST_PATIENCE_MS", "300"));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{arguments:?}: {output:?}");
        let error: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{output:?}"));
        let error = error.get("error").unwrap_or(&error).clone();
        assert_eq!(error["code"], "DAEMON_UNAVAILABLE", "{error}");
        assert_eq!(error["details"]["pid"], pid.as_raw_nonzero().get(), "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("since") && message.contains("running"), "{message}");
        let steps = error["next_steps"].to_string();
        assert!(steps.contains("daemon.log") && steps.contains("isle stop"), "{steps}");
        // The cause is named, and nothing is advised that could lose sandboxes.
        assert!(message.contains(socket.to_str().unwrap()) && !steps.contains("kill -9"), "{error}");
    }
    std::fs::rename(&kept, &socket).unwrap();
    // `restart` and `stop` have sent it SIGTERM, which it follows as soon as it can.
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    crate::harness::until("it stops", || {
        let stopped = finish(&mut daemon.isle(&["stop", "--json"]));
        serde_json::from_slice::<Value>(&stopped.stdout).is_ok_and(|answer| answer["stopped"].is_null())
    });
    daemon.kill();
    daemon.launch();
    assert!(daemon.succeeds(&["ls"]).starts_with("No sandboxes"));
}
