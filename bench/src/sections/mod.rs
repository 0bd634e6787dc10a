//! The parts of the benchmark, one file each, and what they share.

mod code;
mod crowd;
mod files;
mod latency;
mod lifecycle;
mod network;
mod output;
mod tenants;
mod throughput;
mod tls_intercept;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::daemon::{Daemon, Setup};
use crate::error::{Error, Result};
use crate::http::{Connection, contains, json_request};
use crate::report::Report;
use crate::{Effort, Section};

/// The sandbox that warm execs go to.
const SANDBOX: &str = "bench";

/// What is measured and how thoroughly.
#[derive(Debug)]
pub(crate) struct Bench {
    isle: PathBuf,
    effort: Effort,
}

impl Bench {
    pub(crate) fn new(isle: &Path, effort: Effort) -> Result<Self> {
        let isle = isle.canonicalize().map_err(|error| {
            std::io::Error::new(
                error.kind(),
                format!("{}: {error}; give the path of an isle binary", isle.display()),
            )
        })?;
        Ok(Self { isle, effort })
    }

    pub(crate) fn run(&self, section: Section, report: &mut Report) -> Result<()> {
        eprintln!("isle-bench: {section:?} …");
        match section {
            Section::Latency => self.latency(report),
            Section::Throughput => self.throughput(report),
            Section::Crowd => self.crowd(report),
            Section::Files => self.files(report),
            Section::Output => self.output(report),
            Section::Code => self.code(report),
            Section::Tenants => self.tenants(report),
            Section::Lifecycle => self.lifecycle(report),
            Section::Network => self.network(report),
        }
    }

    /// A daemon as users have it.
    fn daemon(&self) -> Result<Daemon> {
        Daemon::start(&self.isle, Setup { pool_size: None, default_sandbox: true, config: "" })
    }

    /// A daemon that makes nothing before it is asked to.
    fn cold_daemon(&self) -> Result<Daemon> {
        Daemon::start(&self.isle, Setup { pool_size: Some(0), default_sandbox: false, config: "" })
    }

    fn choose<T>(&self, quick: T, usual: T, full: T) -> T {
        match self.effort {
            Effort::Quick => quick,
            Effort::Usual => usual,
            Effort::Full => full,
        }
    }
}

/// A call that runs `/bin/true`, over a kept connection.
struct TrueCall {
    connection: Connection,
    request: Vec<u8>,
}

impl TrueCall {
    /// In a sandbox that lives.
    fn warm(daemon: &Daemon, sandbox: &str) -> Result<Self> {
        Self::to(daemon, &format!("/v1/sandboxes/{sandbox}/exec"))
    }

    /// In a fresh sandbox that is gone afterwards.
    fn fresh(daemon: &Daemon) -> Result<Self> {
        Self::to(daemon, "/v1/runs")
    }

    fn to(daemon: &Daemon, path: &str) -> Result<Self> {
        let request = json_request("POST", path, &json!({ "argv": ["/bin/true"] }));
        Ok(Self { connection: daemon.connect()?, request })
    }

    fn time(&mut self) -> Result<Duration> {
        let begin = Instant::now();
        let answer = self.connection.exchange(&self.request)?;
        let took = begin.elapsed();
        if contains(&answer.body, r#""exit_code":0"#) {
            Ok(took)
        } else {
            Err(Error::answer("running /bin/true", &answer.body))
        }
    }
}
