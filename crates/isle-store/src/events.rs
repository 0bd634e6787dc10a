//! The history of events: the newest so many, in the order they happened. It is written in batches and
//! bounded, so it is no record to rely on as the audit chain is; what is missing shows as a gap between ids.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rusqlite::{OptionalExtension, Row, ToSql, params};
use serde_json::Value;

use crate::error::StoreError;
use crate::files;
use crate::store::Store;

/// Rows deleted under one hold of the writer.
const BATCH: u32 = 256;
/// Most rows of one answer.
const MOST: u32 = 1000;

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRow {
    /// Its place: ids only ever count up, also over restarts.
    pub id: u64,
    /// When, by the wall clock.
    pub time_ms: i64,
    /// Whose.
    pub namespace: String,
    /// What.
    pub kind: String,
    /// In which sandbox.
    pub sandbox: Option<String>,
    /// In which run.
    pub run: Option<String>,
    /// For people.
    pub message: String,
    /// For programs.
    pub data: Value,
}

/// Which events to list, newest first. What is `None` or empty does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Only of this namespace.
    pub namespace: Option<String>,
    /// Only of these kinds.
    pub kinds: Vec<String>,
    /// Only of this sandbox.
    pub sandbox: Option<String>,
    /// Only of this run.
    pub run: Option<String>,
    /// Only at this time or later.
    pub since_ms: Option<i64>,
    /// Only events before this one.
    pub before: Option<u64>,
    /// At most so many, 1 to 1000.
    pub limit: u32,
}

/// The id that was given away last, in a file of its own: eight bytes that are written over in place cost
/// next to nothing, and they survive the death of the daemon, when the last batch was not written yet.
#[derive(Debug)]
pub struct EventCounter {
    file: File,
}

impl EventCounter {
    /// Notes the id that was given away last.
    pub fn note(&self, id: u64) -> std::io::Result<()> {
        self.file.write_all_at(&id.to_le_bytes(), 0)
    }

    fn read(&self) -> u64 {
        let mut bytes = [0; 8];
        // A new file is empty: nothing was given away.
        self.file.read_exact_at(&mut bytes, 0).map_or(0, |()| u64::from_le_bytes(bytes))
    }
}

impl Store {
    /// The counter of events, and the id that was given away last.
    pub fn event_counter(&self) -> Result<(EventCounter, u64), StoreError> {
        let path = self.inner.shared.path.with_file_name("isle.events");
        files::private_file(&path)?;
        let file = files::options().open(&path).map_err(|error| StoreError::io("open", &path, error))?;
        let counter = EventCounter { file };
        let newest: Option<i64> = self.read(|connection| {
            Ok(connection.prepare_cached("SELECT max(id) FROM events")?.query_row([], |row| row.get(0))?)
        })?;
        let last = counter.read().max(newest.and_then(|id| u64::try_from(id).ok()).unwrap_or(0));
        // Ids are integers of SQLite; a damaged file must not lead beyond them.
        Ok((counter, last.min(i64::MAX as u64 / 2)))
    }

    /// Adds events: all of them, or none.
    pub fn append_events(&self, rows: &[EventRow]) -> Result<(), StoreError> {
        let mut writer = self.inner.shared.writer();
        writer.transaction(|connection, _| {
            let mut statement = connection.prepare_cached(
                "INSERT OR IGNORE INTO events (id, time_ms, namespace, kind, sandbox, run, message, data)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?;
            for row in rows {
                statement.execute(params![
                    i64::try_from(row.id).unwrap_or(i64::MAX),
                    row.time_ms,
                    row.namespace,
                    row.kind,
                    row.sandbox,
                    row.run,
                    row.message,
                    row.data.to_string(),
                ])?;
            }
            Ok(())
        })
    }

    /// The first events after an id, oldest first.
    pub fn events_after(&self, id: u64, limit: u32) -> Result<Vec<EventRow>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT id, time_ms, namespace, kind, sandbox, run, message, data FROM events
                 WHERE id > ?1 ORDER BY id LIMIT ?2",
            )?;
            let rows =
                statement.query_map(params![i64::try_from(id).unwrap_or(i64::MAX), limit], read_row)?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Events, newest first.
    pub fn events(&self, filter: &EventFilter) -> Result<Vec<EventRow>, StoreError> {
        if !(1..=MOST).contains(&filter.limit) {
            return Err(StoreError::LimitOutOfRange { limit: filter.limit, max: MOST });
        }
        self.read(|connection| {
            let kinds = if filter.kinds.is_empty() {
                None
            } else {
                Some(serde_json::to_string(&filter.kinds).unwrap_or_default())
            };
            let mut statement = connection.prepare_cached(
                "SELECT id, time_ms, namespace, kind, sandbox, run, message, data FROM events
                 WHERE (?1 IS NULL OR id < ?1) AND (?2 IS NULL OR namespace = ?2)
                   AND (?3 IS NULL OR kind IN (SELECT value FROM json_each(?3)))
                   AND (?4 IS NULL OR sandbox = ?4) AND (?5 IS NULL OR run = ?5)
                   AND (?6 IS NULL OR time_ms >= ?6)
                 ORDER BY id DESC LIMIT ?7",
            )?;
            let rows = statement.query_map(
                params![
                    filter.before.map(|id| i64::try_from(id).unwrap_or(i64::MAX)),
                    filter.namespace,
                    kinds,
                    filter.sandbox,
                    filter.run,
                    filter.since_ms,
                    filter.limit,
                ],
                read_row,
            )?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Deletes events older than `max_age_ms` before `now_ms`, and the oldest of those namespaces that have
    /// more than their part of `most`: who tells much takes no room from who tells little.
    pub fn evict_events(&self, most: u64, max_age_ms: i64, now_ms: i64) -> Result<(), StoreError> {
        let first_kept: Option<i64> = self.read(|connection| {
            Ok(connection
                .prepare_cached("SELECT id FROM events WHERE time_ms >= ?1 ORDER BY id LIMIT 1")?
                .query_row(params![now_ms.saturating_sub(max_age_ms)], |row| row.get(0))
                .optional()?)
        })?;
        self.delete_events(
            "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE id < ?1 ORDER BY id LIMIT ?2)",
            &first_kept.unwrap_or(i64::MAX),
            u64::MAX,
        )?;
        let counts: Vec<(String, u64)> = self.read(|connection| {
            let mut statement =
                connection.prepare_cached("SELECT namespace, count(*) FROM events GROUP BY namespace")?;
            let rows = statement.query_map([], |row| {
                Ok((row.get(0)?, row.get::<_, i64>(1).map(|count| u64::try_from(count).unwrap_or(0))?))
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })?;
        let part = part_of_each(counts.iter().map(|(_, count)| *count).collect(), most);
        for (namespace, count) in counts {
            self.delete_events(
                "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE namespace = ?1 ORDER BY id LIMIT ?2)",
                &namespace,
                count.saturating_sub(part),
            )?;
        }
        Ok(())
    }

    /// Deletes the first so many that a statement finds, a batch at a time.
    fn delete_events(&self, statement: &str, about: &dyn ToSql, mut most: u64) -> Result<(), StoreError> {
        while most > 0 {
            let batch = most.min(u64::from(BATCH));
            let mut writer = self.inner.shared.writer();
            let gone = writer.transaction(|connection, _| {
                let limit = i64::try_from(batch).unwrap_or(i64::MAX);
                Ok(connection.prepare_cached(statement)?.execute(params![about, limit])?)
            })?;
            if (gone as u64) < batch {
                return Ok(());
            }
            most -= batch;
        }
        Ok(())
    }
}

/// How many each may keep so that all together keep at most `most`: those that have fewer leave their rest to
/// the others.
fn part_of_each(mut counts: Vec<u64>, most: u64) -> u64 {
    counts.sort_unstable();
    let (mut left, mut sharers) = (most, counts.len() as u64);
    for count in counts {
        let part = left / sharers.max(1);
        if count > part {
            return part;
        }
        left -= count;
        sharers -= 1;
    }
    u64::MAX
}

fn read_row(row: &Row<'_>) -> rusqlite::Result<EventRow> {
    let data: String = row.get(7)?;
    Ok(EventRow {
        id: row.get::<_, i64>(0).map(|id| u64::try_from(id).unwrap_or(0))?,
        time_ms: row.get(1)?,
        namespace: row.get(2)?,
        kind: row.get(3)?,
        sandbox: row.get(4)?,
        run: row.get(5)?,
        message: row.get(6)?,
        data: serde_json::from_str(&data).unwrap_or(Value::Null),
    })
}
