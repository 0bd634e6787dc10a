//! Files of a daemon that somebody else removes or empties while it runs, or before its next start.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Home, TestDaemon, finish, needs_root, require, until};

fn pid_of(daemon: &TestDaemon) -> u64 {
    let status = daemon.succeeds(&["status", "--json"]);
    serde_json::from_str::<Value>(&status).unwrap()["daemon"]["pid"].as_u64().unwrap()
}

fn remove(path: &Path) {
    fs::remove_file(path).unwrap();
}

fn empty(path: &Path) {
    fs::write(path, "").unwrap();
}

/// What is done to a running daemon.
type Attack = Box<dyn Fn(&TestDaemon)>;

const ATTACKS: [fn(&Path); 2] = [remove, empty];

#[test]
fn a_running_daemon_restores_its_identity_and_its_lock() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "echo kept > file");
    for name in ["instance", "isle.lock"] {
        for attack in ATTACKS {
            let path = daemon.home().state_dir().join(name);
            let before = fs::read_to_string(&path).unwrap();
            attack(&path);
            // At once, and after it was restored.
            assert_eq!(pid_of(&daemon), u64::from(daemon.pid()), "{name}");
            until("the file is restored", || fs::read_to_string(&path).is_ok_and(|now| now == before));
            assert_eq!(pid_of(&daemon), u64::from(daemon.pid()), "{name}");
        }
    }
    // The lock is one again: a second daemon is refused by it.
    let second = finish(&mut daemon.isle(&["serve", "--json"]));
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("ALREADY_EXISTS"), "{second:?}");
    assert_eq!(daemon.shell("box", "cat file"), "kept\n");
}

#[test]
fn a_removed_socket_or_runtime_directory_is_restored() {
    let daemon = TestDaemon::start();
    let socket = daemon.socket();
    remove(&socket);
    assert_eq!(pid_of(&daemon), u64::from(daemon.pid()), "found again");
    // What another process left there is no socket of ours; one that nobody answers on is replaced.
    remove(&socket);
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert_eq!(pid_of(&daemon), u64::from(daemon.pid()), "a dead socket");
    // At once, because the daemon may be making something in it.
    let away = daemon.home().path().join("away");
    fs::rename(daemon.home().runtime_dir(), &away).unwrap();
    remove_tree(&away);
    assert_eq!(pid_of(&daemon), u64::from(daemon.pid()), "the whole directory");
    until("sandboxes have their directory", || {
        let mut entries = fs::read_dir(daemon.home().runtime_dir()).unwrap().flatten();
        entries.any(|entry| entry.path().join("sandboxes").is_dir())
    });
    assert_eq!(daemon.shell("fresh", "echo works"), "works\n");
}

#[test]
fn stop_reaches_a_daemon_that_lost_its_socket_or_its_lock() {
    let mut daemon = TestDaemon::start();
    daemon.shell("box", "echo kept > file");
    let lock = daemon.home().state_dir().join("isle.lock");
    let mut attacks: Vec<Attack> = Vec::new();
    for attack in ATTACKS {
        let lock = lock.clone();
        attacks.push(Box::new(move |_| attack(&lock)));
    }
    // A socket that cannot be restored, because something that is not ours is in its place.
    attacks.push(Box::new(|daemon| {
        let socket = daemon.socket();
        remove(&socket);
        fs::write(&socket, "in the way").unwrap();
    }));
    for (number, attack) in attacks.iter().enumerate() {
        attack(&daemon);
        let stopped = finish(daemon.isle(&["stop", "--json"]).env("ISLE_TEST_PATIENCE_MS", "20000"));
        let answer: Value = serde_json::from_slice(&stopped.stdout).unwrap_or_else(|_| panic!("{stopped:?}"));
        assert_eq!(answer["stopped"], daemon.pid(), "{number}: {stopped:?}");
        if let Ok(socket) = fs::read_dir(daemon.home().runtime_dir()) {
            for entry in socket.flatten().filter(|entry| entry.path().extension() == Some("sock".as_ref())) {
                remove(&entry.path());
            }
        }
        daemon.kill();
        daemon.launch();
        assert_eq!(daemon.shell("box", "cat file"), "kept\n", "{number}");
    }
}

#[test]
fn a_lost_identity_is_restored_at_the_next_start() {
    let mut daemon = TestDaemon::start();
    daemon.shell("box", "echo kept > file");
    let run = daemon.exec("box", json!({ "command": "sleep 900", "wait": "0s" }));
    let instance = daemon.home().state_dir().join("instance");
    let before = fs::read_to_string(&instance).unwrap();
    for attack in ATTACKS {
        daemon.kill();
        attack(&instance);
        daemon.launch();
        assert_eq!(fs::read_to_string(&instance).unwrap(), before);
        assert_eq!(daemon.shell("box", "cat file"), "kept\n");
        let status = daemon.get("/v1/inspect?sandbox=box");
        assert!(status.to_string().contains(run["run_id"].as_str().unwrap()), "the run is there: {status}");
    }
}

/// Processes that sleep for so many seconds.
fn sleepers(seconds: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok());
    lines.filter(|line| line.starts_with(&format!("sleep\0{seconds}\0"))).collect()
}

fn remove_tree(path: &Path) {
    let removed = finish(std::process::Command::new("rm").arg("-rf").arg(path));
    assert!(!path.exists(), "{removed:?}");
}

#[test]
fn a_daemon_whose_state_directory_is_deleted_stops() {
    require!(needs_root("delete files of the ids of sandboxes"));
    let home = Home::new();
    let mut command = home.isle(&["serve"]);
    command
        .env("ISLE_POOL_SIZE", "0")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    until("it answers", || finish(&mut home.isle(&["ls"])).status.success());
    let marker = format!("{}", 700_000 + std::process::id());
    let run = json!({ "sandbox": "box", "command": format!("sleep {marker}"), "wait": "0s" }).to_string();
    let started = finish(&mut home.isle(&["call", "exec", &run]));
    assert!(started.status.success(), "{started:?}");
    until("it runs", || !sleepers(&marker).is_empty());
    fs::rename(home.state_dir(), home.path().join("away")).unwrap();
    remove_tree(&home.path().join("away"));
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(said.contains("state directory was removed"), "{said}");
    assert_eq!(sleepers(&marker), Vec::<String>::new(), "no sandbox is left that no daemon knows");
    // The next command has a daemon of its own, and not two.
    let listed = finish(home.isle(&["ls"]).env_remove("ISLE_NO_AUTOSTART").env("ISLE_POOL_SIZE", "0"));
    assert!(listed.status.success(), "{listed:?}");
    assert!(finish(&mut home.isle(&["stop"])).status.success());
}

#[test]
fn a_shared_state_directory_is_refused_with_the_command_that_helps() {
    let home = Home::new();
    let state = home.state_dir();
    fs::create_dir_all(&state).unwrap();
    fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    let isle = |arguments: &[&str]| {
        finish(home.isle(arguments).env_remove("ISLE_NO_AUTOSTART").env("ISLE_POOL_SIZE", "0"))
    };
    let refused = isle(&["ls", "--json"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    let fix = format!("chmod 700 {}", state.display());
    assert!(!refused.status.success() && said.contains("FORBIDDEN") && said.contains(&fix), "{refused:?}");
    assert!(std::process::Command::new("chmod").arg("700").arg(&state).status().unwrap().success());
    assert!(isle(&["ls"]).status.success());
    assert!(isle(&["stop"]).status.success());
}
