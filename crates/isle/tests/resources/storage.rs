//! Disk, inodes and open files.

use serde_json::json;

use crate::arena::{Arena, WILD, assert_names};
use crate::harness::{has_process_tier, tiers, until};

#[test]
fn a_full_disk_is_named_and_disturbs_nobody() {
    let arena = Arena::new(json!({"disk": "24M"}));
    if !arena.enforces("disk_limit") {
        return;
    }
    let run = arena.daemon.exec(WILD, json!({"command": "head -c 64M /dev/zero > big"}));
    assert_eq!(run["state"], "failed", "{run}");
    assert_names(&run, "disk", "24M");
    assert!(run["limits_hit"][0]["raise"].as_str().unwrap().contains("`wipe`"), "{run}");
    arena.assert_neighbour_calm();
    // What is full without having failed is not told.
    let fine = arena.daemon.exec(WILD, json!({"command": "true"}));
    assert!(fine.get("limits_hit").is_none(), "{fine}");
    assert_eq!(arena.daemon.shell(WILD, "rm big; echo room > again; cat again"), "room\n");
    let own = arena.daemon.exec(WILD, json!({"command": "exit 3"}));
    assert!(own.get("limits_hit").is_none(), "{own}");
}

#[test]
fn a_one_shots_full_disk_and_its_last_inode_are_named() {
    let arena = Arena::new(json!({}));
    let disk = json!({"command": "head -c 64M /dev/zero > big", "disk": "16M"});
    let run = arena.daemon.post("/v1/runs", disk);
    assert_eq!(run["state"], "failed", "{run}");
    assert_names(&run, "disk", "16M");
    let files = "i=0; while : > f$i; do i=$((i+1)); done; exit 1";
    let run = arena
        .daemon
        .post("/v1/runs", json!({"command": files, "disk": "16M", "timeout": "60s", "wait": "70s"}));
    assert_eq!(run["state"], "failed", "{run}");
    assert!(run["stderr"].as_str().unwrap().contains("o space left"), "{run}");
    assert_names(&run, "inodes", "4096");
}

#[test]
fn a_disk_limit_that_is_only_watched_stops_the_sandbox_and_says_so() {
    let arena = Arena::new(json!({"disk": "16M"}));
    let status = arena.daemon.get(&format!("/v1/status?sandbox={WILD}"));
    let lines = status["detail"]["containment"].as_array().unwrap();
    let watched = lines.iter().any(|line| line["key"] == "disk_limit" && line["status"] == "watched");
    if !watched {
        println!("skipped: here the kernel itself limits the disk");
        return;
    }
    // Deep enough that a careless measure would not find it.
    let run = arena.daemon.exec(
        WILD,
        json!({"argv": ["python3", "-c", "
import os, time
for i in range(3000): os.mkdir('d' * 16); os.chdir('d' * 16)
with open('big', 'wb') as f:
    for i in range(48): f.write(os.urandom(1 << 20))
    os.fsync(f.fileno())
while True: os.getpid()
"], "timeout": "15s", "wait": "40s"}),
    );
    assert_eq!(run["state"], "timed_out", "{run}");
    assert_names(&run, "disk", "16M");
    let removed = json!({"path": "d".repeat(16), "recursive": true});
    arena.daemon.post(&format!("/v1/sandboxes/{WILD}/files/remove"), removed);
    until("it goes on when there is room", || {
        let run =
            arena.daemon.exec(WILD, json!({"command": "sleep 3; echo on", "timeout": "10s", "wait": "20s"}));
        run["stdout"] == "on\n"
    });
}

#[test]
fn open_files_are_limited_named_and_closed_again() {
    for &tier in tiers() {
        let arena = Arena::new(json!({"tier": tier}));
        let run = arena.run(
            "
keep = []
while True: keep.append(open('/dev/null'))
",
        );
        assert_eq!(run["state"], "failed", "{run}");
        assert_names(&run, "open_files", "4096");
        arena.assert_neighbour_calm();
        assert_eq!(arena.daemon.shell(WILD, "echo fine"), "fine\n");
    }
}

#[test]
fn a_file_that_is_too_large_for_tier_process_is_named() {
    if !has_process_tier() {
        return;
    }
    let arena = Arena::new(json!({"tier": "process", "disk": "16M"}));
    let run = arena.daemon.exec(WILD, json!({"command": "exec head -c 64M /dev/zero > big"}));
    assert_eq!((&run["state"], &run["signal"]), (&json!("killed"), &json!(25)), "{run}");
    assert_names(&run, "file_size", "16M");
    let run = arena.run("open('big', 'wb').write(b'x' * (64 << 20))");
    assert_eq!(run["state"], "failed", "{run}");
    assert_names(&run, "file_size", "16M");
}
