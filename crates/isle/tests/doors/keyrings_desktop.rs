//! The key of the vault in a real keyring of a desktop: gnome-keyring on a message bus of its own, unlocked
//! by a password as a login would, without a screen.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::json;
use tempfile::TempDir;

use crate::harness::{Missing, TestDaemon, finish, require, until};

const NEEDED: [&str; 4] = ["dbus-daemon", "gnome-keyring-daemon", "secret-tool", "setpriv"];

/// A bus nobody else is on, which starts nobody by itself: no window asks for a password.
const BUS: &str = r#"<busconfig><type>session</type><listen>unix:path=SOCKET</listen>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>"#;

/// A program that ends with its session, and with the test at the latest.
struct Part(Child);

impl Drop for Part {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn part(name: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", name]);
    command
}

/// A desktop session as far as a keyring needs one.
struct Session {
    // Ended before what it speaks through, and that before its files.
    keyring: Option<Part>,
    _bus: Part,
    directory: TempDir,
    address: String,
}

impl Session {
    fn begin() -> Result<Self, Missing> {
        let there = |program: &&str| {
            finish(Command::new("sh").args(["-c", &format!("command -v {program}")])).status.success()
        };
        if let Some(missing) = NEEDED.iter().find(|program| !there(program)) {
            return Err(Missing::on_host(format!("this host has no {missing}")));
        }
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("bus.conf");
        let socket = directory.path().join("bus");
        std::fs::write(&config, BUS.replace("SOCKET", socket.to_str().unwrap())).unwrap();
        let mut bus = part("dbus-daemon")
            .arg(format!("--config-file={}", config.display()))
            .args(["--nofork", "--nopidfile", "--print-address=1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(bus.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let address = address.trim().to_owned();
        Ok(Self { keyring: None, _bus: Part(bus), directory, address })
    }

    fn dress<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let at = |name: &str| {
            let path = self.directory.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        command
            .env("DBUS_SESSION_BUS_ADDRESS", &self.address)
            .env("HOME", at("home"))
            .env("XDG_DATA_HOME", at("data"))
            .env("XDG_RUNTIME_DIR", at("runtime"))
            .env_remove("DISPLAY")
            .env_remove("WAYLAND_DISPLAY")
    }

    /// Logs in: the keyring is opened, and made when there is none, if the password is the one it has.
    fn log_in(&mut self, password: &str) {
        let mut command = part("gnome-keyring-daemon");
        command.args(["--foreground", "--unlock", "--components=secrets"]);
        let quiet = self.dress(&mut command).stdout(Stdio::null()).stderr(Stdio::null());
        let mut keyring = quiet.stdin(Stdio::piped()).spawn().unwrap();
        keyring.stdin.take().unwrap().write_all(password.as_bytes()).unwrap();
        self.keyring = Some(Part(keyring));
        until("the keyring answers", || self.owner().contains("true"));
    }

    /// Logs out: what is in the keyring stays on the disk, closed.
    fn log_out(&mut self) {
        self.keyring = None;
        until("the keyring is gone", || self.owner().contains("false"));
    }

    /// Whether somebody is the keyring of this session.
    fn owner(&self) -> String {
        let ask = ["--session", "--print-reply", "--dest=org.freedesktop.DBus", "/org/freedesktop/DBus"];
        let name = ["org.freedesktop.DBus.NameHasOwner", "string:org.freedesktop.secrets"];
        let answer = finish(self.dress(Command::new("dbus-send").args(ask).args(name)));
        String::from_utf8_lossy(&answer.stdout).into_owned()
    }

    /// What the keyring has for a vault.
    fn kept(&self, vault: &Path) -> String {
        let name = super::keyrings::vault_name(vault);
        let ask = ["lookup", "service", "isle", "vault", &name];
        let answer = finish(self.dress(Command::new("secret-tool").args(ask)));
        String::from_utf8_lossy(&answer.stdout).into_owned()
    }
}

fn refused(daemon: &TestDaemon) -> String {
    let error = daemon.refused("POST", "/v1/secrets", Some(&json!({"name": "NEW", "value": "new"})));
    assert_eq!(error["code"], "VAULT_LOCKED", "{error}");
    error["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_real_keyring_of_a_desktop_keeps_the_key_over_logins_and_locks_the_secrets_with_it() {
    let mut session = require!(Session::begin());
    session.log_in("first password");
    let address = session.address.clone();
    let settings = [("ISLE_VAULT_KEYRING", "desktop"), ("DBUS_SESSION_BUS_ADDRESS", address.as_str())];
    let mut daemon = TestDaemon::start_with(&settings);
    let vault = daemon.home().state_dir();
    let set = |daemon: &TestDaemon, name: &str| {
        daemon.post(
            "/v1/secrets",
            json!({"name": name, "value": format!("value of {name}"), "hosts": ["a.test"]}),
        );
    };
    set(&daemon, "KEY");
    let key = session.kept(&vault);
    assert!(key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
    assert!(!vault.join("vault.key").exists());
    // It is the key: whoever has it opens the vault without the keyring.
    daemon.terminate();
    daemon.try_launch_with(&[("ISLE_VAULT_KEYRING", "none"), ("ISLE_VAULT_KEY", &key)]).unwrap();
    set(&daemon, "OTHER");
    // Nobody logged in, then somebody with another password: locked, and nothing is made anew.
    for password in [None, Some("another password")] {
        session.log_out();
        if let Some(password) = password {
            session.log_in(password);
        }
        daemon.terminate();
        daemon.try_launch().unwrap();
        let message = refused(&daemon);
        assert!(message.contains("keyring of the desktop"), "{password:?}: {message}");
        if password.is_none() {
            session.log_in("first password");
            assert_eq!(session.kept(&vault), key, "nothing was changed");
        }
    }
    // The next login opens it again, for the daemon that runs.
    session.log_out();
    session.log_in("first password");
    set(&daemon, "NEW");
    assert_eq!(session.kept(&vault), key);
    assert_eq!(daemon.get("/v1/secrets")["secrets"].as_array().unwrap().len(), 3);
}
