//! Forgetting old runs. Only ended ones go, with their output; the audit chain stays whole.

use rusqlite::{OptionalExtension, params};

use crate::error::StoreError;
use crate::store::Store;

/// Runs deleted under one hold of the writer, so that a big clean-up never holds up a call for long.
const BATCH: usize = 64;

impl Store {
    /// Deletes ended runs beyond the newest `max_runs`, and those that ended more than `max_age_ms`
    /// before `now_ms`. Answers how many.
    pub fn evict(&self, max_runs: u64, max_age_ms: i64, now_ms: i64) -> Result<u64, StoreError> {
        let victims = self.read(|connection| {
            let beyond: Option<i64> = connection
                .prepare_cached("SELECT seq FROM runs ORDER BY seq DESC LIMIT 1 OFFSET ?1")?
                .query_row(params![i64::try_from(max_runs).unwrap_or(i64::MAX)], |row| row.get(0))
                .optional()?;
            let mut statement = connection.prepare_cached(
                "SELECT seq FROM runs
                 WHERE (seq <= ?1 OR ended_at_ms < ?2) AND state NOT IN ('queued', 'running')
                 ORDER BY seq",
            )?;
            let oldest_kept = now_ms.saturating_sub(max_age_ms);
            let seqs = statement
                .query_map(params![beyond.unwrap_or(i64::MIN), oldest_kept], |row| row.get(0))?
                .collect::<rusqlite::Result<Vec<i64>>>()?;
            Ok(seqs)
        })?;
        let mut deleted = 0;
        for batch in victims.chunks(BATCH) {
            deleted += self.write(|writer| {
                writer.transaction(|connection, _| {
                    let mut statement = connection.prepare_cached(
                        "DELETE FROM runs WHERE seq = ?1 AND state NOT IN ('queued', 'running')",
                    )?;
                    let mut gone = 0;
                    for seq in batch {
                        gone += u64::try_from(statement.execute(params![seq])?).unwrap_or(0);
                    }
                    Ok(gone)
                })
            })?;
        }
        Ok(deleted)
    }
}
