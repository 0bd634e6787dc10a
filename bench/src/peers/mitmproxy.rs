//! mitmproxy, a TLS intercepting proxy. Started for the measurement, on loopback, with its own CA in a
//! temporary directory.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::peers;
use crate::scratch::Scratch;

/// How long it may take to listen: it is written in Python, and makes a key first.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Mitmproxy {
    child: Child,
    pub(crate) port: u16,
    directory: Scratch,
}

impl Mitmproxy {
    /// One that trusts the CA in the file.
    pub(crate) fn start(authority: &Path) -> Result<Self, String> {
        let program = peers::find("mitmdump")?;
        let said = |error: std::io::Error| error.to_string();
        let directory = Scratch::new("isle-bench-mitmproxy-").map_err(said)?;
        let free =
            TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).map_err(said)?;
        let mut command = Command::new(program);
        // Quiet: logging each request is not part of the measurement.
        command
            .args(["--quiet", "--listen-host", "127.0.0.1", "--listen-port"])
            .arg(free.port().to_string())
            .arg("--set")
            .arg(format!("confdir={}", directory.path().display()))
            .arg("--set")
            .arg(format!("ssl_verify_upstream_trusted_ca={}", authority.display()))
            .env("HOME", directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().map_err(said)?;
        let proxy = Self { child, port: free.port(), directory };
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", proxy.port)).is_err() || !proxy.authority().exists() {
            if Instant::now() > until {
                return Err("installed, but it does not listen".to_owned());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(proxy)
    }

    /// The CA that its clients have to trust.
    pub(crate) fn authority(&self) -> PathBuf {
        self.directory.path().join("mitmproxy-ca-cert.pem")
    }
}

impl Drop for Mitmproxy {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
