//! The daemon dies while jobs go on: their names, their input, their terminals and the lock they hold
//! are there afterwards; who waited for the lock is told that it never ran.

use serde_json::{Value, json};

use crate::harness::{TestDaemon, tiers, until};

fn start(daemon: &TestDaemon, arguments: Value) -> Value {
    daemon.post("/v1/sandboxes/box/jobs", arguments)
}

fn said(daemon: &TestDaemon, job: &str) -> String {
    daemon.get(&format!("/v1/runs/{job}/logs?stream=stdout&tail=0"))["stdout"]["text"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn ended(daemon: &TestDaemon, run: &str) -> Value {
    daemon.post(&format!("/v1/runs/{run}/wait"), json!({"timeout": "60s"}))
}

fn write(daemon: &TestDaemon, job: &str, text: &str) {
    let written = daemon.post(&format!("/v1/runs/{job}/input"), json!({"text": text}));
    assert_eq!(written["unread_bytes"], 0, "{written}");
}

#[test]
fn a_job_keeps_its_name_its_input_and_its_output_when_the_daemon_dies() {
    let mut daemon = TestDaemon::start();
    for (tier, sandbox) in tiers().iter().zip(["box", "plain"]) {
        let settings = json!({"sandbox": sandbox, "tier": tier, "allow_downgrade": true});
        daemon.post("/v1/sandboxes", settings);
        let echo = json!({"name": "echo", "command": "echo run >> count; while read x; do echo got $x; done; exit 4", "input": true});
        daemon.post(&format!("/v1/sandboxes/{sandbox}/jobs"), echo);
        let shell = json!({"name": "shell", "argv": ["sh"], "pty": true, "env": {"PS1": "> "}});
        daemon.post(&format!("/v1/sandboxes/{sandbox}/jobs"), shell);
        let (echo, shell) = (format!("{sandbox}:echo"), format!("{sandbox}:shell"));
        write(&daemon, &echo, "one\n");
        write(&daemon, &shell, "x=41\n");
        until("it was heard", || said(&daemon, &echo) == "got one\n");
        for round in 0..2 {
            daemon.kill();
            daemon.launch();
            let listed = daemon.get(&format!("/v1/jobs?sandbox={sandbox}&state=running"));
            assert_eq!(listed["jobs"].as_array().unwrap().len(), 2, "{listed}");
            let taken = daemon.refused(
                "POST",
                &format!("/v1/sandboxes/{sandbox}/jobs"),
                Some(&json!({"name": "echo", "command": "true"})),
            );
            assert_eq!(taken["code"], "JOB_EXISTS", "the name is still taken");
            write(&daemon, &echo, &format!("round {round}\n"));
            write(&daemon, &shell, "x=$((x+1)); echo is $x\n");
        }
        until("the terminal remembers", || said(&daemon, &shell).contains("is 43"));
        until("all was heard", || said(&daemon, &echo) == "got one\ngot round 0\ngot round 1\n");
        daemon.post(&format!("/v1/runs/{echo}/input"), json!({"eof": true}));
        let end = ended(&daemon, &echo);
        assert_eq!((&end["state"], &end["exit_code"]), (&json!("failed"), &json!(4)), "{end}");
        assert_eq!(daemon.shell(sandbox, "cat count"), "run\n", "it ran once");
        write(&daemon, &shell, "exit 5\n");
        assert_eq!(ended(&daemon, &shell)["exit_code"], 5);
        daemon.kill();
        daemon.launch();
        let listed = daemon.get(&format!("/v1/jobs?sandbox={sandbox}"));
        assert_eq!(listed["jobs"].as_array().unwrap().len(), 2, "{listed}");
        assert!(said(&daemon, &echo).starts_with("got one"), "the record outlives the daemon too");
    }
}

#[test]
fn several_commands_go_on_without_a_daemon_and_none_runs_twice() {
    let mut daemon = TestDaemon::start();
    for (tier, sandbox) in tiers().iter().zip(["box", "plain"]) {
        daemon.post("/v1/sandboxes", json!({"sandbox": sandbox, "tier": tier, "allow_downgrade": true}));
        let one = |number: usize| json!({"command": format!("echo {number} >> count; echo in {number}; while ! [ -e go{number} ]; do sleep 0.02; done; echo out {number}")});
        let body =
            json!({"commands": [one(1), one(2), {"command": "echo 3 >> count; exit 6"}], "wait": "0s"});
        let run = daemon.post(&format!("/v1/sandboxes/{sandbox}/commands"), body);
        let id = run["run_id"].as_str().unwrap();
        until("the first goes on", || said(&daemon, id) == "in 1\n");
        daemon.kill();
        daemon.launch();
        daemon.shell(sandbox, "touch go1");
        until("the second goes on", || said(&daemon, id) == "in 1\nout 1\nin 2\n");
        // The rest happens while no daemon lives.
        let opener = json!({"command": "sleep 0.5; touch go2; while ! [ -e never ]; do sleep 0.1; done", "wait": "0s"});
        let opener = daemon.exec(sandbox, opener);
        daemon.kill();
        daemon.launch();
        let end = ended(&daemon, id);
        assert_eq!((&end["state"], &end["exit_code"]), (&json!("failed"), &json!(6)), "{end}");
        assert_eq!(end["stdout"], "in 1\nout 1\nin 2\nout 2\n");
        let records = end["commands"].as_array().unwrap();
        let states: Vec<&str> = records.iter().map(|one| one["state"].as_str().unwrap()).collect();
        assert_eq!(states, ["completed", "completed", "failed"]);
        assert_eq!(
            (&records[1]["stdout_offset"], &records[1]["stdout_bytes"]),
            (&json!(11), &json!(11)),
            "{end}"
        );
        assert_eq!(daemon.shell(sandbox, "cat count; touch never"), "1\n2\n3\n");
        ended(&daemon, opener["run_id"].as_str().unwrap());
    }
}

#[test]
fn a_dead_daemon_frees_the_line_and_who_has_the_lock_keeps_it() {
    let mut daemon = TestDaemon::start();
    let locked = |daemon: &TestDaemon, command: &str| {
        let run = daemon.exec("box", json!({"command": command, "lock": true, "wait": "0s"}));
        run["run_id"].as_str().unwrap().to_owned()
    };
    let holder =
        locked(&daemon, "echo holder >> order; while ! [ -e go ]; do sleep 0.02; done; echo left >> order");
    let waiting = locked(&daemon, "echo waiting >> order");
    let commands = json!({"commands": [{"command": "echo no >> order"}], "lock": true, "wait": "0s"});
    let commands = daemon.post("/v1/sandboxes/box/commands", commands);
    let job = start(&daemon, json!({"name": "job", "command": "echo job >> order", "lock": true}));
    assert_eq!(job["state"], "queued", "{job}");
    until("the first has the lock", || daemon.shell("box", "cat order 2>/dev/null || true") == "holder\n");
    daemon.kill();
    daemon.launch();
    for run in [waiting.as_str(), "box:job", commands["run_id"].as_str().unwrap()] {
        let end = ended(&daemon, run);
        assert_eq!(end["state"], "cancelled", "{end}");
        assert!(end["note"].as_str().unwrap().contains("never ran"), "{end}");
    }
    assert_eq!(ended(&daemon, commands["run_id"].as_str().unwrap())["commands"][0]["state"], "not_run");
    // The name is free again; the lock is not, and its holder goes on.
    let next = start(&daemon, json!({"name": "job", "command": "echo next >> order", "lock": true}));
    assert_eq!(next["state"], "queued", "{next}");
    daemon.shell("box", "touch go");
    assert_eq!(ended(&daemon, &holder)["state"], "completed");
    assert_eq!(ended(&daemon, "box:job")["state"], "completed");
    assert_eq!(daemon.shell("box", "cat order"), "holder\nleft\nnext\n");
}

#[test]
fn an_orderly_end_tells_those_in_line_that_they_never_ran() {
    let mut daemon = TestDaemon::start();
    let exec = |command: &str| json!({"command": command, "lock": true, "wait": "0s"});
    let holder = daemon.exec("box", exec("while ! [ -e go ]; do sleep 0.02; done"));
    let waiting = daemon.exec("box", exec("touch ran"));
    assert_eq!(waiting["state"], "queued", "{waiting}");
    assert!(daemon.terminate().success());
    daemon.launch();
    assert_eq!(ended(&daemon, waiting["run_id"].as_str().unwrap())["state"], "cancelled");
    assert_eq!(daemon.shell("box", "touch go; ls -A"), "go\n");
    assert_eq!(ended(&daemon, holder["run_id"].as_str().unwrap())["state"], "completed");
}

#[test]
fn what_a_job_printed_before_the_daemon_died_is_whole_afterwards() {
    let mut daemon = TestDaemon::start_with(&[("ISLE_OUTPUT_CAP", "64K")]);
    let command = "seq 1 60000; while ! [ -e go ]; do sleep 0.02; done; seq 60001 120000";
    start(&daemon, json!({"name": "talker", "command": command}));
    let total = |daemon: &TestDaemon| {
        daemon.get("/v1/runs/box:talker/logs?stream=stdout&tail=1")["stdout"]["total_bytes"].as_u64().unwrap()
    };
    let text = |from: u32, to: u32| (from..=to).map(|number| format!("{number}\n")).collect::<String>();
    let (first, second) = (text(1, 60_000), text(60_001, 120_000));
    until("the first half is said", || total(&daemon) == first.len() as u64);
    daemon.kill();
    daemon.launch();
    daemon.shell("box", "touch go");
    assert_eq!(ended(&daemon, "box:talker")["state"], "completed");
    daemon.kill();
    daemon.launch();
    let shown = daemon.succeeds(&["logs", "box:talker"]);
    assert!(shown == first + &second, "{} bytes", shown.len());
}
