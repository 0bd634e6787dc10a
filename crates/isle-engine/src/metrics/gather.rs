//! All metrics as they are now: what was counted, and what is looked at when somebody asks.

use std::collections::BTreeMap;
use std::time::Instant;

use super::histogram::Histogram;
use super::process::Process;
use super::{Metric, MetricType, Metrics, Origin, Sample, SandboxFate};
use crate::admission::queue::{Admission, Load};
use crate::events::Events;
use crate::network::{Network, Ports};
use crate::run::LiveRuns;
use crate::sandbox::{Fleet, SandboxState, Sandboxes};
use crate::secrets::Vault;
use crate::webhooks::Webhooks;

pub(super) type Labels = BTreeMap<&'static str, String>;

impl Origin {
    fn labels(&self) -> Labels {
        [
            ("tier", self.tier.as_str().to_owned()),
            ("backend", self.backend.to_string()),
            ("lifetime", self.lifetime.to_owned()),
        ]
        .into()
    }
}

fn with(mut labels: Labels, name: &'static str, value: &str) -> Labels {
    labels.insert(name, value.to_owned());
    labels
}

pub(super) fn labels<const COUNT: usize>(pairs: [(&'static str, &str); COUNT]) -> Labels {
    pairs.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}

pub(super) fn one(labels: Labels, value: f64) -> Sample {
    Sample { labels, value, count: None, buckets: Vec::new() }
}

fn times(origin: &Origin, histogram: &Histogram) -> Sample {
    Sample {
        labels: origin.labels(),
        value: histogram.sum(),
        count: Some(histogram.count()),
        buckets: histogram.cumulative(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts and bytes are far below what a float counts exactly")]
pub(super) fn number(value: u64) -> f64 {
    value as f64
}

fn size(value: usize) -> f64 {
    number(u64::try_from(value).unwrap_or(u64::MAX))
}

pub(super) fn counter(name: &'static str, help: &'static str, samples: Vec<Sample>) -> Metric {
    Metric { name, kind: MetricType::Counter, help, samples }
}

pub(super) fn gauge(name: &'static str, help: &'static str, samples: Vec<Sample>) -> Metric {
    Metric { name, kind: MetricType::Gauge, help, samples }
}

pub(super) fn histogram(name: &'static str, help: &'static str, samples: Vec<Sample>) -> Metric {
    Metric { name, kind: MetricType::Histogram, help, samples }
}

/// Where metrics come from that are asked for when somebody looks.
pub(crate) struct MetricSources<'a> {
    pub(crate) metrics: &'a Metrics,
    pub(crate) events: &'a Events,
    pub(crate) admission: &'a Admission,
    pub(crate) fleet: &'a Fleet,
    pub(crate) runs: &'a LiveRuns,
    pub(crate) vault: &'a Vault,
    pub(crate) network: &'a Network,
    pub(crate) ports: &'a Ports,
    pub(crate) sandboxes: &'a Sandboxes,
    pub(crate) webhooks: &'a Webhooks,
    pub(crate) started: Instant,
}

impl MetricSources<'_> {
    /// All metrics, as they are now.
    pub(crate) fn gather(&self) -> Vec<Metric> {
        let mut all = self.present();
        all.extend(self.counted());
        all.extend(self.gates());
        all.extend(self.ports());
        all.extend(self.sent());
        all.extend(process());
        all
    }

    /// What there is at this moment.
    fn present(&self) -> Vec<Metric> {
        let mut sandboxes: BTreeMap<(&'static str, Origin), u64> = BTreeMap::new();
        let mut memory: BTreeMap<Origin, u64> = BTreeMap::new();
        for sandbox in self.fleet.all() {
            let (state, origin) = (sandbox.state(), Origin::of(&sandbox));
            *sandboxes.entry((state.as_str(), origin.clone())).or_default() += 1;
            if matches!(state, SandboxState::Running | SandboxState::Paused | SandboxState::Unresponsive) {
                *memory.entry(origin).or_default() += sandbox.spec.limits.memory.0;
            }
        }
        let Load { running, waiting, admitted, .. } = self.admission.load();
        let version = labels([("version", env!("CARGO_PKG_VERSION"))]);
        vec![
            gauge("isle_build_info", "The version that runs.", vec![one(version, 1.0)]),
            gauge(
                "isle_uptime_seconds",
                "How long the daemon runs.",
                vec![one(Labels::new(), self.started.elapsed().as_secs_f64())],
            ),
            gauge(
                "isle_sandboxes",
                "Sandboxes that exist, by state and where they are from.",
                sandboxes
                    .into_iter()
                    .map(|((state, origin), count)| one(with(origin.labels(), "state", state), number(count)))
                    .collect(),
            ),
            gauge(
                "isle_sandboxes_memory_limit_bytes",
                "Memory that living sandboxes may use together.",
                memory.into_iter().map(|(origin, bytes)| one(origin.labels(), number(bytes))).collect(),
            ),
            gauge(
                "isle_runs_active",
                "Commands going on.",
                vec![one(Labels::new(), size(self.runs.running()))],
            ),
            gauge(
                "isle_queue_running",
                "Commands that hold a place.",
                vec![one(Labels::new(), size(running))],
            ),
            gauge(
                "isle_queue_waiting",
                "Calls that wait for a place.",
                vec![one(Labels::new(), size(waiting))],
            ),
            counter(
                "isle_queue_admitted_total",
                "Calls that had a place.",
                vec![one(Labels::new(), number(admitted))],
            ),
            counter(
                "isle_queue_wait_seconds_total",
                "Time calls spent until they had a place, or had none.",
                vec![one(Labels::new(), self.admission.waited().as_secs_f64())],
            ),
            counter(
                "isle_events_total",
                "Events told, by kind.",
                self.events
                    .counts()
                    .map(|(kind, count)| one(labels([("kind", kind.as_str())]), number(count)))
                    .collect(),
            ),
        ]
    }

    /// What was counted since the start.
    fn counted(&self) -> Vec<Metric> {
        let counted = crate::lock(&self.metrics.counted);
        let mut runs: Vec<Sample> = counted
            .runs
            .iter()
            .map(|((state, kind, origin), count)| {
                one(with(with(origin.labels(), "state", state), "kind", kind), number(*count))
            })
            .collect();
        if counted.lost_runs > 0 {
            let whence = labels([
                ("state", "lost"),
                ("kind", "unknown"),
                ("tier", "unknown"),
                ("backend", "unknown"),
                ("lifetime", "unknown"),
            ]);
            runs.push(one(whence, number(counted.lost_runs)));
        }
        let fate = |wanted: SandboxFate| {
            let same = counted.fates.iter().filter(move |((fate, _), _)| *fate == wanted);
            same.map(|((_, origin), count)| one(origin.labels(), number(*count))).collect()
        };
        let [stdout, stderr] = counted.output_bytes;
        let [read, written] = counted.io_bytes;
        vec![
            counter("isle_runs_total", "Runs that ended, by state (timed_out among them) and kind.", runs),
            histogram(
                "isle_run_duration_seconds",
                "How long runs took.",
                counted.run_times.iter().map(|(origin, each)| times(origin, each)).collect(),
            ),
            histogram(
                "isle_sandbox_create_duration_seconds",
                "How long it took to make a sandbox, as its caller saw it.",
                counted.create_times.iter().map(|(origin, each)| times(origin, each)).collect(),
            ),
            counter(
                "isle_sandbox_create_failures_total",
                "Sandboxes that could not be made.",
                fate(SandboxFate::Failed),
            ),
            counter(
                "isle_sandboxes_destroyed_total",
                "Sandboxes that were removed.",
                fate(SandboxFate::Destroyed),
            ),
            counter(
                "isle_sweeps_total",
                "Looks for sandboxes whose time is up.",
                vec![one(Labels::new(), number(self.sandboxes.swept().passes))],
            ),
            counter("isle_sandboxes_lost_total", "Sandboxes that died.", fate(SandboxFate::Lost)),
            counter(
                "isle_limits_hit_total",
                "Limits that runs met, by limit.",
                counted
                    .limits
                    .iter()
                    .map(|(limit, count)| one(labels([("limit", limit.as_str())]), number(*count)))
                    .collect(),
            ),
            counter(
                "isle_denials_total",
                "Calls a rule forbade, by code.",
                counted
                    .denials
                    .iter()
                    .map(|(code, count)| one(labels([("code", code)]), number(*count)))
                    .collect(),
            ),
            counter(
                "isle_violations_total",
                "System calls that were refused to programs in sandboxes.",
                vec![one(Labels::new(), number(counted.violations))],
            ),
            counter(
                "isle_queue_refused_total",
                "Calls refused because too many waited.",
                vec![one(Labels::new(), number(counted.refusals))],
            ),
            counter(
                "isle_run_cpu_seconds_total",
                "CPU time of runs that ended.",
                vec![one(Labels::new(), counted.cpu.as_secs_f64())],
            ),
            counter(
                "isle_run_io_bytes_total",
                "What runs that ended moved from and to disks.",
                vec![
                    one(labels([("direction", "read")]), number(read)),
                    one(labels([("direction", "written")]), number(written)),
                ],
            ),
            counter(
                "isle_run_output_bytes_total",
                "What runs that ended wrote.",
                vec![
                    one(labels([("stream", "stdout")]), number(stdout)),
                    one(labels([("stream", "stderr")]), number(stderr)),
                ],
            ),
        ]
    }
}

fn process() -> Vec<Metric> {
    let Some(process) = Process::look() else { return Vec::new() };
    let plain = |value: f64| vec![one(Labels::new(), value)];
    let mut all = vec![
        counter("process_cpu_seconds_total", "CPU time of the daemon.", plain(process.cpu_seconds)),
        gauge("process_start_time_seconds", "When the daemon started.", plain(process.start_seconds)),
        gauge("process_virtual_memory_bytes", "Address space of the daemon.", plain(process.virtual_bytes)),
        gauge("process_resident_memory_bytes", "Memory of the daemon.", plain(process.resident_bytes)),
        gauge("process_threads", "Threads of the daemon.", plain(process.threads)),
    ];
    all.extend(
        process.open_fds.map(|count| gauge("process_open_fds", "Descriptors the daemon has.", plain(count))),
    );
    all.extend(
        process.max_fds.map(|count| gauge("process_max_fds", "Descriptors it may have.", plain(count))),
    );
    all
}
