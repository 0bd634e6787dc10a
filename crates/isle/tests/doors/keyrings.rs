//! The key of the vault in a keyring: made there, found there by later daemons, never made anew over
//! secrets, and out of reach of what runs in a sandbox.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use isle_core::keyring::Keyring as _;
use isle_linux::KernelKeyring;
use serde_json::json;

use crate::contexts::has;
use crate::harness::{TestDaemon, finish, skip};

fn set(daemon: &TestDaemon, name: &str) {
    daemon.post("/v1/secrets", json!({"name": name, "value": format!("value of {name}")}));
}

fn refused(daemon: &TestDaemon) -> String {
    let error = daemon.refused("POST", "/v1/secrets", Some(&json!({"name": "NEW", "value": "new"})));
    assert_eq!(error["code"], "VAULT_LOCKED", "{error}");
    error["message"].as_str().unwrap().to_owned()
}

/// What a daemon keeps in the keyring of this user, taken out at the end.
struct Kept(KernelKeyring);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.remove().ok();
    }
}

/// Reads the key as a program of the same user would: by its name.
fn thief(entry: &str) -> String {
    format!(
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nadd, ctl = {}\n\
         key = libc.syscall(ctl, 10, -4, b'user', {entry:?}.encode(), 0)\n\
         libc.syscall(ctl, 8, -4, -1, 0, 0)\nbuffer = ctypes.create_string_buffer(1024)\n\
         length = libc.syscall(ctl, 11, key, buffer, 1024, 0)\nprint(key, buffer.value.decode())",
        if cfg!(target_arch = "x86_64") { "248, 250" } else { "217, 219" }
    )
}

/// What the key of a state directory is called: after its identity, which no other one has.
pub(crate) fn vault_name(state_dir: &Path) -> String {
    crate::harness::instance(state_dir).strip_prefix("isle-").unwrap().to_owned()
}

#[test]
fn the_kernels_keyring_keeps_the_key_and_no_sandbox_reads_it() {
    if let Err(error) = KernelKeyring::new("probe").read() {
        skip!("the kernel has no keyrings for this process: {error}");
    }
    let settings = [("ISLE_VAULT_KEYRING", "kernel")];
    let mut daemon = TestDaemon::start_with(&settings);
    let vault = vault_name(&daemon.home().state_dir());
    let kept = Kept(KernelKeyring::new(&vault));
    set(&daemon, "KEY");
    let key = kept.0.read().unwrap().unwrap();
    assert!(!daemon.home().state_dir().join("vault.key").exists());
    daemon.terminate();
    daemon.try_launch_with(&settings).unwrap();
    set(&daemon, "OTHER");
    assert_eq!(daemon.get("/v1/secrets")["locked"], json!(null));
    if has(&daemon, "python3") {
        let script = thief(&format!("isle-vault:{vault}"));
        let outside = finish(Command::new("python3").args(["-c", &script]));
        assert!(String::from_utf8_lossy(&outside.stdout).contains(&**key), "the control: {outside:?}");
        daemon.post("/v1/sandboxes", json!({"sandbox": "weak", "tier": "process"}));
        for sandbox in ["box", "weak"] {
            let ran = daemon.exec(sandbox, json!({"argv": ["python3", "-c", script]}));
            assert!(ran["stdout"].as_str().unwrap().starts_with("-1"), "{sandbox}: {ran}");
            assert!(!ran.to_string().contains(&**key), "{sandbox}: {ran}");
        }
    }
    // As after a restart of the machine: nothing is made anew, and what was there opens again.
    kept.0.remove().unwrap();
    daemon.terminate();
    daemon.try_launch_with(&settings).unwrap();
    let message = refused(&daemon);
    assert!(message.contains("kernel keyring") && message.contains(&vault), "{message}");
    assert!(kept.0.read().unwrap().is_none(), "a fresh key opens nothing");
    kept.0.write(&"ab".repeat(32)).unwrap();
    assert!(refused(&daemon).contains("another key"));
    kept.0.write(&key).unwrap();
    set(&daemon, "NEW");
    assert_eq!(daemon.get("/v1/secrets")["secrets"].as_array().unwrap().len(), 3);
}

/// A keyring of a desktop that keeps its one key in a file, and can be locked.
fn desktop(directory: &Path) -> String {
    let program = directory.join("secret-tool");
    let script = "#!/bin/sh\nset -e\nhere=${0%/*}\nif [ -e \"$here/locked\" ]; then echo 'it is locked' >&2; exit 1; fi\n\
                  echo \"$@\" >> \"$here/asked\"\ncase $1 in\n\
                  lookup) [ -e \"$here/kept\" ] && cat \"$here/kept\";;\nstore) cat > \"$here/kept\";;\nesac\n";
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", directory.display(), std::env::var("PATH").unwrap())
}

#[test]
fn the_desktops_keyring_keeps_the_key_and_a_locked_one_locks_the_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let path = desktop(directory.path());
    let settings = [("ISLE_VAULT_KEYRING", "desktop"), ("PATH", path.as_str())];
    let mut daemon = TestDaemon::start_with(&settings);
    set(&daemon, "KEY");
    let kept = std::fs::read_to_string(directory.path().join("kept")).unwrap();
    assert_eq!(kept.len(), 64, "a key: {kept}");
    let asked = std::fs::read_to_string(directory.path().join("asked")).unwrap();
    let vault = daemon.home().state_dir();
    assert!(asked.contains(&format!("service isle vault {}", vault_name(&vault))), "{asked}");
    assert!(!asked.contains(&kept), "never an argument: {asked}");
    assert!(!vault.join("vault.key").exists());
    let restart = |daemon: &mut TestDaemon, settings: &[(&str, &str)]| {
        daemon.terminate();
        daemon.try_launch_with(settings).unwrap();
    };
    std::fs::write(directory.path().join("locked"), "").unwrap();
    restart(&mut daemon, &settings);
    assert!(refused(&daemon).contains("it is locked"));
    std::fs::remove_file(directory.path().join("locked")).unwrap();
    set(&daemon, "OTHER");
    // It has lost the key: none is made anew.
    std::fs::remove_file(directory.path().join("kept")).unwrap();
    restart(&mut daemon, &settings);
    assert!(refused(&daemon).contains("is not in the keyring of the desktop"));
    assert!(!directory.path().join("kept").exists());
    // Without the program it is locked, and whoever has the key elsewhere can give it.
    std::fs::remove_file(directory.path().join("secret-tool")).unwrap();
    refused(&daemon);
    restart(&mut daemon, &[("ISLE_VAULT_KEYRING", "desktop"), ("ISLE_VAULT_KEY", &kept)]);
    set(&daemon, "NEW");
}
