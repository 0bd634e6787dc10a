//! Runs nobody waits for: handed over by id to any client, over any door, and to the end.

use serde_json::json;

use crate::harness::{TestDaemon, finish, until};

#[test]
fn a_run_nobody_waits_for_is_picked_up_by_other_clients() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "mkfifo go");
    let run =
        daemon.exec("box", json!({"command": "echo begun; read x < go; echo $x; exit 6", "wait": "0s"}));
    assert_eq!((&run["state"], &run["exit_code"]), (&json!("running"), &json!(null)), "{run}");
    let id = run["run_id"].as_str().unwrap();
    until("its output is seen from the command line", || daemon.succeeds(&["logs", id]).contains("begun"));
    let still = daemon.post(&format!("/v1/runs/{id}/wait"), json!({"timeout": "0s"}));
    assert_eq!(still["state"], "running");
    let status = daemon.get("/v1/status?sandbox=box");
    assert_eq!(status["detail"]["runs"][0]["run_id"], id, "{status}");
    assert_eq!(status["sandboxes"][0]["running_runs"], 1);

    daemon.shell("box", "echo handed over > go");
    let waited = finish(&mut daemon.isle(&["wait", id, "--json"]));
    assert_eq!(waited.status.code(), Some(6), "{}", String::from_utf8_lossy(&waited.stderr));
    let ended = daemon.post(&format!("/v1/runs/{id}/wait"), json!({}));
    assert_eq!((&ended["state"], &ended["stdout"]), (&json!("failed"), &json!("begun\nhanded over\n")));
    assert_eq!(daemon.succeeds(&["logs", id]), "begun\nhanded over\n");
}

#[test]
fn the_command_line_ends_a_run_another_client_started() {
    let daemon = TestDaemon::start();
    let run = daemon.exec("box", json!({"command": "sleep 77119", "wait": "0s"}));
    let id = run["run_id"].as_str().unwrap();
    daemon.succeeds(&["kill", id]);
    let ended = daemon.post(&format!("/v1/runs/{id}/wait"), json!({}));
    assert_eq!((&ended["state"], &ended["signal"]), (&json!("killed"), &json!(15)), "{ended}");
    let history = daemon.get("/v1/runs?sandbox=box&state=killed");
    assert_eq!(history["runs"][0]["run_id"], id);
}

#[test]
fn a_wait_longer_than_allowed_and_runs_that_never_were_are_refused() {
    let daemon = TestDaemon::start();
    let run = daemon.exec("box", json!({"command": "true"}));
    let id = run["run_id"].as_str().unwrap();
    let long = daemon.refused("POST", &format!("/v1/runs/{id}/wait"), Some(&json!({"timeout": "301s"})));
    assert_eq!(long["code"], "INVALID_ARGUMENT");
    let stranger = "run_00000000000000000000000000";
    for (method, path) in [("POST", "wait"), ("POST", "kill"), ("GET", "logs"), ("GET", "events")] {
        let body = (method == "POST").then(|| json!({}));
        let error = daemon.refused(method, &format!("/v1/runs/{stranger}/{path}"), body.as_ref());
        assert_eq!(error["code"], "RUN_NOT_FOUND", "{path}");
        let error = daemon.refused(method, &format!("/v1/runs/no%20name/{path}"), body.as_ref());
        assert_eq!(error["code"], "INVALID_ARGUMENT", "{path}");
        let error = daemon.refused(method, &format!("/v1/runs/box:nobody/{path}"), body.as_ref());
        assert_eq!(error["code"], "JOB_NOT_FOUND", "{path}");
    }
}
