//! Making a sandbox anew, and what stays: workspace, variables, package caches.

use serde_json::{Value, json};

use crate::contexts::{both_tiers, code};
use crate::harness::{TestDaemon, tiers};

fn reset(daemon: &TestDaemon, sandbox: &str) -> Value {
    daemon.post(&format!("/v1/sandboxes/{sandbox}/reset"), json!({}))
}

#[test]
fn a_reset_takes_everything_but_the_workspace_the_variables_and_the_caches() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        daemon
            .post(&format!("/v1/sandboxes/{sandbox}/env"), json!({"action": "set", "variables": {"A": "1"}}));
        daemon.shell(
            sandbox,
            "echo kept > file; mkdir -p ~/.cache/pip; echo kept > ~/.cache/pip/wheel; echo kept > ~/.npm/tarball; \
             echo gone > ~/other; echo gone > ${TMPDIR:-/tmp}/other",
        );
        code(&daemon, sandbox, json!({"code": "x=1", "language": "shell", "context": "c"}));
        let going = daemon.exec(sandbox, json!({"command": "sleep 78417", "wait": "0s"}));
        let answer = reset(&daemon, sandbox);
        assert_eq!(answer["kept"], json!(["workspace", "variables", "package caches"]), "{answer}");
        let path = format!("/v1/runs/{}/wait", going["run_id"].as_str().unwrap());
        let ended = daemon.post(&path, json!({}));
        assert_eq!(
            (&ended["state"], &ended["note"]),
            (&json!("killed"), &json!("its sandbox was reset")),
            "{ended}"
        );
        let seen = daemon.shell(
            sandbox,
            "cat file ~/.cache/pip/wheel ~/.npm/tarball; ls ~/other ${TMPDIR:-/tmp}/other 2>/dev/null; echo $A",
        );
        assert_eq!(seen, "kept\nkept\nkept\n1\n");
        assert_ne!(reset(&daemon, sandbox)["id"], answer["id"], "each time it is another one");
        let contexts = daemon.get(&format!("/v1/sandboxes/{sandbox}/contexts"));
        assert_eq!(contexts["contexts"], json!([]), "{contexts}");
    }
    let audit = daemon.get("/v1/audit?limit=50");
    let rows = audit["rows"].as_array().unwrap();
    let resets = rows.iter().filter(|row| row["action"] == "reset_sandbox").count();
    assert_eq!(resets, 2 * tiers().len(), "{audit}");
    let error = daemon.refused("POST", "/v1/sandboxes/nobody/reset", Some(&json!({})));
    assert_eq!(error["code"], "SANDBOX_NOT_FOUND");
}

#[test]
fn a_reset_that_wipes_empties_the_workspace_and_keeps_variables_and_caches() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        daemon
            .post(&format!("/v1/sandboxes/{sandbox}/env"), json!({"action": "set", "variables": {"A": "1"}}));
        daemon.shell(
            sandbox,
            "mkdir -p deep/er ~/.cache/pip; echo x > deep/er/file; echo x > .hidden; chmod 0 deep/er; \
             printf x > \"$(printf 'not\\377utf8')\"; ln -s / link; echo kept > ~/.cache/pip/wheel",
        );
        let path = format!("/v1/sandboxes/{sandbox}/reset");
        let answer = daemon.post(&path, json!({"wipe": true}));
        assert_eq!(answer["kept"], json!(["variables", "package caches"]), "{answer}");
        let seen = daemon
            .shell(sandbox, "ls -A | wc -l; cat ~/.cache/pip/wheel; echo $A; echo new > file; cat file");
        assert_eq!(seen, "0\nkept\n1\nnew\n");
    }
    daemon.exec("cli", json!({"command": "echo x > file; echo root > root", "user": "root"}));
    assert_eq!(daemon.succeeds(&["reset", "--wipe", "cli"]), "cli\n");
    assert_eq!(daemon.shell("cli", "ls -A"), "");
}

#[test]
fn settings_and_limits_hold_after_a_reset() {
    let mut daemon = TestDaemon::start();
    daemon
        .post("/v1/sandboxes", json!({"sandbox": "box", "pids": 77, "disk": "64M", "allow_downgrade": true}));
    assert_eq!(daemon.succeeds(&["reset", "box"]), "box\n");
    let pids = |daemon: &TestDaemon| daemon.get("/v1/status?sandbox=box")["detail"]["limits"]["pids"].clone();
    assert_eq!(pids(&daemon), 77);
    daemon.kill();
    daemon.launch();
    assert_eq!(pids(&daemon), 77);
    assert_eq!(daemon.names(), ["box"]);
    if daemon.enforces("box", "disk_limit") {
        let full = daemon.exec("box", json!({"command": "head -c 100M /dev/zero > ~/.cache/big"}));
        assert_eq!(full["state"], "failed", "caches count towards the disk: {full}");
        let full =
            daemon.exec("box", json!({"command": "head -c 100M /dev/zero > /var/cache/big", "user": "root"}));
        assert_eq!(full["state"], "failed", "the system's as well: {full}");
    }
}

#[test]
fn caches_are_by_name_go_when_wiped_and_one_shots_have_none() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        daemon.shell(sandbox, "echo kept > ~/.cache/file");
        daemon.succeeds(&["rm", sandbox]);
        let settings = if sandbox == "box" {
            json!({"sandbox": "box"})
        } else {
            json!({"sandbox": "plain", "tier": "process", "allow_downgrade": true})
        };
        daemon.post("/v1/sandboxes", settings.clone());
        assert_eq!(daemon.shell(sandbox, "cat ~/.cache/file"), "kept\n", "{sandbox}");
        assert_eq!(daemon.shell("other", "ls ~/.cache"), "npm\n", "another name has its own");
        daemon.succeeds(&["rm", "--wipe", sandbox]);
        daemon.post("/v1/sandboxes", settings);
        assert_eq!(daemon.shell(sandbox, "ls ~/.cache"), "npm\n", "{sandbox}");
    }
    daemon.exec("box", json!({"command": "echo x > /var/cache/file", "user": "root"}));
    reset(&daemon, "box");
    assert_eq!(daemon.shell("box", "cat /var/cache/file"), "x\n");
    for &tier in tiers() {
        let body = json!({"command": "ls -A ~ /var/cache 2>/dev/null | grep cache", "tier": tier, "allow_downgrade": true});
        let once = daemon.post("/v1/runs", body);
        assert!(!once["stdout"].as_str().unwrap().contains(".cache"), "{once}");
    }
}
