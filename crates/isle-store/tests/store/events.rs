//! The history of events: bounded by count and age, filtered, and its ids never used twice.

use isle_store::{EventFilter, EventRow, Store};
use serde_json::json;

fn row(id: u64, kind: &str, sandbox: &str, time_ms: i64) -> EventRow {
    EventRow {
        id,
        time_ms,
        namespace: "default".into(),
        kind: kind.into(),
        sandbox: Some(sandbox.into()),
        run: None,
        message: "words".into(),
        data: json!({ "number": id }),
    }
}

fn ids(rows: &[EventRow]) -> Vec<u64> {
    rows.iter().map(|row| row.id).collect()
}

#[test]
fn the_history_is_bounded_by_count_and_by_age() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let rows: Vec<EventRow> =
        (1..=1000).map(|id| row(id, "run_started", "box", id.cast_signed() * 10)).collect();
    store.append_events(&rows).unwrap();
    store.evict_events(400, i64::MAX, 10_000).unwrap();
    assert_eq!(store.events_after(0, 1).unwrap()[0].id, 601);
    store.evict_events(400, 1_000, 10_000).unwrap();
    assert_eq!(store.events_after(0, 1).unwrap()[0].id, 900, "those older than a second are gone");
    assert_eq!(store.events_after(0, 1000).unwrap().len(), 101);
    assert_eq!(store.events_after(998, 1000).unwrap()[0], rows[998]);
    store.evict_events(400, 1_000, 100_000).unwrap();
    assert!(store.events_after(0, 1).unwrap().is_empty(), "all of them are too old");
}

#[test]
fn a_namespace_with_many_events_does_not_displace_others() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let of =
        |namespace: &str, id| EventRow { namespace: namespace.into(), ..row(id, "run_started", "a", 10) };
    let rows: Vec<EventRow> = (1..=1000)
        .map(|id| {
            of(
                if id <= 5 {
                    "quiet"
                } else if id <= 300 {
                    "loud"
                } else {
                    "louder"
                },
                id,
            )
        })
        .collect();
    store.append_events(&rows).unwrap();
    store.evict_events(105, i64::MAX, 10_000).unwrap();
    let kept = store.events_after(0, 1000).unwrap();
    let count = |namespace: &str| kept.iter().filter(|row| row.namespace == namespace).count();
    assert_eq!((count("quiet"), count("loud"), count("louder")), (5, 50, 50));
    assert_eq!(kept[5].id, 251, "the newest of each stay");
}

#[test]
fn events_are_found_by_what_they_are_about() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let rows =
        [row(1, "run_started", "a", 10), row(2, "run_failed", "a", 20), row(3, "run_started", "b", 30)];
    store.append_events(&rows).unwrap();
    let all = EventFilter { limit: 10, ..EventFilter::default() };
    assert_eq!(ids(&store.events(&all).unwrap().rows), [3, 2, 1]);
    let found = |filter: EventFilter| ids(&store.events(&EventFilter { limit: 10, ..filter }).unwrap().rows);
    assert_eq!(found(EventFilter { kinds: vec!["run_started".into()], ..all.clone() }), [3, 1]);
    assert_eq!(found(EventFilter { sandbox: Some("a".into()), before: Some(2), ..all.clone() }), [1]);
    assert_eq!(found(EventFilter { since_ms: Some(20), ..all.clone() }), [3, 2]);
    assert_eq!(found(EventFilter { namespace: Some("other".into()), ..all.clone() }), [0; 0]);
    assert!(store.events(&EventFilter { limit: 0, ..all }).is_err());
}

#[test]
fn event_ids_increase_after_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let (counter, last) = store.event_counter().unwrap();
    assert_eq!(last, 0);
    store.append_events(&[row(1, "run_started", "box", 1)]).unwrap();
    counter.note(7).unwrap();
    drop((store, counter));
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.event_counter().unwrap().1, 7);
    std::fs::write(directory.path().join("isle.events"), b"bad").unwrap();
    assert_eq!(store.event_counter().unwrap().1, 1, "a damaged counter falls back to what is written");
}
