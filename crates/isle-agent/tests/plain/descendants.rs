//! Finding the processes of a run without namespaces: by descent from a supervisor that is their subreaper.

use std::fs;
use std::process::Stdio;

use crate::support::{Agent, Host, finish, processes_with, read_until, until};
use isle_wire::{BeforePreamble, Exit, FdStream, OnHangup};

async fn agent_over_stdio() -> (Agent, Host) {
    let mut agent = Agent::start(&["stdio"], |command| {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
    });
    let (stdin, stdout) = (agent.child.stdin.take().unwrap(), agent.child.stdout.take().unwrap());
    let stream = FdStream::pipes(stdout.into(), stdin.into()).unwrap();
    let host = Host::connect(stream, BeforePreamble::Nothing).await.unwrap();
    (agent, host)
}

/// A duration for `sleep` that no other process on this machine uses.
fn unique(test: u32) -> String {
    format!("{}.{test}{}", 3600 + test, std::process::id())
}

/// A script that leaves `sleep` behind in a new session, without a parent.
fn detached(marker: &str) -> String {
    format!("(setsid sh -c 'setsid sleep {marker} >/dev/null 2>&1 &' >/dev/null 2>&1 &); echo started")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_left_behind_is_killed_and_counted() {
    let (_agent, host) = agent_over_stdio().await;
    let marker = unique(1);
    let wait =
        format!("{}; while ! pgrep -f 'sleep {marker}' >/dev/null; do sleep 0.01; done", detached(&marker));
    let ran = host.run("left", &wait).await;
    assert_eq!((ran.stdout.as_str(), ran.ended.exit), ("started\n", Exit::Code(0)));
    assert_eq!(ran.ended.leftovers, 1);
    assert!(processes_with(&marker).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_a_run_kills_detached_processes_of_that_run_only() {
    let (_agent, host) = agent_over_stdio().await;
    let (first, second) = (unique(2), unique(3));
    let script = |marker: &str| format!("{}; sleep 600", detached(marker));
    let mut one = host.start("one", &["sh", "-c", &script(&first)], OnHangup::Kill).await;
    let mut other = host.start("other", &["sh", "-c", &script(&second)], OnHangup::Kill).await;
    let stdout = read_until(&mut one, "started").await;
    read_until(&mut other, "started").await;
    for marker in [&first, &second] {
        until("the detached process runs", || processes_with(marker).len() == 1);
    }
    host.signal("one", libc::SIGKILL, true).await;
    assert_eq!(finish(one, stdout).await.ended.exit, Exit::Signal(libc::SIGKILL));
    assert!(processes_with(&first).is_empty());
    assert_eq!(processes_with(&second).len(), 1);
    // A stream that ends kills its run.
    drop(other);
    until("the other run is killed", || processes_with(&second).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_bomb_is_killed() {
    let (_agent, host) = agent_over_stdio().await;
    let marker = unique(4);
    // Each process starts another one in a new session and exits, for as long as it is not stopped.
    let script = format!("echo started; while :; do (setsid sleep {marker} &) ; done 2>/dev/null");
    let mut stream = host.start("bomb", &["sh", "-c", &script], OnHangup::Kill).await;
    let stdout = read_until(&mut stream, "started").await;
    until("it has forked", || processes_with(&marker).len() > 20);
    host.signal("bomb", libc::SIGKILL, true).await;
    assert_eq!(finish(stream, stdout).await.ended.exit, Exit::Signal(libc::SIGKILL));
    assert!(processes_with(&marker).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_does_not_survive_its_supervisor_or_the_agent() {
    let (mut agent, host) = agent_over_stdio().await;
    let (first, second) = (unique(5), unique(6));
    let script = |marker: &str| format!("{}; sleep 600", detached(marker));
    let mut stream = host.start("one", &["sh", "-c", &script(&first)], OnHangup::Kill).await;
    let stdout = read_until(&mut stream, "started").await;
    until("the detached process runs", || processes_with(&first).len() == 1);
    let pid = agent.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let supervisor: i32 = children.split_whitespace().next().unwrap().parse().unwrap();
    // SAFETY: plain numbers; the agent has not reaped this child.
    unsafe { libc::kill(supervisor, libc::SIGKILL) };
    assert_eq!(finish(stream, stdout).await.ended.exit, Exit::Signal(libc::SIGKILL));
    until("orphans are killed by the agent", || processes_with(&first).is_empty());

    let mut stream = host.start("two", &["sh", "-c", &script(&second)], OnHangup::Continue).await;
    read_until(&mut stream, "started").await;
    until("the detached process runs", || processes_with(&second).len() == 1);
    agent.child.kill().unwrap();
    agent.exited();
    until("the supervisor kills its run", || processes_with(&second).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_agent_leaves_no_process_behind() {
    let (mut agent, host) = agent_over_stdio().await;
    let marker = unique(7);
    let script = format!("{}; sleep 600", detached(&marker));
    let mut stream = host.start("job", &["sh", "-c", &script], OnHangup::Continue).await;
    read_until(&mut stream, "started").await;
    until("the detached process runs", || processes_with(&marker).len() == 1);
    // SAFETY: plain numbers; the child was not reaped.
    unsafe { libc::kill(agent.pid(), libc::SIGTERM) };
    assert!(agent.exited().success());
    assert!(processes_with(&marker).is_empty());
}
