//! State directories that cannot be used: taken, too new, damaged, full. Each is said with what to do,
//! and nothing in them is touched.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Home, Missing, TestDaemon, finish, needs_root, require, until_some};

/// What `isle ls` says when the daemon it starts cannot start.
fn refusal(home: &Home) -> Value {
    let mut command = home.isle(&["--json", "ls"]);
    let output = finish(command.env_remove("ISLE_NO_AUTOSTART"));
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    let error: Value = serde_json::from_str(&said).unwrap_or_else(|why| panic!("{why}: {said}"));
    let error = error.get("error").unwrap_or(&error).clone();
    assert!(!error["next_steps"].as_array().unwrap().is_empty(), "{error}");
    error
}

fn database(home: &Home) -> std::path::PathBuf {
    home.state_dir().join("isle.db")
}

#[test]
fn a_second_daemon_on_the_same_state_is_refused_and_the_first_goes_on() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "true");
    let output = finish(&mut daemon.isle(&["serve", "--json"]));
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("ALREADY_EXISTS") && said.contains(&daemon.pid().to_string()), "{said}");
    // Also with a socket of its own.
    let private = daemon.home().path().join("private");
    std::fs::create_dir(&private).unwrap();
    std::fs::set_permissions(&private, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let socket = private.join("other.sock");
    let output = finish(&mut daemon.isle(&["serve", "--socket", socket.to_str().unwrap()]));
    assert!(!output.status.success() && !socket.exists());
    assert_eq!(daemon.shell("box", "echo goes on"), "goes on\n");
}

#[test]
fn state_of_a_newer_version_is_left_alone() {
    let mut daemon = TestDaemon::start();
    daemon.shell("box", "echo kept > file");
    daemon.terminate();
    let set_version = |change: i64| {
        let connection = rusqlite::Connection::open(database(daemon.home())).unwrap();
        let now: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        connection.pragma_update(None, "user_version", now + change).unwrap();
    };
    set_version(1);
    let error = refusal(daemon.home());
    assert_eq!(error["code"], "STATE_TOO_NEW", "{error}");
    assert!(error["next_steps"][0].as_str().unwrap().contains("newer"), "{error}");
    set_version(-1);
    daemon.launch();
    assert_eq!(daemon.shell("box", "cat file"), "kept\n", "nothing was lost");
}

#[test]
fn a_damaged_database_is_said_and_not_replaced() {
    let mut daemon = TestDaemon::start();
    daemon.shell("box", "echo kept > file");
    daemon.terminate();
    let path = database(daemon.home());
    let good = std::fs::read(&path).unwrap();
    for bad in [b"this is no database, whatever its name says".repeat(200), good[..good.len() / 2].to_vec()] {
        std::fs::write(&path, &bad).unwrap();
        if let Err(said) = daemon.try_launch() {
            assert!(said.contains("\"code\"") && said.contains("next_steps"), "{said}");
        } else {
            // SQLite may find damage only where it reads; what it does not know it must not lose.
            let output = finish(&mut daemon.isle(&["audit", "--verify"]));
            assert!(!output.status.success(), "{output:?}");
            daemon.terminate();
        }
        assert!(std::fs::read(&path).unwrap().starts_with(&bad[..64]), "the file is still what it was");
    }
    std::fs::write(&path, &good).unwrap();
    daemon.launch();
    assert_eq!(daemon.shell("box", "cat file"), "kept\n", "the sandbox is found again");
}

#[test]
fn what_an_earlier_daemon_did_not_finish_is_removed_at_the_start() {
    let mut daemon = TestDaemon::start();
    daemon.shell("box", "true");
    daemon.terminate();
    let images = daemon.home().state_dir().join("native/images");
    std::fs::create_dir_all(&images).unwrap();
    let unfinished = images.join("ext4-1048576.sb_00000000000000000000000000.part");
    std::fs::write(&unfinished, "half a file system").unwrap();
    daemon.launch();
    assert!(!unfinished.exists());
}

#[test]
fn a_full_disk_is_said_and_passes() {
    let disk = require!(SmallDisk::mount());
    let home = &disk.home;
    let isle = |arguments: &[&str]| {
        finish(home.isle(arguments).env_remove("ISLE_NO_AUTOSTART").env("ISLE_POOL_SIZE", "0"))
    };
    assert!(isle(&["exec", "box", "--", "sh", "-c", "echo kept > file"]).status.success());
    let filler = home.state_dir().join("filler");
    // Not one byte is left for a record: nothing may be run that could not be recorded. In the pages that
    // the database has already there may be room for some.
    let run = json!({"sandbox": "box", "command": "echo ran >> file"}).to_string();
    let mut ran = 0;
    let refused = until_some("a run is refused", || {
        fill(&filler);
        let tried = isle(&["call", "exec", &run]);
        ran += usize::from(tried.status.success());
        (!tried.status.success()).then_some(tried)
    });
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("NO_SPACE"), "{refused:?}");
    std::fs::remove_file(&filler).unwrap();
    let after = isle(&["exec", "box", "--", "cat", "file"]);
    assert_eq!(String::from_utf8_lossy(&after.stdout), format!("kept\n{}", "ran\n".repeat(ran)), "{after:?}");
    let verified = isle(&["audit", "--verify"]);
    assert!(verified.status.success(), "{verified:?}");
    assert!(isle(&["rm", "--all", "--wipe"]).status.success());

    // A daemon that cannot even begin says so.
    assert!(isle(&["stop"]).status.success());
    fill(&filler);
    let refused = isle(&["ls"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.success() || said.contains("NO_SPACE"), "{refused:?}");
    std::fs::remove_file(&filler).unwrap();
    assert!(isle(&["stop"]).status.success());
}

#[test]
fn on_a_full_host_disk_a_sandbox_sees_errors_and_destroying_it_makes_room() {
    let disk = require!(SmallDisk::mount());
    let isle = |arguments: &[&str]| {
        finish(
            disk.home
                .isle(arguments)
                .env_remove("ISLE_NO_AUTOSTART")
                .env("ISLE_POOL_SIZE", "0")
                .env("ISLE_DISK", "64M"),
        )
    };
    assert!(isle(&["exec", "other", "--", "sh", "-c", "echo kept > file"]).status.success());
    // More than the host's disk holds, within the sandbox's own limit.
    let written =
        isle(&["exec", "box", "--", "sh", "-c", "dd if=/dev/zero of=big bs=1M count=48 conv=fsync"]);
    assert!(!written.status.success(), "{written:?}");
    let refused = isle(&["exec", "third", "--", "true"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("NO_SPACE"), "{refused:?}");
    // Not even the intent can be written down, and still it goes.
    let removed = isle(&["rm", "box", "--wipe"]);
    assert!(removed.status.success(), "{removed:?}");
    for name in ["third", "box"] {
        assert!(isle(&["exec", name, "--", "true"]).status.success());
    }
    let kept = isle(&["exec", "other", "--", "cat", "file"]);
    assert_eq!(String::from_utf8_lossy(&kept.stdout), "kept\n", "{kept:?}");
    assert!(isle(&["audit", "--verify"]).status.success());
}

/// Takes all the room there is, in addition to what it took before.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    for size in [1 << 20, 4096, 1] {
        let chunk = vec![0; size];
        while file.write_all(&chunk).is_ok() {}
    }
}

/// A state directory on a disk of its own, gone with the test.
struct SmallDisk {
    home: Home,
}

impl SmallDisk {
    fn mount() -> Result<Self, Missing> {
        needs_root("mount a small disk")?;
        let home = Home::new();
        std::fs::create_dir(home.state_dir()).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=24m,mode=700", "tmpfs"])
            .arg(home.state_dir())
            .status()
            .is_ok_and(|status| status.success());
        if !mounted {
            return Err(Missing::on_host("a tmpfs cannot be mounted here"));
        }
        Ok(Self { home })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        std::fs::remove_file(self.home.state_dir().join("filler")).ok();
        for arguments in [&["rm", "--all", "--wipe"][..], &["stop"]] {
            finish(&mut self.home.isle(arguments));
        }
        crate::harness::run::note_identities(&self.home.state_dir());
        let unmounted = Command::new("umount").arg(self.home.state_dir()).status();
        let unmounted = unmounted.is_ok_and(|status| status.success());
        if !std::thread::panicking() {
            assert!(unmounted, "something still uses the disk");
        }
    }
}
