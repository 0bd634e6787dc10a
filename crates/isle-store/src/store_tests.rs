use crate::{AuditEntry, Store, StoreError};

#[test]
fn a_full_database_is_reported_and_recovers_with_free_space() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let limit = |pages: i64| {
        store
            .inner
            .shared
            .writer()
            .connection
            .pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
    };
    limit(1).unwrap(); // no fewer than there are now
    let entry = AuditEntry { actor: "x".repeat(10_000), ..AuditEntry::default() };
    assert!(matches!(store.append_audit(&entry), Err(StoreError::Full)));
    limit(1_000).unwrap();
    assert_eq!(store.append_audit(&entry).unwrap(), 1);
    assert!(store.verify_audit().unwrap().is_intact());
}

#[test]
fn a_caller_that_panics_in_the_middle_of_a_change_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let other = store.clone();
    let panicked = std::thread::spawn(move || {
        other.write(|writer| {
            writer.transaction(|connection, _| -> Result<(), StoreError> {
                connection.execute("INSERT INTO facts VALUES ('half', 'done')", [])?;
                panic!("on purpose")
            })
        })
    })
    .join();
    assert!(panicked.is_err());
    assert_eq!(store.append_audit(&AuditEntry::default()).unwrap(), 1);
    assert_eq!(store.get_value("half").unwrap(), None);
}
