//! slirp4netns, the user-space network that rootless containers usually have. It serves a separate network
//! namespace for the measurement.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::peers;

/// Where slirp4netns shows the loopback of the host.
pub(crate) const HOST: &str = "10.0.2.2";
/// How long it may take to set an interface up.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Slirp {
    holder: Child,
    network: Child,
}

impl Slirp {
    pub(crate) fn start() -> Result<Self, String> {
        let program = peers::find("slirp4netns")?;
        let said = |error: std::io::Error| error.to_string();
        // Says that it is in its namespace, and stays until its input ends.
        let mut holder = Command::new("unshare");
        holder.args(["--net", "--", "sh", "-c", "echo there; read -r line"]);
        let mut holder = holder
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(said)?;
        let mut word = String::new();
        if let Some(out) = holder.stdout.take() {
            BufReader::new(out).read_line(&mut word).map_err(said)?;
        }
        let mut network = Command::new(program);
        network.args(["--configure", "--mtu=65520", &holder.id().to_string(), "tap0"]);
        network.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let network = match network.spawn() {
            Ok(network) => network,
            Err(error) => {
                holder.kill().ok();
                holder.wait().ok();
                return Err(error.to_string());
            }
        };
        let slirp = Self { holder, network };
        let until = Instant::now() + PATIENCE;
        while !slirp.is_up() {
            if Instant::now() > until {
                return Err("installed, but it does not work here".to_owned());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(slirp)
    }

    fn is_up(&self) -> bool {
        let routes = std::fs::read_to_string(format!("/proc/{}/net/route", self.holder.id()));
        routes.is_ok_and(|routes| routes.lines().any(|line| line.starts_with("tap0\t00000000")))
    }

    /// A command that runs in its namespace.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("--net").arg("--target").arg(self.holder.id().to_string()).arg("--");
        command
    }
}

impl Drop for Slirp {
    fn drop(&mut self) {
        for child in [&mut self.network, &mut self.holder] {
            child.kill().ok();
            child.wait().ok();
        }
    }
}
