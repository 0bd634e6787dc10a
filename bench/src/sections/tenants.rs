//! Many clients and several tenants: the cost of admission without a queue, the latency of an exec with two
//! hundred concurrent clients, and whether a tenant that sends ten times as much gets more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Bench, SANDBOX, TrueCall};
use crate::daemon::Daemon;
use crate::error::{Error, Result};
use crate::http::{contains, json_request, request};
use crate::report::{Report, Row, Target};
use crate::statistics::Samples;

const SECTION: &str = "tenants";
/// Commands at once, for each core, and calls that wait.
const PER_CORE: usize = 2;

/// What clients saw.
#[derive(Debug, Default)]
struct Seen {
    milliseconds: Vec<f64>,
    busy: u64,
    other: u64,
}

impl Bench {
    pub(super) fn tenants(&self, report: &mut Report) -> Result<()> {
        let daemon = self.cold_daemon()?;
        let mut quiet = Samples::default();
        let mut call = TrueCall::warm(&daemon, SANDBOX)?;
        for _ in 0..self.choose(50, 300, 500) {
            quiet.push(call.time()?.as_secs_f64() * 1e3);
        }
        report.add(Row::new(SECTION, "warm exec, one client", "ms", &quiet));
        let admission = queued(&daemon, "wait_seconds")? * 1e3 / queued(&daemon, "admitted")?;
        report.add(
            Row::single(SECTION, "its admission", "ms", admission)
                .against("warm exec, one client", quiet.median())
                .target(Target::AtMost(0.1)),
        );

        let cores = thread::available_parallelism().map_or(2, usize::from);
        let limits = json!({ "max_running": PER_CORE * cores, "max_waiting": PER_CORE * cores });
        daemon.connect()?.exchange(&json_request("POST", "/v1/limits", &limits))?.ok("POST /v1/limits")?;
        let span = self.choose(Duration::from_secs(2), Duration::from_secs(6), Duration::from_secs(15));

        let seen = clients(&daemon, &[("default", 200)], span)?.remove(0);
        let mut sorted = seen.milliseconds.clone();
        sorted.sort_by(f64::total_cmp);
        let p99 = sorted.get(sorted.len().saturating_sub(1) * 99 / 100).copied().unwrap_or(f64::INFINITY);
        let all: Samples = sorted.iter().copied().collect();
        report.add(Row::new(SECTION, "admitted exec, 200 clients at once", "ms", &all));
        report.add(
            Row::single(SECTION, "the same, p99", "ms", p99)
                .against("warm exec, one client", quiet.median())
                .target(Target::AtMost(20.0)),
        );
        report.add(Row::single(SECTION, "told to come again", "calls", count(seen.busy)));
        report.add(
            Row::single(SECTION, "errors other than that", "calls", count(seen.other))
                .target(Target::AtMost(0.0)),
        );

        // No call is rejected with BUSY here: only the order of the queue matters.
        let limits = json!({ "max_waiting": 200 });
        daemon.connect()?.exchange(&json_request("POST", "/v1/limits", &limits))?.ok("POST /v1/limits")?;
        for namespace in ["loud", "quiet"] {
            let wish = json_request("POST", "/v1/tokens", &json!({ "namespace": namespace }));
            daemon.connect()?.exchange(&wish)?.ok("POST /v1/tokens")?;
        }
        let shares = clients(&daemon, &[("loud", 100), ("quiet", 10)], span)?;
        let (loud, quiet) = (shares[0].milliseconds.len(), shares[1].milliseconds.len());
        let other = shares[0].other + shares[1].other;
        let share = 100.0 * count(quiet as u64) / count((loud + quiet).max(1) as u64);
        report.add(
            Row::single(SECTION, "share of a tenant beside one that sends ten times as much", "%", share)
                .target(Target::AtLeast(40.0)),
        );
        report.add(
            Row::single(SECTION, "errors other than back-pressure", "calls", count(other))
                .target(Target::AtMost(0.0)),
        );
        for namespace in ["loud", "quiet"] {
            let path = format!("/v1/sandboxes/{SANDBOX}");
            let headers = [("isle-namespace", namespace), ("content-type", "application/json")];
            let gone = request("DELETE", &path, &headers, br#"{"wipe":true}"#);
            daemon.connect()?.exchange(&gone)?.ok("destroy")?;
        }
        daemon.stop()
    }
}

/// The daemon's admission counters.
fn queued(daemon: &Daemon, what: &str) -> Result<f64> {
    let text = daemon.connect()?.exchange(&request("GET", "/metrics", &[], b""))?.ok("GET /metrics")?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let start = format!("isle_queue_{what}_total ");
    let value = text.lines().find_map(|line| line.strip_prefix(&start)?.trim().parse().ok());
    value.ok_or_else(|| Error::answer("GET /metrics", text.as_bytes()))
}

fn count(number: u64) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Clients of several namespaces that call in a loop for a duration.
fn clients(daemon: &Daemon, groups: &[(&str, usize)], span: Duration) -> Result<Vec<Seen>> {
    let body = json!({ "argv": ["/bin/true"] }).to_string();
    let requests: Vec<Vec<u8>> = groups
        .iter()
        .map(|(namespace, _)| {
            let headers = [("content-type", "application/json"), ("isle-namespace", *namespace)];
            request("POST", &format!("/v1/sandboxes/{SANDBOX}/exec"), &headers, body.as_bytes())
        })
        .collect();
    // Each client has its sandbox before the measurement.
    for request in &requests {
        daemon.connect()?.exchange(request)?.ok("exec")?;
    }
    let until = Instant::now() + span;
    let failed = AtomicU64::new(0);
    let seen = thread::scope(|scope| {
        let mut groups_seen = Vec::new();
        for ((_, many), request) in groups.iter().zip(&requests) {
            let handles: Vec<_> =
                (0..*many).map(|_| scope.spawn(|| client(daemon, request, until))).collect();
            groups_seen.push(handles);
        }
        groups_seen
            .into_iter()
            .map(|handles| {
                let mut all = Seen::default();
                for handle in handles {
                    match handle.join() {
                        Ok(Ok(seen)) => {
                            all.milliseconds.extend(seen.milliseconds);
                            all.busy += seen.busy;
                            all.other += seen.other;
                        }
                        Ok(Err(_)) | Err(_) => drop(failed.fetch_add(1, Ordering::Relaxed)),
                    }
                }
                all
            })
            .collect::<Vec<_>>()
    });
    match failed.load(Ordering::Relaxed) {
        0 => Ok(seen),
        number => Err(Error::answer("clients that lost their connection", number.to_string().as_bytes())),
    }
}

fn client(daemon: &Daemon, request: &[u8], until: Instant) -> Result<Seen> {
    let mut connection = daemon.connect()?;
    let mut seen = Seen::default();
    while Instant::now() < until {
        let begin = Instant::now();
        let answer = connection.exchange(request)?;
        let later = answer.header("retry-after").and_then(|seconds| seconds.parse().ok());
        if let Some(seconds) = later.filter(|_| answer.status == 429 && contains(&answer.body, "\"BUSY\"")) {
            seen.busy += 1;
            thread::sleep(Duration::from_secs(seconds).min(until.saturating_duration_since(Instant::now())));
        } else if contains(&answer.body, r#""exit_code":0"#) {
            seen.milliseconds.push(begin.elapsed().as_secs_f64() * 1e3);
        } else {
            seen.other += 1;
        }
    }
    Ok(seen)
}
