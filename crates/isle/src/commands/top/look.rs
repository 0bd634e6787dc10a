//! One look at all sandboxes, and what changed since the one before.

use std::collections::HashMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use isle_client::{Client, Result};
use isle_engine::values::ByteSize;
use serde_json::{Value, json};

use super::super::fields;

/// Sandboxes that are asked what they use.
const MOST: usize = 500;

/// A sandbox at a moment. `None` is what nobody knows.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) tier: String,
    /// Of one CPU.
    pub(super) cpu_percent: Option<f64>,
    pub(super) memory: Option<u64>,
    pub(super) memory_limit: Option<u64>,
    pub(super) pids: Option<u64>,
    pub(super) pids_limit: Option<u64>,
    pub(super) disk: Option<u64>,
    pub(super) disk_limit: Option<u64>,
    pub(super) running: u64,
    pub(super) runs: u64,
    pub(super) uptime_seconds: u64,
    /// Until it is removed, used or not.
    pub(super) left_seconds: Option<u64>,
}

/// Everything at a moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Picture {
    pub(super) rows: Vec<Row>,
    /// Sandboxes there are.
    pub(super) total: usize,
    pub(super) one_shots: u64,
    pub(super) running: u64,
    pub(super) waiting: u64,
    pub(super) uptime_seconds: u64,
}

impl Picture {
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

/// Looks, and remembers what CPU time there was.
pub(super) struct Looker {
    client: Client,
    /// By the id of an incarnation.
    before: HashMap<String, (u64, Instant)>,
}

impl Looker {
    pub(super) fn new(client: Client) -> Self {
        Self { client, before: HashMap::new() }
    }

    pub(super) async fn look(&mut self) -> Result<Picture> {
        let health = self.client.call("health", json!({})).await?;
        let listed = self.client.call("list", json!({})).await?;
        let sandboxes = fields::list(&listed, "sandboxes");
        let mut rows = Vec::new();
        let mut seen = HashMap::new();
        for brief in sandboxes.iter().take(MOST) {
            let name = fields::text(brief, "name");
            // One that is gone since it was listed is not shown.
            let Ok(status) = self.client.call("status", json!({ "sandbox": name })).await else { continue };
            rows.push(self.row(brief, &status["detail"], &mut seen));
        }
        self.before = seen;
        let number = |value: &Value, name: &str| value[name].as_u64().unwrap_or(0);
        Ok(Picture {
            rows,
            total: sandboxes.len(),
            one_shots: number(&listed, "one_shots"),
            running: number(&health, "running"),
            waiting: number(&health, "waiting"),
            uptime_seconds: number(&health, "uptime_seconds"),
        })
    }

    fn row(&self, brief: &Value, detail: &Value, seen: &mut HashMap<String, (u64, Instant)>) -> Row {
        let (usage, limits) = (&detail["usage"], &detail["limits"]);
        let size = |value: &Value| value.as_str()?.parse::<ByteSize>().ok().map(|size| size.0);
        let id = fields::text(brief, "id");
        let cpu_percent = usage["cpu_ms"].as_u64().and_then(|cpu| {
            let now = Instant::now();
            let before = self.before.get(&id).copied();
            seen.insert(id, (cpu, now));
            let (earlier, then) = before?;
            percent(cpu.saturating_sub(earlier), now.duration_since(then).as_secs_f64())
        });
        let now = now_ms();
        let since = |name: &str| brief[name].as_str().and_then(millis_of);
        Row {
            name: fields::text(brief, "name"),
            state: fields::text(brief, "state"),
            tier: fields::text(brief, "tier"),
            cpu_percent,
            memory: usage["memory_bytes"].as_u64(),
            memory_limit: size(&limits["memory"]),
            pids: usage["pids"].as_u64(),
            pids_limit: limits["pids"].as_u64(),
            disk: usage["disk_bytes"].as_u64(),
            disk_limit: size(&limits["disk"]),
            running: brief["running_runs"].as_u64().unwrap_or(0),
            runs: brief["runs"].as_u64().unwrap_or(0),
            uptime_seconds: since("created_at").map_or(0, |then| now.saturating_sub(then) / 1000),
            left_seconds: [since("expires_at"), since("idle_expires_at")]
                .into_iter()
                .flatten()
                .min()
                .map(|then| then.saturating_sub(now) / 1000),
        }
    }
}

/// CPU time over time.
#[expect(clippy::cast_precision_loss, reason = "milliseconds of a moment are few")]
fn percent(cpu_ms: u64, seconds: f64) -> Option<f64> {
    (seconds > 0.01).then(|| (cpu_ms as f64 / seconds).round() / 10.0)
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
    fn cpu_time_is_told_as_a_share_of_one_cpu() {
        assert_eq!(percent(500, 1.0), Some(50.0));
        assert_eq!(percent(4000, 2.0), Some(200.0));
        assert_eq!(percent(1, 0.0), None);
    }
}
