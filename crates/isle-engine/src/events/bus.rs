//! The bus itself: numbers what is told, keeps the newest in a ring, hands the rest of the work to one
//! task that writes the history in batches.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isle_core::clock::wall_clock_ms;
use isle_store::{EventCounter, EventFilter, EventRow, Store};
use tokio::sync::{Notify, watch};

use super::{Event, EventKind, Shared, Told, mask};
use crate::context::CallContext;
use crate::journal::{Journal, in_background, store_error};
use isle_core::Result;
use isle_core::values::Namespace;

/// Events in memory.
const RING: usize = 4096;
/// Events that may wait to be written; more are left out of the history.
const MOST_PENDING: usize = 2 * RING;
/// Events written under one hold of the writer, so that a big batch never holds up a call for long.
const AT_ONCE: usize = 128;
/// How long the first of a batch waits for others.
const GATHER: Duration = Duration::from_millis(100);
/// Events kept in the history, and for how long.
const KEPT: u64 = 20_000;
const KEPT_FOR_MS: i64 = 7 * 24 * 3600 * 1000;
/// Batches between two looks at what is too old.
const EVICT_EVERY: u64 = 64;
/// Refusals told one by one would be a flood of their own.
const REFUSALS_TOGETHER_MS: i64 = 1000;

/// The bus.
#[derive(Debug)]
pub(crate) struct Events {
    store: Store,
    counter: EventCounter,
    ring: Mutex<Ring>,
    /// Id of the newest event.
    newest: watch::Sender<u64>,
    /// Somebody has told something since the last batch.
    told: Arc<Notify>,
    counts: [AtomicU64; EventKind::ALL.len()],
    batches: AtomicU64,
    refusals: Mutex<HashMap<Namespace, Refusals>>,
}

#[derive(Debug)]
struct Ring {
    events: VecDeque<Shared>,
    pending: VecDeque<Shared>,
    last: u64,
    /// The counter could not be written; said once.
    uncounted: bool,
}

#[derive(Debug, Default)]
struct Refusals {
    last_told_ms: i64,
    untold: u64,
}

impl Events {
    /// Goes on where an earlier engine stopped.
    pub(crate) fn open(store: Store) -> Result<Self> {
        let (counter, last) = store.event_counter().map_err(store_error)?;
        Ok(Self {
            store,
            counter,
            ring: Mutex::new(Ring {
                events: VecDeque::new(),
                pending: VecDeque::new(),
                last,
                uncounted: false,
            }),
            newest: watch::Sender::new(last),
            told: Arc::default(),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            batches: AtomicU64::new(0),
            refusals: Mutex::default(),
        })
    }

    /// Tells an event. Never waits for anybody who listens, nor for the history.
    pub(crate) fn publish(&self, mut event: Event, secrets: &[String]) {
        mask::mask(&mut event, secrets);
        if let Some(count) = self.counts.get(event.kind as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let (id, first_of_batch) = {
            let mut ring = crate::lock(&self.ring);
            ring.last += 1;
            let id = ring.last;
            if let Err(error) = self.counter.note(id)
                && !std::mem::replace(&mut ring.uncounted, true)
            {
                tracing::warn!(%error, "the number of events could not be noted");
            }
            let told = Arc::new(Told { id, time_ms: wall_clock_ms(), event });
            if ring.events.len() == RING {
                ring.events.pop_front();
            }
            ring.events.push_back(Arc::clone(&told));
            if ring.pending.len() == MOST_PENDING {
                ring.pending.pop_front();
            }
            ring.pending.push_back(told);
            (id, ring.pending.len() == 1)
        };
        // Two who tell at once may come here in the other order; the newest counts.
        self.newest.send_if_modified(|newest| {
            let newer = id > *newest;
            *newest = id.max(*newest);
            newer
        });
        if first_of_batch {
            self.told.notify_one();
        }
    }

    /// How many of each kind were told since the start.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (EventKind, u64)> {
        EventKind::ALL.into_iter().zip(self.counts.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// A refusal for lack of room: how many there were since the last that was told, when it is time to
    /// tell them.
    pub(super) fn refused(&self, namespace: &Namespace) -> Option<u64> {
        let mut all = crate::lock(&self.refusals);
        let refusals = all.entry(namespace.clone()).or_default();
        refusals.untold += 1;
        let now = wall_clock_ms();
        if now.abs_diff(refusals.last_told_ms) < REFUSALS_TOGETHER_MS.unsigned_abs() {
            return None;
        }
        refusals.last_told_ms = now;
        Some(std::mem::take(&mut refusals.untold))
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Id of the newest event.
    pub(crate) fn newest(&self) -> u64 {
        crate::lock(&self.ring).last
    }

    /// The events after one, oldest first, at most `limit`; and the place up to which nothing is missing
    /// that could still be found.
    pub(super) fn after(&self, id: u64, limit: usize) -> Result<(Vec<Shared>, u64)> {
        let first = {
            let ring = crate::lock(&self.ring);
            let first = ring.events.front().map_or(ring.last + 1, |event| event.id);
            if id + 1 >= first {
                let skip = usize::try_from(id + 1 - first).unwrap_or(usize::MAX);
                let events: Vec<Shared> = ring.events.iter().skip(skip).take(limit).cloned().collect();
                let upto = events.last().map_or(id, |event| event.id);
                return Ok((events, upto));
            }
            first
        };
        let rows =
            self.store.events_after(id, u32::try_from(limit).unwrap_or(u32::MAX)).map_err(store_error)?;
        let events: Vec<Shared> =
            rows.into_iter().filter(|row| row.id < first).filter_map(from_row).collect();
        let upto = events.last().map_or(first - 1, |event| event.id);
        Ok((events, upto))
    }

    /// The history, newest first.
    pub(crate) async fn history(
        &self,
        journal: &Journal,
        context: &CallContext,
        filter: EventFilter,
    ) -> Result<(Vec<Shared>, Option<u64>)> {
        // What was told a moment ago is part of it.
        self.flush();
        let page = journal.listed(context, move |listing| listing.events(&filter)).await?;
        Ok((page.rows.into_iter().filter_map(from_row).collect(), page.next))
    }

    /// Writes what waits to be written.
    pub(crate) fn flush(&self) {
        let batch: Vec<Shared> = crate::lock(&self.ring).pending.iter().cloned().collect();
        for part in batch.chunks(AT_ONCE) {
            let rows: Vec<EventRow> = part.iter().map(|told| to_row(told)).collect();
            if let Err(error) = self.store.append_events(&rows) {
                tracing::warn!(%error, "events could not be written down; it is tried again");
                break;
            }
            let last = part.last().map_or(0, |event| event.id);
            let mut ring = crate::lock(&self.ring);
            while ring.pending.front().is_some_and(|event| event.id <= last) {
                ring.pending.pop_front();
            }
        }
        if batch.is_empty() {
            return;
        }
        if self.batches.fetch_add(1, Ordering::Relaxed) % EVICT_EVERY == EVICT_EVERY - 1 {
            self.evict();
        }
    }

    /// Drops the oldest beyond what is kept.
    pub(crate) fn evict(&self) {
        let store = self.store.clone();
        in_background(move || {
            if let Err(error) = store.evict_events(KEPT, KEPT_FOR_MS, wall_clock_ms()) {
                tracing::warn!(%error, "old events could not be removed");
            }
        });
    }

    /// Writes the history, batch by batch, for as long as the bus lives.
    pub(crate) fn keep(self: &Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        let (bus, told) = (Arc::downgrade(self), Arc::clone(&self.told));
        async move {
            loop {
                told.notified().await;
                tokio::time::sleep(GATHER).await;
                let Some(bus) = bus.upgrade() else { return };
                bus.flush();
                if !crate::lock(&bus.ring).pending.is_empty() {
                    // Told meanwhile, or not written.
                    told.notify_one();
                }
            }
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.told.notify_one();
    }
}

fn to_row(told: &Told) -> EventRow {
    let Event { namespace, kind, sandbox, run, message, data } = &told.event;
    EventRow {
        id: told.id,
        time_ms: told.time_ms,
        namespace: namespace.clone(),
        kind: kind.as_str().to_owned(),
        sandbox: sandbox.clone(),
        run: run.clone(),
        message: message.clone(),
        data: data.clone(),
    }
}

/// A row as an event; `None` for a kind that this version does not know.
fn from_row(row: EventRow) -> Option<Shared> {
    let event = Event {
        namespace: row.namespace,
        kind: row.kind.parse().ok()?,
        sandbox: row.sandbox,
        run: row.run,
        message: row.message,
        data: row.data,
    };
    Some(Arc::new(Told { id: row.id, time_ms: row.time_ms, event }))
}

impl Events {
    /// Id of the oldest event that is in memory; the next one when none is.
    pub(super) fn oldest_in_memory(&self) -> u64 {
        let ring = crate::lock(&self.ring);
        ring.events.front().map_or(ring.last + 1, |event| event.id)
    }
}
