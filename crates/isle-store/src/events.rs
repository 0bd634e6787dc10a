//! The event history: the newest events in order. It is written in batches and bounded, so unlike the audit
//! chain it is not complete; missing events show as a gap between ids.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rusqlite::{OptionalExtension, Row, ToSql, params};
use serde_json::Value;

use crate::error::StoreError;
use crate::files;
use crate::listing::{Listing, MOST_SCANNED, Page};
use crate::store::Store;

/// Rows deleted in one transaction.
const BATCH: u32 = 256;
/// Maximum number of rows of one page.
const MOST: u32 = 1000;

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRow {
    /// The id: only increases, also over restarts.
    pub id: u64,
    /// Wall clock time.
    pub time_ms: i64,
    /// The namespace.
    pub namespace: String,
    /// The kind.
    pub kind: String,
    /// The sandbox.
    pub sandbox: Option<String>,
    /// The run.
    pub run: Option<String>,
    /// The message.
    pub message: String,
    /// Structured data.
    pub data: Value,
}

/// Which events to list, newest first. `None` or empty means no filter.
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
    /// Maximum number of rows, 1 to 1000.
    pub limit: u32,
}

/// The last assigned id, in a separate file: overwriting eight bytes is cheap, and they survive a crash of
/// the daemon before the last batch was written.
#[derive(Debug)]
pub struct EventCounter {
    file: File,
}

impl EventCounter {
    /// Records the last assigned id.
    pub fn note(&self, id: u64) -> std::io::Result<()> {
        self.file.write_all_at(&id.to_le_bytes(), 0)
    }

    fn read(&self) -> u64 {
        let mut bytes = [0; 8];
        // A new file is empty: no id was assigned.
        self.file.read_exact_at(&mut bytes, 0).map_or(0, |()| u64::from_le_bytes(bytes))
    }
}

impl Store {
    /// The event counter, and the last assigned id.
    pub fn event_counter(&self) -> Result<(EventCounter, u64), StoreError> {
        let path = self.inner.shared.path.with_file_name("isle.events");
        files::private_file(&path)?;
        let file = files::options().open(&path).map_err(|error| StoreError::io("open", &path, error))?;
        let counter = EventCounter { file };
        let newest: Option<i64> = self.read(|connection| {
            Ok(connection.prepare_cached("SELECT max(id) FROM events")?.query_row([], |row| row.get(0))?)
        })?;
        let last = counter.read().max(newest.and_then(|id| u64::try_from(id).ok()).unwrap_or(0));
        // Ids are SQLite integers; a damaged file must not exceed their range.
        Ok((counter, last.min(i64::MAX as u64 / 2)))
    }

    /// Adds events in one transaction.
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
    pub fn events(&self, filter: &EventFilter) -> Result<Page<EventRow>, StoreError> {
        let filter = filter.clone();
        self.listed(move |listing| listing.events(&filter))
    }

    /// Deletes events older than `max_age_ms` before `now_ms`, and the oldest of namespaces that exceed their
    /// share of `most`: a namespace with many events does not displace those of others.
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
        let part = share_of_each(counts.iter().map(|(_, count)| *count).collect(), most);
        for (namespace, count) in counts {
            self.delete_events(
                "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE namespace = ?1 ORDER BY id LIMIT ?2)",
                &namespace,
                count.saturating_sub(part),
            )?;
        }
        Ok(())
    }

    /// Deletes up to `most` rows that a statement selects, in batches.
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

impl Listing<'_> {
    /// Events, newest first.
    pub fn events(&self, filter: &EventFilter) -> Result<Page<EventRow>, StoreError> {
        if !(1..=MOST).contains(&filter.limit) {
            return Err(StoreError::LimitOutOfRange { limit: filter.limit, max: MOST });
        }
        let before = filter.before.map_or(i64::MAX, |id| i64::try_from(id).unwrap_or(i64::MAX));
        let (condition, namespace): (&str, Option<&dyn ToSql>) = match &filter.namespace {
            Some(namespace) => ("AND namespace = ?3", Some(namespace)),
            None => ("", None),
        };
        let text = format!(
            "SELECT id, time_ms, namespace, kind, sandbox, run, message, data FROM events
             WHERE id < ?1 {condition} ORDER BY id DESC LIMIT ?2"
        );
        let mut scan = self.connection.prepare_cached(&text)?;
        let mut values: Vec<&dyn ToSql> = vec![&before, &MOST_SCANNED];
        values.extend(namespace);
        let mut found = scan.query(values.as_slice())?;
        let (mut rows, mut scanned, mut last) = (Vec::new(), 0, None);
        while let Some(row) = found.next()? {
            (scanned, last) = (scanned + 1, Some(row.get::<_, i64>(0)?));
            let text = |column: usize| {
                Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_str_or_null().unwrap_or_default())
            };
            let is = |column: usize, wanted: &Option<String>| -> rusqlite::Result<bool> {
                Ok(wanted.is_none() || text(column)? == wanted.as_deref())
            };
            let kind = text(3)?.unwrap_or_default();
            if !(filter.kinds.is_empty() || filter.kinds.iter().any(|wanted| wanted == kind))
                || !is(4, &filter.sandbox)?
                || !is(5, &filter.run)?
                || filter.since_ms.is_some_and(|since| row.get::<_, i64>(1).is_ok_and(|time| time < since))
            {
                continue;
            }
            rows.push(read_row(row)?);
            if rows.len() >= filter.limit as usize {
                break;
            }
        }
        let more = scanned >= MOST_SCANNED || rows.len() >= filter.limit as usize;
        let next = last.filter(|_| more).and_then(|id| u64::try_from(id).ok());
        Ok(Page { rows, next })
    }
}

/// The share of each namespace, so that all together keep at most `most`: unused shares go to the others.
fn share_of_each(mut counts: Vec<u64>, most: u64) -> u64 {
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
