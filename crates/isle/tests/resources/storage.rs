//! Disk, inodes and open files.

use serde_json::{Value, json};

use crate::arena::{Arena, WILD, assert_names};
use crate::harness::{Case, TestDaemon, needs_tier, needs_user, per_tier, require, until};

#[test]
fn a_full_disk_is_named_and_disturbs_nobody() {
    let arena = Arena::new(json!({"disk": "24M"}));
    require!(arena.needs_enforced("disk_limit"));
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

/// Fills the disk with bytes, or with files that hold nothing.
const FILL_BYTES: &str = "head -c 64M /dev/zero > /workspace/big; mkdir /workspace/d; i=0; while : > /workspace/d/$i && echo x > /workspace/d/$i; do i=$((i+1)); done; exit 0";
const FILL_INODES: &str = "mkdir /workspace/d; i=0; while : > /workspace/d/$i; do i=$((i+1)); done; exit 0";
/// Guest root takes what its layer is made of and gives the room to the workspace.
const TAKE_LAYER: &str = "rm -rf /etc/* /home/* /root /var/* /tmp/* /run/* 2>/dev/null; ";

/// A sandbox with a full disk is entered again, whatever took the room and however it ended.
fn full_and_entered_again(fill: &str) {
    let arena = Arena::new(json!({"disk": "16M"}));
    require!(arena.needs_enforced("disk_limit"));
    let daemon = &arena.daemon;
    let post = |what: &str, body: Value| daemon.post(&format!("/v1/sandboxes/{WILD}/{what}"), body);
    let fill_as = |user: &str, before: &str| {
        let command = format!("{before}{fill}");
        let body = json!({"argv": ["/bin/sh", "-c", command], "user": user, "timeout": "60s", "wait": "70s"});
        daemon.exec(WILD, body)
    };
    let status = || daemon.get(&format!("/v1/status?sandbox={WILD}"))["detail"]["usage"].clone();
    daemon.shell(WILD, "echo kept > kept");
    fill_as("sandbox", "");
    for _ in 0..4 {
        // Each time the guest takes what the start was given.
        fill_as("root", TAKE_LAYER);
        post("reset", json!({}));
        assert_eq!(daemon.shell(WILD, "cat kept; ls d | head -1"), "kept\n0\n");
    }
    let usage = status();
    assert!(usage["disk_note"].as_str().unwrap().contains("in memory"), "{usage}");
    if fill == FILL_INODES {
        assert!(usage["disk_inodes"].as_u64() >= Some(usage["disk_inodes_limit"].as_u64().unwrap() - 64));
        assert!(daemon.succeeds(&["status", WILD]).contains("inodes  "));
    }
    // The root can be written to, and what is full is still named.
    assert_eq!(daemon.shell(WILD, "echo x > /tmp/x; cat /tmp/x"), "x\n");
    let full = daemon.exec(WILD, json!({"command": "head -c 1M /dev/zero > more"}));
    assert_eq!(full["state"], "failed", "{full}");
    assert!(!full["limits_hit"].as_array().unwrap().is_empty(), "{full}");
    // Its own user removes files through the door for files, and has room again, on disk from the next reset.
    post("files/remove", json!({"path": "d", "recursive": true}));
    daemon.shell(WILD, "rm -f big; echo room > again");
    post("reset", json!({}));
    assert_eq!(daemon.shell(WILD, "cat kept again; echo x > /tmp/x"), "kept\nroom\n");
    let usage = status();
    assert!(usage.get("disk_note").is_none() && usage.get("disk_inodes").is_none(), "{usage}");
}

#[test]
fn a_disk_full_of_bytes_keeps_nobody_out() {
    full_and_entered_again(FILL_BYTES);
}

#[test]
fn a_disk_full_of_empty_files_keeps_nobody_out() {
    full_and_entered_again(FILL_INODES);
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
    let watched = arena.daemon.guarantee(WILD, "disk_limit")["status"] == "watched";
    require!(needs_user(watched, "the kernel enforces the disk limit for this user"));
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

/// Writes 600 MiB to a file without a name and keeps it, in a thread with descriptors of its own when the
/// argument says so.
const NAMELESS: &str = "
import ctypes, os, sys, threading
def write():
    if sys.argv[1] == 'thread': ctypes.CDLL(None).unshare(0x400)
    f = os.open('x', os.O_RDWR | os.O_CREAT); os.unlink('x')
    block = os.urandom(1 << 20)
    for i in range(600): os.write(f, block)
    os.fsync(f)
    while True: os.getpid()
threading.Thread(target=write, daemon=True).start()
while True: os.getpid()
";

/// Has a sandbox keep a file without a name, and sees that it is counted, stopped and let go.
fn nameless(way: &str) {
    // Without the program that makes images, root's volumes are directories as other users' are.
    let hidden = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"].map(std::path::PathBuf::from);
    let is_root = rustix::process::geteuid().is_root();
    let hidden = hidden.into_iter().filter(|path| is_root && path.exists()).collect();
    let daemon = TestDaemon::start_hiding(hidden, &[]);
    daemon.post("/v1/sandboxes", json!({"sandbox": WILD, "disk": "64M"}));
    let status = || daemon.get(&format!("/v1/status?sandbox={WILD}"));
    let lines = status()["detail"]["containment"].clone();
    let line = lines.as_array().unwrap().iter().find(|line| line["key"] == "disk_limit").unwrap();
    assert_eq!(line["status"], "watched", "{line}");
    assert!(line["how"].as_str().unwrap().contains("deleted files"), "{line}");
    let argv = json!(["python3", "-c", NAMELESS, way]);
    let run = daemon.exec(WILD, json!({"argv": argv, "timeout": "20s", "wait": "0s"}));
    let run = run["run_id"].as_str().unwrap().to_owned();
    let used = || status()["detail"]["usage"]["disk_bytes"].as_u64().unwrap_or(0);
    until("the status shows what a file without a name takes", || used() > 64 << 20);
    let run = daemon.post(&format!("/v1/runs/{run}/wait"), json!({}));
    assert_eq!(run["state"], "timed_out", "{run}");
    assert_names(&run, "disk", "64M");
    until("it is let go when the file is gone", || used() < 64 << 20);
    until("it goes on", || {
        let run = daemon.exec(WILD, json!({"command": "echo on", "timeout": "10s", "wait": "20s"}));
        run["stdout"] == "on\n"
    });
}

#[test]
fn a_watched_disk_limit_counts_open_files_without_a_name() {
    nameless("open");
}

#[test]
fn a_watched_disk_limit_counts_what_one_thread_alone_holds() {
    nameless("thread");
}

per_tier!(open_files_are_limited_named_and_closed_again);

fn open_files_are_limited_named_and_closed_again(Case { tier, .. }: Case) {
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

#[test]
fn a_file_that_is_too_large_for_tier_process_is_named() {
    require!(needs_tier("process"));
    let arena = Arena::new(json!({"tier": "process", "disk": "16M"}));
    let run = arena.daemon.exec(WILD, json!({"command": "exec head -c 64M /dev/zero > big"}));
    assert_eq!((&run["state"], &run["signal"]), (&json!("killed"), &json!(25)), "{run}");
    assert_names(&run, "file_size", "16M");
    let run = arena.run("open('big', 'wb').write(b'x' * (64 << 20))");
    assert_eq!(run["state"], "failed", "{run}");
    assert_names(&run, "file_size", "16M");
}
