//! Two homes of one user, and environments that differ: a command reaches the daemon of its own state
//! directory, or none.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::{Home, TestDaemon, finish};

/// The program with nothing but a HOME, as an ordinary user: what a login without a session has.
fn in_home(root: &Path, home: &str, arguments: &[&str]) -> Output {
    let mut command = match rustix::process::geteuid().is_root() {
        true => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "54321", "--regid", "54321", "--clear-groups"]);
            command.arg(env!("CARGO_BIN_EXE_isle"));
            command
        }
        false => Command::new(env!("CARGO_BIN_EXE_isle")),
    };
    command.args(arguments).env_clear().current_dir("/");
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", root.join(home)).env("TMPDIR", root.join("tmp"));
    command.env("ISLE_WARM_DEFAULT", "false").env("ISLE_POOL_SIZE", "0");
    finish(&mut command)
}

#[test]
fn two_homes_without_a_runtime_directory_have_two_daemons() {
    let home = Home::new();
    let open = |path: &Path| {
        std::fs::create_dir_all(path).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(path, Some(54321), Some(54321)).unwrap();
        }
    };
    std::fs::set_permissions(home.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for name in ["a", "b", "tmp"] {
        open(&home.path().join(name));
    }
    let status = |name: &str| -> Value {
        let output = in_home(home.path(), name, &["status", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    };
    let (a, b) = (status("a"), status("b"));
    let of = |value: &Value, name: &str| value["daemon"]["state_dir"].as_str().unwrap().contains(name);
    let stopped: Vec<Output> = ["a", "b"].iter().map(|name| in_home(home.path(), name, &["stop"])).collect();
    assert!(of(&a, "/a/") && of(&b, "/b/"), "{a} {b}");
    assert!(stopped.iter().all(|output| output.status.success()), "{stopped:?}");
}

#[test]
fn a_socket_of_another_state_is_not_used() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "echo kept > file");
    let other = Home::new();
    for arguments in [&["rm", "--all", "--wipe"][..], &["ls"], &["run", "--", "true"], &["stop"]] {
        let socket = daemon.socket();
        let named = ["--json", "--socket", socket.to_str().unwrap()];
        let output = finish(&mut other.isle(&[&named, arguments].concat()));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("WRONG_DAEMON"), "{arguments:?}: {output:?}");
        assert!(said.contains(daemon.home().state_dir().to_str().unwrap()), "{said}");
    }
    assert_eq!(daemon.shell("box", "cat file"), "kept\n");
    // With the state directory the daemon has, its socket may be named.
    let mut right = daemon.isle(&["ls", "--json"]);
    assert!(finish(right.arg("--socket").arg(daemon.socket())).status.success());
    // The pipe of MCP is a connection like every other.
    let mut pipe = other.isle(&["mcp"]);
    let output = finish(pipe.arg("--socket").arg(daemon.socket()));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("WRONG_DAEMON"), "{output:?}");
}

#[test]
fn another_runtime_directory_leads_to_the_same_daemon_and_its_sandboxes() {
    let mut daemon = TestDaemon::start();
    daemon.shell("box", "echo kept > file; echo run >> count");
    let elsewhere = daemon.home().path().join("elsewhere");
    let isle = |arguments: &[&str]| {
        let mut command = daemon.isle_starting(arguments);
        finish(command.env("ISLE_RUNTIME_DIR", &elsewhere))
    };
    let status = isle(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap_or_else(|_| panic!("{status:?}"));
    assert_eq!(status["daemon"]["pid"], daemon.pid(), "{status}");
    let restarted = isle(&["restart", "--json"]);
    assert!(restarted.status.success(), "{restarted:?}");
    // The sandbox that was running is found by the daemon of the new environment.
    let shown = isle(&["exec", "box", "--", "cat", "file", "count"]);
    assert_eq!(String::from_utf8_lossy(&shown.stdout), "kept\nrun\n", "{shown:?}");
    let listed = isle(&["ls", "--json"]);
    assert!(!String::from_utf8_lossy(&listed.stdout).contains("failed"), "{listed:?}");
    // Back in the old environment the daemon is found again, and ended.
    let stopped = finish(&mut daemon.isle(&["stop", "--json"]));
    assert!(stopped.status.success(), "{stopped:?}");
    daemon.kill();
    daemon.launch();
    assert_eq!(daemon.shell("box", "cat file"), "kept\n");
}

#[test]
fn a_runtime_directory_with_a_long_path_works() {
    let home = Home::new();
    let long = home.path().join("a".repeat(120)).join("b".repeat(60));
    let isle = |arguments: &[&str]| {
        let mut command = home.isle(arguments);
        finish(command.env_remove("ISLE_NO_AUTOSTART").env("ISLE_RUNTIME_DIR", &long))
    };
    let status = isle(&["status", "--json"]);
    assert!(status.status.success(), "{status:?}");
    let stopped = isle(&["stop"]);
    assert!(stopped.status.success(), "{stopped:?}");
}
