//! Limits of one run, each exceeded for real through every door: the limit is named, the sandbox and
//! its other runs go on.

use serde_json::{Value, json};

use crate::harness::{TestDaemon, finish, needs_tier, require};

/// Uses up CPU time for ever.
const SPIN: &str = "while :; do :; done";

/// The first limit a run ran into.
fn hit(run: &Value) -> &str {
    run["limits_hit"][0]["limit"].as_str().unwrap_or_else(|| panic!("no limit: {run}"))
}

#[test]
fn cpu_time_of_a_run_is_limited_and_named() {
    let daemon = TestDaemon::start();
    // The first is the program itself, the second a child of the shell that answers for it.
    for command in [format!("exec bash -c '{SPIN}'"), format!("bash -c '{SPIN}'; exit $?")] {
        let run = daemon.exec("box", json!({"command": command, "limits": {"cpu": "1s"}, "timeout": "60s"}));
        assert_eq!((&run["state"], hit(&run)), (&json!("killed"), "cpu_time"), "{run}");
        assert!(run["note"].as_str().unwrap().contains("1s"), "the note names the limit: {run}");
    }
    // Who catches the first signal does not survive the second.
    let command = format!("trap '' XCPU; {SPIN}");
    let run = daemon.exec("box", json!({"command": command, "limits": {"cpu": "1s"}, "timeout": "60s"}));
    assert_eq!((&run["state"], hit(&run)), (&json!("killed"), "cpu_time"), "{run}");
    let code =
        json!({"code": "while True: pass", "language": "python", "limits": {"cpu": 1}, "timeout": "60s"});
    let run = daemon.post("/v1/sandboxes/box/code", code);
    assert_eq!((&run["state"], hit(&run)), (&json!("killed"), "cpu_time"), "{run}");
    let once = json!({"command": SPIN, "limits": {"cpu": "1s"}, "timeout": "60s"});
    assert_eq!(hit(&daemon.post("/v1/runs", once)), "cpu_time");
    assert_eq!(daemon.shell("box", "echo alive"), "alive\n");
}

#[test]
fn file_size_of_a_run_is_limited_and_named() {
    let daemon = TestDaemon::start();
    let write = "head -c 2M /dev/zero > big";
    for command in [format!("exec {write}"), format!("{write}; exit $?")] {
        let run = daemon.exec("box", json!({"command": command, "limits": {"file_size": "1M"}}));
        assert_eq!((&run["state"], hit(&run)), (&json!("killed"), "file_size"), "{run}");
        assert!(run["note"].as_str().unwrap().contains("1M"), "{run}");
    }
    assert_eq!(daemon.shell("box", "stat -c %s big; head -c 2M /dev/zero | wc -c"), "1048576\n2097152\n");
    assert_eq!(
        daemon.shell("box", &format!("{write} && stat -c %s big")),
        "2097152\n",
        "others have no limit"
    );
}

#[test]
fn memory_open_files_and_processes_of_a_run_are_limited() {
    let daemon = TestDaemon::start();
    let eat = "dd if=/dev/zero of=/dev/null bs=100M count=1";
    let run = daemon.exec("box", json!({"command": eat, "limits": {"memory": "32M"}}));
    assert_eq!(run["state"], "failed", "{run}");
    assert_eq!((hit(&run), &run["limits_hit"][0]["value"]), ("memory", &json!("32M per process")), "{run}");
    let seen = daemon.exec("box", json!({"command": "ulimit -n", "limits": {"open_files": 17}}));
    assert_eq!(seen["stdout"], "17\n");
    let open = "for i in $(seq 20 40); do eval \"exec $i>/dev/null\" || exit 9; done";
    let run = daemon.exec("box", json!({"argv": ["bash", "-c", open], "limits": {"open_files": 30}}));
    assert!(run["stderr"].as_str().unwrap().contains("Bad file descriptor"), "{run}");
    let fork = "for i in 1 2 3 4 5 6; do sleep 0.2 & done; wait; echo end";
    let run = daemon.exec("box", json!({"argv": ["sh", "-c", fork], "limits": {"processes": 4}}));
    assert_eq!((hit(&run), &run["limits_hit"][0]["value"]), ("pids", &json!("4")), "{run}");
    assert!(run["limits_hit"][0]["raise"].as_str().unwrap().contains("limits.processes"), "{run}");
    assert_eq!(daemon.shell("box", fork), "end\n", "the next run has no such limit");
}

#[test]
fn a_run_cannot_raise_what_holds_for_its_sandbox() {
    let daemon = TestDaemon::start();
    let own: u64 = daemon.shell("box", "ulimit -Hn").trim().parse().unwrap();
    let asked = json!({"command": "ulimit -Hn", "limits": {"open_files": 4_000_000}});
    let given: u64 = daemon.exec("box", asked)["stdout"].as_str().unwrap().trim().parse().unwrap();
    assert!(given <= own, "{given} is more than {own}");
}

#[test]
fn the_limit_that_ended_a_run_is_on_record() {
    let mut daemon = TestDaemon::start();
    let slow = daemon.exec("box", json!({"command": "sleep 60", "timeout": "1s"}));
    assert_eq!((&slow["state"], hit(&slow)), (&json!("timed_out"), "timeout"), "{slow}");
    let run = daemon.exec("box", json!({"command": SPIN, "limits": {"cpu": "2s"}, "wait": "0s"}));
    let id = run["run_id"].as_str().unwrap().to_owned();
    // Its agent knows the limit, whichever daemon asks in the end.
    daemon.kill();
    daemon.launch();
    let wait = format!("/v1/runs/{id}/wait");
    let ended = daemon.post(&wait, json!({"timeout": "60s"}));
    assert_eq!((&ended["state"], hit(&ended)), (&json!("killed"), "cpu_time"), "{ended}");
    daemon.kill();
    daemon.launch();
    let stored = daemon.post(&wait, json!({}));
    assert_eq!((hit(&stored), &stored["tier"]), ("cpu_time", &json!("container")), "{stored}");
}

#[test]
fn the_command_line_takes_limits_of_a_run() {
    let daemon = TestDaemon::start();
    for place in [&["run"][..], &["exec", "box"]] {
        let spin = [place, &["--limit", "cpu=1s", "--", "sh", "-c", SPIN]].concat();
        let output = finish(&mut daemon.isle(&spin));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(128 + 24), "{said}");
        assert!(said.contains("CPU time of 1s"), "{said}");
        let flags = ["--limit", "open_files=19", "--limit", "file_size=1M", "--", "sh", "-c", "ulimit -n"];
        let output = finish(&mut daemon.isle(&[place, &flags].concat()));
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "19\n");
        for (flag, code) in
            [("cpu=0s", "INVALID_ARGUMENT"), ("memory=12X", "INVALID_SIZE"), ("colour=1", "INVALID_ARGUMENT")]
        {
            let output = finish(&mut daemon.isle(&[place, &["--limit", flag, "--", "true"]].concat()));
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(125), "{said}");
            assert!(said.contains(code) && said.contains("--limit"), "{said}");
        }
    }
    let input = json!({"command": SPIN, "limits": {"cpu": "1s"}}).to_string();
    let answer: Value = serde_json::from_str(&daemon.succeeds(&["call", "exec", &input])).unwrap();
    assert_eq!(hit(&answer), "cpu_time");
}

#[test]
fn limits_of_a_run_that_make_no_sense_are_refused() {
    let daemon = TestDaemon::start();
    let cases = [
        (json!({"cpu": "0s"}), "INVALID_ARGUMENT"),
        (json!({"cpu": "1500ms"}), "INVALID_ARGUMENT"),
        (json!({"cpu": "soon"}), "INVALID_DURATION"),
        (json!({"memory": "1M"}), "INVALID_ARGUMENT"),
        (json!({"memory": "12X"}), "INVALID_SIZE"),
        (json!({"file_size": 0}), "INVALID_ARGUMENT"),
        (json!({"open_files": 2}), "INVALID_ARGUMENT"),
        (json!({"processes": 0}), "INVALID_ARGUMENT"),
        (json!({"processes": -1}), "INVALID_ARGUMENT"),
        (json!({"threads": 4}), "INVALID_ARGUMENT"),
        (json!("cpu=1s"), "INVALID_ARGUMENT"),
    ];
    for (limits, code) in cases {
        for (path, what) in [
            ("/v1/sandboxes/box/exec", json!({"command": "true"})),
            ("/v1/sandboxes/box/code", json!({"code": "true", "language": "shell"})),
            ("/v1/runs", json!({"command": "true"})),
        ] {
            let mut body = what;
            body["limits"] = limits.clone();
            assert_eq!(daemon.refused("POST", path, Some(&body))["code"], code, "{path} {limits}");
        }
    }
    assert!(daemon.names().is_empty(), "a refused call makes nothing");
}

#[test]
fn processes_of_a_run_are_not_counted_where_that_would_count_the_host() {
    let daemon = TestDaemon::start();
    require!(needs_tier("process"));
    let body = json!({"command": "true", "tier": "process", "limits": {"processes": 20}});
    if rustix::process::geteuid().is_root() {
        assert_eq!(daemon.post("/v1/runs", body)["state"], "completed");
    } else {
        assert_eq!(daemon.refused("POST", "/v1/runs", Some(&body))["code"], "INVALID_ARGUMENT");
    }
}
