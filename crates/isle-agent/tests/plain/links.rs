//! The real agent as a plain child process, over every kind of link: hello, a command, files, a signal.

use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use crate::support::{Agent, Host, finish, inherit, next, read_until, until};
use isle_wire::{
    BeforePreamble, Connections, DialRequest, Exit, FailureKind, FdStream, GENERATION, GateEvent, Hello,
    OnHangup, Reply, Request, RunList, Welcome,
};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// What has to work whatever the link is.
async fn everything_works(host: &Host, passes_descriptors: bool) {
    assert_eq!((host.welcome.generation, host.welcome.passes_descriptors), (GENERATION, passes_descriptors));
    let mut stream = host.request(&Request::Hello(Hello { generation: GENERATION })).await;
    let welcome: Welcome = next(&mut stream).await.decode().unwrap();
    assert_eq!(welcome.passes_descriptors, passes_descriptors);

    let ran = host.run("one", "pwd; echo $ISLE_WORKSPACE; exit 3").await;
    assert_eq!(ran.ended.exit, Exit::Code(3));
    let mut lines = ran.stdout.lines();
    assert_eq!(lines.next(), lines.next(), "/workspace is where it was said to be");

    // More than any link buffers, in both directions, with every byte value.
    let contents: Vec<u8> = (0..1_500_000_u32).map(|number| (number % 253) as u8).collect();
    host.write("deep/file", &contents).await;
    assert!(host.read("deep/file").await == contents);
    let ran = host.run("two", "wc -c < deep/file").await;
    assert_eq!(ran.stdout.trim(), contents.len().to_string());

    let mut stream = host.start("three", &["sh", "-c", "echo ready; exec sleep 600"], OnHangup::Kill).await;
    let stdout = read_until(&mut stream, "ready").await;
    host.signal("three", libc::SIGTERM, false).await;
    assert_eq!(finish(stream, stdout).await.ended.exit, Exit::Signal(libc::SIGTERM));

    gate_is_refused(host, passes_descriptors).await;
}

/// A plain agent serves no network; without descriptor passing no agent does, and says that first.
async fn gate_is_refused(host: &Host, passes_descriptors: bool) {
    let expected =
        if passes_descriptors { FailureKind::NotInThisMode } else { FailureKind::NoDescriptorPassing };
    let mut stream = host.request(&Request::Gate(Connections::Passed)).await;
    let event: GateEvent = next(&mut stream).await.decode().unwrap();
    assert!(matches!(&event, GateEvent::Failed(failure) if failure.kind == expected), "{event:?}");
    let reply = host.reply(&Request::Dial(DialRequest { port: 80, connections: Connections::Passed })).await;
    assert!(matches!(&reply, Reply::Failed(failure) if failure.kind == expected), "{reply:?}");
}

async fn known_runs(host: &Host) -> Vec<(String, bool)> {
    let mut stream = host.request(&Request::Runs).await;
    let list: RunList = next(&mut stream).await.decode().unwrap();
    let mut runs: Vec<_> = list.runs.into_iter().map(|entry| (entry.run, entry.ended)).collect();
    runs.sort();
    runs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_serves_over_its_standard_input_and_output() {
    let mut agent = Agent::start(&["stdio"], |command| {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
    });
    let (stdin, stdout) = (agent.child.stdin.take().unwrap(), agent.child.stdout.take().unwrap());
    let stream = FdStream::pipes(OwnedFd::from(stdout), OwnedFd::from(stdin)).unwrap();
    let host = Host::connect(stream, BeforePreamble::Nothing).await.unwrap();
    everything_works(&host, false).await;
    assert_eq!(std::fs::read(agent.workspace().join("deep/file")).unwrap().len(), 1_500_000);
    drop(host);
    assert!(agent.exited().success(), "it exits when its only link has ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_serves_over_inherited_pipes() {
    let (forth, back) = (rustix::pipe::pipe().unwrap(), rustix::pipe::pipe().unwrap());
    for ours in [&forth.1, &back.0] {
        rustix::io::fcntl_setfd(ours, rustix::io::FdFlags::CLOEXEC).unwrap();
    }
    let link = format!("pipes:{},{}", inherit(&forth.0), inherit(&back.1));
    let agent = Agent::start(&[&link], |_| ());
    drop((forth.0, back.1));
    let stream = FdStream::pipes(back.0, forth.1).unwrap();
    let host = Host::connect(stream, BeforePreamble::Nothing).await.unwrap();
    everything_works(&host, false).await;
    drop(agent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_serves_over_an_inherited_socket_and_shuts_down() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let theirs = OwnedFd::from(theirs);
    let mut agent = Agent::start(&[&format!("socket:{}", inherit(&theirs))], |_| ());
    drop(theirs);
    let stream = FdStream::socket_receiving(ours).unwrap();
    let host = Host::connect(stream, BeforePreamble::Nothing).await.unwrap();
    everything_works(&host, true).await;
    let _stream = host.request(&Request::Shutdown).await;
    assert!(agent.exited().success());
}

/// Opens a pseudoterminal and points the device of the agent at it.
fn plug_in(device: &Path) -> OwnedFd {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let next = device.with_extension("next");
    symlink(name.to_str().unwrap(), &next).unwrap();
    std::fs::rename(&next, device).unwrap();
    master
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_serves_over_a_device_and_opens_it_again() {
    let directory = tempfile::tempdir().unwrap();
    let device = directory.path().join("port");
    let first = plug_in(&device);
    let agent = Agent::start_in(directory, &[&format!("device:{}", device.display())], |_| ());
    let stream = FdStream::device(first).unwrap();
    let host = Host::connect(stream, BeforePreamble::EarlierConnection).await.unwrap();
    everything_works(&host, false).await;
    let mut stream = host.start("job", &["sh", "-c", "echo ready; sleep 600"], OnHangup::Continue).await;
    read_until(&mut stream, "ready").await;
    drop((stream, host));

    let second = FdStream::device(plug_in(&device)).unwrap();
    let host = Host::connect(second, BeforePreamble::EarlierConnection).await.unwrap();
    assert!(known_runs(&host).await.contains(&("job".into(), false)), "the job is still running");
    host.signal("job", libc::SIGKILL, true).await;
    assert_eq!(host.run("after", "echo again").await.stdout, "again\n");
    drop(agent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_connects_again_to_an_agent_that_listens() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent.sock");
    std::fs::write(&path, "left by an earlier agent").unwrap();
    let mut agent = Agent::start_in(directory, &[&format!("listen:{}", path.display())], |_| ());
    // The old file is replaced before anything can connect.
    until("the agent listens", || UnixStream::connect(&path).is_ok());
    let host = Host::connect_to(&path).await;
    everything_works(&host, true).await;
    let mut stream = host.start("job", &["sh", "-c", "echo ready; sleep 600"], OnHangup::Continue).await;
    read_until(&mut stream, "ready").await;
    drop((stream, host));

    let (one, other) = (Host::connect_to(&path).await, Host::connect_to(&path).await);
    for host in [&one, &other] {
        assert!(known_runs(host).await.contains(&("job".into(), false)), "the job is still running");
    }
    one.signal("job", libc::SIGKILL, true).await;
    let _stream = other.request(&Request::Shutdown).await;
    assert!(agent.exited().success());
}

#[test]
fn a_command_line_that_is_not_understood_is_rejected() {
    let agent = env!("CARGO_BIN_EXE_isle-agent");
    for arguments in [&["plain"][..], &["plain", "--workspace", "/", "--link", "socket:99"], &["dance"]] {
        let output = std::process::Command::new(agent).args(arguments).output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("isle-agent: "), "{arguments:?}");
    }
}
