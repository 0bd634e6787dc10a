//! The engine as a library, through the same calls the doors make.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may stop it like the test itself")]

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use isle_api::RunLimits;
use isle_api::shapes::{RunResult, RunState};
use isle_core::Code;
use isle_core::values::{RunId, SandboxName};
use isle_engine::engine::{Command, FollowFrom, OneShot, OpenExec, RunEventKind, SessionEvent, Target};
use isle_engine::{Engine, EngineConfig};
use isle_store::Store;
use isle_wire::GuestUser;
use serde_json::{Value, json};
use support::{Host, call, context, exec};

/// Of a run that asks for no secrets and no network, in a sandbox that has none: what did nothing is not listed.
const STAGES: [&str; 4] = ["admit", "validate", "execute", "audit"];

async fn audit_of(engine: &Engine, run: &str) -> Value {
    let rows = call(engine, "audit", json!({ "limit": 500 })).await.unwrap();
    rows["rows"].as_array().unwrap().iter().find(|row| row["run"] == run).cloned().unwrap()
}

fn open(target: Target, command: Command) -> OpenExec {
    OpenExec {
        target,
        command,
        cwd: None,
        env: Vec::new(),
        user: GuestUser::Sandbox,
        limits: RunLimits::default(),
        allow_downgrade: false,
        backend: None,
        profile: None,
        lock: false,
        allow: Vec::new(),
        secrets: Vec::new(),
        expose_secrets: Vec::new(),
        timeout: None,
        terminal: None,
        stdin: true,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_answers_output_status_and_duration_apart() {
    let engine = Host::new().engine().await;
    let result = exec(&engine, json!({ "command": "echo out; echo err >&2; exit 3" })).await;
    assert_eq!((result.state, result.exit_code), (RunState::Failed, Some(3)));
    assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("out\n", "err\n"));
    assert_eq!(result.sandbox, SandboxName::default_sandbox());
    let quiet = exec(&engine, json!({ "argv": ["true"] })).await;
    assert_eq!((quiet.state, quiet.exit_code, quiet.stdout_bytes), (RunState::Completed, Some(0), 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_environment_and_input_arrive_exactly() {
    let engine = Host::new().engine().await;
    let result = exec(&engine, json!({ "argv": ["printf", "%s|", "a b", "", "'\"$x"] })).await;
    assert_eq!(result.stdout, "a b||'\"$x|");
    let input = "x".repeat(1 << 20);
    let result =
        exec(&engine, json!({ "command": "wc -c; echo $A:$HOME", "stdin": input, "env": {"A": "1"} })).await;
    assert_eq!(result.stdout.trim(), "1048576\n1:/home/sandbox");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_run_something_passes_every_stage() {
    let host = Host::new();
    let engine = host.engine().await;
    let mut runs = vec![
        call(&engine, "exec", json!({ "command": "true" })).await.unwrap(),
        call(&engine, "run_code", json!({ "code": "true", "language": "shell" })).await.unwrap(),
        call(&engine, "run", json!({ "argv": ["true"] })).await.unwrap(),
        call(&engine, "start_job", json!({ "name": "job", "argv": ["true"] })).await.unwrap(),
    ]
    .into_iter()
    .map(|result| result["run_id"].as_str().unwrap().to_owned())
    .collect::<Vec<_>>();
    let targets = [Target::Named("a".parse().unwrap()), Target::OneShot(OneShot::default())];
    for target in targets {
        let mut session = engine.open(context(), open(target, Command::Shell("true".into()))).await.unwrap();
        runs.push(session.run_id.to_string());
        while session.output.next().await.is_some() {}
    }
    let failed = call(&engine, "exec", json!({ "argv": ["/no/such/program"] })).await.unwrap_err();
    runs.push(failed.details["run_id"].as_str().unwrap().to_owned());
    call(&engine, "wait", json!({ "run_id": "job" })).await.unwrap();
    for run in runs {
        let row = audit_of(&engine, &run).await;
        assert_eq!(row["detail"]["stages"], json!(STAGES), "{row}");
        assert_eq!(row["detail"]["network"], serde_json::json!([]));
    }
    assert_eq!(call(&engine, "audit_verify", json!({})).await.unwrap()["intact"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_first_calls_at_once_make_one_sandbox() {
    let host = Host::new();
    let engine = host.engine().await;
    let calls = (0..20).map(|_| exec(&engine, json!({ "sandbox": "one", "command": "true" })));
    let results = futures::future::join_all(calls).await;
    assert!(results.iter().all(|result| result.state == RunState::Completed));
    assert_eq!(host.world.created.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_sandbox_is_rebuilt_and_its_command_lost_but_never_run_again() {
    let host = Host::new();
    let engine = host.engine().await;
    let marks = tempfile::NamedTempFile::new().unwrap();
    let script = format!("echo x >> {}; echo started; sleep 600", marks.path().display());
    let begun = exec(&engine, json!({ "command": script, "wait": "0s" })).await;
    let mut events = engine.follow(&context(), &begun.run_id, FollowFrom::After(0)).unwrap();
    while !matches!(events.next().await.unwrap().kind, RunEventKind::Stdout(_)) {}
    let status = call(&engine, "status", json!({ "sandbox": "default" })).await.unwrap();
    host.world.crash(status["sandboxes"][0]["id"].as_str().unwrap());
    let lost: RunResult =
        serde_json::from_value(call(&engine, "wait", json!({ "run_id": begun.run_id })).await.unwrap())
            .unwrap();
    assert_eq!(lost.state, RunState::Lost);
    assert!(lost.note.unwrap().contains("not run again"));
    let next = exec(&engine, json!({ "command": "echo alive" })).await;
    assert_eq!(next.stdout, "alive\n");
    assert_eq!(std::fs::read_to_string(marks.path()).unwrap(), "x\n");
    let now = call(&engine, "status", json!({ "sandbox": "default" })).await.unwrap();
    assert_ne!(now["sandboxes"][0]["id"], status["sandboxes"][0]["id"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_shots_leave_nothing_behind() {
    let host = Host::new();
    let engine = host.engine().await;
    let files = json!([{ "path": "in.txt", "content": "aGk=", "encoding": "base64" }]);
    let result = call(&engine, "run", json!({ "command": "cat in.txt", "files": files })).await.unwrap();
    assert_eq!(result["stdout"], "hi");
    call(&engine, "run", json!({ "argv": ["/no/such"] })).await.unwrap_err();
    engine.shutdown(Duration::from_secs(5)).await;
    assert_eq!(host.world.places(), 0);
    assert_eq!(host.world.created.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_outlives_the_engine_and_the_next_one_has_all_of_it() {
    let host = Host::new();
    let engine = host.engine().await;
    let release = tempfile::tempdir().unwrap();
    let gate = release.path().join("go");
    let script =
        format!("echo before; while ! [ -e {} ]; do sleep 0.05; done; echo after; exit 7", gate.display());
    let begun = exec(&engine, json!({ "command": script, "wait": "0s" })).await;
    let ended_meanwhile = exec(&engine, json!({ "command": "sleep 0.2; echo quick", "wait": "0s" })).await;
    host.stop(engine).await;

    let engine = host.engine().await;
    assert_eq!(host.world.created.load(Ordering::SeqCst), 1, "the sandbox was taken over, not made again");
    std::fs::write(&gate, "").unwrap();
    let end: RunResult =
        serde_json::from_value(call(&engine, "wait", json!({ "run_id": begun.run_id })).await.unwrap())
            .unwrap();
    assert_eq!(
        (end.state, end.exit_code, end.stdout.as_str()),
        (RunState::Failed, Some(7), "before\nafter\n")
    );
    let input = json!({ "run_id": ended_meanwhile.run_id });
    let quick: RunResult = serde_json::from_value(call(&engine, "wait", input).await.unwrap()).unwrap();
    assert_eq!((quick.state, quick.stdout.as_str()), (RunState::Completed, "quick\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_that_died_without_an_engine_is_told_and_rebuilt() {
    let host = Host::new();
    let engine = host.engine().await;
    let begun = exec(&engine, json!({ "command": "sleep 600", "wait": "0s" })).await;
    let id =
        call(&engine, "list", json!({})).await.unwrap()["sandboxes"][0]["id"].as_str().unwrap().to_owned();
    host.stop(engine).await;
    host.world.crash(&id);

    let engine = host.engine().await;
    let lost = call(&engine, "wait", json!({ "run_id": begun.run_id })).await.unwrap();
    assert_eq!(lost["state"], "lost");
    assert_eq!(call(&engine, "list", json!({})).await.unwrap()["sandboxes"][0]["state"], "failed");
    assert_eq!(exec(&engine, json!({ "command": "echo again" })).await.stdout, "again\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_configuration_rebuilds_idle_sandboxes_that_follow_it() {
    let host = Host::new();
    let engine = host.engine().await;
    exec(&engine, json!({ "command": "true" })).await;
    call(&engine, "create", json!({ "sandbox": "own", "memory": "64M" })).await.unwrap();
    let before = call(&engine, "list", json!({})).await.unwrap();
    host.stop(engine).await;
    let mut config = EngineConfig { warm_default: false, ..EngineConfig::default() };
    config.limits.pids = 99;
    let engine = host.engine_with(config).await;
    for name in ["default", "own"] {
        exec(&engine, json!({ "sandbox": name, "command": "true" })).await;
    }
    let after = call(&engine, "list", json!({})).await.unwrap();
    assert_ne!(after["sandboxes"][0]["id"], before["sandboxes"][0]["id"]);
    assert_eq!(after["sandboxes"][1]["id"], before["sandboxes"][1]["id"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_are_told_apart() {
    let host = Host::new();
    let engine = host.engine().await;
    let timed_out = exec(&engine, json!({ "command": "echo part; sleep 600", "timeout": "300ms" })).await;
    assert_eq!((timed_out.state, timed_out.stdout.as_str()), (RunState::TimedOut, "part\n"));
    assert!(timed_out.note.unwrap().contains("timeout"));
    let signalled = exec(&engine, json!({ "command": "kill -SEGV $$" })).await;
    assert_eq!((signalled.state, signalled.signal), (RunState::Killed, Some(11)));

    let begun = exec(&engine, json!({ "command": "echo on; sleep 600", "wait": "0s" })).await;
    host.world.oom_kills.fetch_add(1, Ordering::SeqCst);
    let killed = call(&engine, "kill", json!({ "run_id": begun.run_id, "force": true })).await.unwrap();
    assert_eq!(killed["state"], "killed", "a wanted end is not a lack of memory");
    let again = call(&engine, "kill", json!({ "run_id": begun.run_id })).await.unwrap_err();
    assert_eq!(again.code, Code::RunFinished);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_a_call_kills_its_run() {
    let engine = Host::new().engine().await;
    let context = context();
    let cancelled = context.cancelled.clone();
    let calling = engine.call(context, "exec", json!({ "command": "sleep 600" }));
    let error = tokio::join!(calling, async { cancelled.cancel() }).0.unwrap_err();
    assert_eq!(error.code, Code::Cancelled);
    let run = error.details["run_id"].as_str().unwrap();
    assert_eq!(call(&engine, "wait", json!({ "run_id": run })).await.unwrap()["state"], "cancelled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interactive_command_gets_input_and_loses_no_output() {
    let host = Host::new();
    let engine = host.engine().await;
    let request = open(Target::OneShot(OneShot::default()), Command::Argv(vec!["cat".into()]));
    let mut session = engine.open(context(), request).await.unwrap();
    let input = session.input.clone();
    let piece = Bytes::from(vec![b'x'; 64 * 1024]);
    let sending = async {
        for _ in 0..64 {
            input.stdin(piece.clone()).await.unwrap();
        }
        input.close_stdin().await.unwrap();
    };
    let receiving = async {
        let mut count = 0;
        loop {
            match session.output.next().await.unwrap() {
                SessionEvent::Stdout(bytes) => count += bytes.len(),
                SessionEvent::Stderr(_) | SessionEvent::Lost(_) => {}
                SessionEvent::Ended(result) => return (count, result),
            }
        }
    };
    let ((), (count, result)) = tokio::join!(sending, receiving);
    assert_eq!((count, result.stdout_bytes, result.state), (4 << 20, 4 << 20, RunState::Completed));
    engine.shutdown(Duration::from_secs(5)).await;
    assert_eq!(host.world.places(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_a_session_ends_its_command() {
    let engine = Host::new().engine().await;
    let request = open(Target::Named("a".parse().unwrap()), Command::Shell("sleep 600".into()));
    let session = engine.open(context(), request).await.unwrap();
    let run = session.run_id.clone();
    drop(session);
    assert_eq!(call(&engine, "wait", json!({ "run_id": run })).await.unwrap()["state"], "cancelled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_output_is_cut_in_the_answer_and_paged_by_logs() {
    let engine = Host::new().engine().await;
    let result = exec(&engine, json!({ "command": "seq 1 20000" })).await;
    assert!(result.stdout_truncated && result.stdout.contains("bytes cut; logs(run_id="));
    assert!(result.stdout.starts_with("1\n2\n") && result.stdout.ends_with("19999\n20000\n"));
    assert!(serde_json::to_string(&result).unwrap().len() < 30_000);
    let (mut offset, mut all) = (0, String::new());
    loop {
        let input = json!({ "run_id": result.run_id, "stream": "stdout", "offset": offset });
        let page = call(&engine, "logs", input).await.unwrap()["stdout"].clone();
        all.push_str(page["text"].as_str().unwrap());
        offset = page["next_offset"].as_u64().unwrap();
        if offset == page["total_bytes"].as_u64().unwrap() {
            break;
        }
    }
    assert_eq!(all, (1..=20000).map(|number| format!("{number}\n")).collect::<String>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_written_all_and_read_back() {
    let engine = Host::new().engine().await;
    let files = json!({ "a/b.txt": "hello", "c.txt": "€" });
    let written = call(&engine, "write_files", json!({ "files": files })).await.unwrap();
    assert_eq!(written["written"], json!([{ "path": "a/b.txt", "size": 5 }, { "path": "c.txt", "size": 3 }]));
    let read = call(&engine, "read_file", json!({ "path": "a/b.txt" })).await.unwrap();
    assert_eq!((read["content"].as_str(), read["encoding"].as_str()), (Some("hello"), Some("utf8")));
    for (path, code) in [("nope", Code::FileNotFound), ("a", Code::IsDirectory)] {
        assert_eq!(call(&engine, "read_file", json!({ "path": path })).await.unwrap_err().code, code);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_gets_a_code_a_next_step_and_changes_nothing() {
    let host = Host::new();
    let engine = host.engine().await;
    let unknown: RunId = RunId::fresh();
    let cases = [
        ("exec", json!({ "sandbox": "../x", "command": "true" }), Code::InvalidName),
        ("exec", json!({ "command": "true", "argv": ["true"] }), Code::InvalidArgument),
        ("exec", json!({}), Code::InvalidArgument),
        ("exec", json!({ "argv": "true" }), Code::InvalidArgument),
        ("exec", json!({ "command": "true", "cwd": "tmp" }), Code::InvalidPath),
        ("exec", json!({ "command": "true", "env": {"A=B": "1"} }), Code::InvalidArgument),
        ("exec", json!({ "command": "true", "env": {"LD_PRELOAD": "x"} }), Code::InvalidArgument),
        ("exec", json!({ "command": "true", "timeout": "soon" }), Code::InvalidDuration),
        ("exec", json!({ "command": "true", "timeout": "99d" }), Code::InvalidArgument),
        ("exec", json!({ "command": "true", "user": "admin" }), Code::InvalidArgument),
        ("exec", json!({ "command": "true", "surprise": 1 }), Code::InvalidArgument),
        ("create", json!({ "sandbox": "x", "memory": "12X" }), Code::InvalidSize),
        ("create", json!({ "sandbox": "x", "tier": "process" }), Code::BackendUnavailable),
        ("create", json!({ "sandbox": "x", "backend": "cloud" }), Code::BackendUnavailable),
        ("create", json!({ "sandbox": "x", "backend": "A cloud" }), Code::InvalidArgument),
        ("run", json!({ "command": "true", "backend": "cloud" }), Code::BackendUnavailable),
        ("exec", json!({ "sandbox": "x", "command": "true", "backend": "cloud" }), Code::BackendUnavailable),
        ("write_files", json!({ "files": { "../x": "y" } }), Code::InvalidPath),
        ("write_files", json!({ "files": [] }), Code::InvalidArgument),
        ("read_file", json!({ "sandbox": "nobody", "path": "x" }), Code::SandboxNotFound),
        ("status", json!({ "sandbox": "nobody" }), Code::SandboxNotFound),
        ("destroy", json!({ "sandbox": "nobody" }), Code::SandboxNotFound),
        ("wait", json!({ "run_id": unknown }), Code::RunNotFound),
        ("wait", json!({ "run_id": "run_x" }), Code::InvalidArgument),
        ("kill", json!({ "run_id": unknown }), Code::RunNotFound),
        ("nothing", json!({}), Code::OperationNotFound),
    ];
    for (operation, input, code) in cases {
        let error = call(&engine, operation, input.clone()).await.unwrap_err();
        assert_eq!(error.code, code, "{operation} {input}: {error}");
        assert!(!error.next_steps.is_empty(), "{operation} {input}: no next step");
    }
    assert_eq!(host.world.created.load(Ordering::SeqCst), 0);
    let refused = call(&engine, "create", json!({ "sandbox": "x", "tier": "process" })).await.unwrap_err();
    assert!(
        refused.message.contains("the kernel has none") && refused.next_steps[0].contains("lsm=landlock")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_names_its_backend_and_keeps_it() {
    let host = Host::new();
    let engine = host.engine().await;
    let created = call(&engine, "create", json!({ "sandbox": "a", "backend": "plain" })).await.unwrap();
    assert_eq!(created["backend"], "plain");
    // The same with or without the name; another one is another sandbox.
    call(&engine, "create", json!({ "sandbox": "a" })).await.unwrap();
    exec(&engine, json!({ "sandbox": "a", "command": "true", "backend": "plain" })).await;
    for (operation, input) in [
        ("create", json!({ "sandbox": "a", "backend": "cloud" })),
        ("exec", json!({ "sandbox": "a", "command": "true", "backend": "cloud" })),
    ] {
        let error = call(&engine, operation, input).await.unwrap_err();
        assert_eq!(error.code, Code::AlreadyExists, "{operation}: {error}");
    }
    let health = call(&engine, "health", json!({})).await.unwrap();
    assert_eq!(health["tiers"][0]["backend"], "plain");
    assert_eq!(health["tiers"][0]["capabilities"]["images"], "any");
    // The next engine finds it by the backend on record.
    host.stop(engine).await;
    let engine = host.engine().await;
    let listed = call(&engine, "list", json!({})).await.unwrap();
    assert_eq!(listed["sandboxes"][0]["backend"], "plain");
    host.stop(engine).await;
    let store = Store::open(host.state.path()).unwrap();
    let config = EngineConfig { backend: Some("cloud".parse().unwrap()), ..EngineConfig::default() };
    let error = Engine::start(config, store, Vec::new()).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (Code::BackendUnavailable, "unknown backend \"cloud\""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_program_is_an_error_on_record() {
    let engine = Host::new().engine().await;
    let error = call(&engine, "exec", json!({ "argv": ["no-such-program"] })).await.unwrap_err();
    assert_eq!(error.code, Code::CommandNotFound);
    let history = call(&engine, "history", json!({})).await.unwrap();
    assert_eq!(
        (&history["runs"][0]["state"], &history["runs"][0]["exit_code"]),
        (&json!("failed"), &json!(127))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn destroying_a_sandbox_ends_its_runs() {
    let host = Host::new();
    let engine = host.engine().await;
    let begun = exec(&engine, json!({ "sandbox": "a", "command": "sleep 600", "wait": 0 })).await;
    call(&engine, "destroy", json!({ "sandbox": "a" })).await.unwrap();
    let ended = call(&engine, "wait", json!({ "run_id": begun.run_id })).await.unwrap();
    assert_eq!((&ended["state"], &ended["note"]), (&json!("killed"), &json!("its sandbox was destroyed")));
    assert_eq!(host.world.places(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_sees_the_run_from_its_start_to_its_end() {
    let engine = Host::new().engine().await;
    let begun = exec(&engine, json!({ "command": "echo one; sleep 0.1; echo two >&2", "wait": "0s" })).await;
    let events: Vec<_> =
        engine.follow(&context(), &begun.run_id, FollowFrom::After(0)).unwrap().collect().await;
    assert!(events.windows(2).all(|pair| pair[0].id < pair[1].id));
    assert!(matches!(events[0].kind, RunEventKind::Started));
    assert!(matches!(&events[1].kind, RunEventKind::Stdout(text) if text == "one\n"));
    assert!(matches!(&events[2].kind, RunEventKind::Stderr(text) if text == "two\n"));
    assert!(matches!(&events[3].kind, RunEventKind::Ended(result) if result.state == RunState::Completed));
    let resumed: Vec<_> =
        engine.follow(&context(), &begun.run_id, FollowFrom::After(events[1].id)).unwrap().collect().await;
    assert_eq!(resumed.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_is_run_in_its_language() {
    let engine = Host::new().engine().await;
    let input = json!({ "code": "import sys; print(sys.argv[1:])", "args": ["a b"] });
    let result = call(&engine, "run_code", input).await.unwrap();
    assert_eq!(result["stdout"], "['a b']\n");
    let long = format!("# {}\nprint('long')", "x".repeat(200_000));
    let result = call(&engine, "run_code", json!({ "code": long, "language": "python" })).await.unwrap();
    assert_eq!(result["stdout"], "long\n");
    let error = call(&engine, "run_code", json!({ "code": "x", "language": "cobol" })).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
}
