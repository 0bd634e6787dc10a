//! The images of volumes, which a root daemon mounts: a guest must never write one, nor have the daemon take
//! something else for one; and one that was damaged costs its own sandbox and no other.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use serde_json::json;

use crate::harness::{Missing, TestDaemon, needs_user, require};

/// The image of a sandbox's volume, where volumes have images.
fn image(daemon: &TestDaemon, sandbox: &str) -> Result<PathBuf, Missing> {
    let image = daemon.home().state_dir().join("native/volumes").join(sandbox).join("image");
    needs_user(image.exists(), "volumes of this user are directories, not images")?;
    Ok(image)
}

/// Every way to a block device or to an open file of the daemon's that a guest could try; prints what opens.
const REACH: &str = r#"
import glob, os, stat
def block(path):
    try: return stat.S_ISBLK(os.stat(path).st_mode)
    except OSError: return False
paths = glob.glob("/dev/**", recursive=True) + glob.glob("/proc/[0-9]*/fd/*") + glob.glob("/proc/[0-9]*/root/dev/*")
for path in paths + glob.glob("/proc/[0-9]*/map_files/*"):
    if block(path):
        for mode in (os.O_RDONLY, os.O_WRONLY):
            try: os.close(os.open(path, mode)); print("opened", path, mode)
            except OSError: pass
    try: target = os.readlink(path)
    except OSError: continue
    if target.endswith("/image") or "/dev/loop" in target: print("sees", path, target)
for major, minor in [(7, n) for n in range(16)] + [(10, 237)]:
    for directory in ("/tmp", "/workspace", "/dev", "/dev/shm"):
        node = f"{directory}/node-{major}-{minor}"
        try:
            os.mknod(node, stat.S_IFBLK | 0o666, os.makedev(major, minor))
            os.close(os.open(node, os.O_RDWR)); print("made", node)
        except OSError: pass
        try: os.unlink(node)
        except OSError: pass
for path in ("/dev/loop-control", "/dev/mapper/control"):
    try: os.close(os.open(path, os.O_RDWR)); print("opened", path)
    except OSError: pass
print("done")
"#;

#[test]
fn a_guest_reaches_no_image_and_no_block_device() {
    let daemon = TestDaemon::start();
    daemon.post("/v1/sandboxes", json!({"sandbox": "box"}));
    let image = require!(image(&daemon, "box"));
    for user in ["sandbox", "root"] {
        let run = daemon.exec("box", json!({"argv": ["python3", "-c", REACH], "user": user}));
        assert_eq!(run["stdout"], "done\n", "as {user}: {run}");
    }
    // For any id but the daemon's the file is closed, and so is the way to it.
    let found = std::fs::metadata(&image).unwrap();
    assert_eq!((found.mode() & 0o7777, found.uid()), (0o600, 0), "{image:?}");
    assert_eq!(std::fs::metadata(daemon.home().state_dir()).unwrap().mode() & 0o077, 0);
}

#[test]
fn what_a_guest_names_like_an_image_is_not_taken_for_one() {
    let mut daemon = TestDaemon::start();
    daemon.post("/v1/sandboxes", json!({"sandbox": "box"}));
    let image = require!(image(&daemon, "box"));
    // Files, links and directories with the names a root daemon uses, wherever a guest can write.
    let plant = r"for d in /workspace /workspace/volumes /workspace/layers /home/sandbox /tmp; do
        mkdir -p $d 2>/dev/null; for n in image image.part slot data records instance owner isle.lock; do
        ln -sf /etc/shadow $d/$n; ln -sfn / $d/$n.d; done; done; echo ok > /workspace/kept";
    daemon.shell("box", plant);
    daemon.exec("box", json!({"command": plant, "user": "root"}));
    let before = std::fs::metadata(&image).unwrap().ino();
    daemon.post("/v1/sandboxes/box/reset", json!({}));
    daemon.kill();
    daemon.launch();
    assert_eq!(daemon.shell("box", "cat kept"), "ok\n");
    assert_eq!(std::fs::metadata(&image).unwrap().ino(), before, "the image is the one it was");
    let shadow = std::fs::symlink_metadata("/etc/shadow").unwrap();
    assert!(shadow.is_file() && shadow.len() > 0);
}

#[test]
fn a_damaged_image_costs_its_own_sandbox_and_no_other() {
    let mut daemon = TestDaemon::start();
    for name in ["box", "other"] {
        daemon.post("/v1/sandboxes", json!({"sandbox": name}));
        daemon.shell(name, "echo kept > file");
    }
    let image = require!(image(&daemon, "box"));
    // Without a process in it the volume is let go; then bytes of it are changed from outside.
    daemon.succeeds(&["rm", "box"]);
    daemon.terminate();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&image).unwrap();
    let length = file.metadata().unwrap().len();
    for (what, offset, bytes) in [
        ("the superblock", 1024, vec![0xa5; 1024]),
        ("group descriptors and tables", 4096, vec![0xff; 64 * 1024]),
        ("everywhere", 0, vec![0x5a; usize::try_from(length.min(4 << 20)).unwrap()]),
    ] {
        let mut kept = vec![0; bytes.len()];
        file.read_exact_at(&mut kept, offset).unwrap();
        file.write_all_at(&bytes, offset).unwrap();
        daemon.launch();
        let answer = daemon.http("POST", "/v1/sandboxes/box/exec", Some(&json!({"command": "cat file"})));
        if answer.status != 200 {
            let error = answer.json()["error"].clone();
            assert_eq!(error["code"], "DISK_BROKEN", "{what}: {error}");
            assert!(!error["next_steps"].as_array().unwrap().is_empty(), "{what}: {error}");
        }
        assert_eq!(daemon.shell("other", "cat file"), "kept\n", "{what}");
        assert_eq!(daemon.get("/v1/audit/verify")["intact"], true, "{what}");
        daemon.http("DELETE", "/v1/sandboxes/box", None);
        daemon.terminate();
        file.write_all_at(&kept, offset).unwrap();
    }
    daemon.launch();
}
