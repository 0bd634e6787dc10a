//! TLS interception, compared with mitmproxy: requests over persistent connections to a server on loopback,
//! by the same client, which checks certificates.

use std::collections::HashMap;
use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::network::SECTION;
use super::{Bench, SANDBOX};
use crate::daemon::{Daemon, Setup};
use crate::error::{Error, Result};
use crate::http::json_request;
use crate::https_client::ClientOptions;
use crate::interrupt;
use crate::peers::mitmproxy::Mitmproxy;
use crate::report::{Report, Row, Target};
use crate::scratch::Scratch;
use crate::statistics::Samples;
use crate::tls::Server;

/// The names of the server inside and outside.
const NAME: &str = "bench.test";
const LOCAL: &str = "localhost";
const CONNECTIONS: usize = 8;

/// A path from the client to the server.
enum Way<'w> {
    Plain(String),
    Mitmproxy(&'w Mitmproxy),
    Gate(&'w Daemon),
}

impl Way<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::Plain(_) => "nobody opens it",
            Self::Mitmproxy(_) => "mitmproxy",
            Self::Gate(_) => "the gate",
        }
    }

    /// Requests per second.
    fn rate(&self, port: u16, milliseconds: u64) -> Result<f64> {
        interrupt::check()?;
        let wish = |host: &str, proxy: u16, authority: String| {
            let (host, connections) = (host.to_owned(), CONNECTIONS);
            ClientOptions { host, port, proxy, authority, connections, milliseconds }
        };
        let said = match self {
            Self::Plain(authority) => outside(&wish(LOCAL, 0, authority.clone()))?,
            Self::Mitmproxy(proxy) => {
                outside(&wish(LOCAL, proxy.port, proxy.authority().display().to_string()))?
            }
            Self::Gate(daemon) => inside(daemon, &wish(NAME, 0, "/etc/isle/ca.pem".into()))?,
        };
        said.trim().parse().map_err(|_| Error::answer("a client", said.as_bytes()))
    }
}

fn outside(wish: &ClientOptions) -> Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.args(wish.words()).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        return Err(Error::answer("a client", &output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn inside(daemon: &Daemon, wish: &ClientOptions) -> Result<String> {
    let argv: Vec<String> = ["/workspace/client".to_owned()].into_iter().chain(wish.words()).collect();
    let wish = json!({ "argv": argv, "wait": "150s", "timeout": "140s" });
    let path = format!("/v1/sandboxes/{SANDBOX}/exec");
    let body = daemon.connect()?.exchange(&json_request("POST", &path, &wish))?.ok("exec")?;
    let run: Value = serde_json::from_slice(&body).map_err(std::io::Error::other)?;
    if run["exit_code"] != 0 {
        return Err(Error::answer("a client in a sandbox", &body));
    }
    Ok(run["stdout"].as_str().unwrap_or_default().to_owned())
}

impl Bench {
    pub(super) fn tls_intercept(&self, report: &mut Report) -> Result<()> {
        let server = Server::start(&[NAME, LOCAL])?;
        let port = server.port;
        let scratch = Scratch::new("isle-bench-tls-")?;
        let authority = scratch.path().join("authority.pem");
        fs::write(&authority, &server.authority)?;
        let config =
            format!("network_ca_files = [{authority:?}]\n[network_hosts]\n\"{NAME}\" = \"127.0.0.1\"\n");
        let setup = Setup { pool_size: Some(0), default_sandbox: false, config: &config };
        let daemon = Daemon::start(&self.isle, setup)?;
        let grants =
            json!({ "hosts": [format!("https://{NAME}:{port}/* GET"), format!("127.0.0.1:{port}")] });
        let path = format!("/v1/sandboxes/{SANDBOX}/grants");
        daemon.connect()?.exchange(&json_request("POST", &path, &grants))?.ok("granting")?;
        bring_client(&daemon)?;

        let mitmproxy =
            Mitmproxy::start(&authority).map_err(|why| report.skip("opened TLS beside mitmproxy", why)).ok();
        let mut ways = vec![Way::Plain(authority.display().to_string()), Way::Gate(&daemon)];
        ways.extend(mitmproxy.as_ref().map(Way::Mitmproxy));
        let (rounds, milliseconds) = self.choose((2, 300), (7, 1500), (15, 3000));
        let mut rates: HashMap<&str, Samples> = HashMap::new();
        for round in 0..rounds {
            for turn in 0..ways.len() {
                let way = &ways[(turn + round) % ways.len()];
                rates.entry(way.name()).or_default().push(way.rate(port, milliseconds)?);
            }
        }
        let base = rates.get("mitmproxy").map(Samples::median);
        for way in &ways {
            let row = Row::new(
                SECTION,
                format!("requests over TLS, {CONNECTIONS} connections, {}", way.name()),
                "/s",
                rates.get(way.name()).unwrap_or(&Samples::default()),
            );
            report.add(match (way, base) {
                (Way::Gate(_), Some(base)) => row.against("mitmproxy", base).target(Target::AtLeast(5.0)),
                _ => row,
            });
        }
        drop(ways);
        daemon.stop()
    }
}

/// Copies this program into the sandbox.
fn bring_client(daemon: &Daemon) -> Result<()> {
    let mut command = Command::new(daemon.isle());
    command.arg("cp").arg(std::env::current_exe()?).arg(format!("{SANDBOX}:client"));
    let output = command.env_clear().envs(daemon.variables()).stdin(Stdio::null()).output()?;
    if output.status.success() { Ok(()) } else { Err(Error::answer("isle cp", &output.stderr)) }
}
