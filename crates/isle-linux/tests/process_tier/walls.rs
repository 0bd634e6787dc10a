//! What does not get out: files, processes, sockets, shared memory. Every denial has beside it what
//! is still allowed, and every probe succeeds without a sandbox.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use isle_core::backend::{Backend, GuaranteeStatus, Keep, Tier};
use isle_wire::{Exit, Violation};

use crate::house::{Guest, House, Process};

/// The same program without a sandbox: what it prints.
fn plainly(python: &str) -> String {
    let output = Command::new("python3").args(["-c", python]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A Python program that prints `done`, or the name of the error.
fn attempt(body: &str) -> String {
    format!(
        "import os, errno, socket, ctypes\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         def call(result):\n    if result == -1: raise OSError(ctypes.get_errno(), '')\n    return result\n\
         try:\n    {}\n    print('done')\nexcept OSError as error:\n    print(errno.errorcode[error.errno])\n",
        body.replace('\n', "\n    ")
    )
}

/// A process of the host, of the same user as the tests.
struct Victim(Child);

impl Victim {
    fn new() -> Self {
        Self(Command::new("sleep").arg("600").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Whether the kernel keeps signals inside a Landlock domain.
fn confines_signals() -> bool {
    isle_setup::landlock::version() >= 6
}

async fn refused(guest: &Guest, body: &str, with: &str) {
    let outcome = guest.python(&attempt(body)).await;
    assert_eq!(outcome.stdout.trim(), with, "{body}\n{}", outcome.stderr);
}

#[tokio::test]
async fn files_of_the_host_cannot_be_read() {
    let house = House::new().await;
    let canary = house.canary();
    let guest = house.one_shot().await;
    let read = |path: &Path| format!("open({:?}).read()", path.display().to_string());
    let list = |path: &Path| format!("os.listdir({:?})", path.display().to_string());
    assert_eq!(plainly(&attempt(&read(&canary))), "done");
    assert_eq!(plainly(&attempt(&list(Path::new("/proc")))), "done");
    refused(&guest, &read(&canary), "EACCES").await;
    refused(&guest, &read(Path::new("/etc/shadow")), "EACCES").await;
    let home = std::env::var("HOME").unwrap_or_else(|_| "/root".into());
    for directory in [
        &house.directory,
        Path::new(&home),
        Path::new("/tmp"),
        Path::new("/proc"),
        Path::new("/sys"),
        Path::new("/dev/shm"),
    ] {
        refused(&guest, &list(directory), "EACCES").await;
    }
    for file in
        ["/proc/self/environ", "/proc/1/cmdline", "/proc/sys/kernel/core_pattern", "/dev/kmsg", "/dev/mem"]
    {
        if Path::new(file).exists() {
            refused(&guest, &read(Path::new(file)), "EACCES").await;
        }
    }
    // A link of its own does not lead out, and its own directory above its directories is closed.
    refused(
        &guest,
        &format!("os.symlink({:?}, 'link'); open('link').read()", canary.display().to_string()),
        "EACCES",
    )
    .await;
    refused(&guest, "os.listdir('..')", "EACCES").await;
    refused(&guest, "open('/etc/ld.so.cache', 'rb').read(); open('/usr/bin/env', 'rb').read()", "done").await;
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn nothing_can_be_written_outside_its_directories() {
    let house = House::new().await;
    let canary = house.canary();
    let (file, directory) = (canary.display().to_string(), house.directory.display().to_string());
    let guest = house.one_shot().await;
    let probes = [
        format!("open({file:?}, 'a')"),
        format!("os.truncate({file:?}, 0)"),
        format!("os.unlink({file:?})"),
        format!("os.rename({file:?}, {directory:?} + '/moved')"),
        format!("os.mkdir({directory:?} + '/made')"),
        format!("os.symlink('x', {directory:?} + '/made')"),
        format!("os.mkfifo({directory:?} + '/made')"),
        format!("open({directory:?} + '/made', 'w')"),
    ];
    for probe in &probes {
        refused(&guest, probe, "EACCES").await;
    }
    for probe in [
        format!("os.link({file:?}, 'linked')"),
        format!("open('mine', 'w').close(); os.rename('mine', {directory:?} + '/mine')"),
    ] {
        let outcome = guest.python(&attempt(&probe)).await;
        assert!(["EACCES", "EXDEV", "EPERM"].contains(&outcome.stdout.trim()), "{probe}: {outcome:?}");
    }
    refused(&guest, "os.mkdir('../made')", "EACCES").await;
    refused(&guest, "os.rename('../workspace', '../other')", "EACCES").await;
    refused(&guest, "open('/usr/made', 'w')", "EACCES").await;
    assert_eq!(fs::read_to_string(&canary).unwrap(), "canary");
    let names: Vec<_> = fs::read_dir(&house.directory).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!(plainly(&attempt(&probes[0])), "done");
    refused(&guest, "os.mkdir('made'); open('made/file', 'w').write('x'); os.rename('made/file', 'file'); os.link('file', 'second')", "done").await;
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn other_processes_cannot_be_signalled_traced_read_or_limited() {
    let house = House::new().await;
    let guest = house.one_shot().await;
    let mut victim = Victim::new();
    let pid = victim.0.id();
    if confines_signals() {
        refused(&guest, "os.kill(os.getppid(), 9)", "EPERM").await;
    }
    if confines_signals() || rustix::process::geteuid().is_root() {
        refused(&guest, &format!("os.kill({pid}, 9)"), "EPERM").await;
    }
    refused(&guest, &format!("call(libc.ptrace(16, {pid}, 0, 0))"), "EPERM").await;
    refused(&guest, &format!("call(libc.process_vm_readv({pid}, 0, 0, 0, 0, 0))"), "EPERM").await;
    refused(
        &guest,
        &format!("import resource\nresource.prlimit({pid}, resource.RLIMIT_CPU, (1, 1))"),
        "EPERM",
    )
    .await;
    refused(&guest, &format!("os.setpriority(os.PRIO_PROCESS, {pid}, 19)"), "EPERM").await;
    refused(&guest, &format!("os.sched_setaffinity({pid}, [0])"), "EPERM").await;
    assert!(victim.0.try_wait().unwrap().is_none());
    refused(&guest, "child = os.fork()\nif child == 0: import time; time.sleep(600)\nos.kill(child, 9)\nos.waitpid(child, 0)", "done").await;
    let outcome = guest.python(&attempt(&format!("call(libc.ptrace(16, {pid}, 0, 0))"))).await;
    assert_eq!(outcome.ended.violations, vec![Violation { call: "ptrace".into(), count: 1 }]);
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn there_are_no_sockets_but_connected_pairs_and_no_shared_memory() {
    let house = House::new().await;
    let guest = house.one_shot().await;
    for family in ["AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET", "AF_ALG", "AF_VSOCK"] {
        refused(&guest, &format!("socket.socket(socket.{family}, socket.SOCK_DGRAM)"), "EAFNOSUPPORT").await;
    }
    refused(&guest, "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)", "EAFNOSUPPORT").await;
    refused(&guest, "one, two = socket.socketpair(); one.send(b'x'); assert two.recv(1) == b'x'", "done")
        .await;
    refused(&guest, "one, two = socket.socketpair(); one.connect('/dev/log')", "EPERM").await;
    for call in [
        "shmget(1, 4096, 0o1600)",
        "semget(1, 1, 0o1600)",
        "msgget(1, 0o1600)",
        "mq_open(b'/x', 0o100, 0o600, 0)",
    ] {
        let body = format!("call(libc.{call})");
        refused(&guest, &body, "EPERM").await;
    }
    assert_eq!(plainly(&attempt("socket.socket(socket.AF_INET, socket.SOCK_DGRAM)")), "done");
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn a_command_has_no_privileges_and_nothing_open_but_its_input_and_output() {
    let house = House::new().await;
    let guest = house.one_shot().await;
    let mut run = guest.start(Guest::request(&["sh", "-c", "sleep 600 & echo $$; wait"])).await;
    let pid: i32 = run.line().await.parse().unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(field("NoNewPrivs:"), ["1"]);
    assert_eq!(field("Seccomp:"), ["2"]);
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    let uids = field("Uid:");
    assert!(uids.iter().all(|uid| *uid == uids[0] && uid != "0"), "{uids:?}");
    if rustix::process::geteuid().is_root() {
        assert!(uids[0].parse::<u32>().unwrap() >= 0x7000_0000);
        assert_eq!(field("CapBnd:"), ["0000000000000000"]);
        assert!(field("Groups:").is_empty());
    } else {
        assert_eq!(uids[0], rustix::process::geteuid().as_raw().to_string());
    }
    // The kernel shows a process's open files to root only.
    if let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) {
        let mut open: Vec<_> = open.map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
        open.sort();
        assert_eq!(open, ["0", "1", "2"]);
    }
    Process::open(pid).kill();
    assert_eq!(run.end().await.ended.exit, Exit::Signal(libc::SIGKILL));
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn limits_hold_for_every_command() {
    let house = House::new().await;
    let guest = house.one_shot().await;
    refused(
        &guest,
        "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nopen('big', 'wb').truncate(17 << 20)",
        "EFBIG",
    )
    .await;
    refused(&guest, "open('small', 'wb').write(bytes(1 << 20))", "done").await;
    let outcome = guest.shell("ulimit -c; ulimit -H -n").await;
    assert_eq!(outcome.stdout, "0\n4096\n");
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}

#[tokio::test]
async fn the_report_names_exactly_what_is_missing() {
    let house = House::new().await;
    let guest = house.one_shot().await;
    let offer = house.backend.offers().into_iter().find(|offer| offer.tier == Tier::Process).unwrap();
    assert!(offer.available_with_downgrade);
    let missing: Vec<&str> = guest
        .containment
        .guarantees
        .iter()
        .filter(|one| one.status == GuaranteeStatus::Missing)
        .map(|one| one.key.as_str())
        .collect();
    let mut expected = vec!["namespaces", "own_root"];
    if !rustix::process::geteuid().is_root() {
        expected.extend(["private_ids", "file_attributes"]);
        if !confines_signals() {
            expected.push("no_signals_out");
        }
    }
    // The rest depends on the cgroups of the host.
    assert_eq!(missing[..expected.len()], expected);
    for key in &missing[expected.len()..] {
        assert!(["memory_limit", "pids_limit", "cpu_limit", "disk_limit"].contains(key), "{key}");
    }
    for key in ["seccomp", "landlock", "no_network", "no_processes_seen", "no_new_privileges"] {
        let line = guest.containment.guarantees.iter().find(|one| one.key == key).unwrap();
        assert_eq!(line.status, GuaranteeStatus::Enforced, "{line:?}");
    }
    guest.destroy(&house, Keep::Nothing).await;
    house.leave().await;
}
