//! Memory of the daemon while a command prints far more than any buffer.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Bench, SANDBOX};
use crate::daemon::Daemon;
use crate::error::{Error, Result};
use crate::http::{contains, json_request};
use crate::processes;
use crate::report::{Report, Row, Target};
use crate::statistics::Samples;

const SECTION: &str = "output";
const GIB: u64 = 1 << 30;
/// Allowed increase: buffers, no backlog.
const FLAT: f64 = 8.0;
/// Interval of memory samples.
const LOOK: Duration = Duration::from_millis(50);

impl Bench {
    pub(super) fn output(&self, report: &mut Report) -> Result<()> {
        let daemon = self.daemon()?;
        // Buffers and allocator reach their size.
        print(&daemon, GIB / 8)?;
        let before = processes::resident(daemon.pid())?;
        let gibibytes = self.choose(1, 2, 10);
        let begin = Instant::now();
        let seen = print(&daemon, gibibytes * GIB)?;
        let took = begin.elapsed().as_secs_f64();
        let growth: Samples = seen.iter().map(|bytes| in_mebibytes(bytes.saturating_sub(before))).collect();
        let most = seen.iter().max().map_or(0.0, |bytes| in_mebibytes(bytes.saturating_sub(before)));
        report.add(Row::new(
            SECTION,
            format!("daemon RSS above idle while {gibibytes} GiB are printed"),
            "MiB",
            &growth,
        ));
        report.add(Row::single(SECTION, "the most of it", "MiB", most).target(Target::AtMost(FLAT)));
        let rate = f64::from(u32::try_from(gibibytes).unwrap_or(u32::MAX)) * 1024.0 / took;
        report.add(Row::single(SECTION, "output taken in", "MiB/s", rate));
        daemon.stop()
    }
}

/// Has a command print bytes; returns samples of the daemon's resident memory.
fn print(daemon: &Daemon, bytes: u64) -> Result<Vec<u64>> {
    let command = format!("yes 'a line of output like any other' | head -c {bytes}");
    let wish = json!({ "command": command, "timeout": "1h", "wait": "1h" });
    let call = json_request("POST", &format!("/v1/sandboxes/{SANDBOX}/exec"), &wish);
    let mut connection = daemon.connect()?;
    let mut seen = Vec::new();
    thread::scope(|scope| {
        let printing = scope.spawn(move || connection.exchange(&call));
        while !printing.is_finished() {
            seen.push(processes::resident(daemon.pid())?);
            thread::sleep(LOOK);
        }
        let answer = printing.join().map_err(|_| std::io::Error::other("the caller panicked"))??;
        let body = answer.ok("exec")?;
        if contains(&body, &format!(r#""stdout_bytes":{bytes}"#)) {
            Ok(seen)
        } else {
            Err(Error::answer("exec", &body))
        }
    })
}

fn in_mebibytes(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes >> 10).unwrap_or(u32::MAX)) / 1024.0
}
