//! Forgetting old runs. Only ended ones go, with their output; the audit chain stays whole.

use std::collections::BTreeSet;

use rusqlite::{OptionalExtension, params};

use crate::error::StoreError;
use crate::store::Store;

/// Runs deleted under one hold of the writer, so that a big clean-up never holds up a call for long.
const BATCH: usize = 64;

impl Store {
    /// Deletes ended runs beyond the newest `max_runs` of each namespace, and those that ended more than `max_age_ms`
    /// before `now_ms`. Answers how many.
    pub fn evict(&self, max_runs: u64, max_age_ms: i64, now_ms: i64) -> Result<u64, StoreError> {
        let victims = self.read(|connection| {
            let max_runs = i64::try_from(max_runs).unwrap_or(i64::MAX);
            // Whoever runs much forgets its own runs sooner, and nobody else's.
            let crowded: Vec<String> = connection
                .prepare_cached("SELECT namespace FROM runs GROUP BY namespace HAVING count(*) > ?1")?
                .query_map(params![max_runs], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?;
            let mut victims: BTreeSet<i64> = connection
                .prepare_cached(
                    "SELECT seq FROM runs WHERE ended_at_ms < ?1 AND state NOT IN ('queued', 'running')",
                )?
                .query_map(params![now_ms.saturating_sub(max_age_ms)], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?;
            for namespace in crowded {
                let beyond: Option<i64> = connection
                    .prepare_cached(
                        "SELECT seq FROM runs WHERE namespace = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2",
                    )?
                    .query_row(params![namespace, max_runs], |row| row.get(0))
                    .optional()?;
                let mut statement = connection.prepare_cached(
                    "SELECT seq FROM runs WHERE namespace = ?1 AND seq <= ?2
                     AND state NOT IN ('queued', 'running')",
                )?;
                let rows = statement.query_map(params![namespace, beyond], |row| row.get::<_, i64>(0))?;
                for seq in rows {
                    victims.insert(seq?);
                }
            }
            Ok(victims.into_iter().collect::<Vec<i64>>())
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
