//! How runs and sandboxes of this tier live and end: nothing outlives its run, its agent or its
//! sandbox, and what is meant to stay stays.

use futures::FutureExt;
use isle_core::Code;
use isle_core::backend::{Backend, DiskStops, Found, Keep, Lifetime, SandboxSpec};
use isle_core::values::SandboxId;
use isle_wire::{ExecEvent, ExecRequest, Exit, FailureKind, GuestUser, OnHangup, Reply};

use crate::house::{Guest, House, PATIENCE, Process, lives, parent, spec};

/// Starts a daemon the old way (two forks, a session of its own), prints its number and goes on.
const DAEMON: &str = r#"python3 -c '
import os, time
if os.fork() == 0:
    os.setsid()
    daemon = os.fork()
    if daemon == 0:
        null = os.open("/dev/null", os.O_RDWR)
        [os.dup2(null, number) for number in (0, 1, 2)]
        time.sleep(600)
    print(daemon, flush=True)
    os._exit(0)
os.wait()
'"#;

#[tokio::test]
async fn a_command_works_in_directories_of_its_own() {
    let house = House::new().await;
    let guest = house.one_shot().await;
    let outcome = guest
        .shell("test \"$PWD\" = \"$ISLE_WORKSPACE\" && cd && pwd && cd \"$TMPDIR\" && touch x && ls")
        .await;
    assert_eq!(outcome.ended.exit, Exit::Code(0), "{outcome:?}");
    assert!(outcome.stdout.ends_with("/home\nx\n"), "{outcome:?}");
    // A word that is a path of the sandbox means the sandbox's own place, also as the program.
    guest.shell("printf '#!/bin/sh\\necho \"$@\"; pwd\\n' > script; chmod +x script").await;
    let mut request = Guest::request(&["/workspace/script", "one", "two"]);
    request.cwd = b"/workspace/deep/down".to_vec().into();
    let outcome = guest.run(request).await;
    assert_eq!(outcome.ended.exit, Exit::Code(0), "{outcome:?}");
    assert!(
        outcome.stdout.starts_with("one two\n") && outcome.stdout.ends_with("/workspace/deep/down\n"),
        "{outcome:?}"
    );
    let outcome = guest.python("print(sum(range(10)))").await;
    assert_eq!(outcome.stdout, "45\n");
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn a_terminal_is_a_terminal_of_the_size_asked_for() {
    let house = House::new().await;
    let guest = house.one_shot().await;
    let outcome =
        guest.terminal("test -t 0 && test -t 2 && stty size; echo < /dev/tty > /dev/tty here").await;
    assert_eq!(outcome.stdout, "33 99\r\nhere\r\n", "{outcome:?}");
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn a_daemon_started_by_a_command_is_gone_when_the_command_is() {
    let house = House::new().await;
    let guest = house.one_shot().await;
    let outcome = guest.shell(DAEMON).await;
    assert_eq!(outcome.ended.exit, Exit::Code(0), "{outcome:?}");
    assert_eq!(outcome.ended.leftovers, 1);
    assert!(!lives(outcome.stdout.trim().parse().unwrap()));
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn a_timed_out_command_leaves_no_process_behind() {
    let house = House::new().await;
    let guest = house.one_shot().await;
    let text = format!("trap '' TERM; {DAEMON}; sleep 600 & kill -STOP $!; echo $!; echo $$; wait");
    let request = ExecRequest { timeout_ms: Some(1500), ..Guest::request(&["sh", "-c", &text]) };
    let outcome = guest.run(request).await;
    assert!(outcome.ended.timed_out);
    assert_eq!(outcome.ended.exit, Exit::Signal(libc::SIGKILL));
    let pids: Vec<i32> = outcome.stdout.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(pids.len(), 3, "{outcome:?}");
    assert!(!pids.into_iter().any(lives));
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn a_fork_bomb_is_ended_whole() {
    let house = House::new().await;
    let guest = house.one_shot().await;
    let bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass\n";
    // Where nothing limits processes the host would be the one to suffer.
    let held = guest.containment.guarantees.iter().any(|one| one.key == "pids_limit" && one.fix.is_empty());
    if held {
        let request = ExecRequest { timeout_ms: Some(700), ..Guest::request(&["python3", "-c", bomb]) };
        let outcome = guest.run(request).await;
        assert!(outcome.ended.timed_out, "{outcome:?}");
        let outcome = guest.shell("echo still here").await;
        assert_eq!(outcome.stdout, "still here\n");
    }
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn killing_one_run_leaves_another_alone() {
    let house = House::new().await;
    let guest = house.one_shot().await;
    let start = |run: &str| {
        let request =
            ExecRequest { run: run.into(), ..Guest::request(&["sh", "-c", "sleep 600 & echo $!; wait"]) };
        guest.start(request)
    };
    let (mut first, mut second) = (start("first").await, start("second").await);
    let (one, two): (i32, i32) = (first.line().await.parse().unwrap(), second.line().await.parse().unwrap());
    assert!(matches!(guest.kill("first").await, Reply::Done));
    assert!(!lives(one) && lives(two));
    assert_eq!(first.end().await.ended.exit, Exit::Signal(libc::SIGKILL));
    assert!(matches!(guest.kill("second").await, Reply::Done));
    assert!(!lives(two));
    second.end().await;
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn a_killed_supervisor_takes_its_run_with_it() {
    let house = House::new().await;
    let guest = house.one_shot().await;
    let mut run = guest.start(Guest::request(&["sh", "-c", &format!("{DAEMON}; echo $$; sleep 600")])).await;
    let (daemon, shell): (i32, i32) = (run.line().await.parse().unwrap(), run.line().await.parse().unwrap());
    let (daemon, supervisor) = (Process::open(daemon), Process::open(parent(shell)));
    supervisor.kill();
    assert_eq!(run.end().await.ended.exit, Exit::Signal(libc::SIGKILL));
    daemon.gone().await;
    assert_eq!(guest.shell("echo still here").await.stdout, "still here\n");
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn a_killed_agent_leaves_no_process_behind() {
    let house = House::new().await;
    let guest = house.named().await;
    let mut run = guest.start(Guest::request(&["sh", "-c", &format!("{DAEMON}; echo $$; sleep 600")])).await;
    let (daemon, shell): (i32, i32) = (run.line().await.parse().unwrap(), run.line().await.parse().unwrap());
    let supervisor = parent(shell);
    let (daemon, shell, agent) =
        (Process::open(daemon), Process::open(shell), Process::open(parent(supervisor)));
    agent.kill();
    shell.gone().await;
    daemon.gone().await;
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn destroying_a_sandbox_ends_what_runs_in_it() {
    let house = House::new().await;
    let guest = house.named().await;
    let request = ExecRequest {
        on_hangup: OnHangup::Continue,
        ..Guest::request(&["sh", "-c", &format!("{DAEMON}; echo $$; sleep 600")])
    };
    let mut run = guest.start(request).await;
    let (daemon, shell): (i32, i32) = (run.line().await.parse().unwrap(), run.line().await.parse().unwrap());
    let place = std::fs::read_link(format!("/proc/{shell}/cwd")).unwrap();
    guest.destroy(&house, Keep::Nothing).await;
    assert!(!lives(daemon) && !lives(shell));
    assert!(!place.exists(), "{}", place.display());
    house.leave().await;
}

#[tokio::test]
async fn the_workspace_survives_its_sandbox_unless_it_is_wiped() {
    let house = House::new().await;
    let guest = house.named().await;
    guest.shell("echo kept > file; echo lost > ~/file").await;
    guest.destroy(&house, Keep::Workspace).await;
    let guest = house.named().await;
    let outcome = guest.shell("cat file; test -e ~/file || echo fresh home").await;
    assert_eq!(outcome.stdout, "kept\nfresh home\n");
    assert!(house.backend.usage(&guest.id).await.unwrap().disk_bytes.unwrap() > 0);
    guest.destroy(&house, Keep::Nothing).await;
    let guest = house.named().await;
    assert_eq!(guest.shell("ls").await.stdout, "");
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn a_named_sandbox_survives_its_daemon() {
    let house = House::new().await;
    let guest = house.named().await;
    let request = ExecRequest {
        on_hangup: OnHangup::Continue,
        ..Guest::request(&["sh", "-c", "echo $$; exec sleep 600"])
    };
    let mut run = guest.start(request).await;
    let pid: i32 = run.line().await.parse().unwrap();
    drop(run);
    house.backend.shutdown(PATIENCE).await;
    let (id, spec) = (guest.id.clone(), guest.spec.clone());
    drop(guest);
    let backend = house.again().await;
    let Found::Alive(created) = backend.reconnect(&id, &spec, &serde_json::Value::Null).await.unwrap() else {
        panic!("it is dead")
    };
    let guest = Guest::new(id, spec, created);
    assert!(lives(pid));
    assert_eq!(guest.shell("echo here").await.stdout, "here\n");
    backend.destroy(&guest.id, Keep::Nothing).await.unwrap();
    assert!(!lives(pid));
    backend.shutdown(PATIENCE).await;
    house.leave().await;
}

#[tokio::test]
async fn a_one_shot_ends_with_its_daemon_and_is_swept_by_the_next() {
    let house = House::new().await;
    let guest = house.one_shot().await;
    let request = ExecRequest {
        on_hangup: OnHangup::Continue,
        ..Guest::request(&["sh", "-c", "echo $$; exec sleep 600"])
    };
    let mut run = guest.start(request).await;
    let pid: i32 = run.line().await.parse().unwrap();
    let (process, place) = (Process::open(pid), std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap());
    drop((run, guest));
    process.gone().await;
    let backend = house.again().await;
    let swept = backend.sweep(&[]).await.unwrap();
    assert_eq!(swept.len(), 1, "{swept:?}");
    assert!(!place.exists());
    backend.shutdown(PATIENCE).await;
    house.leave().await;
}

#[tokio::test]
async fn a_sandbox_that_is_destroyed_twice_is_no_error() {
    let house = House::new().await;
    let guest = house.guest(spec(Lifetime::OneShot)).await;
    house.backend.destroy(&guest.id, Keep::Nothing).await.unwrap();
    house.backend.destroy(&guest.id, Keep::Nothing).await.unwrap();
    house.leave().await;
}

#[tokio::test]
async fn there_is_no_guest_root() {
    let house = House::new().await;
    let guest = house.one_shot().await;
    let request = ExecRequest { user: GuestUser::Root, ..Guest::request(&["id"]) };
    match guest.start(request).await.event().await {
        (ExecEvent::Failed(failure), _, _) => {
            assert_eq!(failure.kind, FailureKind::NoGuestRoot);
            assert!(failure.doing.contains("root"), "{failure:?}");
        }
        other => panic!("{other:?}"),
    }
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_named_as_the_caller_named_it() {
    let house = House::new().await;
    let guest = house.one_shot().await;
    match guest.start(Guest::request(&["/workspace/absent"])).await.event().await {
        (ExecEvent::Failed(failure), _, _) => {
            assert_eq!(failure.kind, FailureKind::NotFound);
            assert_eq!(failure.doing, "run /workspace/absent");
        }
        other => panic!("{other:?}"),
    }
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn counters_of_limits_are_read_without_waiting() {
    let house = House::new().await;
    let guest = house.one_shot().await;
    // Read before and after every command: neither a thread nor a task may be needed for it.
    let kills = house.backend.oom_kills(&guest.id).now_or_never().expect("ready at once");
    let forks = house.backend.refused_forks(&guest.id).now_or_never().expect("ready at once");
    assert!(kills.is_none_or(|count| count == 0) && forks.is_none_or(|count| count == 0));
    assert_eq!(house.backend.disk_stops(&guest.id).now_or_never(), Some(DiskStops::default()));
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn an_image_the_backend_does_not_have_is_rejected() {
    let house = House::new().await;
    let unknown = SandboxSpec { image: "debian".into(), ..spec(Lifetime::OneShot) };
    let error = house.backend.create(&SandboxId::fresh(), &unknown).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (Code::InvalidArgument, "unknown image \"debian\""));
    assert_eq!(house.backend.capabilities(&unknown), house.backend.offers()[1].capabilities);
    house.leave().await;
}
