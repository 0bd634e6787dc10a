//! What is counted and measured, for whoever operates the daemon. Counting is a short lock and an
//! addition; everything that can be asked for is asked for when somebody looks.

mod gather;
mod histogram;
mod network;
mod process;
mod text;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

pub use isle_api::ops::stats::{Bucket, Metric, MetricType, Sample};

use crate::run::{Finish, Run};
use crate::sandbox::Sandbox;
use isle_api::shapes::LimitName;
use isle_core::Code;
use isle_core::backend::{BackendName, Lifetime, Tier};

pub(crate) use gather::MetricSources;
use histogram::{Buckets, Histogram};
pub use text::{TEXT_TYPE, text};

/// What runs take, in seconds.
const RUN_TIMES: Buckets = &[
    0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0,
];
/// What making a sandbox takes, in seconds.
const CREATE_TIMES: Buckets =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Where a sandbox is from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Origin {
    tier: Tier,
    backend: BackendName,
    lifetime: &'static str,
}

impl Origin {
    fn of(sandbox: &Sandbox) -> Self {
        let lifetime = match sandbox.spec.lifetime {
            Lifetime::Named => "named",
            Lifetime::OneShot => "one_shot",
        };
        Self { tier: sandbox.spec.tier, backend: sandbox.backend.name(), lifetime }
    }
}

/// What became of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SandboxFate {
    /// It was removed.
    Destroyed,
    /// It died.
    Lost,
    /// It could not be made.
    Failed,
}

/// Everything that is counted.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    counted: Mutex<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    /// By state, kind, and where.
    runs: BTreeMap<(&'static str, &'static str, Origin), u64>,
    /// Of which nothing but the state is known any more.
    lost_runs: u64,
    run_times: BTreeMap<Origin, Histogram>,
    create_times: BTreeMap<Origin, Histogram>,
    fates: BTreeMap<(SandboxFate, Origin), u64>,
    limits: BTreeMap<String, u64>,
    /// Refused system calls.
    violations: u64,
    /// By the code of the refusal.
    denials: BTreeMap<&'static str, u64>,
    refusals: u64,
    cpu: Duration,
    output_bytes: [u64; 2],
    /// Read from and written to disks.
    io_bytes: [u64; 2],
}

impl Metrics {
    /// A run has ended.
    pub(crate) fn run_ended(&self, run: &Run, finish: &Finish) {
        let origin = Origin::of(&run.sandbox);
        let (stdout, stderr) = run.totals();
        let mut counted = crate::lock(&self.counted);
        *counted.runs.entry((finish.state.as_str(), run.kind.as_str(), origin.clone())).or_default() += 1;
        let took = Duration::from_millis(finish.duration_ms);
        counted.run_times.entry(origin).or_insert_with(|| Histogram::new(RUN_TIMES)).add(took);
        for hit in &finish.limits_hit {
            *counted.limits.entry(limit_name(hit.limit)).or_default() += 1;
        }
        counted.violations += finish.violations.iter().map(|violation| violation.count).sum::<u64>();
        counted.cpu += Duration::from_micros(finish.cpu_us.unwrap_or(0));
        let moved = finish.transferred.unwrap_or_default();
        counted.io_bytes[0] += moved.read_bytes;
        counted.io_bytes[1] += moved.written_bytes;
        counted.output_bytes[0] += stdout;
        counted.output_bytes[1] += stderr;
    }

    /// A run of an earlier engine whose end nobody saw.
    pub(crate) fn run_lost(&self) {
        crate::lock(&self.counted).lost_runs += 1;
    }

    /// A sandbox was made, after so long.
    pub(crate) fn created(&self, sandbox: &Sandbox, took: Duration) {
        let mut counted = crate::lock(&self.counted);
        let times = counted.create_times.entry(Origin::of(sandbox));
        times.or_insert_with(|| Histogram::new(CREATE_TIMES)).add(took);
    }

    /// Something else became of a sandbox.
    pub(crate) fn became(&self, sandbox: &Sandbox, fate: SandboxFate) {
        *crate::lock(&self.counted).fates.entry((fate, Origin::of(sandbox))).or_default() += 1;
    }

    /// A rule forbade something.
    pub(crate) fn denied(&self, code: Code) {
        *crate::lock(&self.counted).denials.entry(code.as_str()).or_default() += 1;
    }

    /// There was no room for a call.
    pub(crate) fn refused(&self) {
        crate::lock(&self.counted).refusals += 1;
    }
}

fn limit_name(limit: LimitName) -> String {
    serde_json::to_value(limit).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}
