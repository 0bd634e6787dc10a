//! `isle attach`: looking at a job that goes on, typing into it, and leaving it.

use std::io::Write;
use std::process::Stdio;

use serde_json::json;

use crate::contexts::both_tiers;
use crate::harness::{TestDaemon, Watchdog, finish, until};
use crate::named_jobs::{ended, said, start};
use crate::terminal::Terminal;

/// Ctrl-P Ctrl-Q.
const LEAVE: &str = "\u{10}\u{11}";

#[test]
fn two_people_look_at_one_terminal_and_leave_it_running() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        let job = format!("{sandbox}:shell");
        let started = start(
            &daemon,
            sandbox,
            json!({"name": "shell", "argv": ["sh"], "pty": true, "env": {"PS1": "> "}}),
        );
        assert_eq!(started["pty"], true, "{started}");
        let size = |rows: u16, columns: u16| {
            format!(
                "until [ \"$(stty size)\" = '{rows} {columns}' ]; do sleep 0.02; done; echo is {rows}x''{columns}\r"
            )
        };
        let mut one = Terminal::open(40, 90);
        let (mut first, _watch_one) = one.run(&daemon, &["attach", &job]);
        one.sees("Ctrl-P Ctrl-Q detaches");
        one.type_keys(&size(40, 90));
        one.sees("is 40x90");
        let mut two = Terminal::open(24, 120);
        let (mut second, _watch_two) = two.run(&daemon, &["attach", &job]);
        two.sees("is 40x90");
        two.type_keys(&size(24, 90));
        // Both see what either does, in a size both can show.
        one.sees("is 24x90");
        two.sees("is 24x90");
        one.type_keys("echo from o''ne\r");
        two.sees("from one");
        two.type_keys(LEAVE);
        assert_eq!(second.wait().unwrap().code(), Some(0));
        two.sees("keeps running");
        one.type_keys(&size(40, 90));
        until("the size is that of who is left", || said(&daemon, &job).matches("is 40x90").count() == 2);
        one.resize(33, 77);
        one.type_keys(&size(33, 77));
        one.sees("is 33x77");
        one.type_keys(LEAVE);
        assert_eq!(first.wait().unwrap().code(), Some(0));
        assert_eq!(daemon.get("/v1/jobs?state=running")["jobs"].as_array().unwrap().len(), 1, "it goes on");

        // Back again, with what was there before; the end of the job is the end of the view.
        let mut again = Terminal::open(20, 60);
        let (mut third, _watch_three) = again.run(&daemon, &["attach", &job]);
        again.sees("is 33x77");
        again.type_keys("exit 9\r");
        assert_eq!(third.wait().unwrap().code(), Some(9));
        assert_eq!(ended(&daemon, &job)["exit_code"], 9);
        let late = finish(&mut daemon.isle(&["attach", &job]));
        assert!(String::from_utf8_lossy(&late.stderr).contains("error[RUN_FINISHED]"));
        let audit = daemon.get(&format!("/v1/audit?sandbox={sandbox}"))["rows"].to_string();
        assert!(audit.matches("\"attach\"").count() >= 3, "who looked is on record");
    }
    let never = finish(&mut daemon.isle(&["attach", "box:never"]));
    assert!(String::from_utf8_lossy(&never.stderr).contains("error[JOB_NOT_FOUND]"));
}

#[test]
fn a_job_without_a_terminal_is_looked_at_through_pipes() {
    let daemon = TestDaemon::start();
    start(
        &daemon,
        "box",
        json!({"name": "calc", "command": "echo ready; while read x; do echo $((x)); done", "input": true}),
    );
    let mut child = daemon
        .isle(&["attach", "box:calc"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _watch = Watchdog::over(&child);
    child.stdin.take().unwrap().write_all(b"6*7\n").unwrap();
    until("it was heard", || said(&daemon, "box:calc") == "ready\n42\n");
    // The end of the viewer's input is not the end of the job's.
    assert_eq!(daemon.get("/v1/jobs?state=running")["jobs"].as_array().unwrap().len(), 1);
    daemon.post("/v1/runs/box:calc/input", json!({"text": "2*2\n", "eof": true}));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ready\n42\n4\n");
}

#[test]
fn a_viewer_who_does_not_read_holds_nobody_up() {
    let daemon = TestDaemon::start();
    start(
        &daemon,
        "box",
        json!({"name": "flood", "command": "while ! [ -e go ]; do sleep 0.02; done; seq 1 400000; echo the end", "pty": true}),
    );
    let mut child = daemon
        .isle(&["attach", "box:flood"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _watch = Watchdog::over(&child);
    until("it looks", || daemon.get("/v1/audit?sandbox=box")["rows"].to_string().contains("\"attach\""));
    daemon.shell("box", "touch go");
    // Nobody reads the viewer's output, and the job ends all the same.
    assert_eq!(ended(&daemon, "box:flood")["state"], "completed");
    child.kill().unwrap();
    child.wait().unwrap();
}
