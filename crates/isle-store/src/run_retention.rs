//! Deletion of old runs. Only finished runs are deleted, with their output; the audit chain is not changed.
//! Age and bytes decide, never the number, so that many runs in a short time can all be read.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, params};

use crate::error::StoreError;
use crate::store::Store;

/// Runs, and bytes of output, deleted in one transaction: a few milliseconds.
const SLICE_RUNS: usize = 64;
const SLICE_BYTES: u64 = 1 << 20;
/// Pause between two transactions, for other calls.
const PAUSE: Duration = Duration::from_millis(1);
/// Runs read at once.
const LOOKED_AT: u32 = 2_048;
/// Size of a run besides its output: its row and index entries.
const ROW_BYTES: u64 = 512;

/// How long finished runs are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunRetention {
    /// Runs that ended more recently are never deleted.
    pub min_age_ms: i64,
    /// Runs that ended longer ago are always deleted.
    pub max_age_ms: i64,
    /// Maximum size of the runs of a namespace, with their output.
    pub max_bytes: u64,
}

/// The size of the finished runs of each namespace. In memory: counted once after a start, then updated, so
/// that no run has to update a counter on disk.
#[derive(Debug, Default)]
pub(crate) struct KeptBytes {
    by_namespace: Mutex<Option<HashMap<String, u64>>>,
}

impl KeptBytes {
    fn lock(&self) -> MutexGuard<'_, Option<HashMap<String, u64>>> {
        self.by_namespace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run ended.
    pub(crate) fn added(&self, namespace: &str, output: u64) {
        if let Some(counts) = self.lock().as_mut() {
            match counts.get_mut(namespace) {
                Some(bytes) => *bytes += output + ROW_BYTES,
                None => drop(counts.insert(namespace.to_owned(), output + ROW_BYTES)),
            }
        }
    }

    fn deleted(&self, namespace: &str, bytes: u64) {
        if let Some(kept) = self.lock().as_mut().and_then(|counts| counts.get_mut(namespace)) {
            *kept = kept.saturating_sub(bytes);
        }
    }
}

/// An ended run that may go.
struct Candidate {
    seq: i64,
    namespace: String,
    ended_at_ms: i64,
    bytes: u64,
}

impl Store {
    /// Deletes ended runs: those that are too old, then the oldest of namespaces that keep too many bytes.
    /// Works in slices of a few milliseconds, so that no call waits for it. Answers how many.
    pub fn evict(&self, retention: &RunRetention, now_ms: i64) -> Result<u64, StoreError> {
        self.count_kept()?;
        let mut deleted = 0;
        let too_old = now_ms.saturating_sub(retention.max_age_ms);
        deleted += self.delete_while(None, |run| run.ended_at_ms < too_old)?;
        let settled = now_ms.saturating_sub(retention.min_age_ms);
        for (namespace, kept) in self.crowded(retention.max_bytes) {
            let mut excess = kept.saturating_sub(retention.max_bytes);
            deleted += self.delete_while(Some(&namespace), |run| {
                let goes = excess > 0 && run.ended_at_ms < settled;
                if goes {
                    excess = excess.saturating_sub(run.bytes);
                }
                goes
            })?;
        }
        Ok(deleted)
    }

    /// What the ended runs of each namespace come to.
    fn crowded(&self, most: u64) -> Vec<(String, u64)> {
        let kept = self.inner.shared.kept.lock();
        let counts = kept.iter().flatten().filter(|(_, bytes)| **bytes > most);
        counts.map(|(namespace, bytes)| (namespace.clone(), *bytes)).collect()
    }

    /// Counts what is there, once.
    fn count_kept(&self) -> Result<(), StoreError> {
        let kept = &self.inner.shared.kept;
        if kept.lock().is_some() {
            return Ok(());
        }
        let mut counts: HashMap<String, u64> = HashMap::new();
        let mut after = 0;
        loop {
            let page = self.read(|connection| candidates(connection, None, after))?;
            for run in &page.runs {
                *counts.entry(run.namespace.clone()).or_default() += run.bytes;
            }
            match page.last {
                Some(last) => after = last,
                None => break,
            }
        }
        kept.lock().get_or_insert(counts);
        Ok(())
    }

    /// Deletes the oldest ended runs, of one namespace or of all, until one stays.
    fn delete_while(
        &self,
        namespace: Option<&str>,
        mut goes: impl FnMut(&Candidate) -> bool,
    ) -> Result<u64, StoreError> {
        let (mut deleted, mut after) = (0, 0);
        loop {
            let page = self.read(|connection| candidates(connection, namespace, after))?;
            let is_blank = page.runs.is_empty();
            // A long run is listed among older ones: it is kept, they are deleted.
            let victims: Vec<Candidate> = page.runs.into_iter().filter(|run| goes(run)).collect();
            let goes_on = is_blank || !victims.is_empty();
            let mut slice: Vec<&Candidate> = Vec::new();
            let mut bytes = 0;
            for run in &victims {
                if slice.len() >= SLICE_RUNS || bytes >= SLICE_BYTES {
                    deleted += self.delete_runs(&slice)?;
                    (slice, bytes) = (Vec::new(), 0);
                }
                bytes += run.bytes;
                slice.push(run);
            }
            deleted += self.delete_runs(&slice)?;
            match page.last.filter(|_| goes_on) {
                Some(last) => after = last,
                None => return Ok(deleted),
            }
        }
    }

    fn delete_runs(&self, runs: &[&Candidate]) -> Result<u64, StoreError> {
        if runs.is_empty() {
            return Ok(0);
        }
        let gone = self.write(|writer| {
            writer.transaction(|connection, _| {
                let mut statement = connection.prepare_cached(
                    "DELETE FROM runs WHERE seq = ?1 AND state NOT IN ('queued', 'running')",
                )?;
                let mut gone = 0;
                for run in runs {
                    gone += u64::try_from(statement.execute(params![run.seq])?).unwrap_or(0);
                }
                Ok(gone)
            })
        })?;
        for run in runs {
            self.inner.shared.kept.deleted(&run.namespace, run.bytes);
        }
        std::thread::sleep(PAUSE);
        Ok(gone)
    }
}

struct Candidates {
    runs: Vec<Candidate>,
    /// The last one that was looked at; `None` at the end.
    last: Option<i64>,
}

/// The next ended runs after a place, oldest first.
fn candidates(
    connection: &Connection,
    namespace: Option<&str>,
    after: i64,
) -> Result<Candidates, StoreError> {
    let condition = match namespace {
        None | Some("default") => "",
        Some(_) => "AND namespace = ?3 AND namespace <> 'default'",
    };
    // The length of a blob is in the header of its row: no page of output is read.
    let text = format!(
        "SELECT seq, namespace, ended_at_ms, state IN ('queued', 'running'),
             coalesce(length(stdout_head) + length(stdout_tail) + length(stderr_head) + length(stderr_tail), 0)
         FROM runs LEFT JOIN run_outputs ON run_seq = seq
         WHERE seq > ?1 {condition} ORDER BY seq LIMIT ?2"
    );
    let mut statement = connection.prepare_cached(&text)?;
    let mut rows = match namespace {
        None | Some("default") => statement.query(params![after, LOOKED_AT])?,
        Some(namespace) => statement.query(params![after, LOOKED_AT, namespace])?,
    };
    let mut found = Candidates { runs: Vec::new(), last: None };
    let mut seen = 0;
    while let Some(row) = rows.next()? {
        seen += 1;
        let seq = row.get(0)?;
        if seen == LOOKED_AT {
            found.last = Some(seq);
        }
        let of: String = row.get(1)?;
        if row.get(3)? || namespace.is_some_and(|namespace| namespace != of) {
            continue;
        }
        let bytes = u64::try_from(row.get::<_, i64>(4)?).unwrap_or(0) + ROW_BYTES;
        let ended_at_ms = row.get::<_, Option<i64>>(2)?.unwrap_or(0);
        found.runs.push(Candidate { seq, namespace: of, ended_at_ms, bytes });
    }
    Ok(found)
}
