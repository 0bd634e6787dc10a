//! Disks that are full or broken, under the database and under a sandbox.

use serde_json::json;

use crate::ground::{Action, Ground, Told};
use crate::harness::{require, until};

#[test]
fn while_the_database_cannot_be_written_nothing_is_begun_and_what_ends_is_recorded_afterwards() {
    for (action, code) in [(Action::Fail, "DISK_BROKEN"), (Action::Full, "NO_SPACE")] {
        let mut ground = Ground::new();
        ground.daemon.shell("box", "mkfifo gate");
        let job = ground.daemon.exec("box", json!({"command": "read go < gate; echo went on", "wait": "0s"}));
        let job = job["run_id"].as_str().unwrap();
        ground.arm_for_good("store.begins", action);
        let refused = |told: Told| assert_eq!(told, Told::Refused(code.into()));
        refused(ground.ask("POST /v1/sandboxes/box/exec", Some(&json!({"command": "echo ran >> said"}))));
        refused(ground.ask("POST /v1/sandboxes/new/exec", Some(&json!({"command": "true"}))));
        refused(ground.ask("POST /v1/sandboxes", Some(&json!({"sandbox": "new"}))));
        refused(ground.ask("POST /v1/runs", Some(&json!({"command": "true"}))));
        let files = json!({"files": [{"path": "gate-opener", "content": "x"}]});
        refused(ground.ask("POST /v1/sandboxes/box/files/write", Some(&files)));
        assert_eq!(ground.names().into_iter().collect::<Vec<_>>(), ["box"], "it can still be read");

        // What was begun before ends, and is told; its record comes when it can.
        let opened = std::fs::exists(ground.file("armed")).unwrap();
        assert!(opened, "the database still fails");
        std::thread::scope(|scope| {
            let waiting = scope
                .spawn(|| ground.daemon.post(&format!("/v1/runs/{job}/wait"), json!({"timeout": "60s"})));
            // No command can be begun to open the gate, so the agent is asked to end the run instead.
            let killed = ground.daemon.post(&format!("/v1/runs/{job}/kill"), json!({"force": true}));
            assert_eq!(killed["state"], "killed", "{killed}");
            let ended = waiting.join().unwrap();
            assert_eq!(ended["state"], "killed", "{ended}");
            assert!(ended["note"].as_str().unwrap().contains("could not be recorded yet"), "{ended}");
        });
        ground.disarm();
        until("its end is on record", || {
            let rows = ground.daemon.get("/v1/runs?state=killed")["runs"].as_array().unwrap().len();
            rows == 1
        });
        assert_eq!(ground.daemon.shell("box", "cat said 2>/dev/null; echo goes on"), "goes on\n");
        ground.restart();
        ground.check(&[]);
        ground.clear();
    }
}

#[test]
fn a_run_whose_end_could_not_be_recorded_is_recorded_by_the_next_daemon() {
    let mut ground = Ground::new();
    ground.daemon.shell("box", "true");
    let job = ground.daemon.exec("box", json!({"command": "echo said; sleep 3000", "wait": "0s"}));
    let job = job["run_id"].as_str().unwrap().to_owned();
    until("it has spoken", || {
        ground.daemon.get(&format!("/v1/runs/{job}/logs?stream=stdout"))["stdout"]["text"] == "said\n"
    });
    ground.arm_for_good("store.begins", Action::Fail);
    let killed = ground.daemon.post(&format!("/v1/runs/{job}/kill"), json!({"signal": "TERM"}));
    drop(killed);
    let ended = ground.daemon.post(&format!("/v1/runs/{job}/wait"), json!({"timeout": "60s"}));
    assert_eq!(ended["state"], "killed", "{ended}");
    ground.daemon.kill();
    ground.disarm();
    ground.daemon.launch();
    until("its end is on record", || {
        let now = ground.daemon.post(&format!("/v1/runs/{job}/wait"), json!({}));
        (&now["state"], &now["stdout"]) == (&json!("killed"), &json!("said\n"))
    });
}

#[test]
fn a_full_writable_layer_survives_its_daemon_and_can_be_emptied() {
    let mut ground = Ground::new();
    ground.daemon.shell("box", "true");
    require!(ground.daemon.needs_enforced("box", "disk_limit"));
    ground.daemon.shell("box", "echo kept > file; cat /dev/zero > big 2>/dev/null; true");
    let told = ground.ask(
        "POST /v1/sandboxes/box/files/write",
        Some(&json!({"files": [{"path": "more", "content": "x".repeat(1 << 20)}]})),
    );
    assert_eq!(told, Told::Refused("NO_SPACE".into()));
    ground.restart();
    assert_eq!(ground.daemon.shell("box", "cat file; rm big; echo room > more; cat more"), "kept\nroom\n");
    ground.check(&[]);
}

#[test]
fn a_wipe_after_a_destroy_that_failed_half_way_leaves_nothing_of_the_workspace() {
    let ground = Ground::new();
    ground.daemon.shell("box", "echo secret > file");
    ground.arm("destroy.removed", Action::Fail, 1);
    let told = ground.ask("DELETE /v1/sandboxes/box", None);
    assert!(matches!(told, Told::Refused(_)) && ground.has_fired(), "{told:?}");
    ground.disarm();
    let told = ground.ask("DELETE /v1/sandboxes/box", Some(&json!({"wipe": true})));
    assert!(matches!(told, Told::Done(_)), "{told:?}");
    assert_eq!(ground.daemon.shell("box", "ls /workspace"), "");
    ground.daemon.succeeds(&["rm", "box", "--wipe"]);
}
