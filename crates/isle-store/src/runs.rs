//! Runs: recorded before the command starts and finished exactly once, together with their audit row.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::audit::{AuditEntry, append};
use crate::error::{StoreError, violates_unique};
use crate::records::{RunEnd, RunNetwork, RunOutput, RunRow};
use crate::store::Store;

pub(crate) const COLUMNS: &str = "id, sandbox_id, sandbox_name, door, actor, kind, command, started_at_ms, state, \
     exit_code, signal, duration_ms, cpu_us, peak_rss_kib, stdout_bytes, stderr_bytes, ended_at_ms, note, \
     violations, limits_hit, containment, job, locked, terminal, commands, namespace, io_read_bytes, io_write_bytes, \
     net_sent_bytes, net_received_bytes, net_connections, net_denied, net_shared, peak_tasks";

impl Store {
    /// Number of recorded runs, by sandbox id.
    pub fn run_counts(&self) -> Result<HashMap<String, u64>, StoreError> {
        self.read(|connection| {
            let mut statement =
                connection.prepare_cached("SELECT sandbox_id, count(*) FROM runs GROUP BY sandbox_id")?;
            let rows = statement.query_map([], |row| {
                let count: i64 = row.get(1)?;
                Ok((row.get(0)?, u64::try_from(count).unwrap_or(0)))
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// Records a run before its command starts.
    pub fn begin_run(&self, row: &RunRow) -> Result<(), StoreError> {
        check_kind(&row.kind)?;
        check_state(&row.state)?;
        let violations = row.violations.to_string();
        let containment = (!row.containment.is_null()).then(|| row.containment.to_string());
        let commands = (!row.commands.is_null()).then(|| row.commands.to_string());
        self.write(|writer| {
            let mut statement = writer.connection.prepare_cached(
                "INSERT INTO runs (id, sandbox_id, sandbox_name, door, actor, kind, command, started_at_ms,
                     state, exit_code, signal, duration_ms, cpu_us, peak_rss_kib, stdout_bytes, stderr_bytes,
                     ended_at_ms, note, violations, containment, job, locked, terminal, commands, namespace)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
                     ?20, ?21, ?22, ?23, ?24, ?25)",
            )?;
            let inserted = statement.execute(params![
                row.id,
                row.sandbox_id,
                row.sandbox_name,
                row.door,
                row.actor,
                row.kind,
                row.command,
                row.started_at_ms,
                row.state,
                row.exit_code,
                row.signal,
                row.duration_ms.map(integer),
                row.cpu_us.map(integer),
                row.peak_rss_kib.map(integer),
                integer(row.stdout_bytes),
                integer(row.stderr_bytes),
                row.ended_at_ms,
                row.note,
                violations,
                containment,
                row.job,
                row.locked,
                row.terminal,
                commands,
                row.namespace,
            ]);
            match inserted {
                Ok(_) => Ok(()),
                Err(error) if violates_unique(&error, "runs.id") => {
                    Err(StoreError::DuplicateId { id: row.id.clone() })
                }
                Err(error) if violates_unique(&error, "runs.sandbox_name, runs.job") => {
                    Err(StoreError::JobTaken { name: row.job.clone().unwrap_or_default() })
                }
                Err(error) => Err(error.into()),
            }
        })
    }

    /// A queued run starts.
    pub fn start_run(&self, id: &str) -> Result<(), StoreError> {
        self.write(|writer| {
            let mut statement = writer
                .connection
                .prepare_cached("UPDATE runs SET state = 'running' WHERE id = ?1 AND state = 'queued'")?;
            match statement.execute(params![id])? {
                0 => Err(StoreError::RunNotFound { id: id.to_owned() }),
                _ => Ok(()),
            }
        })
    }

    /// Finishes a run: its record, its output and its audit row, in one transaction. A run finishes once.
    pub fn finish_run(&self, id: &str, end: &RunEnd, audit: &AuditEntry) -> Result<(), StoreError> {
        check_state(&end.state)?;
        if is_open(&end.state) {
            return Err(unknown_state(&end.state, "final state of a run"));
        }
        let (violations, limits_hit) = (end.violations.to_string(), end.limits_hit.to_string());
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                close_row(connection, id, end, &violations, &limits_hit)?;
                if !end.output.is_empty() {
                    keep_output(connection, seq_of(connection, id, None)?, &end.output)?;
                }
                append(connection, draft, audit)?;
                Ok(())
            })
        })?;
        let namespace = audit.namespace.as_deref().unwrap_or("default");
        self.inner.shared.kept.added(namespace, end.output.bytes());
        Ok(())
    }

    /// One run, if it is recorded.
    pub fn run(&self, id: &str) -> Result<Option<RunRow>, StoreError> {
        self.read(|connection| {
            let mut statement =
                connection.prepare_cached(&format!("SELECT {COLUMNS} FROM runs WHERE id = ?1"))?;
            let mut rows = statement.query(params![id])?;
            rows.next()?.map(run_row).transpose()
        })
    }

    /// The newest run of a job name in each sandbox of a namespace: sandbox and run.
    pub fn jobs_named(&self, namespace: &str, job: &str) -> Result<Vec<(String, String)>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT sandbox_name, id, max(seq) FROM runs WHERE job = ?1 AND namespace = ?2
                     AND sandbox_name IS NOT NULL
                 GROUP BY sandbox_name",
            )?;
            let mut rows = statement.query(params![job, namespace])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.push((row.get(0)?, row.get(1)?));
            }
            Ok(found)
        })
    }

    /// Unfinished runs, oldest first.
    pub fn unfinished_runs(&self) -> Result<Vec<RunRow>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM runs WHERE state IN ('queued', 'running') ORDER BY seq"
            ))?;
            let mut rows = statement.query([])?;
            let mut runs = Vec::new();
            while let Some(row) = rows.next()? {
                runs.push(run_row(row)?);
            }
            Ok(runs)
        })
    }

    /// The stored output of a finished run; `None` if the run is unknown or unfinished.
    pub fn run_output(&self, id: &str) -> Result<Option<RunOutput>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT state, stdout_head, stdout_tail, stderr_head, stderr_tail
                 FROM runs LEFT JOIN run_outputs ON run_seq = seq WHERE id = ?1",
            )?;
            let mut rows = statement.query(params![id])?;
            let Some(row) = rows.next()? else { return Ok(None) };
            if is_open(&row.get::<_, String>(0)?) {
                return Ok(None);
            }
            let part = |column| row.get::<_, Option<Vec<u8>>>(column).map(Option::unwrap_or_default);
            Ok(Some(RunOutput {
                stdout_head: part(1)?,
                stdout_tail: part(2)?,
                stderr_head: part(3)?,
                stderr_tail: part(4)?,
            }))
        })
    }
}

fn close_row(
    connection: &Connection,
    id: &str,
    end: &RunEnd,
    violations: &str,
    limits_hit: &str,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(
        "UPDATE runs SET state = ?2, exit_code = ?3, signal = ?4, duration_ms = ?5, cpu_us = ?6,
             peak_rss_kib = ?7, stdout_bytes = ?8, stderr_bytes = ?9, ended_at_ms = ?10, note = ?11,
             violations = ?12, limits_hit = ?13, commands = coalesce(?14, commands),
             io_read_bytes = ?15, io_write_bytes = ?16, net_sent_bytes = ?17, net_received_bytes = ?18,
             net_connections = ?19, net_denied = ?20, net_shared = ?21, peak_tasks = ?22
         WHERE id = ?1 AND state IN ('queued', 'running')",
    )?;
    let closed = statement.execute(params![
        id,
        end.state,
        end.exit_code,
        end.signal,
        end.duration_ms.map(integer),
        end.cpu_us.map(integer),
        end.peak_rss_kib.map(integer),
        integer(end.stdout_bytes),
        integer(end.stderr_bytes),
        end.ended_at_ms,
        end.note,
        violations,
        limits_hit,
        (!end.commands.is_null()).then(|| end.commands.to_string()),
        end.io_read_bytes.map(integer),
        end.io_write_bytes.map(integer),
        end.network.map(|network| integer(network.sent_bytes)),
        end.network.map(|network| integer(network.received_bytes)),
        end.network.map(|network| integer(network.connections)),
        end.network.map(|network| integer(network.denied)),
        end.network.map(|network| network.shared),
        end.peak_tasks.map(integer),
    ])?;
    if closed > 0 {
        return Ok(());
    }
    let state: Option<String> = connection
        .query_row("SELECT state FROM runs WHERE id = ?1", params![id], |row| row.get(0))
        .optional()?;
    match state {
        Some(state) => Err(StoreError::AlreadyFinished { id: id.to_owned(), state }),
        None => Err(StoreError::RunNotFound { id: id.to_owned() }),
    }
}

fn keep_output(connection: &Connection, seq: i64, output: &RunOutput) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO run_outputs (run_seq, stdout_head, stdout_tail, stderr_head, stderr_tail)
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    statement.execute(params![
        seq,
        output.stdout_head,
        output.stdout_tail,
        output.stderr_head,
        output.stderr_tail
    ])?;
    Ok(())
}

/// The sequence number of a run of a namespace.
pub(crate) fn seq_of(connection: &Connection, id: &str, namespace: Option<&str>) -> Result<i64, StoreError> {
    connection
        .prepare_cached("SELECT seq FROM runs WHERE id = ?1 AND namespace = coalesce(?2, namespace)")?
        .query_row(params![id, namespace], |row| row.get(0))
        .optional()?
        .ok_or_else(|| StoreError::RunNotFound { id: id.to_owned() })
}

pub(crate) fn run_row(row: &Row<'_>) -> Result<RunRow, StoreError> {
    let unsigned = |column: usize| -> rusqlite::Result<Option<u64>> {
        Ok(row.get::<_, Option<i64>>(column)?.map(|value| u64::try_from(value).unwrap_or(0)))
    };
    Ok(RunRow {
        id: row.get(0)?,
        sandbox_id: row.get(1)?,
        sandbox_name: row.get(2)?,
        door: row.get(3)?,
        actor: row.get(4)?,
        kind: row.get(5)?,
        command: row.get(6)?,
        started_at_ms: row.get(7)?,
        state: row.get(8)?,
        exit_code: row.get(9)?,
        signal: row.get(10)?,
        duration_ms: unsigned(11)?,
        cpu_us: unsigned(12)?,
        peak_rss_kib: unsigned(13)?,
        stdout_bytes: unsigned(14)?.unwrap_or(0),
        stderr_bytes: unsigned(15)?.unwrap_or(0),
        ended_at_ms: row.get(16)?,
        note: row.get(17)?,
        violations: serde_json::from_str(row.get_ref(18)?.as_str().map_err(rusqlite::Error::from)?)?,
        limits_hit: serde_json::from_str(row.get_ref(19)?.as_str().map_err(rusqlite::Error::from)?)?,
        containment: match row.get_ref(20)?.as_str_or_null().map_err(rusqlite::Error::from)? {
            Some(text) => serde_json::from_str(text)?,
            None => serde_json::Value::Null,
        },
        job: row.get(21)?,
        locked: row.get(22)?,
        terminal: row.get(23)?,
        commands: match row.get_ref(24)?.as_str_or_null().map_err(rusqlite::Error::from)? {
            Some(text) => serde_json::from_str(text)?,
            None => serde_json::Value::Null,
        },
        namespace: row.get(25)?,
        io_read_bytes: unsigned(26)?,
        io_write_bytes: unsigned(27)?,
        network: match unsigned(28)? {
            Some(sent_bytes) => Some(RunNetwork {
                sent_bytes,
                received_bytes: unsigned(29)?.unwrap_or(0),
                connections: unsigned(30)?.unwrap_or(0),
                denied: unsigned(31)?.unwrap_or(0),
                shared: row.get::<_, Option<bool>>(32)?.unwrap_or(false),
            }),
            None => None,
        },
        peak_tasks: unsigned(33)?,
    })
}

/// SQLite's integers are signed; no count here comes near the limit.
fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn is_open(state: &str) -> bool {
    matches!(state, "queued" | "running")
}

fn check_kind(kind: &str) -> Result<(), StoreError> {
    match kind {
        "exec" | "run_code" | "session" | "validate" | "install" | "job" | "run_commands" => Ok(()),
        other => Err(StoreError::UnknownWord {
            what: "kind of run",
            value: other.to_owned(),
            known: "exec, run_code, session, validate, install, job, run_commands",
        }),
    }
}

fn check_state(state: &str) -> Result<(), StoreError> {
    match state {
        "queued" | "running" | "completed" | "failed" | "timed_out" | "oom_killed" | "killed"
        | "cancelled" | "lost" => Ok(()),
        other => Err(unknown_state(other, "state of a run")),
    }
}

fn unknown_state(state: &str, what: &'static str) -> StoreError {
    StoreError::UnknownWord {
        what,
        value: state.to_owned(),
        known: "queued, running (open); completed, failed, timed_out, oom_killed, killed, cancelled, lost (final)",
    }
}
