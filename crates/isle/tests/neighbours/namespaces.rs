//! A second daemon with the same paths in other namespaces, as in a container that shares the host's
//! cgroups.

use std::process::{Command, Output};

use serde_json::json;

use crate::harness::{TestDaemon, finish, needs_root, require, tiers};

/// Own processes too, as in a container.
const CONTAINER: &[&str] = &["--mount", "--pid", "--fork", "--mount-proc"];
/// Own mounts only.
const MOUNTS: &[&str] = &["--mount"];

/// Runs a shell script in namespaces of its own, with the daemon's environment. `$1` is the
/// program, `$2` the state directory and `$3` the runtime directory.
fn apart(daemon: &TestDaemon, namespaces: &[&str], script: &str) -> Output {
    let mut command = Command::new("unshare");
    command.args(namespaces).args(["sh", "-ec", script, "sh"]);
    command.arg(env!("CARGO_BIN_EXE_isle"));
    daemon.home().dress(&mut command);
    command.arg(daemon.home().state_dir()).arg(daemon.home().runtime_dir());
    command.env_remove("ISLE_NO_AUTOSTART").env("ISLE_POOL_SIZE", "1");
    finish(&mut command)
}

/// One sandbox per tier, each with a file and a background job.
fn occupy(daemon: &TestDaemon) {
    for tier in tiers() {
        daemon.post("/v1/sandboxes", json!({"sandbox": tier, "tier": tier, "allow_downgrade": true}));
        daemon.shell(tier, "echo kept > file");
        let job = json!({"name": "work", "command": "while read x; do echo got $x; done", "input": true});
        daemon.post(&format!("/v1/sandboxes/{tier}/jobs"), job);
    }
}

/// Whether everything [`occupy`] made is still there and runs.
fn check(daemon: &TestDaemon, after: &str) {
    for tier in tiers() {
        let listed = daemon.get(&format!("/v1/jobs?sandbox={tier}&state=running"));
        assert_eq!(listed["jobs"].as_array().unwrap().len(), 1, "{after}: {tier}: {listed}");
        assert_eq!(daemon.shell(tier, "cat file"), "kept\n", "{after}");
    }
    let listed = daemon.get("/v1/sandboxes");
    let all = listed["sandboxes"].as_array().unwrap();
    assert!(all.iter().all(|one| one["state"] != "failed"), "{after}: {listed}");
    let lost = daemon.get("/v1/runs?state=lost");
    assert!(lost["runs"].as_array().unwrap().is_empty(), "{after}: {lost}");
}

#[test]
fn a_daemon_with_the_same_paths_elsewhere_sweeps_nothing_of_ours() {
    require!(needs_root("mount over a state directory"));
    let mut daemon = TestDaemon::start();
    occupy(&daemon);
    let run = r#""$1" run -- id -u; "$1" run --tier process --allow-downgrade -- id -u; "$1" stop"#;
    let state = r#"mount -t tmpfs -o mode=700 none "$2""#;
    let both = format!("{state}; mount -t tmpfs -o mode=700 none \"$3\"");
    for (what, namespaces, hide) in [
        ("own processes", CONTAINER, both.as_str()),
        ("own processes, runtime shared", CONTAINER, state),
        ("own mounts", MOUNTS, both.as_str()),
        ("own mounts, runtime shared", MOUNTS, state),
    ] {
        // Twice, the second time after a daemon that was killed.
        let killed = format!(
            "{hide}; {run}; \"$1\" create other >&2; kill -9 \"$(\"$1\" status --json | sed -n 's/.*\"pid\": *\\([0-9]*\\).*/\\1/p' | head -1)\"; until flock -n \"$2/isle.lock\" true; do :; done; {run}; \"$1\" rm --all --wipe >&2; \"$1\" stop"
        );
        for script in [format!("{hide}; {run}"), killed] {
            let output = apart(&daemon, namespaces, &script);
            let said = format!("{what}: {output:?}");
            assert!(output.status.success(), "{said}");
            check(&daemon, &said);
            daemon.kill();
            daemon.launch();
            check(&daemon, &format!("{what}, after a restart"));
        }
    }
}

#[test]
fn a_daemon_elsewhere_with_our_runtime_hidden_is_refused_on_our_state() {
    require!(needs_root("mount over a runtime directory"));
    let daemon = TestDaemon::start();
    occupy(&daemon);
    // The state is ours and locked; process numbers there mean other processes.
    let output =
        apart(&daemon, CONTAINER, r#"mount -t tmpfs -o mode=700 none "$3"; "$1" --json rm --all --wipe"#);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{output:?}");
    assert!(said.contains("DAEMON_UNAVAILABLE") && said.contains(&daemon.pid().to_string()), "{said}");
    check(&daemon, &said);
}
