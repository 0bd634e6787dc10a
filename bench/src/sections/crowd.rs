//! Many idle sandboxes: the memory of one, that of the daemon for hundreds, and whether the last of a
//! thousand is as fast as the first. Nothing may be left at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;

use super::{Bench, TrueCall};
use crate::arms::{Arm, Pace, interleave};
use crate::daemon::Daemon;
use crate::error::Result;
use crate::http::{json_request, request};
use crate::processes;
use crate::report::{Report, Row, Target};
use crate::spawn::Prepared;
use crate::statistics::Samples;

const SECTION: &str = "crowd";
const MIB: f64 = 1024.0 * 1024.0;

impl Bench {
    pub(super) fn crowd(&self, report: &mut Report) -> Result<()> {
        let daemon = self.cold_daemon()?;
        let mut made = 0;
        create(&daemon, &mut made, 1)?;
        let agents = agents(&daemon)?;
        match agents.iter().map(|pid| processes::proportional(*pid)).sum::<std::io::Result<u64>>() {
            Ok(bytes) => report.add(
                Row::single(SECTION, "one idle sandbox, PSS with its agent", "MiB", mebibytes(bytes))
                    .target(Target::AtMost(1.5)),
            ),
            Err(error) => report.skip("PSS of an idle sandbox", error),
        }
        let traces = Traces::of(&agents)?;
        let kernel = processes::kernel()?;
        let (many, all) = self.choose((50, 50), (500, 500), (500, 1000));
        let mut creation = create(&daemon, &mut made, many)?;
        report.add(
            Row::single(
                SECTION,
                format!("daemon RSS with {many} idle sandboxes"),
                "MiB",
                mebibytes(processes::resident(daemon.pid())?),
            )
            .target(Target::AtMost(40.0)),
        );
        let per_sandbox = mebibytes(processes::kernel()?.saturating_sub(kernel)) / f64::from(many - 1);
        report.add(Row::single(SECTION, "kernel memory per idle sandbox", "MiB", per_sandbox));
        if all > many {
            creation = create(&daemon, &mut made, all)?;
        }
        report.add(Row::new(SECTION, format!("creating a named sandbox, up to {all}"), "ms", &creation));
        self.first_and_last(&daemon, all, report)?;
        let begin = Instant::now();
        daemon.destroy_all()?;
        let each = begin.elapsed().as_secs_f64() * 1e3 / f64::from(all);
        report.add(Row::single(SECTION, format!("destroying each of {all}"), "ms", each));
        let left = f64::from(u32::try_from(traces.count(&daemon)?).unwrap_or(u32::MAX));
        report.add(
            Row::single(SECTION, format!("left behind by {all}"), "things", left).target(Target::AtMost(0.0)),
        );
        daemon.stop()
    }

    fn first_and_last(&self, daemon: &Daemon, count: u32, report: &mut Report) -> Result<()> {
        let bare = Prepared::new(&["/bin/true"])?;
        let mut first = TrueCall::warm(daemon, &name(1))?;
        let mut last = TrueCall::warm(daemon, &name(count))?;
        let mut listing = daemon.connect()?;
        let list = request("GET", "/v1/sandboxes", &[], b"");
        let arms = vec![
            Arm::new("bare", Pace::Brief, || bare.time()),
            Arm::new("first", Pace::Brief, || first.time()),
            Arm::new("last", Pace::Brief, || last.time()),
            Arm::new("list", Pace::Brief, || {
                let begin = Instant::now();
                listing.exchange(&list)?.ok("GET /v1/sandboxes")?;
                Ok(begin.elapsed())
            }),
        ];
        let measured = interleave(arms, self.choose(10, 50, 100))?;
        let samples = |wanted: &str| {
            measured
                .iter()
                .find(|(name, _)| name == wanted)
                .map(|(_, samples)| samples.clone())
                .unwrap_or_default()
        };
        let (bare, first) = (samples("bare"), samples("first"));
        report.add(Row::new(SECTION, format!("bare fork+exec beside {count} sandboxes"), "ms", &bare));
        report.add(
            Row::new(SECTION, "warm exec in the first", "ms", &first)
                .against("bare fork+exec", bare.median()),
        );
        report.add(
            Row::new(SECTION, "warm exec in the last", "ms", &samples("last"))
                .against("warm exec in the first", first.median())
                .target(Target::AtMost(1.3)),
        );
        report.add(
            Row::new(SECTION, format!("listing {count} sandboxes"), "ms", &samples("list"))
                .against("bare fork+exec", bare.median())
                .target(Target::AtMost(30.0)),
        );
        Ok(())
    }
}

fn name(number: u32) -> String {
    format!("crowd-{number}")
}

/// Creates sandboxes until there are `wanted`; gives the milliseconds of each.
fn create(daemon: &Daemon, made: &mut u32, wanted: u32) -> Result<Samples> {
    let mut connection = daemon.connect()?;
    let mut samples = Samples::default();
    while *made < wanted {
        *made += 1;
        let wish = json_request("POST", "/v1/sandboxes", &json!({ "sandbox": name(*made) }));
        let begin = Instant::now();
        connection.exchange(&wish)?.ok("POST /v1/sandboxes")?;
        samples.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    Ok(samples)
}

/// The processes of all sandboxes: the descendants of the daemon's only child, the fork server.
pub(super) fn agents(daemon: &Daemon) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for fork_server in processes::children(daemon.pid())? {
        found.extend(processes::descendants(fork_server)?);
    }
    Ok(found)
}

/// Where sandboxes leave traces on the host besides their processes.
struct Traces {
    /// The directories that hold a cgroup per sandbox.
    cgroups: Vec<PathBuf>,
}

impl Traces {
    fn of(agents: &[u32]) -> Result<Self> {
        let mut cgroups = Vec::new();
        for agent in agents {
            for line in fs::read_to_string(format!("/proc/{agent}/cgroup"))?.lines() {
                let mut parts = line.splitn(3, ':').skip(1);
                let (Some(controller), Some(path)) = (parts.next(), parts.next()) else { continue };
                let controller = controller.trim_start_matches("name=");
                let directory = PathBuf::from(format!("/sys/fs/cgroup/{controller}{path}"));
                let is_instance = |path: &&Path| {
                    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("isle-"))
                };
                cgroups.extend(directory.ancestors().find(is_instance).map(Path::to_owned));
            }
        }
        cgroups.sort();
        cgroups.dedup();
        Ok(Self { cgroups })
    }

    /// Counts sandboxes the daemon knows, processes below its fork server, and cgroups.
    fn count(&self, daemon: &Daemon) -> Result<usize> {
        let cgroups: usize = self
            .cgroups
            .iter()
            .filter_map(|directory| fs::read_dir(directory).ok())
            .map(|entries| entries.flatten().filter(|entry| entry.path().is_dir()).count())
            .sum();
        Ok(daemon.sandboxes()?.len() + agents(daemon)?.len() + cgroups)
    }
}

pub(super) fn mebibytes(bytes: u64) -> f64 {
    // Exact below 2^32 MiB; more than that fits in no machine.
    f64::from(u32::try_from(bytes >> 10).unwrap_or(u32::MAX)) * 1024.0 / MIB
}
