//! What is counted, as Prometheus reads it and as JSON; and the dashboard that shows it, checked against a
//! real Prometheus.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::harness::http::{self, unix_raw};
use crate::harness::{TestDaemon, Watchdog, require, until, until_some};
use crate::mcp::Client;
use crate::tenants::{Caller, listening, tenant};

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path)
}

/// The value of a metric whose labels are at least these; 0 when there is none.
pub(crate) fn value(metrics: &Value, name: &str, labels: &[(&str, &str)]) -> f64 {
    let all = metrics["metrics"].as_array().unwrap();
    let metric = all.iter().find(|metric| metric["name"] == name);
    let samples = metric.unwrap_or_else(|| panic!("no {name}"))["samples"].as_array().unwrap();
    samples
        .iter()
        .filter(|sample| labels.iter().all(|(name, value)| sample["labels"][name] == *value))
        .map(|sample| sample["value"].as_f64().unwrap())
        .sum()
}

fn operator(daemon: &TestDaemon, address: &str) -> Caller {
    let token = std::fs::read_to_string(daemon.home().state_dir().join("token")).unwrap();
    Caller { address: address.to_owned(), token: token.trim().to_owned() }
}

/// Expressions of the dashboard, as Prometheus would be asked.
fn expressions() -> Vec<String> {
    let text = std::fs::read_to_string(deploy("grafana/isle.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets
        .map(|target| target["expr"].as_str().unwrap())
        .map(|text| text.replace("$instance", ".*").replace("$__rate_interval", "1m"))
        .collect()
}

/// Names of metrics in an expression.
fn names_in(expression: &str) -> Vec<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("isle_") || word.starts_with("process_"));
    let plain = |name: &str| {
        let cut = ["_bucket", "_sum", "_count"].iter().find_map(|ending| name.strip_suffix(ending));
        cut.unwrap_or(name).to_owned()
    };
    names.map(plain).collect()
}

#[test]
fn what_happens_is_counted_by_its_end_tier_and_limit() {
    let daemon = TestDaemon::start_with(&[("ISLE_DENY_PATTERNS", "forbidden_word")]);
    daemon.shell("box", "echo hello");
    daemon.exec("box", json!({"command": "exit 3"}));
    daemon.exec("box", json!({"command": "sleep 60", "timeout": "100ms"}));
    daemon.post("/v1/runs", json!({"command": "true"}));
    let big = json!({"command": "exec head -c 2M /dev/zero > big", "limits": {"file_size": "1M"}});
    daemon.exec("box", big);
    daemon.refused("POST", "/v1/sandboxes/box/exec", Some(&json!({"command": "forbidden_word"})));
    let stats = daemon.get("/v1/stats");
    let named = ("lifetime", "named");
    assert_eq!(value(&stats, "isle_runs_total", &[("state", "completed"), named]), 1.0, "{stats}");
    assert_eq!(value(&stats, "isle_runs_total", &[("state", "failed")]), 1.0);
    assert_eq!(value(&stats, "isle_runs_total", &[("state", "timed_out"), ("kind", "exec")]), 1.0);
    assert_eq!(value(&stats, "isle_runs_total", &[("tier", "container")]), 5.0);
    assert_eq!(value(&stats, "isle_limits_hit_total", &[("limit", "file_size")]), 1.0);
    assert_eq!(value(&stats, "isle_denials_total", &[("code", "POLICY_DENIED")]), 1.0);
    assert_eq!(value(&stats, "isle_sandboxes", &[("state", "running"), named]), 1.0);
    assert_eq!(value(&stats, "isle_events_total", &[("kind", "run_started")]), 5.0);
    assert_eq!(value(&stats, "isle_run_output_bytes_total", &[("stream", "stdout")]), 6.0);
    assert!(value(&stats, "process_resident_memory_bytes", &[]) > 1e6);
    let times = daemon.get("/v1/stats?name=run_duration");
    assert_eq!(times["metrics"].as_array().unwrap().len(), 1, "{times}");
    let samples = times["metrics"][0]["samples"].as_array().unwrap();
    assert_eq!(samples.iter().map(|sample| sample["count"].as_u64().unwrap()).sum::<u64>(), 5, "{times}");
    daemon.http("DELETE", "/v1/sandboxes/box", None);
    until("removed sandboxes are counted", || {
        value(&daemon.get("/v1/stats"), "isle_sandboxes_destroyed_total", &[]) >= 2.0
    });
}

#[test]
fn metrics_are_text_for_prometheus_and_json_for_who_prefers_it_and_the_operators_alone() {
    let (daemon, address) = listening(&[]);
    daemon.shell("box", "true");
    let answer = daemon.http("GET", "/metrics", None);
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = answer.text();
    assert!(text.contains("# TYPE isle_runs_total counter\nisle_runs_total{"), "{text}");
    assert!(
        text.contains("isle_run_duration_seconds_bucket{") && text.contains("le=\"+Inf\"} 1\n"),
        "{text}"
    );
    let answer = unix_raw(&daemon.socket(), "GET /metrics", &["Accept: application/json"], b"");
    assert_eq!(value(&answer.json(), "isle_runs_total", &[("state", "completed")]), 1.0);
    let answer = operator(&daemon, &address).ask("GET", "/metrics", None);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let stranger = http::tcp(&address, "GET /metrics", &[&format!("Host: {address}")], b"");
    assert_eq!((stranger.status, stranger.code().as_str()), (401, "UNAUTHENTICATED"));
    let one = tenant(&daemon, &address, "one");
    for path in ["/metrics", "/v1/stats"] {
        assert_eq!(one.ask("GET", path, None).code(), "FORBIDDEN", "{path}");
    }
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "admin"]);
    let stats = client.call("stats", json!({"name": "isle_runs"}))["structuredContent"].clone();
    assert_eq!(value(&stats, "isle_runs_total", &[]), 1.0, "{stats}");
    let stats: Value = serde_json::from_str(&daemon.succeeds(&["call", "stats", "{}"])).unwrap();
    assert_eq!(value(&stats, "isle_runs_total", &[]), 1.0, "{stats}");
}

#[test]
fn every_metric_of_the_dashboard_is_in_a_scrape() {
    let daemon = TestDaemon::start();
    let text = daemon.http("GET", "/metrics", None).text();
    let told: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let shown: BTreeSet<String> = expressions().iter().flat_map(|text| names_in(text)).collect();
    assert!(shown.len() > 20, "{shown:?}");
    for name in &shown {
        assert!(told.contains(name.as_str()), "{name} is on the dashboard and in no scrape");
    }
    let unseen: Vec<_> = told.iter().filter(|name| !shown.contains(**name)).collect();
    assert!(unseen.is_empty(), "not on the dashboard: {unseen:?}");
}

/// A Prometheus of its own; ended when dropped.
struct Prometheus {
    child: Child,
    address: String,
}

impl Prometheus {
    fn start(config: &Path, data: &Path) -> Self {
        until_some("Prometheus has a port of its own", || {
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
            let mut child = Command::new("prometheus")
                .arg(format!("--config.file={}", config.display()))
                .arg(format!("--storage.tsdb.path={}", data.display()))
                .arg(format!("--web.listen-address={address}"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            // Somebody else may have taken the port meanwhile: then it ends by itself.
            loop {
                if child.try_wait().unwrap().is_some() {
                    return None;
                }
                if std::net::TcpStream::connect(&address).is_ok() {
                    return Some(Self { child, address });
                }
                std::thread::yield_now();
            }
        })
    }

    fn ask(&self, expression: &str) -> Value {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let host = format!("Host: {}", self.address);
        let line = format!("GET /api/v1/query?query={encoded}");
        let answer = http::tcp(&self.address, &line, &[&host], b"");
        if answer.status == 503 { Value::Null } else { answer.json() }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn a_real_prometheus_scrapes_the_daemon_with_the_configuration_we_ship() {
    let there = Command::new("prometheus").arg("--version").output().is_ok();
    require!(there, "prometheus is not installed; tests/setup.sh names the package");
    let (daemon, address) = listening(&[]);
    daemon.shell("box", "true");
    let directory = tempfile::tempdir().unwrap();
    let shipped = std::fs::read_to_string(deploy("prometheus.yml")).unwrap();
    let token = daemon.home().state_dir().join("token");
    let config = shipped
        .replace("/etc/prometheus/isle-token", token.to_str().unwrap())
        .replace("127.0.0.1:7777\"]", &format!("{address}\"]"))
        .replace("scrape_interval: 15s", "scrape_interval: 1s");
    let path = directory.path().join("prometheus.yml");
    std::fs::write(&path, config).unwrap();
    let prometheus = Prometheus::start(&path, &directory.path().join("data"));
    let _watch = Watchdog::over(&prometheus.child);
    until("a scrape has succeeded", || {
        let up = prometheus.ask("isle_runs_total{job=\"isle\",state=\"completed\"}");
        up["data"]["result"][0]["value"][1] == "1"
    });
    assert_eq!(prometheus.ask("up{job=\"isle\"}")["data"]["result"][0]["value"][1], "1");
    for expression in expressions() {
        assert_eq!(prometheus.ask(&expression)["status"], "success", "{expression}");
    }
    if Command::new("promtool").arg("--version").output().is_ok() {
        let text = directory.path().join("metrics");
        std::fs::write(&text, daemon.http("GET", "/metrics", None).body).unwrap();
        let check = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(std::fs::File::open(&text).unwrap())
            .output()
            .unwrap();
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    }
}
