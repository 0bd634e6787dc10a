//! Disks that fail in earnest: a file system on a loop device of the kernel, whose file cannot be written
//! any more (it is made immutable), or is gone (it is cut off). Every write that reaches the device, or
//! every read that is not answered from memory, is an I/O error of the kernel's own then.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::ground::{Ground, Told, ask};
use crate::harness::{Home, Missing, TestDaemon, finish, needs_root, needs_user, require, until, until_some};

/// The file under a loop device. What is done to it is undone when the test ends, however it ends: whoever
/// undoes it waits for the end of a pipe.
#[derive(Debug)]
struct Medium {
    image: PathBuf,
    undoer: Child,
    pipe: Option<ChildStdin>,
}

/// In the directory of the file, so that no argument tells whose it is: such processes are leaks.
const UNDO: &str = r#"cat >/dev/null; chattr -i "$1" 2>/dev/null
    [ -z "$2" ] || until ! mountpoint -q "$2" || umount -l "$2"; do sleep 0.1; done
    [ -z "$3" ] || losetup -d "$3""#;

impl Medium {
    /// `mounted` names a directory beside the file that is to be unmounted in the end, `device` what shows the
    /// file until then; both may be empty.
    fn new(image: PathBuf, mounted: &str, device: &str) -> Self {
        let mut undoer = Command::new("setsid")
            .args(["sh", "-c", UNDO, "sh"])
            .args([image.file_name().unwrap(), mounted.as_ref(), device.as_ref()])
            .current_dir(image.parent().unwrap())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        Self { pipe: undoer.stdin.take(), undoer, image }
    }

    fn path(&self) -> &str {
        self.image.to_str().unwrap()
    }

    /// Whether a loop device shows it.
    fn is_attached(&self) -> bool {
        std::fs::read_dir("/sys/block").unwrap().flatten().any(|device| {
            let shown = std::fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
            Path::new(shown.trim_end_matches('\n')) == self.image
        })
    }

    /// From now on nothing can be written. Whether that is so depends on what the file itself is on.
    fn refuse_writes(&self) -> Result<(), Missing> {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&self.image).unwrap();
        let mut first = [0];
        file.read_exact_at(&mut first, 0).unwrap();
        let refused = run("chattr", &["+i", self.path()]) && file.write_all_at(&first, 0).is_err();
        if refused { Ok(()) } else { Err(Missing::on_host("an immutable file can be written here")) }
    }

    fn take_writes(&self) {
        assert!(run("chattr", &["-i", self.path()]));
    }

    /// From now on nothing can be read but what is in memory.
    fn take_away(&self) {
        let kept = self.image.with_extension("kept");
        assert!(run("cp", &["--sparse=always", self.path(), kept.to_str().unwrap()]));
        std::fs::OpenOptions::new().write(true).open(&self.image).unwrap().set_len(0).unwrap();
    }

    /// What was there is back, in the same file; nobody may use it at that moment.
    fn give_back(&self) {
        let kept = self.image.with_extension("kept");
        assert!(run("cp", &["--sparse=always", kept.to_str().unwrap(), self.path()]));
        std::fs::remove_file(kept).unwrap();
    }
}

impl Drop for Medium {
    fn drop(&mut self) {
        self.pipe.take();
        self.undoer.wait().ok();
    }
}

/// A disk with a file system, mounted for as long as the test lives.
#[derive(Debug)]
struct Disk {
    medium: Medium,
    place: PathBuf,
    /// The same one for as long as the test lives, as a disk of a machine is.
    device: String,
}

impl Disk {
    fn mounted_at(place: PathBuf) -> Result<Self, Missing> {
        needs_root("make a disk that fails")?;
        std::fs::create_dir(&place).unwrap();
        let image = place.with_extension("image");
        std::fs::File::create(&image).unwrap().set_len(192 << 20).unwrap();
        // Without a journal it goes on when the disk does.
        let made = run("mkfs.ext4", &["-q", "-F", "-O", "^has_journal", image.to_str().unwrap()]);
        let mounted = place.file_name().unwrap().to_str().unwrap().to_owned();
        let attached = Command::new("losetup").args(["-f", "--show"]).arg(&image).output().unwrap();
        let device = String::from_utf8(attached.stdout).unwrap().trim().to_owned();
        let disk = Self { medium: Medium::new(image, &mounted, &device), place, device };
        if !made || disk.device.is_empty() || !disk.mount() {
            return Err(Missing::on_host("no file system can be made on a loop device here"));
        }
        Ok(disk)
    }

    fn mount(&self) -> bool {
        let place = self.place.to_str().unwrap();
        run("mount", &["-t", "ext4", "-o", "errors=continue", &self.device, place])
    }

    /// What a person does with a disk that failed: unmounts, replaces what has to be, checks, mounts.
    fn repair(&self, replace: impl FnOnce()) {
        let place = self.place.to_str().unwrap();
        until("the disk is not used any more", || run("umount", &[place]));
        replace();
        // A file that was cut off and is back has another size than the device knew.
        assert!(run("losetup", &["-c", &self.device]));
        // Mount namespaces that are made meanwhile by somebody else hold a copy of the mount for a moment.
        let checked = until_some("nobody uses the device any more", || {
            let checked = Command::new("e2fsck").args(["-fy", &self.device]).output().unwrap();
            (!String::from_utf8_lossy(&checked.stdout).contains("is in use")).then_some(checked)
        });
        // 1: errors were corrected.
        assert!(matches!(checked.status.code(), Some(0 | 1)), "{checked:?}");
        assert!(self.mount());
    }

    fn sync(&self) {
        assert!(run("sync", &["-f", self.place.to_str().unwrap()]));
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|done| done.status.success())
}

/// A daemon whose state directory is on a disk of its own.
fn daemon_on_a_disk() -> Result<(TestDaemon, Arc<Disk>), Missing> {
    // A mount of that very name would make everybody who sees it look like a leak.
    let home = Home::with_state_at("disk/state");
    let disk = Arc::new(Disk::mounted_at(home.path().join("disk"))?);
    let settings = [("ISLE_POOL_SIZE", "0"), ("ISLE_DISK", "16M")];
    Ok((TestDaemon::start_on(disk.clone(), home, &settings), disk))
}

fn is_broken(told: &Told) -> bool {
    *told == Told::Refused("DISK_BROKEN".into())
}

#[test]
fn when_the_disk_of_the_database_fails_nothing_is_promised_and_a_repaired_one_has_all_that_was() {
    let (mut daemon, disk) = require!(daemon_on_a_disk());
    // The sandbox's own file system is on a file of this one.
    daemon.shell("box", "echo kept > file; sync -f .");
    let run = daemon.exec("box", json!({"command": "echo said"}));
    let run = run["run_id"].as_str().unwrap();
    disk.sync();
    require!(disk.medium.refuse_writes());
    // What the kernel still takes into memory is found out with the next flush.
    until("nothing is begun any more", || {
        is_broken(&ask(&daemon, "POST /v1/sandboxes/box/exec", Some(&json!({"command": "true"}))))
    });
    for (line, body) in [
        ("POST /v1/runs", json!({"command": "true"})),
        ("POST /v1/sandboxes", json!({"sandbox": "new"})),
        ("POST /v1/sandboxes/box/exec", json!({"command": "echo ran >> file"})),
        ("POST /v1/sandboxes/box/files/write", json!({"files": [{"path": "file", "content": "x"}]})),
    ] {
        let told = ask(&daemon, line, Some(&body));
        assert!(is_broken(&told), "{line}: {told:?}");
    }
    assert_eq!(daemon.names(), ["box"], "what is there can be read");

    // The machine is switched off: nobody lives on, and only what is on the disk is left.
    daemon.kill();
    for (pid, _) in daemon.counts().processes {
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).ok();
    }
    disk.repair(|| disk.medium.take_writes());
    daemon.launch();
    assert_eq!(daemon.names(), ["box"]);
    assert_eq!(daemon.shell("box", "cat file"), "kept\n");
    let told = daemon.get(&format!("/v1/runs/{run}/logs?stream=stdout"));
    assert_eq!(told["stdout"]["text"], "said\n", "{told}");
    daemon.succeeds(&["audit", "--verify"]);
}

#[test]
fn a_disk_of_the_database_that_works_again_is_noticed_by_the_daemon_that_lives() {
    let (daemon, disk) = require!(daemon_on_a_disk());
    daemon.shell("box", "echo kept > file");
    disk.sync();
    let begin = || ask(&daemon, "POST /v1/runs", Some(&json!({"command": "true"})));
    require!(disk.medium.refuse_writes());
    until("nothing is begun any more", || is_broken(&begin()));
    disk.medium.take_writes();
    until("it goes on", || matches!(begin(), Told::Done(_)));
    assert_eq!(daemon.shell("box", "cat file"), "kept\n");
    daemon.succeeds(&["audit", "--verify"]);
}

#[test]
fn a_daemon_does_not_start_on_a_disk_that_fails_and_does_not_take_it_for_damage() {
    let (mut daemon, disk) = require!(daemon_on_a_disk());
    daemon.post("/v1/runs", json!({"command": "true"}));
    daemon.terminate();
    // So that nothing of it is in memory.
    disk.repair(|| ());
    disk.medium.take_away();
    let said = daemon.try_launch().unwrap_err();
    assert!(said.contains("DISK_BROKEN") && !said.contains("isle repair"), "{said}");
    let repaired = finish(&mut daemon.isle(&["repair"]));
    let said = String::from_utf8_lossy(&[repaired.stdout, repaired.stderr].concat()).into_owned();
    assert!(said.contains("DISK_BROKEN"), "{said}");
    disk.repair(|| disk.medium.give_back());
    assert!(!daemon.home().state_dir().join("quarantine").exists());
    daemon.launch();
    assert_eq!(daemon.get("/v1/runs")["runs"].as_array().unwrap().len(), 1);
    daemon.succeeds(&["audit", "--verify"]);
}

/// The volume of a sandbox of this daemon, where it is a device.
fn volume(ground: &Ground, name: &str) -> Result<Medium, Missing> {
    let image = ground.daemon.home().state_dir().join("native/volumes").join(name).join("image");
    needs_user(image.exists(), "volumes of this user are directories, not devices that could fail")?;
    Ok(Medium::new(image, "", ""))
}

#[test]
fn a_writable_layer_that_fails_is_named_disturbs_nobody_and_can_be_destroyed() {
    let ground = Ground::new();
    ground.daemon.shell("other", "echo kept > file");
    ground.daemon.shell("box", "echo kept > file; head -c 1M /dev/urandom > data; sync -f .");
    let medium = require!(volume(&ground, "box"));
    require!(medium.refuse_writes());
    let named = |run: &serde_json::Value| {
        assert_eq!(run["state"], "failed", "{run}");
        assert!(run["note"].as_str().unwrap().contains("the disk under the sandbox gives errors"), "{run}");
    };
    let write = "dd if=/dev/zero of=more bs=64k count=1 conv=fsync";
    named(&ground.daemon.exec("box", json!({ "command": write })));
    medium.take_writes();
    assert_eq!(ground.daemon.shell("box", "rm -f more; cat file"), "kept\n");

    // Not in memory, or it would be read from there.
    ground.daemon.shell("box", "sync -f .; dd if=data iflag=nocache count=0 2>&1");
    medium.take_away();
    named(&ground.daemon.exec("box", json!({"command": "cat data > /dev/null"})));
    let told = ground.ask("GET /v1/sandboxes/box/files/read?path=data", None);
    assert!(is_broken(&told), "{told:?}");
    // What needs no disk goes on, and so does everybody else.
    assert_eq!(ground.daemon.shell("box", "echo works"), "works\n");
    assert_eq!(
        ground.daemon.shell("other", "cat file; echo more > file; sync -f .; cat file"),
        "kept\nmore\n"
    );

    // It lets itself be destroyed, and what was on the disk before is there when the disk is.
    ground.daemon.succeeds(&["rm", "box"]);
    until("the device is gone", || !medium.is_attached());
    medium.give_back();
    assert_eq!(ground.daemon.shell("box", "cat file; wc -c < data"), "kept\n1048576\n");
    ground.check(&[]);
    ground.clear();
}

#[test]
fn a_volume_damaged_beyond_repair_is_refused_with_the_way_out() {
    let ground = Ground::new();
    ground.daemon.shell("box", "echo kept > file");
    let medium = require!(volume(&ground, "box"));
    ground.daemon.succeeds(&["rm", "box"]);
    until("the device is gone", || !medium.is_attached());
    let file = std::fs::OpenOptions::new().write(true).open(&medium.image).unwrap();
    file.write_all_at(&[0; 64 << 10], 0).unwrap();
    let body = json!({"command": "true"});
    let error = ground.daemon.refused("POST", "/v1/sandboxes/box/exec", Some(&body));
    assert_eq!(error["code"], "DISK_BROKEN", "{error}");
    let steps = error["next_steps"].to_string();
    assert!(steps.contains("e2fsck") && steps.contains("wipe"), "{steps}");
    ground.daemon.succeeds(&["rm", "box", "--wipe"]);
    assert_eq!(ground.daemon.shell("box", "ls"), "");
    ground.check(&[]);
    ground.clear();
}
