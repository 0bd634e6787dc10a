//! The cost of pausing and resuming a sandbox with many processes, and of finding expired sandboxes among
//! many records.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use isle_store::{SandboxRow, Store};
use serde_json::{Value, json};

use super::{Bench, SANDBOX};
use crate::arms::{Arm, Pace, interleave};
use crate::daemon::{Daemon, Setup};
use crate::error::{Error, Result};
use crate::http::{Connection, contains, json_request, request};
use crate::report::{Report, Row, Target};
use crate::spawn::Prepared;
use crate::statistics::Samples;

const SECTION: &str = "lifecycle";
const BARE: &str = "bare fork+exec";
/// Processes in the sandbox that is paused.
const PROCESSES: usize = 100;
/// Sandboxes on record.
const RECORDS: usize = 5_000;

impl Bench {
    pub(super) fn lifecycle(&self, report: &mut Report) -> Result<()> {
        let base = self.pause_and_resume(report)?;
        self.look_for_due(report, base)
    }

    /// Returns what a bare process costs, for the other part.
    fn pause_and_resume(&self, report: &mut Report) -> Result<f64> {
        let daemon = self.daemon()?;
        let mut connection = daemon.connect()?;
        let command = format!("for i in $(seq {}); do sleep 3600 & done; wait", PROCESSES - 1);
        let body = json!({ "command": command, "wait": "0s" });
        connection.exchange(&json_request("POST", &format!("/v1/sandboxes/{SANDBOX}/exec"), &body))?;
        // Until all of them are there; only then does a pause find as many.
        let connection = RefCell::new(connection);
        while set(&connection, "pause")?.1 < PROCESSES as u64 {
            set(&connection, "resume")?;
        }
        set(&connection, "resume")?;
        let bare = Prepared::new(&["/bin/true"])?;
        let names = [
            BARE.to_owned(),
            format!("pause {PROCESSES} processes"),
            format!("resume {PROCESSES} processes"),
        ];
        let paused = RefCell::new(Duration::ZERO);
        let arms = vec![
            Arm::new(names[0].clone(), Pace::Brief, || bare.time()),
            // Each pause is followed by its resume, so that the next one has something to do.
            Arm::new(names[1].clone(), Pace::Whole, || {
                let (took, _) = set(&connection, "pause")?;
                paused.replace(set(&connection, "resume")?.0);
                Ok(took)
            }),
            Arm::new(names[2].clone(), Pace::Whole, || Ok(*paused.borrow())),
        ];
        let measured = interleave(arms, self.choose(5, 60, 150))?;
        let base = measured.first().map_or(f64::NAN, |(_, samples)| samples.median());
        for ((name, samples), most) in measured.iter().zip([None, Some(8.0), Some(8.0)]) {
            let row = Row::new(SECTION, name, "ms", samples);
            report.add(match most {
                Some(most) => row.against(BARE, base).target(Target::AtMost(most)),
                None => row,
            });
        }
        daemon.stop()?;
        Ok(base)
    }

    /// The daemon reports the duration of the sweep. The sandboxes are records of dead ones, which it checks
    /// like running ones.
    fn look_for_due(&self, report: &mut Report, base: f64) -> Result<()> {
        let setup = Setup { pool_size: Some(0), default_sandbox: false, config: "" };
        let first = Daemon::start(&self.isle, setup)?;
        let body = json!({ "sandbox": SANDBOX, "ttl": "1d", "idle": "1d" });
        first.connect()?.exchange(&json_request("POST", "/v1/sandboxes", &body))?.ok("create")?;
        let directory = first.leave()?;
        let records = self.choose(500, RECORDS, RECORDS);
        add_records(&directory.path().join("state"), records)?;
        let daemon = Daemon::start_in(&self.isle, setup, directory)?;
        let mut connection = daemon.connect()?;
        let (mut samples, mut passes) = (Samples::default(), 0);
        while samples.count() < self.choose(3, 10, 20) {
            let (now, took) = last_look(&mut connection)?;
            if now > passes {
                passes = now;
                samples.push(took);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let name = format!("look for sandboxes whose time is up among {records}");
        report.add(Row::new(SECTION, name, "ms", &samples).against(BARE, base).target(Target::AtMost(10.0)));
        let gone = json_request("DELETE", &format!("/v1/sandboxes/{SANDBOX}"), &json!({"wipe": true}));
        connection.exchange(&gone)?.ok("destroy")?;
        daemon.leave().map(drop)
    }
}

/// Pauses or resumes: how long that took, and how many processes it concerned.
fn set(connection: &RefCell<Connection>, what: &str) -> Result<(Duration, u64)> {
    let call = json_request("POST", &format!("/v1/sandboxes/{SANDBOX}/{what}"), &json!({}));
    let begin = Instant::now();
    let answer = connection.borrow_mut().exchange(&call)?;
    let took = begin.elapsed();
    if !contains(&answer.body, r#""processes":"#) {
        return Err(Error::answer("pausing", &answer.body));
    }
    let value: Value = serde_json::from_slice(&answer.body).map_err(std::io::Error::other)?;
    Ok((took, value["processes"].as_u64().unwrap_or(0)))
}

/// How often the sweeper has looked, and how many milliseconds the last time took.
fn last_look(connection: &mut Connection) -> Result<(u64, f64)> {
    let body = connection.exchange(&request("GET", "/v1/health", &[], b""))?.ok("GET /v1/health")?;
    let health: Value = serde_json::from_slice(&body).map_err(std::io::Error::other)?;
    let sweeper = &health["sweeper"];
    Ok((sweeper["passes"].as_u64().unwrap_or(0), sweeper["last_look_us"].as_f64().unwrap_or(f64::NAN) / 1e3))
}

/// Stores records of dead sandboxes: copies of the only one, with other names.
fn add_records(state: &std::path::Path, count: usize) -> Result<()> {
    let store = Store::open(state).map_err(std::io::Error::other)?;
    let rows = store.sandboxes().map_err(std::io::Error::other)?;
    let Some(model) = rows.first() else {
        return Err(Error::answer("reading the records", b"there is no sandbox on record"));
    };
    for number in 0..count {
        // An id has the form of another one; only its last digits differ.
        let id = format!("{}{number:06}", &model.id[..model.id.len() - 6]);
        let mut spec = model.spec.clone();
        spec["spec"]["volume"] = json!(format!("record-{number}"));
        let row = SandboxRow {
            id,
            name: Some(format!("record-{number}")),
            state: "failed".into(),
            spec,
            ..model.clone()
        };
        store.insert_sandbox(&row).map_err(std::io::Error::other)?;
    }
    Ok(())
}
