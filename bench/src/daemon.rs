//! A daemon with state and sockets in a temporary directory, stopped and cleaned up when it is no longer
//! needed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::http::{Connection, json_request, request};
use crate::scratch::Scratch;

/// How a daemon is set up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup<'s> {
    /// Fresh sandboxes kept ready.
    pub(crate) pool_size: Option<usize>,
    /// Whether the sandbox `default` is created at the start.
    pub(crate) default_sandbox: bool,
    /// Its configuration file, in place of the user's.
    pub(crate) config: &'s str,
}

#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    isle: PathBuf,
    socket: PathBuf,
    address: String,
    directory: Arc<Scratch>,
}

impl Daemon {
    /// Starts one and waits until its socket answers.
    pub(crate) fn start(isle: &Path, setup: Setup<'_>) -> Result<Self> {
        let directory = Arc::new(Scratch::new("isle-bench-")?);
        for name in ["state", "run", "home"] {
            fs::DirBuilder::new().mode(0o700).create(directory.path().join(name))?;
        }
        Self::start_in(isle, setup, directory)
    }

    /// The same with the state of an earlier one.
    pub(crate) fn start_in(isle: &Path, setup: Setup<'_>, directory: Arc<Scratch>) -> Result<Self> {
        let root = directory.path();
        fs::write(root.join("config.toml"), setup.config)?;
        let socket = root.join("run/bench.sock");
        let mut command = Command::new(isle);
        // Ctrl-C is handled by the benchmark; the daemon is stopped properly.
        command.process_group(0);
        command.args(["serve", "--listen", "127.0.0.1:0"]).stderr(Stdio::piped()).current_dir(root);
        command.env_clear().envs(variables(root)).env("ISLE_LOG", "warn");
        if let Some(size) = setup.pool_size {
            command.env("ISLE_POOL_SIZE", size.to_string());
        }
        // Often enough to be measured, at almost no cost.
        command.env("ISLE_SWEEP_INTERVAL", "1s");
        command.env("ISLE_WARM_DEFAULT", setup.default_sandbox.to_string());
        command.args(["--config".as_ref(), root.join("config.toml").as_os_str()]);
        let mut child = command.spawn()?;
        let address = child.stderr.take().and_then(|stderr| listening_address(BufReader::new(stderr)));
        let Some(address) = address else {
            child.kill().ok();
            child.wait()?;
            return Err(Error::NotReady { isle: isle.display().to_string() });
        };
        Ok(Self { child, isle: isle.to_owned(), socket, address, directory })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn isle(&self) -> &Path {
        &self.isle
    }

    /// Where it listens on TCP.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn token(&self) -> Result<String> {
        Ok(fs::read_to_string(self.directory.path().join("state/token"))?.trim().to_owned())
    }

    /// The environment of a client of this daemon.
    pub(crate) fn variables(&self) -> Vec<(&'static str, PathBuf)> {
        variables(self.directory.path())
    }

    pub(crate) fn connect(&self) -> Result<Connection> {
        Ok(Connection::unix(&self.socket)?)
    }

    /// Names of its sandboxes.
    pub(crate) fn sandboxes(&self) -> Result<Vec<String>> {
        let body =
            self.connect()?.exchange(&request("GET", "/v1/sandboxes", &[], b""))?.ok("GET /v1/sandboxes")?;
        let list: Value = serde_json::from_slice(&body).map_err(std::io::Error::other)?;
        let sandboxes = list["sandboxes"].as_array().cloned().unwrap_or_default();
        Ok(sandboxes.iter().filter_map(|sandbox| sandbox["name"].as_str().map(str::to_owned)).collect())
    }

    /// Destroys every sandbox with its workspace.
    pub(crate) fn destroy_all(&self) -> Result<()> {
        let mut connection = self.connect()?;
        for name in self.sandboxes()? {
            let gone = json_request("DELETE", &format!("/v1/sandboxes/{name}"), &json!({ "wipe": true }));
            connection.exchange(&gone)?.ok("destroy")?;
        }
        Ok(())
    }

    /// Stops it and removes its directories.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.destroy_all()?;
        self.shut_down()
    }

    /// Stops it and keeps its directories.
    pub(crate) fn leave(mut self) -> Result<Arc<Scratch>> {
        let directory = Arc::clone(&self.directory);
        self.shut_down()?;
        Ok(directory)
    }

    fn shut_down(&mut self) -> Result<()> {
        let shutdown = json_request("POST", "/v1/shutdown", &json!({}));
        self.connect()?.exchange(&shutdown)?.ok("POST /v1/shutdown")?;
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(Error::Failed { command: "isle serve".into(), status: status.to_string() })
        }
    }
}

impl Drop for Daemon {
    /// After a failure: kills it if it cannot be stopped properly.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Err(error) = self.destroy_all() {
            eprintln!("isle-bench: sandboxes may be left behind: {error}");
        }
        if let Ok(pid) = self.child.id().try_into() {
            // SAFETY: the pid is that of a child that was not waited for yet.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
        self.child.wait().ok();
    }
}

fn variables(root: &Path) -> Vec<(&'static str, PathBuf)> {
    vec![
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()),
        ("HOME", root.join("home")),
        ("ISLE_STATE_DIR", root.join("state")),
        ("ISLE_RUNTIME_DIR", root.join("run")),
        ("ISLE_SOCKET", root.join("run/bench.sock")),
        ("ISLE_NO_AUTOSTART", "1".into()),
    ]
}

/// Waits for the daemon's start message, which ends with its TCP address. Other output is passed on.
fn listening_address(words: impl BufRead + Send + 'static) -> Option<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut greeted = false;
        for line in words.lines().map_while(|line| line.ok()) {
            match line.split_once("http://") {
                Some((_, rest)) if !greeted => {
                    greeted = true;
                    sender.send(rest.split([',', ' ']).next().unwrap_or_default().to_owned()).ok();
                }
                _ if !greeted && line.starts_with("isle ") => {}
                _ => eprintln!("{line}"),
            }
        }
    });
    receiver.recv().ok()
}
