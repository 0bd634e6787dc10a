//! How much there may be of everything: sandboxes, memory, commands at once, calls that wait. Whoever
//! comes in vain is told so, with numbers and when to come again.

use serde_json::{Value, json};

use crate::contexts::both_tiers;
use crate::harness::http::unix_raw;
use crate::harness::{TestDaemon, finish, until, until_some};
use crate::mcp::Client;

const JSON: &str = "Content-Type: application/json";

/// The same call so many times at once, each with its own number; the answers.
fn at_once(daemon: &TestDaemon, times: usize, body: impl Fn(usize) -> Value + Sync) -> Vec<(u16, Value)> {
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..times)
            .map(|number| {
                let body = &body;
                scope.spawn(move || {
                    let answer = daemon.http("POST", "/v1/sandboxes", Some(&body(number)));
                    (answer.status, answer.json())
                })
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    })
}

fn made(answers: &[(u16, Value)]) -> usize {
    for (status, answer) in answers {
        let code = answer["error"]["code"].as_str().unwrap_or("ok");
        assert!(matches!((*status, code), (200, "ok") | (429, "LIMIT_REACHED")), "{status} {answer}");
    }
    answers.iter().filter(|(status, _)| *status == 200).count()
}

#[test]
fn fifty_creates_at_once_make_as_many_sandboxes_as_there_may_be() {
    let daemon = TestDaemon::start_with(&[("ISLE_MAX_SANDBOXES", "4")]);
    let answers = at_once(&daemon, 50, |number| json!({ "sandbox": format!("box{number}") }));
    assert_eq!(made(&answers), 4);
    assert_eq!(daemon.names().len(), 4);
    let refused = &answers.iter().find(|(status, _)| *status == 429).unwrap().1["error"];
    assert_eq!(refused["details"], json!({ "limit": "max_sandboxes", "existing": 4, "allowed": 4 }));
    assert_eq!(refused["retryable"], true);
    // What exists can be used; a one-shot is a sandbox, too.
    let names = daemon.names();
    daemon.shell(&names[0], "true");
    assert_eq!(
        daemon.refused("POST", "/v1/runs", Some(&json!({ "command": "true" })))["code"],
        "LIMIT_REACHED"
    );
    assert_eq!(daemon.http("DELETE", &format!("/v1/sandboxes/{}", names[0]), None).status, 200);
    daemon.post("/v1/runs", json!({ "command": "true" }));
    until("the one-shot is gone", || daemon.get("/v1/sandboxes")["one_shots"] == 0);
    daemon.shell("another", "true");
    assert_eq!(daemon.names().len(), 4);
    let (mut client, _) = Client::initialized(&daemon, "2025-11-25");
    let said = client.call("exec", json!({ "sandbox": "too-many", "command": "true" })).to_string();
    assert!(said.contains("LIMIT_REACHED"), "{said}");
}

#[test]
fn a_namespace_has_a_ceiling_of_its_own() {
    let daemon = TestDaemon::start_with(&[("ISLE_MAX_SANDBOXES_PER_NAMESPACE", "1")]);
    for namespace in ["one", "two"] {
        daemon.succeeds(&["token", "create", "--namespace", namespace]);
        daemon.succeeds(&["exec", "box", "--namespace", namespace, "--", "true"]);
        let output = finish(&mut daemon.isle(&["exec", "second", "--namespace", namespace, "--", "true"]));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("LIMIT_REACHED") && said.contains(namespace), "{said}");
        daemon.succeeds(&["reset", "box", "--namespace", namespace]);
    }
}

#[test]
fn the_memory_of_all_sandboxes_stays_within_its_budget() {
    let daemon = TestDaemon::start_with(&[("ISLE_MEMORY_BUDGET", "300M")]);
    let answers =
        at_once(&daemon, 12, |number| json!({ "sandbox": format!("box{number}"), "memory": "128M" }));
    assert_eq!(made(&answers), 2);
    let refused = &answers.iter().find(|(status, _)| *status == 429).unwrap().1["error"]["details"];
    assert_eq!(refused["limit"], "memory_budget");
    assert_eq!(
        (&refused["required_bytes"], &refused["available_bytes"]),
        (&json!(128 << 20), &json!(44 << 20))
    );
    daemon.post("/v1/sandboxes", json!({ "sandbox": "small", "memory": "44M" }));
}

#[test]
fn a_host_that_is_too_small_says_what_it_has_and_what_would_do() {
    let daemon = TestDaemon::start();
    for (body, check) in [
        (json!({ "memory": "900T" }), "memory"),
        (json!({ "cpus": 1000 }), "cpus"),
        (json!({ "disk": "900T" }), "disk"),
    ] {
        let mut create = body.clone();
        create["sandbox"] = json!("huge");
        let mut run = body;
        run["command"] = json!("true");
        for (path, body) in [("/v1/sandboxes", &create), ("/v1/runs", &run)] {
            let error = daemon.refused("POST", path, Some(body));
            assert_eq!(error["code"], "HOST_TOO_SMALL", "{error}");
            assert_eq!(error["details"]["failed_checks"][0]["check"], check, "{error}");
            assert!(error["details"]["suggested"].get(check).is_some(), "{error}");
        }
    }
    assert!(daemon.names().is_empty(), "nothing was made");
    let error = daemon.refused("POST", "/v1/sandboxes", Some(&json!({ "sandbox": "huge", "cpus": 1000 })));
    let fits = json!({ "sandbox": "fits", "cpus": error["details"]["suggested"]["cpus"] });
    daemon.post("/v1/sandboxes", fits);
}

#[test]
fn a_full_line_says_when_to_come_again_and_who_waits_has_its_turn() {
    let daemon = TestDaemon::start_with(&[("ISLE_MAX_RUNNING", "1"), ("ISLE_MAX_WAITING", "1")]);
    daemon.shell("box", "true");
    let job = daemon.post("/v1/sandboxes/box/jobs", json!({ "command": "sleep 300", "name": "holder" }));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| daemon.shell("box", "echo my turn"));
        until("it waits", || daemon.get("/v1/health")["waiting"] == 1);
        let body = json!({ "command": "true" }).to_string();
        let answer = unix_raw(&daemon.socket(), "POST /v1/sandboxes/box/exec", &[JSON], body.as_bytes());
        assert_eq!((answer.status, answer.code().as_str()), (429, "BUSY"), "{}", answer.text());
        let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert_eq!(answer.json()["error"]["details"]["retry_after_seconds"], seconds);
        assert!((1..=60).contains(&seconds));
        let output = finish(&mut daemon.isle(&["exec", "box", "--", "true"]));
        assert!(String::from_utf8_lossy(&output.stderr).contains("BUSY"), "{output:?}");
        let told = until_some("the event is told", || {
            let told = daemon.get("/v1/events/history?kind=queue_back_pressure");
            told["events"].as_array().filter(|events| !events.is_empty()).cloned()
        });
        assert!(told[0].to_string().contains("queue_back_pressure"), "{told:?}");
        let usage = daemon.get("/v1/usage")["queue"].clone();
        assert_eq!((&usage["running"], &usage["waiting"]), (&json!(1), &json!(1)), "{usage}");
        // More room at run time is used at once.
        daemon.succeeds(&["limits", "--max-running", "2"]);
        assert_eq!(waiting.join().unwrap(), "my turn\n");
    });
    let id = job["run_id"].as_str().unwrap();
    daemon.post(&format!("/v1/runs/{id}/kill"), json!({ "force": true }));
    daemon.shell("box", "true");
}

#[test]
fn limits_change_at_run_time_below_the_caps_and_stay() {
    let mut daemon = TestDaemon::start();
    let memory_of = |daemon: &TestDaemon, name: &str| {
        daemon.shell(name, "true");
        daemon.get(&format!("/v1/inspect?sandbox={name}"))["sandboxes"][0]["limits"]["memory"].clone()
    };
    assert_eq!(memory_of(&daemon, "before"), "1G");
    let answer = daemon.post("/v1/limits", json!({ "memory": "128M", "timeout": "30s" }));
    assert_eq!((&answer["before"]["memory"], &answer["now"]["memory"]), (&json!("1G"), &json!("128M")));
    assert_eq!(memory_of(&daemon, "after"), "128M");
    assert_eq!(memory_of(&daemon, "before"), "1G", "what exists is left as it is");

    let caps = &answer["caps"];
    let above = caps["cpus"].as_f64().unwrap() + 1.0;
    for wrong in [
        json!({ "memory": "900T" }),
        json!({ "memory": "0" }),
        json!({ "cpus": above }),
        json!({ "cpus": 0 }),
        json!({ "cpus": -1 }),
        json!({ "pids": 0 }),
        json!({ "pids": -5 }),
        json!({ "disk": "0" }),
        json!({ "timeout": "0s" }),
        json!({ "timeout": "400d" }),
        json!({ "max_running": 0 }),
        json!({ "max_running": 1_000_000 }),
        json!({ "max_sandboxes": 0 }),
        json!({ "keep_output": "0" }),
        json!({ "keep_runs_for": "0s" }),
        json!({ "memory_budget": "1K" }),
        json!({ "colour": 1 }),
    ] {
        let error = daemon.refused("POST", "/v1/limits", Some(&wrong));
        assert_eq!(error["code"], "INVALID_ARGUMENT", "{wrong}: {error}");
    }
    let now = daemon.post("/v1/limits", json!({}))["now"].clone();
    assert_eq!((&now["memory"], &now["timeout"]), (&json!("128M"), &json!("30s")), "nothing else changed");

    daemon.kill();
    daemon.launch();
    assert_eq!(daemon.post("/v1/limits", json!({}))["now"]["memory"], "128M");
    let shown = daemon.succeeds(&["limits", "--reset", "--pids", "300"]);
    assert!(shown.contains("memory") && shown.contains("128M"), "{shown}");
    let now = daemon.post("/v1/limits", json!({}))["now"].clone();
    assert_eq!((&now["memory"], &now["pids"]), (&json!("1G"), &json!(300)));
    let audited = daemon.get("/v1/audit?action=limits").to_string();
    assert!(audited.contains("128M"), "{audited}");
}

#[test]
fn runs_are_kept_for_their_time_however_many_and_a_live_one_for_good() {
    let mut daemon = TestDaemon::start();
    daemon.succeeds(&["token", "create", "--namespace", "quiet"]);
    daemon.succeeds(&["exec", "box", "--namespace", "quiet", "--", "true"]);
    daemon.post("/v1/sandboxes/box/jobs", json!({ "command": "sleep 300", "name": "old-but-live" }));
    let first = daemon.exec("box", json!({ "command": "echo first" }))["run_id"].as_str().unwrap().to_owned();
    for _ in 0..4 {
        daemon.shell("box", "true");
    }
    // Far above the budget, and yet nothing goes: what has just ended can be read for ten minutes at least.
    daemon.post("/v1/limits", json!({ "keep_output": "1K" }));
    daemon.kill();
    daemon.launch();
    for _ in 0..300 {
        daemon.shell("box", "true");
    }
    assert_eq!(daemon.get(&format!("/v1/runs/{first}/logs"))["stdout"]["text"], "first\n");
    // Old ones go at every start, and now and then in between.
    daemon.post("/v1/limits", json!({ "keep_runs_for": "1ms" }));
    daemon.kill();
    daemon.launch();
    until("the oldest are gone", || {
        daemon.http("GET", &format!("/v1/runs/{first}/logs"), None).status == 404
    });
    until("only the live one is there", || {
        let kept = daemon.get("/v1/runs");
        let states: Vec<&str> =
            kept["runs"].as_array().unwrap().iter().map(|run| run["state"].as_str().unwrap()).collect();
        states == ["running"]
    });
}

#[test]
fn usage_and_inspection_tell_what_a_sandbox_takes_and_holds() {
    let daemon = TestDaemon::start();
    let variables = json!({ "PLAIN": "visible", "API_TOKEN": "hunter2" });
    daemon.post("/v1/sandboxes/box/env", json!({ "action": "set", "variables": variables }));
    let run = daemon
        .exec("box", json!({ "command": "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done" }));
    let id = run["run_id"].as_str().unwrap();
    daemon.post("/v1/sandboxes/box/jobs", json!({ "command": "sleep 300", "name": "server" }));
    daemon
        .post("/v1/sandboxes/box/code", json!({ "code": "x = 1", "language": "shell", "context": "notes" }));

    let usage = daemon.get("/v1/usage?sandbox=box")["sandboxes"][0].clone();
    assert_eq!(usage["name"], "box");
    assert!(usage["cpu_ms"].as_u64().is_some() && usage["memory_peak_bytes"].as_u64().is_some(), "{usage}");
    assert!(usage["runs"].as_u64().unwrap() >= 2 && usage["running_runs"] == 1, "{usage}");
    assert!(usage["uptime_seconds"].as_u64().is_some() && usage["output_bytes"].as_u64().unwrap() >= 5);
    if usage["measured_by"] == "cgroups" {
        assert!(usage["pids"].as_u64().unwrap() >= 2, "{usage}");
    }
    let of_run = daemon.get(&format!("/v1/usage?run_id={id}"))["run"].clone();
    assert_eq!((&of_run["state"], &of_run["stdout_bytes"]), (&json!("completed"), &json!(5)), "{of_run}");
    assert!(of_run["cpu_ms"].is_u64() && of_run["peak_memory_bytes"].as_u64().unwrap() > 0, "{of_run}");
    assert_eq!(daemon.refused("GET", "/v1/usage?sandbox=nobody", None)["code"], "SANDBOX_NOT_FOUND");
    let both = format!("/v1/usage?sandbox=box&run_id={id}");
    assert_eq!(daemon.refused("GET", &both, None)["code"], "INVALID_ARGUMENT");
    assert!(daemon.succeeds(&["usage"]).contains("box"));
    assert!(daemon.succeeds(&["usage", "--run", id]).contains(id));

    let all = daemon.get("/v1/inspect");
    let inspected = all["sandboxes"][0].clone();
    assert_eq!((&all["total"], &inspected["name"]), (&json!(1), &json!("box")));
    let expected = json!([{ "name": "API_TOKEN", "value": "***" }, { "name": "PLAIN", "value": "visible" }]);
    assert_eq!(inspected["variables"], expected);
    assert!(!all.to_string().contains("hunter2"));
    assert_eq!(inspected["running"][0]["job"], "server", "{inspected}");
    assert_eq!(inspected["contexts"][0]["name"], "notes", "{inspected}");
    assert_eq!((&inspected["limits"]["pids"], &inspected["jobs"]), (&json!(256), &json!(1)));
    let shown = daemon.succeeds(&["inspect", "box"]);
    assert!(shown.contains("PLAIN=visible") && shown.contains("API_TOKEN=***"), "{shown}");
    assert!(shown.contains("server") && !shown.contains("hunter2"), "{shown}");
    assert_eq!(daemon.refused("GET", "/v1/inspect?sandbox=nobody", None)["code"], "SANDBOX_NOT_FOUND");
}

#[test]
fn what_lives_counts_whoever_can_count_it() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        let usage = || daemon.get(&format!("/v1/usage?sandbox={sandbox}"))["sandboxes"][0].clone();
        daemon.shell(sandbox, "head -c 2M /dev/zero > file; sync file");
        let before = usage();
        assert!(["cgroups", "processes"].contains(&before["measured_by"].as_str().unwrap()), "{before}");
        daemon.exec(sandbox, json!({ "command": "while :; do :; done", "wait": "0s" }));
        until("its time counts while it runs", || {
            let now = usage();
            let number = |name: &str| now[name].as_u64().unwrap_or_else(|| panic!("{name}: {now}"));
            number("cpu_ms") > before["cpu_ms"].as_u64().unwrap() + 50
                && number("pids") >= 2
                && number("memory_bytes") > 0
                && number("memory_peak_bytes") > 0
        });
        let now = usage();
        assert!(now["io_read_bytes"].is_u64() && now["io_write_bytes"].is_u64(), "{now}");
        assert_eq!((&now["network_sent_bytes"], &now["limits"]["pids"]), (&json!(0), &json!(256)), "{now}");
        let detail = daemon.get(&format!("/v1/status?sandbox={sandbox}"))["detail"]["usage"].clone();
        assert!(detail["cpu_ms"].as_u64() >= now["cpu_ms"].as_u64(), "one definition: {detail}");
    }
}
