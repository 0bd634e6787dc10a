//! `exec` over HTTP: what a command gets, and what comes back from it.

use serde_json::json;

use crate::harness::TestDaemon;

#[test]
fn words_that_fit_into_no_message_are_refused_before_anything_runs() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "true");
    let runs = || daemon.get("/v1/runs?limit=100")["runs"].as_array().unwrap().len();
    let before = runs();
    let long = "x".repeat(100_000);
    let many = |count: usize| vec![long.clone(); count];
    let words = |count: usize| [vec!["true".to_owned()], many(count)].concat();
    let env: std::collections::BTreeMap<String, &String> =
        (0..15).map(|number| (format!("V{number}"), &long)).collect();
    // Each has little, and all of them get what is common.
    let common: std::collections::BTreeMap<String, &String> =
        (0..4).map(|number| (format!("V{number}"), &long)).collect();
    let commands = vec![json!({"argv": ["true"]}); 4];
    for (route, body) in [
        ("sandboxes/box/exec", json!({"argv": words(40)})),
        ("sandboxes/box/exec", json!({"command": "true", "env": env})),
        ("runs", json!({"argv": words(15)})),
        ("sandboxes/box/code", json!({"code": "1", "language": "python", "args": many(15)})),
        ("sandboxes/box/commands", json!({"commands": commands, "env": common})),
    ] {
        let error = daemon.refused("POST", &format!("/v1/{route}"), Some(&body));
        assert_eq!(error["code"], "TOO_LARGE", "{route}: {error}");
    }
    assert_eq!(runs(), before, "nothing is on record");
    let fits = daemon.exec("box", json!({"argv": words(8)}));
    assert_eq!(fits["state"], "completed", "{fits}");
}

#[test]
fn output_error_output_and_exit_code_come_back_apart() {
    let daemon = TestDaemon::start();
    let run = daemon.exec("box", json!({"command": "echo out; echo err >&2; exit 3"}));
    assert_eq!(run["stdout"], "out\n");
    assert_eq!(run["stderr"], "err\n");
    assert_eq!(run["exit_code"], 3);
    assert_eq!(run["state"], "failed", "a status other than 0 is a result, not an error");
    assert_eq!(run["sandbox"], "box");
    assert!(run["duration_ms"].is_u64());
    assert_eq!((&run["stdout_bytes"], &run["stderr_bytes"]), (&json!(4), &json!(4)));
    assert_eq!((&run["stdout_truncated"], &run["stderr_truncated"]), (&json!(false), &json!(false)));
}

#[test]
fn every_call_is_a_fresh_shell_in_the_same_sandbox() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "cd /tmp; LEAKED=1; export LEAKED; set -u; touch /tmp/stays /workspace/stays");
    assert_eq!(daemon.shell("box", "pwd; echo [$LEAKED]; ls /tmp/stays"), "/workspace\n[]\n/tmp/stays\n");
    let missing = daemon.exec("other", json!({"command": "ls /tmp/stays /workspace/stays"}));
    assert_eq!(missing["state"], "failed", "another name is another sandbox: {missing}");
}

#[test]
fn calls_in_one_sandbox_run_side_by_side() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "mkfifo a b");
    // Each waits for a word of the other: one after the other they would never end.
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| daemon.shell("box", "read word < a; echo pong > b; echo $word"));
        let second = scope.spawn(|| daemon.shell("box", "echo ping > a; read word < b; echo $word"));
        (first.join().unwrap(), second.join().unwrap())
    });
    assert_eq!((first.as_str(), second.as_str()), ("ping\n", "pong\n"));
}

#[test]
fn words_of_argv_arrive_byte_for_byte() {
    let daemon = TestDaemon::start();
    let words = ["a b", "", "'\"$HOME`id`\\", "*", "-n", "ü€😀", "new\nline", "\t"];
    let mut argv = vec!["printf", "%s\\0"];
    argv.extend(words);
    let run = daemon.exec("box", json!({ "argv": argv }));
    assert_eq!(run["stdout"], words.map(|word| format!("{word}\0")).concat());
    // Clients that fill in every field they know of mean the one that says something.
    let quirky = daemon.exec("box", json!({"argv": ["echo", "x"], "command": ""}));
    assert_eq!(quirky["stdout"], "x\n");
    let quirky = daemon.exec("box", json!({"argv": null, "command": "echo y"}));
    assert_eq!(quirky["stdout"], "y\n");
}

#[test]
fn a_program_that_does_not_exist_is_an_error_and_not_an_exit_code() {
    let daemon = TestDaemon::start();
    let path = "/v1/sandboxes/box/exec";
    let error = daemon.refused("POST", path, Some(&json!({"argv": ["no-such-program"]})));
    assert_eq!(error["code"], "COMMAND_NOT_FOUND");
    let shell = daemon.exec("box", json!({"command": "no-such-program"}));
    assert_eq!((&shell["state"], &shell["exit_code"]), (&json!("failed"), &json!(127)));
}

#[test]
fn a_mebibyte_of_input_comes_back_and_ends() {
    let daemon = TestDaemon::start();
    let text: String = (0..131_072).map(|number| format!("{number:07}\n")).collect();
    assert_eq!(text.len(), 1 << 20);
    let run = daemon.exec("box", json!({"command": "tee big | wc -c", "stdin": text}));
    assert_eq!(run["stdout"], "1048576\n");
    let back = daemon.get("/v1/sandboxes/box/files/read?path=big");
    assert!(back["content"] == text, "what was written is not what was sent");
}

#[test]
fn without_input_a_program_reads_nothing() {
    let daemon = TestDaemon::start();
    assert_eq!(daemon.shell("box", "readlink /proc/self/fd/0; cat | wc -c"), "/dev/null\n0\n");
    let empty = daemon.exec("box", json!({"command": "wc -c", "stdin": ""}));
    assert_eq!(empty["stdout"], "0\n");
}

#[test]
fn the_working_directory_is_made_when_missing_and_must_be_absolute() {
    let daemon = TestDaemon::start();
    let run = daemon.exec("box", json!({"command": "pwd; touch here", "cwd": "/workspace/a/b"}));
    assert_eq!(run["stdout"], "/workspace/a/b\n", "{run}");
    let path = "/v1/sandboxes/box/exec";
    let error = daemon.refused("POST", path, Some(&json!({"command": "pwd", "cwd": "a"})));
    assert_eq!(error["code"], "INVALID_PATH");
}

#[test]
fn the_environment_is_the_callers_and_nothing_of_the_daemons() {
    let daemon = TestDaemon::start_with(&[("DAEMON_SECRET", "hunter2")]);
    let value = "a 'b' \"c\" $(id)\nnext=1";
    let run = daemon.exec("box", json!({"argv": ["env", "-0"], "env": {"MINE": value, "HOME": "/x"}}));
    let seen = run["stdout"].as_str().unwrap();
    assert!(seen.contains(&format!("MINE={value}\0")), "{seen}");
    assert!(
        seen.contains("HOME=/x\0") && !seen.contains("hunter2") && !seen.contains("ISLE_STATE"),
        "{seen}"
    );
    let listed = daemon.exec("box", json!({"command": "echo $A$B", "env": ["A=1", "B=2=3"]}));
    assert_eq!(listed["stdout"], "12=3\n");
    let path = "/v1/sandboxes/box/exec";
    for env in [json!({"A=B": "x"}), json!({"": "x"}), json!(["novalue"]), json!({"LD_PRELOAD": "/x.so"})] {
        let error = daemon.refused("POST", path, Some(&json!({"command": "true", "env": env})));
        assert_eq!(error["code"], "INVALID_ARGUMENT", "{env}");
    }
}

#[test]
fn one_shots_have_the_same_system_files_and_only_their_root_changes_them() {
    let daemon = TestDaemon::start();
    let run = |user: &str, command: &str| {
        daemon.post("/v1/runs", json!({"command": command, "user": user}))["stdout"].clone()
    };
    let look = "cd /; find . -maxdepth 2 -not -path './[pdsu]*/*' -not -path './run/*' | sort; cat etc/passwd; \
                (echo x > etc/marker) 2>/dev/null && cat etc/marker";
    let (usual, root) = (run("sandbox", look), run("root", look));
    assert_eq!(format!("{}x\n", usual.as_str().unwrap()), root.as_str().unwrap());
    let own = run(
        "sandbox",
        "cd ~ && touch a /tmp/a /var/tmp/a /workspace/a /dev/shm/a && touch /opt/a || echo no",
    );
    assert_eq!(own, "no\n", "where the user writes");
}

#[test]
fn a_command_runs_as_the_sandbox_user_or_as_root_of_the_sandbox_only() {
    let daemon = TestDaemon::start();
    assert_eq!(daemon.shell("box", "id -u; id -un; echo $HOME"), "1000\nsandbox\n/home/sandbox\n");
    let as_root = |command: &str| daemon.exec("box", json!({"command": command, "user": "root"}));
    let root = as_root("id -u; echo x > /etc/marker; cat /etc/marker");
    assert_eq!(root["stdout"], "0\nx\n", "{root}");
    // Root inside is nobody outside, and has no way to become more.
    let map = as_root("cat /proc/self/uid_map");
    let inside: Vec<&str> = map["stdout"].as_str().unwrap().split_whitespace().collect();
    assert_eq!(inside[0], "0");
    assert_ne!(inside[1], "0", "root of the sandbox must never be root of the host");
    let raise = daemon.shell("box", "grep NoNewPrivs /proc/self/status");
    assert!(raise.contains('1'), "{raise}");
    let path = "/v1/sandboxes/box/exec";
    let error = daemon.refused("POST", path, Some(&json!({"command": "id", "user": "daemon"})));
    assert_eq!(error["code"], "INVALID_ARGUMENT");
}

#[test]
fn a_command_longer_than_an_argument_may_be_still_runs() {
    let daemon = TestDaemon::start();
    let command = format!("echo begin\n# {}\necho end", "x".repeat(200_000));
    assert_eq!(daemon.shell("box", &command), "begin\nend\n");
    assert_eq!(daemon.shell("box", "ls -A /tmp"), "", "the file it was passed in is gone");
}
