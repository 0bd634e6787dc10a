//! tinyproxy, a plain proxy for HTTP and CONNECT: what programs are usually sent through when they are
//! not to reach everything. Started for the time of the measurement, on loopback.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::peers;
use crate::scratch::Scratch;

/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Proxy {
    child: Child,
    pub(crate) port: u16,
    _directory: Scratch,
}

impl Proxy {
    pub(crate) fn start() -> Result<Self, String> {
        let program = peers::find("tinyproxy")?;
        let said = |error: std::io::Error| error.to_string();
        let directory = Scratch::new("isle-bench-proxy-").map_err(said)?;
        let free =
            TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).map_err(said)?;
        let settings = directory.path().join("settings");
        let text = format!(
            "Port {}\nListen 127.0.0.1\nAllow 127.0.0.1\nMaxClients 1200\nTimeout 60\nLogLevel Critical\n",
            free.port()
        );
        fs::write(&settings, text).map_err(said)?;
        let mut command = Command::new(program);
        command
            .arg("-d")
            .arg("-c")
            .arg(&settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().map_err(said)?;
        let proxy = Self { child, port: free.port(), _directory: directory };
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", proxy.port)).is_err() {
            if Instant::now() > until {
                return Err("installed, but it does not listen".to_owned());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(proxy)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
