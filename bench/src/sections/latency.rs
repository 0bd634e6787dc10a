//! Latency of one call: bare, in a warm sandbox, in a fresh one, through MCP, and with the peers, all
//! interleaved in one run.

use super::{Bench, SANDBOX, TrueCall};
use crate::arms::{Arm, Pace, interleave};
use crate::error::Result;
use crate::mcp::{HttpSession, StdioSession};
use crate::peers::bubblewrap;
use crate::peers::docker::Docker;
use crate::peers::oci::Runtime;
use crate::peers::podman;
use crate::peers::rootfs::Rootfs;
use crate::report::{Report, Row, Target};
use crate::spawn::Prepared;
use crate::statistics::Samples;

const SECTION: &str = "latency";
const BARE: &str = "bare fork+exec";
const BWRAP: &str = "bwrap command, hardened";
const WARM: &str = "isle, warm exec through the socket";
const STDIO: &str = "isle, warm exec over MCP stdio";
const HTTP: &str = "isle, warm exec over MCP HTTP";
const POOLED: &str = "isle, fresh sandbox through the socket";
const COLD: &str = "isle, fresh sandbox, pool empty";
const COMMAND: &str = "isle run command";

/// The comparisons and their targets.
const PROMISES: &[(&str, &str, Option<Target>)] = &[
    (WARM, BARE, Some(Target::AtMost(1.6))),
    (STDIO, WARM, Some(Target::AtMost(1.4))),
    (HTTP, WARM, Some(Target::AtMost(1.8))),
    (POOLED, BWRAP, Some(Target::AtMost(0.4))),
    (COLD, BWRAP, Some(Target::AtMost(1.0))),
    (COMMAND, BWRAP, Some(Target::AtMost(1.0))),
    (BWRAP, BARE, None),
];

impl Bench {
    pub(super) fn latency(&self, report: &mut Report) -> Result<()> {
        let daemon = self.daemon()?;
        let cold_daemon = self.cold_daemon()?;
        let bare = Prepared::new(&["/bin/true"])?;
        let mut command =
            Prepared::new(&[self.isle.as_os_str(), "run".as_ref(), "--".as_ref(), "/bin/true".as_ref()])?;
        for (name, value) in daemon.variables() {
            command = command.variable(name, value)?;
        }
        let mut warm = TrueCall::warm(&daemon, SANDBOX)?;
        let mut pooled = TrueCall::fresh(&daemon)?;
        let mut cold = TrueCall::fresh(&cold_daemon)?;
        let mut stdio = StdioSession::open(&daemon, SANDBOX)?;
        let mut http = HttpSession::open(&daemon, SANDBOX)?;
        let peers = Peers::prepare(report);
        let mut arms = vec![
            Arm::new(BARE, Pace::Brief, || bare.time()),
            Arm::new(WARM, Pace::Brief, || warm.time()),
            Arm::new(STDIO, Pace::Brief, || stdio.time_exec()),
            Arm::new(HTTP, Pace::Brief, || http.time_exec()),
            Arm::new(POOLED, Pace::Whole, || pooled.time()),
            Arm::new(COLD, Pace::Whole, || cold.time()),
            Arm::new(COMMAND, Pace::Whole, || command.time()),
        ];
        arms.extend(peers.arms()?);
        let measured = interleave(arms, self.choose(40, 300, 600))?;
        for (name, samples) in &measured {
            report.add(row(name, samples, &measured));
        }
        drop((stdio, http, peers));
        daemon.stop()?;
        cold_daemon.stop()
    }
}

fn row(name: &str, samples: &Samples, measured: &[(String, Samples)]) -> Row {
    let median =
        |wanted: &str| measured.iter().find(|(name, _)| name == wanted).map(|(_, samples)| samples.median());
    let row = Row::new(SECTION, name, "ms", samples);
    let promise = PROMISES.iter().find(|(promised, ..)| *promised == name);
    // A peer's exec stands beside ours, a peer's fresh container beside bubblewrap's.
    let (base, target) = match promise {
        Some((_, base, target)) => (*base, *target),
        None if name == BARE => return row,
        None => (BARE, None),
    };
    match (median(base), target) {
        (Some(base_median), Some(target)) => row.against(base, base_median).target(target),
        (Some(base_median), None) => row.against(base, base_median),
        (None, _) => row,
    }
}

/// The available peers.
#[derive(Default)]
struct Peers {
    bubblewrap: Option<Prepared>,
    runtimes: Vec<(&'static str, Runtime)>,
    podman: Option<Prepared>,
    docker: Option<Docker>,
    /// Removed after those who use it.
    _rootfs: Option<Rootfs>,
}

impl Peers {
    fn prepare(report: &mut Report) -> Self {
        let mut peers = Self::default();
        match bubblewrap::command() {
            Ok(command) => peers.bubblewrap = Some(command),
            Err(reason) => report.skip("bwrap", reason),
        }
        let rootfs = match Rootfs::build() {
            Ok(rootfs) => rootfs,
            Err(reason) => {
                report.skip("runc, crun, runsc, podman, docker", reason);
                return peers;
            }
        };
        for name in ["runc", "crun", "runsc"] {
            match Runtime::prepare(name, &rootfs) {
                Ok(runtime) => peers.runtimes.push((name, runtime)),
                Err(reason) => report.skip(name, reason),
            }
        }
        match podman::run(&rootfs) {
            Ok(command) => peers.podman = Some(command),
            Err(reason) => report.skip("podman", reason),
        }
        match Docker::prepare(&rootfs) {
            Ok(docker) => peers.docker = Some(docker),
            Err(reason) => report.skip("docker", reason),
        }
        peers._rootfs = Some(rootfs);
        peers
    }

    fn arms(&self) -> Result<Vec<Arm<'_>>> {
        let mut arms = Vec::new();
        if let Some(command) = &self.bubblewrap {
            arms.push(Arm::new(BWRAP, Pace::Whole, || command.time()));
        }
        for (name, runtime) in &self.runtimes {
            arms.push(Arm::new(format!("{name} exec command"), Pace::Slow, || runtime.exec.time()));
            arms.push(Arm::new(format!("{name} run command"), Pace::Slow, || runtime.run.time()));
        }
        if let Some(command) = &self.podman {
            arms.push(Arm::new("podman run command", Pace::Slow, || command.time()));
        }
        if let Some(docker) = &self.docker {
            let run = docker.run()?;
            arms.push(Arm::new("docker, exec through its API", Pace::Slow, || docker.time_exec()));
            arms.push(Arm::new("docker run command", Pace::Slow, move || run.time()));
        }
        Ok(arms)
    }
}
