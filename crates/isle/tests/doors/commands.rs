//! Several commands in one run: in order, each with a record of its own.

use serde_json::{Value, json};

use crate::contexts::both_tiers;
use crate::harness::{TestDaemon, finish, processes_with, until};
use crate::named_jobs::ended;

fn run(daemon: &TestDaemon, sandbox: &str, body: Value) -> Value {
    daemon.post(&format!("/v1/sandboxes/{sandbox}/commands"), body)
}

fn states(result: &Value) -> Vec<&str> {
    result["commands"].as_array().unwrap().iter().map(|one| one["state"].as_str().unwrap()).collect()
}

#[test]
fn commands_run_in_order_and_each_has_its_own_record() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        let commands = json!([
            {"command": "echo first; echo aside >&2; echo 1 > made"},
            {"argv": ["cat", "made"]},
            {"command": "basename $PWD; echo $A $B", "cwd": "/workspace/deep/down", "env": {"B": "own"}},
        ]);
        let result = run(&daemon, sandbox, json!({"commands": commands, "env": {"A": "all", "B": "no"}}));
        assert_eq!((&result["state"], &result["exit_code"]), (&json!("completed"), &json!(0)), "{result}");
        assert_eq!(result["stdout"], "first\n1\ndown\nall own\n", "{result}");
        assert_eq!(result["stderr"], "aside\n");
        assert_eq!(states(&result), ["completed"; 3]);
        // Each part is found by its offset.
        let parts: Vec<String> = result["commands"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| {
                let (id, from, count) = (&result["run_id"], &one["stdout_offset"], &one["stdout_bytes"]);
                let path = format!(
                    "/v1/runs/{}/logs?stream=stdout&offset={from}&limit={count}",
                    id.as_str().unwrap()
                );
                daemon.get(&path)["stdout"]["text"].as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(parts, ["first\n", "1\n", "down\nall own\n"]);
        assert_eq!(result["commands"][0]["stderr_bytes"], 6);
        // The record stays.
        let stored = ended(&daemon, result["run_id"].as_str().unwrap());
        assert_eq!(stored["commands"], result["commands"]);
        assert!(processes_with("cat made ").is_empty());
    }
}

#[test]
fn the_first_failure_ends_the_run_unless_it_is_allowed() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        let three = |second: Value| json!([{"command": "echo a"}, second, {"command": "echo c; exit 4"}]);
        let stopped = run(&daemon, sandbox, json!({"commands": three(json!({"command": "exit 3"}))}));
        assert_eq!((&stopped["state"], &stopped["exit_code"]), (&json!("failed"), &json!(3)), "{stopped}");
        assert_eq!(states(&stopped), ["completed", "failed", "not_run"]);
        assert_eq!(stopped["stdout"], "a\n");
        assert!(
            stopped["note"].as_str().unwrap().contains("command 2 of 3 failed with status 3"),
            "{stopped}"
        );

        let allowed = json!({"command": "exit 3", "allow_failure": true});
        let allowed = run(&daemon, sandbox, json!({"commands": three(allowed)}));
        assert_eq!(states(&allowed), ["completed", "failed", "failed"]);
        assert_eq!(allowed["exit_code"], 4, "the allowed failure is not the run's: {allowed}");

        let body =
            json!({"commands": three(json!({"argv": ["no-such-program"]})), "continue_on_error": true});
        let went_on = run(&daemon, sandbox, body);
        assert_eq!((&went_on["state"], &went_on["exit_code"]), (&json!("failed"), &json!(127)), "{went_on}");
        assert_eq!(states(&went_on), ["completed", "failed", "failed"]);
        assert_eq!(went_on["stdout"], "a\nc\n");
        assert!(went_on["commands"][1]["note"].is_string(), "{went_on}");
        let killed =
            run(&daemon, sandbox, json!({"commands": [{"command": "kill -9 $$"}, {"command": "true"}]}));
        assert_eq!((&killed["state"], &killed["signal"]), (&json!("killed"), &json!(9)), "{killed}");
        assert_eq!(states(&killed), ["killed", "not_run"]);
    }
}

#[test]
fn time_and_kill_end_all_commands_with_what_they_started() {
    let daemon = TestDaemon::start();
    for (number, sandbox) in both_tiers(&daemon).into_iter().enumerate() {
        let marker = format!("{}{:07}", 85_200 + number, std::process::id());
        let alive = || processes_with(&format!("sleep {marker} ")).len();
        let commands = json!([
            {"command": "echo begun"}, {"command": format!("(setsid sleep {marker} &); sleep {marker}")}, {"command": "echo no"},
        ]);
        let late = run(
            &daemon,
            sandbox,
            json!({"commands": commands, "timeout": "700ms", "continue_on_error": true}),
        );
        assert_eq!(late["state"], "timed_out", "{late}");
        assert_eq!(states(&late), ["completed", "killed", "not_run"]);
        assert_eq!(alive(), 0);

        let going = run(&daemon, sandbox, json!({"commands": commands, "wait": "0s"}));
        let id = going["run_id"].as_str().unwrap();
        until("the second goes on", || alive() >= 2);
        until("it is told which goes on", || {
            let now = daemon.post(&format!("/v1/runs/{id}/wait"), json!({"timeout": "0s"}));
            assert_eq!(now["state"], "running", "{now}");
            states(&now) == ["completed", "running", "waiting"]
        });
        daemon.post(&format!("/v1/runs/{id}/kill"), json!({}));
        assert_eq!(alive(), 0);
        let end = ended(&daemon, id);
        assert_eq!(
            (&end["state"], states(&end)),
            (&json!("killed"), vec!["completed", "killed", "not_run"]),
            "{end}"
        );
        let left = run(
            &daemon,
            sandbox,
            json!({"commands": [{"command": format!("sleep {marker} & echo left")}, {"command": "echo next"}]}),
        );
        assert_eq!(
            (&left["state"], &left["stdout"]),
            (&json!("completed"), &json!("left\nnext\n")),
            "{left}"
        );
        assert_eq!(alive(), 0, "what a command leaves ends with it");
    }
}

#[test]
fn the_command_line_runs_a_batch_and_tells_of_each() {
    let daemon = TestDaemon::start();
    let output = finish(&mut daemon.isle(&[
        "batch",
        "box",
        "--",
        "echo one",
        "-exit 3",
        "echo two; exit 7",
        "echo no",
    ]));
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(7), "{stderr}");
    assert_eq!(stdout, "one\ntwo\n");
    for words in ["+ echo one", "exited with 3, allowed", "exited with 7", "not run", "command 3 of 4"] {
        assert!(stderr.contains(words), "{words:?} in {stderr}");
    }
    let all = finish(&mut daemon.isle(&["batch", "box", "--keep-going", "--json", "--", "false", "echo on"]));
    let result: Value = serde_json::from_slice(&all.stdout).unwrap();
    assert_eq!((all.status.code(), states(&result)), (Some(1), vec!["failed", "completed"]));
}

#[test]
fn commands_that_cannot_be_run_are_refused_before_any_runs() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "true");
    let good = json!({"command": "touch ran"});
    let wrong = [
        (json!({"commands": []}), "INVALID_ARGUMENT"),
        (json!({"commands": vec![good.clone(); 101]}), "INVALID_ARGUMENT"),
        (json!({"commands": [good, {}]}), "INVALID_ARGUMENT"),
        (json!({"commands": [good, {"command": " "}]}), "INVALID_ARGUMENT"),
        (json!({"commands": [good, {"command": "a", "argv": ["a"]}]}), "INVALID_ARGUMENT"),
        (json!({"commands": [good, {"command": "a", "env": {"LD_PRELOAD": "x"}}]}), "INVALID_ARGUMENT"),
        (json!({"commands": [good, {"command": "a", "cwd": "b"}]}), "INVALID_PATH"),
        (json!({"commands": [good, {"command": "a", "colour": 1}]}), "INVALID_ARGUMENT"),
        (json!({"commands": [good, {"command": "x".repeat(200_000)}]}), "TOO_LARGE"),
        (json!({"commands": [good], "stdin": "x"}), "INVALID_ARGUMENT"),
    ];
    for (body, code) in &wrong {
        let error = daemon.refused("POST", "/v1/sandboxes/box/commands", Some(body));
        assert_eq!(error["code"], *code, "{error}");
    }
    assert_eq!(daemon.shell("box", "ls -A"), "", "nothing ran");
}
