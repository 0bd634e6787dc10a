//! Listings of a million rows, by the steps that SQLite takes: a page costs the same however many there are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, PoisonError};

use crate::listing::{Listing, MOST_SCANNED, Page};
use crate::{AuditFilter, EventFilter, ReadShare, RunFilter, Store, StoreError};

const MILLION: u64 = 1_000_000;
/// Steps of SQLite's machine between two counts.
const STRIDE: i32 = 100;
/// Steps that one page may take: some forty for each row it may look at. A walk over a million rows takes
/// several millions.
const MOST_STEPS: u64 = MOST_SCANNED as u64 * 40;

/// Rows of `default`, of `busy` and a few old ones of `quiet`, written in one transaction.
fn filled(rows: u64) -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let numbers = format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})");
    let of = "CASE WHEN i <= 3 THEN 'quiet' WHEN i % 2 THEN 'busy' ELSE 'default' END";
    store
        .inner
        .shared
        .writer()
        .connection
        .execute_batch(&format!(
            "BEGIN;
             INSERT INTO audit (seq, time_ms, actor, door, action, sandbox, detail, prev_hash, hash, namespace)
             {numbers} SELECT i, i, 'a', 'http', 'exec', 's', '{{}}', x'00', x'00', nullif({of}, 'default') FROM n;
             INSERT INTO runs (seq, id, sandbox_id, sandbox_name, door, actor, kind, command, started_at_ms, state,
                 stdout_bytes, stderr_bytes, ended_at_ms, violations, namespace)
             {numbers} SELECT i, 'r' || i, 'id', 's', 'http', 'a', CASE i WHEN 2 THEN 'job' ELSE 'exec' END, 'true', i,
                 'completed', 0, 0, i, '[]', {of} FROM n;
             INSERT INTO events (id, time_ms, namespace, kind, sandbox, message, data)
             {numbers} SELECT i, i, {of}, 'run', 's', 'm', '{{}}' FROM n;
             COMMIT;"
        ))
        .unwrap();
    (directory, store)
}

/// What a listing answers, and how many steps it took.
fn counted<T>(store: &Store, listing: impl FnOnce(&Listing<'_>) -> Result<T, StoreError>) -> (T, u64) {
    let mut connection = store.inner.shared.reader.lock().unwrap_or_else(PoisonError::into_inner);
    let steps = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&steps);
    connection
        .progress_handler(
            STRIDE,
            Some(move || {
                counter.fetch_add(u64::from(STRIDE.unsigned_abs()), Ordering::Relaxed);
                false
            }),
        )
        .unwrap();
    let answer = listing(&Listing { connection: &connection }).unwrap();
    (answer, steps.load(Ordering::Relaxed))
}

#[test]
fn a_page_of_any_listing_takes_bounded_steps_at_a_million_rows() {
    let (_directory, store) = filled(MILLION);
    let absent = Some("absent".to_owned());
    for namespace in ["default", "busy", "quiet", "nobody"] {
        let namespace = Some(namespace.to_owned());
        for (action, sandbox) in [(None, None), (absent.clone(), None), (None, absent.clone())] {
            for before in [None, Some(MILLION / 2), Some(3), Some(0)] {
                let (namespace, action, sandbox) = (namespace.clone(), action.clone(), sandbox.clone());
                let audit = AuditFilter {
                    namespace: namespace.clone(),
                    action,
                    sandbox: sandbox.clone(),
                    before,
                    ..AuditFilter::default()
                };
                let (_, steps) = counted(&store, |listing| listing.audit(&audit));
                assert!(steps < MOST_STEPS, "{audit:?}: {steps} steps");
                let events = EventFilter {
                    namespace: namespace.clone(),
                    sandbox: sandbox.clone(),
                    before,
                    limit: 100,
                    ..EventFilter::default()
                };
                let (_, steps) = counted(&store, |listing| listing.events(&events));
                assert!(steps < MOST_STEPS, "{events:?}: {steps} steps");
                for kind in [None, Some("job".to_owned()), Some("session".to_owned())] {
                    let (namespace, sandbox) = (namespace.clone(), sandbox.clone());
                    let runs = RunFilter { namespace, sandbox, kind, ..RunFilter::default() };
                    let (_, steps) = counted(&store, |listing| listing.runs(&runs));
                    assert!(steps < MOST_STEPS, "{runs:?}: {steps} steps");
                }
            }
        }
        let (_, steps) = counted(&store, |listing| listing.run_totals(namespace.as_deref().unwrap()));
        assert!(steps < MOST_STEPS, "totals: {steps} steps");
        let (_, steps) = counted(&store, |listing| listing.job_counts(namespace.as_deref().unwrap()));
        assert!(steps < MOST_STEPS, "jobs: {steps} steps");
    }
    // What a tenant has is found at once, however old it is and however much others did since.
    let quiet = || Some("quiet".to_owned());
    let audit = store.audit(&AuditFilter { namespace: quiet(), ..AuditFilter::default() }).unwrap();
    assert_eq!(audit.rows.iter().map(|row| row.seq).collect::<Vec<_>>(), [3, 2, 1]);
    assert_eq!(audit.next, None);
    let runs = store.runs(&RunFilter { namespace: quiet(), ..RunFilter::default() }).unwrap();
    assert_eq!(runs.rows.iter().map(|run| run.id.as_str()).collect::<Vec<_>>(), ["r3", "r2", "r1"]);
    let jobs = RunFilter { namespace: quiet(), kind: Some("job".into()), ..RunFilter::default() };
    assert_eq!(store.runs(&jobs).unwrap().rows.len(), 1);
    let events = EventFilter { namespace: quiet(), limit: 10, ..EventFilter::default() };
    assert_eq!(store.events(&events).unwrap().rows.len(), 3);
}

#[test]
fn following_the_cursor_shows_every_row_once() {
    let (_directory, store) = filled(10_000);
    for (namespace, sandbox, expected) in
        [("default", None, 4_999), ("busy", None, 4_998), ("quiet", None, 3), ("busy", Some("absent"), 0)]
    {
        let (namespace, sandbox) = (Some(namespace.to_owned()), sandbox.map(str::to_owned));
        let mut audit = AuditFilter {
            namespace: namespace.clone(),
            sandbox: sandbox.clone(),
            limit: 77,
            ..AuditFilter::default()
        };
        let mut seen = Vec::new();
        loop {
            let Page { rows, next } = store.audit(&audit).unwrap();
            seen.extend(rows.iter().map(|row| row.seq));
            audit.before = next;
            if next.is_none() {
                break;
            }
        }
        assert_eq!(seen.len(), expected, "{namespace:?}");
        assert!(seen.is_sorted_by(|one, other| one > other));
        let mut runs = RunFilter { namespace: namespace.clone(), sandbox, limit: 77, ..RunFilter::default() };
        let mut count = 0;
        loop {
            let page = store.runs(&runs).unwrap();
            count += page.rows.len();
            runs.before = page.next;
            if runs.before.is_none() {
                break;
            }
        }
        assert_eq!(count, expected, "{namespace:?}");
    }
}

#[test]
fn listings_of_one_namespace_do_not_delay_those_of_others_or_the_operator() {
    let (_directory, store) = filled(10);
    let greedy = || ReadShare::Namespace("greedy".into());
    let (begun, has_begun) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    // One that does not end, and more of the same caller's behind it.
    let stuck = move |_: &Listing<'_>| {
        begun.send(()).unwrap();
        let _: Result<(), _> = released.recv();
        Ok(())
    };
    store.queue_listing(greedy(), stuck, |_| {}).unwrap();
    has_begun.recv().unwrap();
    let (answer, answers) = mpsc::channel();
    for share in [greedy(), ReadShare::Namespace("other".into()), ReadShare::Operator] {
        let (answer, name) = (answer.clone(), share.clone());
        let filter = AuditFilter::default();
        store
            .queue_listing(
                share,
                move |listing| listing.audit(&filter),
                move |page| {
                    answer.send((name, page.unwrap().rows.len())).unwrap();
                },
            )
            .unwrap();
    }
    let mut served: Vec<ReadShare> = (0..2).map(|_| answers.recv().unwrap().0).collect();
    served.sort_by_key(|share| *share == ReadShare::Operator);
    assert_eq!(served, [ReadShare::Namespace("other".into()), ReadShare::Operator]);
    assert!(answers.try_recv().is_err(), "the greedy one waits for itself");
    // Too many that wait are refused, and only to the one who asks for them.
    let refused =
        (0..200).find_map(|_| store.queue_listing(greedy(), |_| Ok(()), |_: Result<(), _>| {}).err());
    assert!(matches!(refused, Some(StoreError::TooManyListings { .. })), "{refused:?}");
    store.queue_listing(ReadShare::Operator, |_| Ok(()), |_| {}).unwrap();
    drop(release);
    assert_eq!(answers.recv().unwrap().0, greedy());
}

#[test]
fn a_listing_that_takes_too_long_is_interrupted_and_one_that_panics_stops_no_thread() {
    let (_directory, store) = filled(10);
    let (answer, answers) = mpsc::channel();
    let endless = |listing: &Listing<'_>| {
        let text = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
        Ok(listing.connection.query_row(text, [], |row| row.get::<_, i64>(0))?)
    };
    let tell = answer.clone();
    store
        .queue_listing(ReadShare::Operator, endless, move |outcome| tell.send(outcome.map(drop)).unwrap())
        .unwrap();
    assert!(matches!(answers.recv().unwrap(), Err(StoreError::Interrupted)));
    for _ in 0..4 {
        let panics = |_: &Listing<'_>| -> Result<(), StoreError> { panic!("on purpose") };
        store.queue_listing(ReadShare::Operator, panics, |_| {}).unwrap();
    }
    store
        .queue_listing(ReadShare::Operator, |_| Ok(()), move |outcome| answer.send(outcome).unwrap())
        .unwrap();
    answers.recv().unwrap().unwrap();
}
