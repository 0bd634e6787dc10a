//! Takes a snapshot of all sandboxes and computes rates since the previous one.

use std::collections::HashMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use isle_client::{Client, Result};
use isle_core::values::ByteSize;
use serde_json::{Value, json};

use super::super::fields;

/// State of a sandbox; `None` is unknown.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) tier: String,
    /// Percent of one CPU.
    pub(super) cpu_percent: Option<f64>,
    pub(super) memory: Option<u64>,
    pub(super) memory_limit: Option<u64>,
    pub(super) pids: Option<u64>,
    pub(super) pids_limit: Option<u64>,
    /// Bytes read from and written to disks per second.
    pub(super) read_rate: Option<u64>,
    pub(super) write_rate: Option<u64>,
    pub(super) disk: Option<u64>,
    pub(super) disk_limit: Option<u64>,
    pub(super) running: u64,
    pub(super) runs: u64,
    pub(super) uptime_seconds: u64,
    /// Time until it is removed.
    pub(super) left_seconds: Option<u64>,
}

/// State of the daemon and all sandboxes.
#[derive(Debug, Clone, Default)]
pub(super) struct Snapshot {
    pub(super) rows: Vec<Row>,
    /// Total number of sandboxes.
    pub(super) total: usize,
    pub(super) one_shots: u64,
    pub(super) running: u64,
    pub(super) waiting: u64,
    pub(super) uptime_seconds: u64,
}

impl Snapshot {
    pub(super) fn to_json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "name": row.name,
                    "state": row.state,
                    "tier": row.tier,
                    "cpu_percent": row.cpu_percent,
                    "memory_bytes": row.memory,
                    "memory_limit_bytes": row.memory_limit,
                    "pids": row.pids,
                    "pids_limit": row.pids_limit,
                    "io_read_bytes_per_second": row.read_rate,
                    "io_write_bytes_per_second": row.write_rate,
                    "disk_bytes": row.disk,
                    "disk_limit_bytes": row.disk_limit,
                    "running_runs": row.running,
                    "runs": row.runs,
                    "uptime_seconds": row.uptime_seconds,
                    "expires_in_seconds": row.left_seconds,
                })
            })
            .collect();
        json!({
            "sandboxes": rows,
            "total": self.total,
            "one_shots": self.one_shots,
            "running": self.running,
            "waiting": self.waiting,
            "uptime_seconds": self.uptime_seconds,
        })
    }
}

/// Usage of a sandbox in the previous snapshot.
#[derive(Debug, Clone, Copy)]
struct PreviousUsage {
    cpu_ms: Option<u64>,
    read: Option<u64>,
    written: Option<u64>,
    at: Instant,
}

/// Takes snapshots and keeps the usage of the previous one.
pub(super) struct Sampler {
    client: Client,
    /// By sandbox id, which changes when a sandbox is recreated.
    before: HashMap<String, PreviousUsage>,
}

impl Sampler {
    pub(super) fn new(client: Client) -> Self {
        Self { client, before: HashMap::new() }
    }

    pub(super) async fn sample(&mut self) -> Result<Snapshot> {
        let health = self.client.call("health", json!({})).await?;
        let listed = self.client.call("list", json!({})).await?;
        let usage = self.client.call("usage", json!({})).await?;
        let used: HashMap<String, &Value> =
            fields::list(&usage, "sandboxes").iter().map(|one| (fields::text(one, "name"), one)).collect();
        let sandboxes = fields::list(&listed, "sandboxes");
        let mut rows = Vec::new();
        let mut seen = HashMap::new();
        for brief in sandboxes {
            // A sandbox removed since it was listed, or beyond the limit of one response, is not shown.
            let Some(usage) = used.get(&fields::text(brief, "name")) else { continue };
            rows.push(self.row(brief, usage, &mut seen));
        }
        self.before = seen;
        let number = |value: &Value, name: &str| value[name].as_u64().unwrap_or(0);
        Ok(Snapshot {
            rows,
            total: sandboxes.len(),
            one_shots: number(&listed, "one_shots"),
            running: number(&health, "running"),
            waiting: number(&health, "waiting"),
            uptime_seconds: number(&health, "uptime_seconds"),
        })
    }

    fn row(&self, brief: &Value, usage: &Value, seen: &mut HashMap<String, PreviousUsage>) -> Row {
        let limits = &usage["limits"];
        let size = |value: &Value| value.as_str()?.parse::<ByteSize>().ok().map(|size| size.0);
        let id = fields::text(brief, "id");
        let now = PreviousUsage {
            cpu_ms: usage["cpu_ms"].as_u64(),
            read: usage["io_read_bytes"].as_u64(),
            written: usage["io_write_bytes"].as_u64(),
            at: Instant::now(),
        };
        let before = self.before.get(&id);
        seen.insert(id, now);
        let rate = |what: fn(&PreviousUsage) -> Option<u64>| {
            let before = before?;
            let more = what(&now)?.saturating_sub(what(before)?);
            per_second(more, now.at.duration_since(before.at).as_secs_f64())
        };
        let clock = now_ms();
        let since = |name: &str| brief[name].as_str().and_then(millis_of);
        Row {
            name: fields::text(brief, "name"),
            state: fields::text(brief, "state"),
            tier: fields::text(brief, "tier"),
            cpu_percent: rate(|used| used.cpu_ms).map(percent),
            memory: usage["memory_bytes"].as_u64(),
            memory_limit: size(&limits["memory"]),
            pids: usage["pids"].as_u64(),
            pids_limit: limits["pids"].as_u64(),
            read_rate: rate(|used| used.read).map(whole),
            write_rate: rate(|used| used.written).map(whole),
            disk: usage["disk_bytes"].as_u64(),
            disk_limit: size(&limits["disk"]),
            running: brief["running_runs"].as_u64().unwrap_or(0),
            runs: brief["runs"].as_u64().unwrap_or(0),
            uptime_seconds: since("created_at").map_or(0, |then| clock.saturating_sub(then) / 1000),
            left_seconds: [since("expires_at"), since("idle_expires_at")]
                .into_iter()
                .flatten()
                .min()
                .map(|then| then.saturating_sub(clock) / 1000),
        }
    }
}

/// Rate per second; `None` when the interval is too short to measure.
#[expect(clippy::cast_precision_loss, reason = "what is used in a moment is little")]
fn per_second(more: u64, seconds: f64) -> Option<f64> {
    (seconds > 0.01).then(|| more as f64 / seconds)
}

/// Milliseconds of CPU time in a second, as a share of one CPU.
fn percent(millis: f64) -> f64 {
    millis.round() / 10.0
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is never below zero")]
fn whole(rate: f64) -> u64 {
    rate as u64
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970 of a time such as `2026-01-31T12:34:56.789Z`.
fn millis_of(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.split('-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, millis) = time.split_once('.')?;
    let mut clock = clock.split(':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    // Years are counted from March, so that the leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days =
        365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day.checked_sub(1)?;
    let seconds = days.checked_sub(719_468)? * 86_400 + hour * 3600 + minute * 60 + second;
    Some(seconds * 1000 + millis.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_the_daemon_writes_them() {
        assert_eq!(millis_of("1970-01-01T00:00:00.000Z"), Some(0));
        assert_eq!(millis_of("2000-02-29T00:00:00.000Z"), Some(951_782_400_000));
        assert_eq!(millis_of("2024-02-29T23:59:59.999Z"), Some(1_709_251_199_999));
        assert_eq!(millis_of("2024-03-01T00:00:00.000Z"), Some(1_709_251_200_000));
        for bad in ["", "yesterday", "2024-03-01", "2024-00-00T00:00:00.000Z"] {
            assert_eq!(millis_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_used_is_told_by_the_second_and_cpu_time_as_a_share_of_one_cpu() {
        assert_eq!(per_second(500, 1.0).map(percent), Some(50.0));
        assert_eq!(per_second(4000, 2.0).map(percent), Some(200.0));
        assert_eq!(per_second(3 << 20, 2.0).map(whole), Some(3 << 19));
        assert_eq!(per_second(1, 0.0), None);
    }
}
