//! Children of sandboxes: what a policy allows, how much of it, and how they end.

use std::sync::{Arc, Barrier};

use serde_json::{Value, json};

use crate::harness::{TestDaemon, encoded, finish, processes_with, until};
use crate::mcp::Client;

const REVISION: &str = "2025-11-25";

/// A daemon with spawn policies, written as in a file.
fn daemon(policies: &str) -> TestDaemon {
    let daemon = TestDaemon::start_with(&[("ISLE_SPAWN_POLICIES", policies), ("ISLE_DISK", "16M")]);
    daemon.shell("default", "true");
    daemon
}

fn spawn(daemon: &TestDaemon, parent: &str, body: Value) -> Value {
    daemon.post(&format!("/v1/sandboxes/{}/children", encoded(parent)), body)
}

fn refused(daemon: &TestDaemon, parent: &str, body: Value) -> Value {
    let before = daemon.names();
    let error = daemon.refused("POST", &format!("/v1/sandboxes/{}/children", encoded(parent)), Some(&body));
    assert_eq!(daemon.names(), before, "a refusal changes nothing");
    error
}

fn children(daemon: &TestDaemon, parent: &str) -> Value {
    daemon.get(&format!("/v1/sandboxes/{}/children", encoded(parent)))
}

fn names(family: &Value) -> Vec<String> {
    let children = family["children"].as_array().unwrap();
    children.iter().map(|child| child["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_sandbox_without_a_policy_spawns_nothing_at_any_door() {
    let daemon = daemon("other = {}");
    assert_eq!(refused(&daemon, "default", json!({}))["code"], "PERMISSION_DENIED");
    let (mut client, _) = Client::initialized_with(&daemon, REVISION, &["--toolsets", "children"]);
    let answer = client.call("spawn", json!({}));
    assert_eq!(answer["isError"], true, "{answer}");
    assert!(answer["content"][0]["text"].as_str().unwrap().contains("PERMISSION_DENIED"), "{answer}");
    drop(client);
    let output = finish(&mut daemon.isle(&["spawn", "--json"]));
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("PERMISSION_DENIED"), "{output:?}");
    assert_eq!(refused(&daemon, "nobody", json!({}))["code"], "SANDBOX_NOT_FOUND");
    assert_eq!(daemon.names(), ["default"]);
}

#[test]
fn a_child_has_at_most_what_its_parent_has_and_is_used_by_its_name() {
    let daemon = daemon("default = { child_ttl = '10m' }");
    daemon.shell("default", "echo secret > file");
    let child = spawn(&daemon, "default", json!({"cpus": 64, "memory": "8G", "ttl": "1d"}));
    assert_eq!(
        (&child["name"], &child["parent"], &child["depth"], &child["image"]),
        (&json!("default/child-0001"), &json!("default"), &json!(1), &json!("host")),
        "{child}"
    );
    assert_eq!((&child["cpus"], &child["memory"]), (&json!(2.0), &json!("512M")), "{child}");
    let left = child["ttl_seconds"].as_u64().unwrap();
    assert!(left <= 600 && left > 300, "{child}");
    let name = child["name"].as_str().unwrap();
    assert_eq!(
        daemon.shell(name, "ls -A; id -un; ls -A ~/.cache"),
        "sandbox\nnpm\n",
        "nothing is handed down"
    );
    let small = spawn(&daemon, "default", json!({"name": "small", "cpus": 1, "memory": "64M", "ttl": "60s"}));
    assert_eq!(
        (&small["cpus"], &small["memory"], &small["spawned"]),
        (&json!(1.0), &json!("64M"), &json!(2))
    );
    assert!(small["ttl_seconds"].as_u64().unwrap() <= 60, "{small}");
    for (body, code) in [
        (json!({"cpus": 0.5}), "INVALID_ARGUMENT"),
        (json!({"memory": "63M"}), "INVALID_ARGUMENT"),
        (json!({"ttl": "0s"}), "INVALID_ARGUMENT"),
        (json!({"image": "other"}), "PERMISSION_DENIED"),
        (json!({"tier": "process"}), "PERMISSION_DENIED"),
        (json!({"name": "small"}), "ALREADY_EXISTS"),
        (json!({"name": "default/x"}), "INVALID_NAME"),
        (json!({"name": "a/b"}), "INVALID_NAME"),
        (json!({"name": "../x"}), "INVALID_NAME"),
        (json!({"secrets": []}), "INVALID_ARGUMENT"),
    ] {
        assert_eq!(refused(&daemon, "default", body.clone())["code"], code, "{body}");
    }
    let family = children(&daemon, "default");
    assert_eq!(names(&family), ["default/child-0001", "default/small"], "{family}");
    assert_eq!(family["total"], json!({"used": 2, "limit": 10}));
    assert_eq!(family["memory"], json!({"used": "576M", "limit": "1536M"}), "{family}");
    let listed = daemon.get("/v1/sandboxes");
    assert_eq!(listed["sandboxes"][1]["parent"], "default", "{listed}");
}

#[test]
fn the_same_through_mcp_and_the_command_line() {
    let daemon = daemon("'*' = {}");
    let (mut client, _) = Client::initialized_with(&daemon, REVISION, &["--toolsets", "core,children"]);
    let child = client.call("spawn", json!({"name": "helper"}))["structuredContent"].clone();
    assert_eq!(child["name"], "default/helper", "{child}");
    let ran = client.call("exec", json!({"sandbox": "default/helper", "command": "echo hi"}));
    assert_eq!(ran["structuredContent"]["stdout"], "hi\n", "{ran}");
    assert_eq!(names(&client.call("children", json!({}))["structuredContent"]), ["default/helper"]);
    let gone = client.call("destroy_child", json!({"child": "default/helper"}))["structuredContent"].clone();
    assert_eq!((&gone["child"], &gone["parent"]), (&json!("default/helper"), &json!("default")));
    drop(client);
    assert_eq!(daemon.succeeds(&["spawn", "--name", "again", "--memory", "64M"]), "default/again\n");
    let table = daemon.succeeds(&["children"]);
    assert!(table.contains("again") && table.contains("total spawned: 2 of 10"), "{table}");
    assert_eq!(daemon.succeeds(&["children", "--destroy", "default/again"]), "default/again\n");
    assert!(daemon.succeeds(&["children", "--reset-count"]).contains("(was 2)"));
    assert_eq!(daemon.names(), ["default"]);
    let error = daemon.refused("DELETE", "/v1/children/default", None);
    assert_eq!(error["code"], "PERMISSION_DENIED", "not a child: {error}");
    assert_eq!(daemon.refused("DELETE", "/v1/children/default%2Fagain", None)["code"], "SANDBOX_NOT_FOUND");
}

#[test]
fn each_limit_of_a_policy_is_kept_and_named() {
    let mut daemon = daemon(
        "few = { max_concurrent = 1 }\nonce = { max_total = 1 }\n\
         cpus = { total_child_cpus = 2 }\nmemory = { total_child_memory = '600M' }\nnone = { allowed_images = [] }",
    );
    let limit = |daemon: &TestDaemon, parent: &str, body: Value| {
        let error = refused(daemon, parent, body);
        assert_eq!(error["code"], "LIMIT_REACHED", "{error}");
        error["details"]["limit"].as_str().unwrap().to_owned()
    };
    for parent in ["few", "once", "cpus", "memory", "none"] {
        daemon.shell(parent, "true");
    }
    let spawned = |daemon: &TestDaemon, parent: &str, body: Value| {
        spawn(daemon, parent, body)["name"].as_str().unwrap().to_owned()
    };
    let first = spawned(&daemon, "few", json!({}));
    assert_eq!(limit(&daemon, "few", json!({})), "max_concurrent");
    daemon.succeeds(&["children", "--destroy", &first]);
    assert_eq!(spawned(&daemon, "few", json!({})), "few/child-0002");

    let only = spawned(&daemon, "once", json!({}));
    assert_eq!(limit(&daemon, "once", json!({})), "max_total");
    daemon.succeeds(&["children", "--destroy", &only]);
    daemon.post("/v1/sandboxes/once/reset", json!({}));
    assert_eq!(limit(&daemon, "once", json!({})), "max_total", "it is for the life of the name");
    daemon.kill();
    daemon.launch();
    assert_eq!(limit(&daemon, "once", json!({})), "max_total", "nor is it forgotten");
    daemon.post("/v1/sandboxes/once/children/reset_count", json!({}));
    spawned(&daemon, "once", json!({}));

    spawned(&daemon, "cpus", json!({"cpus": 1, "memory": "64M"}));
    assert_eq!(limit(&daemon, "cpus", json!({})), "total_child_cpus");
    spawned(&daemon, "cpus", json!({"cpus": 1, "memory": "64M"}));
    spawned(&daemon, "memory", json!({"memory": "512M", "cpus": 1}));
    assert_eq!(limit(&daemon, "memory", json!({"memory": "100M"})), "total_child_memory");
    assert_eq!(refused(&daemon, "none", json!({}))["code"], "PERMISSION_DENIED", "an empty list allows none");
}

#[test]
fn fifty_spawns_at_once_stay_within_the_budget() {
    let daemon = daemon("default = { max_concurrent = 50, max_total = 50, total_child_cpus = 4 }");
    let socket = daemon.socket();
    let start = Arc::new(Barrier::new(50));
    let asking: Vec<_> = (0..50)
        .map(|_| {
            let (socket, start) = (socket.clone(), Arc::clone(&start));
            std::thread::spawn(move || {
                start.wait();
                let body = json!({"cpus": 1, "memory": "64M"});
                crate::harness::http::unix(&socket, "POST", "/v1/sandboxes/default/children", Some(&body))
            })
        })
        .collect();
    let answers: Vec<_> = asking.into_iter().map(|thread| thread.join().unwrap()).collect();
    let made = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(made, 4, "no more, and no fewer");
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!(answer.json()["error"]["code"], "LIMIT_REACHED", "{}", answer.text());
    }
    let family = children(&daemon, "default");
    assert_eq!(names(&family).len(), 4);
    assert_eq!(family["total"]["used"], 4, "only those that were made count: {family}");
}

#[test]
fn grandchildren_share_what_is_left_of_the_whole_tree_and_spawn_nothing() {
    let daemon =
        daemon("default = { child_can_spawn = true, total_child_memory = '512M', child_ttl = '10m' }");
    spawn(&daemon, "default", json!({"name": "child", "memory": "256M", "ttl": "120s"}));
    let grandchild = spawn(&daemon, "default/child", json!({"name": "grandchild", "memory": "1G"}));
    assert_eq!((&grandchild["depth"], &grandchild["memory"]), (&json!(2), &json!("256M")), "{grandchild}");
    assert!(grandchild["ttl_seconds"].as_u64().unwrap() <= 120, "not longer than its parent: {grandchild}");
    assert_eq!(refused(&daemon, "default/child/grandchild", json!({}))["code"], "PERMISSION_DENIED");
    let error = refused(&daemon, "default", json!({"memory": "64M"}));
    assert_eq!(
        (&error["code"], &error["details"]["limit"]),
        (&json!("LIMIT_REACHED"), &json!("total_child_memory"))
    );
    let family = children(&daemon, "default");
    assert_eq!(names(&family), ["default/child", "default/child/grandchild"], "{family}");
    assert_eq!(family["memory"], json!({"used": "512M", "limit": "512M"}));
    let of_child = children(&daemon, "default/child");
    assert_eq!(
        of_child["concurrent"],
        json!({"used": 1, "limit": 1}),
        "half of what its parent has: {of_child}"
    );
    assert_eq!(of_child["total"], json!({"used": 1, "limit": 5}), "{of_child}");
    daemon.succeeds(&["children", "--destroy", "default/child/grandchild"]);
    assert_eq!(names(&children(&daemon, "default")), ["default/child"]);
    spawn(&daemon, "default/child", json!({"name": "grandchild"}));
    let gone = daemon.http("DELETE", "/v1/children/default%2Fchild", None).json();
    assert_eq!(gone["descendants"], json!(["default/child/grandchild"]), "{gone}");
    assert_eq!(daemon.names(), ["default"]);
}

#[test]
fn children_end_with_their_parent_however_it_ends() {
    let mut daemon = daemon("'*' = { child_can_spawn = true, max_total = 50 }");
    let raise = |daemon: &TestDaemon, parent: &str| {
        daemon.shell(parent, "true");
        spawn(daemon, parent, json!({"name": "child", "memory": "64M"}));
        spawn(daemon, &format!("{parent}/child"), json!({"name": "grandchild", "memory": "64M"}));
        assert_eq!(names(&children(daemon, parent)), ["box/child", "box/child/grandchild"]);
    };
    let agent = |daemon: &TestDaemon, sandbox: &str| {
        let id = daemon.sandbox_id(sandbox);
        processes_with(&format!("isle-agent {id}"))[0]
    };
    let kill = |pid: i32| {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    };

    raise(&daemon, "box");
    daemon.post("/v1/sandboxes/box/reset", json!({}));
    assert_eq!(daemon.names(), ["box", "default"], "a reset");

    raise(&daemon, "box");
    daemon.succeeds(&["rm", "box"]);
    assert_eq!(daemon.names(), ["default"], "a destroy");

    raise(&daemon, "box");
    kill(agent(&daemon, "box"));
    until("its death", || daemon.names() == ["box", "default"]);

    raise(&daemon, "box");
    let parent = agent(&daemon, "box");
    daemon.kill();
    kill(parent);
    daemon.launch();
    assert_eq!(daemon.names(), ["box", "default"], "its death while no daemon was there");

    raise(&daemon, "box");
    daemon.kill();
    daemon.launch();
    assert_eq!(
        daemon.names(),
        ["box", "box/child", "box/child/grandchild", "default"],
        "a daemon alone changes nothing"
    );
    assert_eq!(daemon.shell("box/child/grandchild", "echo lives"), "lives\n");
    assert_eq!(names(&children(&daemon, "box")), ["box/child", "box/child/grandchild"]);
    daemon.succeeds(&["rm", "box", "--wipe"]);
}

/// The time of this host, written as Isle writes times.
fn now() -> String {
    let output = std::process::Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%S.%3NZ"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_child_ends_when_its_time_is_over_also_while_no_daemon_is_there() {
    let mut daemon = daemon("default = {}");
    let going = spawn(&daemon, "default", json!({"name": "short", "ttl": "300ms"}));
    assert_eq!(going["name"], "default/short");
    until("its end", || daemon.names() == ["default"]);
    let child = spawn(&daemon, "default", json!({"name": "short", "ttl": "1s"}));
    let expires_at = child["expires_at"].as_str().unwrap().to_owned();
    daemon.kill();
    until("its time is over", || now() > expires_at);
    daemon.launch();
    assert_eq!(daemon.names(), ["default"]);
}

#[test]
fn nothing_of_a_child_stays_and_nothing_of_a_namesake_is_shown_to_it() {
    let daemon = daemon("default = {}");
    let name = "default/name";
    spawn(&daemon, "default", json!({"name": "name"}));
    assert_eq!(daemon.shell(name, "ls -A; echo mine > other"), "", "the workspace of another one");
    daemon.post("/v1/sandboxes/default%2Fname/env", json!({"action": "set", "variables": {"A": "1"}}));
    let answer = daemon.http("DELETE", "/v1/sandboxes/default%2Fname", None).json();
    assert_eq!(answer["workspace"], "wiped", "{answer}");
    spawn(&daemon, "default", json!({"name": "name"}));
    assert_eq!(daemon.shell(name, "ls -A; echo $A"), "\n");
    // What is left of a child is nothing, and nothing of its parent is in the place of that.
    daemon.shell("default", "mkdir -p data; echo kept > data/file");
    daemon.succeeds(&["children", "--destroy", name]);
    for gone in ["default%2Fname", "default%2Fdata", "default%2Fimage"] {
        let answer = daemon.http("DELETE", &format!("/v1/sandboxes/{gone}"), Some(&json!({"wipe": true})));
        assert_eq!(answer.code(), "SANDBOX_NOT_FOUND", "{}", answer.text());
    }
    assert_eq!(daemon.shell("default", "cat data/file"), "kept\n");
}

#[test]
fn children_may_not_be_made_anew_and_get_no_network_or_port_of_their_own() {
    let daemon = daemon("default = {}");
    spawn(&daemon, "default", json!({"name": "child"}));
    daemon.shell("default/child", "echo here > file");
    let error = daemon.refused("POST", "/v1/sandboxes/default%2Fchild/reset", Some(&json!({})));
    assert_eq!(error["code"], "PERMISSION_DENIED", "{error}");
    let error =
        daemon.refused("POST", "/v1/sandboxes", Some(&json!({"sandbox": "default/child", "memory": "300M"})));
    assert_eq!(error["code"], "INVALID_NAME", "nor with other settings: {error}");
    for (path, body) in [("grants", json!({"hosts": ["example.com:443"]})), ("ports", json!({"port": 8000}))]
    {
        let error = daemon.refused("POST", &format!("/v1/sandboxes/default%2Fchild/{path}"), Some(&body));
        assert_eq!(error["code"], "PERMISSION_DENIED", "nor more network than its parent: {path} {error}");
    }
    let output =
        finish(&mut daemon.isle(&["exec", "default/child", "--allow", "example.com:443", "--", "true"]));
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("PERMISSION_DENIED"), "{output:?}");
    assert_eq!(daemon.get("/v1/sandboxes/default%2Fchild/grants")["grants"], json!([]));
    assert_eq!(daemon.shell("default/child", "cat file"), "here\n");
}

#[test]
fn a_sandbox_with_children_is_not_idle() {
    let mut daemon = daemon("box = {}");
    daemon.post("/v1/sandboxes", json!({"sandbox": "box", "idle": "10m", "ttl": "20m"}));
    let idle = |daemon: &TestDaemon| {
        let listed = daemon.get("/v1/sandboxes");
        let all = listed["sandboxes"].as_array().unwrap().clone();
        all.into_iter().find(|one| one["name"] == "box").unwrap()["idle_expires_at"].clone()
    };
    assert!(idle(&daemon).is_string());
    spawn(&daemon, "box", json!({"name": "child"}));
    assert!(idle(&daemon).is_null(), "a child is a use of its parent");
    daemon.kill();
    daemon.launch();
    assert!(idle(&daemon).is_null(), "for the next daemon too");
    let error = daemon.refused("POST", "/v1/sandboxes/box%2Fchild/extend", Some(&json!({"by": "1h"})));
    assert_eq!(error["code"], "PERMISSION_DENIED", "a child has the time it was given: {error}");
    daemon.succeeds(&["children", "box", "--destroy", "box/child"]);
    assert!(idle(&daemon).is_string());
}

#[test]
fn ports_of_children_are_shown_on_the_host_only_where_policy_says_so() {
    let daemon = daemon("default = {}\nopen = { child_can_expose = true, child_can_spawn = true }");
    daemon.shell("open", "true");
    spawn(&daemon, "default", json!({"name": "shut", "memory": "64M"}));
    spawn(&daemon, "open", json!({"name": "shown", "memory": "128M"}));
    spawn(&daemon, "open/shown", json!({"name": "grandchild", "memory": "64M"}));
    let wish = json!({"port": 8000, "host_port": 0});
    let error = daemon.refused("POST", "/v1/sandboxes/default%2Fshut/ports", Some(&wish));
    assert_eq!(error["code"], "PERMISSION_DENIED", "{error}");
    for child in ["open%2Fshown", "open%2Fshown%2Fgrandchild"] {
        let shown = daemon.post(&format!("/v1/sandboxes/{child}/ports"), wish.clone());
        assert!(shown["host_port"].as_u64().unwrap() > 0, "{shown}");
    }
    daemon.http("DELETE", "/v1/children/open%2Fshown", None);
    assert_eq!(
        daemon.names(),
        ["default", "default/shut", "open"],
        "they end with their child, ports and all"
    );
}
