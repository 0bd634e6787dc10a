//! Sandboxes, runs, facts and forgetting.

use crate::common::{NETWORK, end, entry, run, sandbox};
use isle_store::{
    AuditEntry, AuditFilter, RunEnd, RunFilter, RunOutput, RunRetention, RunRow, SandboxChange, SandboxRow,
    Store, StoreError, TokenRow, WipeMark, WipeRow,
};
use serde_json::json;
use tempfile::TempDir;

fn fresh() -> (TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    (directory, store)
}

fn finished(store: &Store, id: &str, ended_at_ms: i64) {
    store.begin_run(&run(id, "default")).unwrap();
    let end = RunEnd { ended_at_ms, ..end("completed") };
    store.finish_run(id, &end, &entry("exec", "default")).unwrap();
}

#[test]
fn a_sandbox_is_recorded_changed_and_forgotten() {
    let (directory, store) = fresh();
    let row = sandbox("s1", Some("default"));
    store.insert_sandbox(&row).unwrap();
    assert_eq!(store.sandboxes().unwrap(), std::slice::from_ref(&row));

    store
        .update_sandbox("s1", SandboxChange { state: Some("running".into()), ..SandboxChange::default() })
        .unwrap();
    store
        .update_sandbox(
            "s1",
            SandboxChange {
                anchor: Some(json!({"pid": 7})),
                containment: Some(json!({"seccomp": true})),
                last_used_ms: Some(5_000),
                lease: Some(json!({"expires": 9})),
                ..SandboxChange::default()
            },
        )
        .unwrap();
    store.update_sandbox("s1", SandboxChange::default()).unwrap();
    let changed = SandboxRow {
        state: "running".into(),
        anchor: json!({"pid": 7}),
        containment: json!({"seccomp": true}),
        last_used_ms: 5_000,
        lease: json!({"expires": 9}),
        ..row
    };
    assert_eq!(store.sandboxes().unwrap(), std::slice::from_ref(&changed));
    drop(store);

    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.sandboxes().unwrap(), [changed]);
    store.remove_sandbox("s1").unwrap();
    store.remove_sandbox("s1").unwrap();
    assert!(store.sandboxes().unwrap().is_empty());
}

#[test]
fn a_name_has_at_most_one_live_sandbox() {
    let (_directory, store) = fresh();
    let to = |state: &str| SandboxChange { state: Some(state.into()), ..SandboxChange::default() };
    store.insert_sandbox(&sandbox("s1", Some("default"))).unwrap();
    let taken = |result| matches!(result, Err(StoreError::NameTaken { name }) if name == "default");
    assert!(taken(store.insert_sandbox(&sandbox("s2", Some("default")))));
    store.update_sandbox("s1", to("running")).unwrap();
    assert!(taken(store.insert_sandbox(&sandbox("s2", Some("default")))));
    store.update_sandbox("s1", to("failed")).unwrap();
    store.insert_sandbox(&sandbox("s2", Some("default"))).unwrap();
    assert!(taken(store.update_sandbox("s1", to("running"))));
    store.insert_sandbox(&sandbox("s3", Some("other"))).unwrap();
    store.insert_sandbox(&sandbox("s4", None)).unwrap();
    store.insert_sandbox(&sandbox("s5", None)).unwrap();
    assert_eq!(store.sandboxes().unwrap().len(), 5);
}

#[test]
fn bad_sandbox_records_are_refused() {
    let (_directory, store) = fresh();
    store.insert_sandbox(&sandbox("s1", None)).unwrap();
    assert!(matches!(store.insert_sandbox(&sandbox("s1", None)), Err(StoreError::DuplicateId { .. })));
    let odd = SandboxRow { state: "sleeping".into(), ..sandbox("s2", None) };
    assert!(matches!(store.insert_sandbox(&odd), Err(StoreError::UnknownWord { .. })));
    let odd = SandboxRow { kind: "spare".into(), ..sandbox("s2", None) };
    assert!(matches!(store.insert_sandbox(&odd), Err(StoreError::UnknownWord { .. })));
    assert!(matches!(
        store.update_sandbox("nobody", SandboxChange::default()),
        Err(StoreError::SandboxNotFound { .. })
    ));
    assert_eq!(store.sandboxes().unwrap().len(), 1);
}

#[test]
fn a_run_goes_from_begun_to_ended_with_its_output_and_audit_row() {
    let (_directory, store) = fresh();
    let begun = RunRow { containment: json!({"tier": "container"}), ..run("r1", "default") };
    store.begin_run(&begun).unwrap();
    assert_eq!(store.run("r1").unwrap(), Some(begun.clone()));
    assert_eq!(store.unfinished_runs().unwrap(), std::slice::from_ref(&begun));
    assert_eq!(store.run_output("r1").unwrap(), None);

    let end = RunEnd {
        exit_code: None,
        signal: Some(9),
        note: Some("out of memory".into()),
        violations: json!([{"what": "mount", "count": 2}]),
        limits_hit: json!([{"limit": "memory", "value": "64M"}]),
        output: RunOutput {
            stdout_head: b"head\xff\0".to_vec(),
            stdout_tail: b"tail".to_vec(),
            stderr_head: vec![7; 300_000],
            stderr_tail: Vec::new(),
        },
        ..end("oom_killed")
    };
    store.finish_run("r1", &end, &entry("exec", "default")).unwrap();
    let expected = RunRow {
        state: "oom_killed".into(),
        signal: Some(9),
        duration_ms: Some(12),
        cpu_us: Some(900),
        peak_rss_kib: Some(2_048),
        io_read_bytes: Some(512),
        io_write_bytes: Some(1_024),
        network: Some(NETWORK),
        peak_tasks: Some(4),
        stdout_bytes: 6,
        ended_at_ms: Some(2_012),
        note: Some("out of memory".into()),
        violations: json!([{"what": "mount", "count": 2}]),
        limits_hit: json!([{"limit": "memory", "value": "64M"}]),
        ..begun
    };
    assert_eq!(store.run("r1").unwrap(), Some(expected));
    assert!(store.unfinished_runs().unwrap().is_empty());
    assert_eq!(store.run_output("r1").unwrap(), Some(end.output));
    assert_eq!(store.audit(&AuditFilter::default()).unwrap().rows.len(), 1);
}

#[test]
fn a_run_ends_once() {
    let (_directory, store) = fresh();
    finished(&store, "r1", 10);
    let again = store.finish_run("r1", &end("failed"), &entry("exec", "default"));
    assert!(
        matches!(again, Err(StoreError::AlreadyFinished { id, state }) if id == "r1" && state == "completed")
    );
    let unknown = store.finish_run("r2", &end("failed"), &entry("exec", "default"));
    assert!(matches!(unknown, Err(StoreError::RunNotFound { .. })));
    assert_eq!(store.run("r1").unwrap().unwrap().state, "completed");
    // Neither left an audit row behind, and the chain goes on without a gap.
    assert_eq!(store.audit(&AuditFilter::default()).unwrap().rows.len(), 1);
    assert_eq!(store.append_audit(&entry("note", "default")).unwrap(), 2);
    assert!(store.verify_audit().unwrap().is_intact());
}

#[test]
fn the_name_of_a_job_is_taken_while_it_is_open_and_means_the_newest() {
    let (_directory, store) = fresh();
    let job = |id: &str, sandbox: &str, state: &str| RunRow {
        kind: "job".into(),
        job: Some("web".into()),
        state: state.into(),
        locked: true,
        terminal: true,
        commands: json!([{"command": "a"}]),
        ..run(id, sandbox)
    };
    store.begin_run(&job("r1", "a", "queued")).unwrap();
    let read = store.run("r1").unwrap().unwrap();
    assert_eq!(read, job("r1", "a", "queued"));
    for state in ["queued", "running"] {
        assert!(matches!(store.begin_run(&job("r2", "a", state)), Err(StoreError::JobTaken { .. })));
    }
    store.begin_run(&job("r3", "b", "running")).unwrap();
    store.start_run("r1").unwrap();
    assert_eq!(store.run("r1").unwrap().unwrap().state, "running");
    assert!(matches!(store.start_run("r1"), Err(StoreError::RunNotFound { .. })), "it starts once");
    store.finish_run("r1", &end("killed"), &entry("job", "a")).unwrap();
    assert_eq!(store.run("r1").unwrap().unwrap().commands, json!([{"command": "a"}]), "left as it was");
    store.begin_run(&job("r4", "a", "running")).unwrap();
    let ended = RunEnd { commands: json!([{"command": "b"}]), ..end("completed") };
    store.finish_run("r4", &ended, &entry("job", "a")).unwrap();
    assert_eq!(store.run("r4").unwrap().unwrap().commands, json!([{"command": "b"}]));
    let named = store.jobs_named("", "web").unwrap();
    assert_eq!(named, [("a".to_owned(), "r4".to_owned()), ("b".to_owned(), "r3".to_owned())]);
    assert!(store.jobs_named("", "other").unwrap().is_empty());
    store.begin_run(&run("r5", "a")).unwrap();
    let jobs = store.runs(&RunFilter { kind: Some("job".into()), ..RunFilter::default() }).unwrap();
    let ids: Vec<&str> = jobs.rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids, ["r4", "r3", "r1"]);
}

#[test]
fn bad_run_records_are_refused() {
    let (_directory, store) = fresh();
    store.begin_run(&run("r1", "default")).unwrap();
    assert!(matches!(store.begin_run(&run("r1", "default")), Err(StoreError::DuplicateId { .. })));
    let odd = RunRow { state: "done".into(), ..run("r2", "default") };
    assert!(matches!(store.begin_run(&odd), Err(StoreError::UnknownWord { .. })));
    let odd = RunRow { kind: "task".into(), ..run("r2", "default") };
    assert!(matches!(store.begin_run(&odd), Err(StoreError::UnknownWord { .. })));
    for state in ["running", "queued", "done"] {
        let refused = store.finish_run("r1", &end(state), &entry("exec", "default"));
        assert!(matches!(refused, Err(StoreError::UnknownWord { .. })));
    }
    assert_eq!(store.unfinished_runs().unwrap().len(), 1);
}

#[test]
fn a_run_without_output_ends_with_an_empty_one() {
    let (_directory, store) = fresh();
    store.begin_run(&run("r1", "default")).unwrap();
    let silent = RunEnd { output: RunOutput::default(), ..end("completed") };
    store.finish_run("r1", &silent, &entry("exec", "default")).unwrap();
    assert_eq!(store.run_output("r1").unwrap(), Some(RunOutput::default()));
    assert_eq!(store.run_output("r2").unwrap(), None);
    assert_eq!(store.run("r2").unwrap(), None);
}

#[test]
fn runs_are_listed_newest_first_by_sandbox_state_and_page() {
    let (_directory, store) = fresh();
    for (id, sandbox) in [("r1", "a"), ("r2", "b"), ("r3", "a"), ("r4", "a"), ("r5", "b")] {
        store.begin_run(&run(id, sandbox)).unwrap();
    }
    for id in ["r1", "r3"] {
        store.finish_run(id, &end("completed"), &entry("exec", "a")).unwrap();
    }
    let one_shot = RunRow { sandbox_name: None, ..run("r6", "x") };
    store.begin_run(&one_shot).unwrap();
    let ids = |filter: RunFilter| -> Vec<String> {
        store.runs(&filter).unwrap().rows.into_iter().map(|run| run.id).collect()
    };
    let all = RunFilter::default;
    assert_eq!(ids(all()), ["r6", "r5", "r4", "r3", "r2", "r1"]);
    assert_eq!(ids(RunFilter { sandbox: Some("a".into()), ..all() }), ["r4", "r3", "r1"]);
    assert_eq!(ids(RunFilter { state: Some("running".into()), ..all() }), ["r6", "r5", "r4", "r2"]);
    assert_eq!(ids(RunFilter { state: Some("completed".into()), ..all() }), ["r3", "r1"]);
    assert_eq!(ids(RunFilter { limit: 2, ..all() }), ["r6", "r5"]);
    assert_eq!(ids(RunFilter { limit: 2, before: Some("r5".into()), ..all() }), ["r4", "r3"]);
    assert_eq!(
        ids(RunFilter {
            sandbox: Some("a".into()),
            state: Some("completed".into()),
            before: Some("r3".into()),
            ..all()
        }),
        ["r1"]
    );
    assert!(matches!(
        store.runs(&RunFilter { before: Some("gone".into()), ..all() }),
        Err(StoreError::RunNotFound { .. })
    ));
}

#[test]
fn forgetting_takes_old_ended_runs_and_their_output_and_nothing_else() {
    let (directory, store) = fresh();
    store.begin_run(&run("live", "default")).unwrap();
    for count in 0..200 {
        finished(&store, &format!("r{count}"), 1_000 + count);
    }
    let evict = |min_age_ms, max_age_ms, max_bytes, now_ms| {
        store.evict(&RunRetention { min_age_ms, max_age_ms, max_bytes }, now_ms).unwrap()
    };
    // A run of six bytes of output counts for those and its row.
    let kept = |runs: u64| runs * (512 + 6);
    assert_eq!(evict(0, 1_000_000, kept(1_000), 2_000), 0);
    // However many bytes there are: what is younger than the minimum age stays.
    assert_eq!(evict(1_001, 1_000_000, 0, 2_000), 0);
    assert_eq!(evict(0, 1_000_000, kept(100), 2_000), 100);
    assert_eq!(evict(0, 1_000_000, kept(100), 2_000), 0);
    assert_eq!(store.run("r99").unwrap(), None);
    assert_eq!(store.run_output("r99").unwrap(), None);
    assert!(store.run("r100").unwrap().is_some());
    assert!(store.run("live").unwrap().is_some());
    // Those that ended before 2_000 - 850 = 1_150.
    assert_eq!(evict(0, 850, u64::MAX, 2_000), 50);
    assert!(store.run("r149").unwrap().is_none());
    assert!(store.run("r150").unwrap().is_some());
    assert_eq!(evict(0, 0, 0, i64::MAX), 50);
    assert_eq!(store.runs(&RunFilter::default()).unwrap().rows.len(), 1);
    assert_eq!(store.verify_audit().unwrap().rows, 200);
    assert!(store.verify_audit().unwrap().is_intact());
    let outputs: i64 = crate::common::raw(directory.path())
        .query_row("SELECT count(*) FROM run_outputs", [], |row| row.get(0))
        .unwrap();
    assert_eq!(outputs, 0);
    // A run begun after its elders were forgotten is still the newest.
    finished(&store, "after", 3_000);
    assert_eq!(store.runs(&RunFilter::default()).unwrap().rows[0].id, "after");
}

#[test]
fn a_namespace_that_keeps_much_loses_its_own_runs_and_a_restart_counts_the_same() {
    let (directory, store) = fresh();
    let finish = |store: &Store, id: &str, namespace: &str| {
        store.begin_run(&RunRow { namespace: namespace.into(), ..run(id, "box") }).unwrap();
        let output = RunOutput { stdout_head: vec![b'x'; 10_000], ..RunOutput::default() };
        let end = RunEnd { output, ended_at_ms: 1_000, ..end("completed") };
        let of = (namespace != "default").then(|| namespace.to_owned());
        store.finish_run(id, &end, &AuditEntry { namespace: of, ..entry("exec", "box") }).unwrap();
    };
    for count in 0..50 {
        finish(&store, &format!("a{count}"), "acme");
    }
    finish(&store, "mine", "default");
    finish(&store, "theirs", "small");
    let retention = RunRetention { min_age_ms: 0, max_age_ms: i64::MAX, max_bytes: 20 * 10_512 };
    assert_eq!(store.evict(&retention, 2_000).unwrap(), 30);
    drop(store);
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.evict(&retention, 2_000).unwrap(), 0);
    for count in 50..55 {
        finish(&store, &format!("a{count}"), "acme");
    }
    assert_eq!(store.evict(&retention, 2_000).unwrap(), 5);
    assert!(store.run("a34").unwrap().is_none() && store.run("a35").unwrap().is_some());
    for other in ["mine", "theirs"] {
        assert!(store.run(other).unwrap().is_some(), "{other} is not acme's");
    }
}

#[test]
fn values_are_stored_and_replaced() {
    let (_directory, store) = fresh();
    assert_eq!(store.get_value("instance").unwrap(), None);
    store.set_value("instance", "one").unwrap();
    store.set_value("instance", "two").unwrap();
    assert_eq!(store.get_value("instance").unwrap().as_deref(), Some("two"));
}

#[test]
fn the_boot_clock_does_not_go_back_and_the_boot_has_a_name() {
    let first = isle_core::clock::boot_clock_ms();
    assert!(first > 0);
    assert!(isle_core::clock::boot_clock_ms() >= first);
    let id = isle_core::clock::boot_id().unwrap();
    assert_eq!(Some(id), isle_core::clock::boot_id());
}

#[test]
fn variables_belong_to_a_name_and_go_when_it_is_wiped() {
    let (directory, store) = fresh();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let set = [pair("A", "1"), pair("B", "two\nlines")];
    store.change_variables("box", &set, &[], &entry("env", "box")).unwrap();
    store.change_variables("other", &[pair("A", "x")], &[], &entry("env", "other")).unwrap();
    store
        .change_variables("box", &[pair("A", "3")], &["B".into(), "C".into()], &entry("env", "box"))
        .unwrap();
    drop(store);
    let store = Store::open(directory.path()).unwrap();
    let all = |store: &Store| -> Vec<(String, String, String)> {
        store.variables().unwrap().into_iter().map(|row| (row.sandbox, row.name, row.value)).collect()
    };
    let other = ("other".to_owned(), "A".to_owned(), "x".to_owned());
    assert_eq!(all(&store), [("box".to_owned(), "A".to_owned(), "3".to_owned()), other.clone()]);
    store.insert_sandbox(&sandbox("s1", Some("box"))).unwrap();
    store.wipe_sandbox_audited("s1", "box", &entry("destroy_sandbox", "box")).unwrap();
    assert_eq!(all(&store), [other]);
    assert!(store.sandboxes().unwrap().is_empty());
    store.forget_variables_audited("other", &entry("wipe_workspace", "other")).unwrap();
    assert!(all(&store).is_empty() && store.verify_audit().unwrap().is_intact());
}

#[test]
fn the_same_name_in_two_namespaces_is_two_sandboxes_and_two_jobs() {
    let (_directory, store) = fresh();
    let of =
        |id: &str, namespace: &str| SandboxRow { namespace: namespace.into(), ..sandbox(id, Some("box")) };
    store.insert_sandbox(&of("s1", "one")).unwrap();
    store.insert_sandbox(&of("s2", "two")).unwrap();
    assert!(matches!(store.insert_sandbox(&of("s3", "two")), Err(StoreError::NameTaken { .. })));
    let job = |id: &str, namespace: &str| RunRow {
        namespace: namespace.into(),
        kind: "job".into(),
        job: Some("web".into()),
        sandbox_name: Some("box".into()),
        ..run(id, "s")
    };
    store.begin_run(&job("r1", "one")).unwrap();
    store.begin_run(&job("r2", "two")).unwrap();
    assert!(matches!(store.begin_run(&job("r3", "two")), Err(StoreError::JobTaken { .. })));
    assert_eq!(store.jobs_named("one", "web").unwrap(), [("box".to_owned(), "r1".to_owned())]);
    let only = |namespace: &str, before: Option<&str>| {
        let filter = RunFilter {
            namespace: Some(namespace.into()),
            before: before.map(str::to_owned),
            ..RunFilter::default()
        };
        store.runs(&filter).map(|page| page.rows.into_iter().map(|row| row.id).collect::<Vec<_>>())
    };
    assert_eq!(only("two", None).unwrap(), ["r2"]);
    assert!(matches!(only("two", Some("r1")), Err(StoreError::RunNotFound { .. })));
}

#[test]
fn a_token_and_its_namespace_are_kept_and_the_namespace_outlives_it() {
    let (directory, store) = fresh();
    let token = TokenRow {
        id: "t1".into(),
        namespace: "one".into(),
        hash: vec![7; 32],
        created_at_ms: 5,
        last_used_ms: None,
    };
    store.insert_token(&token, &entry("create_token", "-")).unwrap();
    store.token_used("t1", 9).unwrap();
    drop(store);
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.tokens().unwrap(), [TokenRow { last_used_ms: Some(9), ..token }]);
    store.remove_token("t1", &entry("revoke_token", "-")).unwrap();
    assert!(store.tokens().unwrap().is_empty());
    assert_eq!(store.namespaces().unwrap(), ["one"]);
    assert!(store.verify_audit().unwrap().is_intact());
}

#[test]
fn a_wipe_is_on_record_until_everything_is_gone() {
    let (directory, store) = fresh();
    let wipe = |what: &str| WipeRow { sandbox: "acme@box".into(), what: what.into(), asked_at_ms: 5 };
    store.insert_sandbox(&sandbox("s1", Some("box"))).unwrap();
    let destroying = SandboxChange { state: Some("destroying".into()), ..SandboxChange::default() };
    let mark = WipeMark { id: "s1", change: destroying, audit: None };
    store.begin_wipe(&wipe("volume"), Some(mark)).unwrap();
    assert_eq!(store.sandboxes().unwrap()[0].state, "destroying");
    // One of the files does not make it smaller, and no other word is taken.
    store.begin_wipe(&wipe("workspace"), None).unwrap();
    assert!(matches!(store.begin_wipe(&wipe("all"), None), Err(StoreError::UnknownWord { .. })));
    // What it says of a sandbox that is not there is not on record either.
    let missing = WipeMark {
        id: "s9",
        change: SandboxChange { state: Some("failed".into()), ..SandboxChange::default() },
        audit: None,
    };
    let other = WipeRow { sandbox: "other".into(), ..wipe("volume") };
    assert!(store.begin_wipe(&other, Some(missing)).is_err());
    drop(store);
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.wipes().unwrap(), [wipe("volume")]);
    store.wipe_sandbox_audited("s1", "acme@box", &entry("destroy_sandbox", "box")).unwrap();
    assert_eq!(store.wipes().unwrap(), []);
    store.begin_wipe(&wipe("workspace"), None).unwrap();
    store.insert_sandbox(&sandbox("s2", Some("box"))).unwrap();
    let running = SandboxChange { state: Some("running".into()), ..SandboxChange::default() };
    store.emptied_sandbox_audited("s2", "acme@box", &running, &entry("create_sandbox", "box")).unwrap();
    assert_eq!(store.wipes().unwrap(), []);
}
