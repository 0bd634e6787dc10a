//! An orderly end: what can end does, what runs in named sandboxes runs on, and it does not take long.

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::http::try_unix;
use crate::harness::{TestDaemon, Watchdog, finish, processes_with, until};

#[test]
fn an_orderly_end_is_bounded_and_leaves_named_sandboxes_running() {
    let mut daemon = TestDaemon::start();
    let marker = format!("79401{:07}", std::process::id());
    daemon.shell("box", "echo kept > file");
    let job = daemon.exec("box", json!({"command": format!("sleep {marker}"), "wait": "0s"}));
    let one_shot = daemon.post("/v1/runs", json!({"command": format!("sleep {marker}9"), "wait": "0s"}));
    until("both sleep", || processes_with(&format!("sleep {marker}")).len() >= 2);
    let socket = daemon.socket();
    let waiting = std::thread::spawn(move || {
        let body = json!({"command": "sleep 79402"}).to_string();
        try_unix(&socket, "POST /v1/sandboxes/box/exec", &["Content-Type: application/json"], body.as_bytes())
            .map(|answer| answer.status)
    });
    until("the waiting call runs", || daemon.get("/v1/health")["running"] == 3);
    let begun = Instant::now();
    assert!(daemon.terminate().success(), "an orderly end is no failure");
    // The promise is 10 s; the rest is for a machine that is busy with other tests.
    assert!(begun.elapsed() < Duration::from_secs(20), "it took {:?}", begun.elapsed());
    drop(waiting.join().unwrap());
    assert_eq!(processes_with(&format!("sleep {marker} ")).len(), 1, "the named sandbox runs on");
    assert!(processes_with(&format!("sleep {marker}9")).is_empty(), "the one-shot does not");
    assert!(
        !daemon
            .home()
            .runtime_dir()
            .read_dir()
            .unwrap()
            .any(|entry| { entry.unwrap().path().extension() == Some("sock".as_ref()) }),
        "its socket is gone"
    );

    daemon.launch();
    let id = job["run_id"].as_str().unwrap();
    assert_eq!(daemon.post(&format!("/v1/runs/{id}/wait"), json!({"timeout": "0s"}))["state"], "running");
    let id = one_shot["run_id"].as_str().unwrap();
    let ended = daemon.post(&format!("/v1/runs/{id}/wait"), json!({}));
    assert_eq!(ended["state"], "cancelled", "{ended}");
    assert!(ended["note"].as_str().unwrap().contains("the daemon was stopped"), "{ended}");
    assert_eq!(daemon.shell("box", "cat file"), "kept\n");
}

#[test]
fn a_restart_changes_the_daemon_and_nothing_else() {
    let daemon = TestDaemon::start();
    let before = daemon.get("/v1/version")["pid"].clone();
    daemon.shell("box", "echo kept > /tmp/file");
    let output = finish(&mut daemon.isle_starting(&["restart", "--json"]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_ne!(daemon.get("/v1/version")["pid"], before);
    assert_eq!(daemon.shell("box", "cat /tmp/file"), "kept\n");
    let stopped = finish(&mut daemon.isle(&["stop"]));
    assert!(stopped.status.success());
}

#[test]
fn who_waits_for_a_one_shot_or_a_session_is_told_that_the_daemon_was_stopped() {
    let mut daemon = TestDaemon::start();
    let marker = format!("79{:07}", std::process::id());
    let sleep = format!("sleep {marker}");
    let children: Vec<_> = [&["run", "--"][..], &["exec", "box", "--"]]
        .map(|place| {
            let mut command = daemon.isle(&[place, &["sh", "-c", &sleep]].concat());
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .into();
    let socket = daemon.socket();
    let body = json!({ "command": sleep }).to_string();
    let waiting = std::thread::spawn(move || {
        try_unix(&socket, "POST /v1/runs", &["Content-Type: application/json"], body.as_bytes()).unwrap()
    });
    until("all three run", || daemon.get("/v1/health")["running"] == 3);
    assert!(daemon.terminate().success());
    for child in children {
        let _watch = Watchdog::over(&child);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(137), "{said}");
        assert!(said.contains("the daemon was stopped"), "{said}");
    }
    let answer = waiting.join().unwrap();
    assert_eq!((answer.status, &answer.json()["state"]), (200, &json!("cancelled")), "{}", answer.text());
    until("nothing of them runs on", || processes_with(&marker).is_empty());
    daemon.launch();
    let cancelled = daemon.get("/v1/runs?state=cancelled");
    assert_eq!(cancelled["runs"].as_array().unwrap().len(), 3, "{cancelled}");
}

#[test]
fn a_one_shot_that_is_nearly_done_ends_by_itself() {
    let mut daemon = TestDaemon::start();
    let child = daemon
        .isle(&["run", "--", "sh", "-c", "echo begun; trap 'exit 5' TERM; read go; echo end"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _watch = Watchdog::over(&child);
    until("it runs", || daemon.get("/v1/health")["running"] == 1);
    let (pid, mut child) = (daemon.pid(), child);
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    writeln!(child.stdin.take().unwrap(), "on").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "begun\nend\n");
    assert!(output.status.success());
    assert!(daemon.terminate().success());
}
