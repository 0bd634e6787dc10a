//! `isle run` and `isle exec`: like running the command here, but there.

use std::io::{Read, Write};
use std::process::{Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{TestDaemon, Watchdog, finish, processes_with, until};

fn run(daemon: &TestDaemon, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = finish(&mut daemon.isle(arguments));
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn streams_and_exit_code_pass_through() {
    let daemon = TestDaemon::start();
    let script = "echo out; echo err >&2; exit 3";
    for arguments in [&["run", "--", "sh", "-c", script][..], &["exec", "box", "--", "sh", "-c", script]] {
        let (code, stdout, stderr) = run(&daemon, arguments);
        assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(3), "out\n", "err\n"), "{arguments:?}");
    }
    assert_eq!(run(&daemon, &["run", "--", "no-such-program"]).0, Some(127));
    assert_eq!(run(&daemon, &["run", "--", "/etc/hostname"]).0, Some(126));
    assert_eq!(run(&daemon, &["run", "--", "sh", "-c", "kill -TERM $$"]).0, Some(143));
    assert_eq!(daemon.names(), ["box"], "a one-shot leaves no name behind");
}

#[test]
fn input_of_any_size_passes_through_unchanged() {
    let daemon = TestDaemon::start();
    let bytes: Vec<u8> = (0..5_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut child =
        daemon.isle(&["run", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let _watch = Watchdog::over(&child);
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let back = std::thread::scope(|scope| {
        scope.spawn(|| {
            stdin.write_all(&bytes).unwrap();
            drop(stdin);
        });
        let mut back = Vec::new();
        stdout.read_to_end(&mut back).unwrap();
        back
    });
    assert!(child.wait().unwrap().success());
    assert!(back == bytes, "what came back is not what went in");
}

#[test]
fn a_command_that_does_not_want_its_input_ends_well() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "true");
    for arguments in [&["run", "--", "echo", "enough"][..], &["exec", "box", "--", "echo", "enough"]] {
        for _ in 0..5 {
            let mut child =
                daemon.isle(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let _watch = Watchdog::over(&child);
            let mut stdin = child.stdin.take().unwrap();
            // Until nobody takes it any more.
            let feeding = std::thread::spawn(move || while stdin.write_all(&[b'x'; 65536]).is_ok() {});
            let output = child.wait_with_output().unwrap();
            feeding.join().unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", output.status);
            assert_eq!(String::from_utf8(output.stdout).unwrap(), "enough\n");
        }
    }
}

#[test]
fn a_reader_that_has_enough_ends_the_command() {
    let daemon = TestDaemon::start();
    let marker = format!("yes-{}", std::process::id());
    let mut child = daemon.isle(&["run", "--", "yes", &marker]).stdout(Stdio::piped()).spawn().unwrap();
    let _watch = Watchdog::over(&child);
    let mut first = vec![0; marker.len() + 1];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(141), "as if SIGPIPE had ended it");
    until("nothing runs on", || processes_with(&format!("yes {marker}")).is_empty());
}

#[test]
fn signals_reach_the_command_and_a_second_interrupt_ends_all_of_it() {
    let daemon = TestDaemon::start();
    let marker = format!("78101{:07}", std::process::id());
    let script = format!(
        "trap 'echo got TERM; exit 5' TERM; trap '' INT; echo ready; (setsid sleep {marker} &) ; while :; do sleep 0.05; done"
    );
    let start = || {
        let mut child =
            daemon.isle(&["run", "--", "sh", "-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut ready = [0; 6];
        stdout.read_exact(&mut ready).unwrap();
        (child, stdout)
    };
    let (mut child, mut stdout) = start();
    let _watch = Watchdog::over(&child);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), child.wait().unwrap().code()), ("got TERM\n", Some(5)));

    let (mut child, _stdout) = start();
    let _watch = Watchdog::over(&child);
    let pid = Pid::from_child(&child);
    // The command ignores the first; the second may find the program already gone.
    kill_process(pid, Signal::INT).unwrap();
    until("the second interrupt ends it", || {
        kill_process(pid, Signal::INT).ok();
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(child.wait().unwrap().code(), Some(130));
    until("the whole tree is gone", || processes_with(&format!("sleep {marker} ")).is_empty());
}

#[test]
fn scripts_and_files_of_this_host_are_taken_along() {
    let daemon = TestDaemon::start();
    daemon.home().write("hello.sh", "echo script $0; cat data.txt; cat /tmp/other.txt");
    daemon.home().write("given.txt", "given\n");
    let (code, stdout, stderr) = run(
        &daemon,
        &["run", "--file", "given.txt:data.txt", "--file", "given.txt:/tmp/other.txt", "hello.sh"],
    );
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.starts_with("script") && stdout.ends_with("given\ngiven\n"), "{stdout}");
    let mut child = daemon
        .isle(&["run", "--lang", "shell"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _watch = Watchdog::over(&child);
    child.stdin.take().unwrap().write_all(b"echo from stdin").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "from stdin\n");
    let (code, stdout, _) = run(
        &daemon,
        &["run", "--env", "A=1", "--cwd", "/tmp", "--user", "root", "--", "sh", "-c", "echo $A; pwd; id -u"],
    );
    assert_eq!((code, stdout.as_str()), (Some(0), "1\n/tmp\n0\n"));
}

#[test]
fn limits_end_a_command_with_the_usual_codes_and_say_why() {
    let daemon = TestDaemon::start();
    let marker = format!("78102{:07}", std::process::id());
    let script = format!("(setsid sleep {marker} &) ; sleep {marker}");
    let (code, _, stderr) = run(&daemon, &["run", "--timeout", "500ms", "--", "sh", "-c", &script]);
    assert_eq!(code, Some(124), "{stderr}");
    assert!(stderr.contains("500ms"), "{stderr}");
    until("the whole tree is gone", || processes_with(&format!("sleep {marker} ")).is_empty());
    daemon.shell("box", "true");
    if daemon.enforces("box", "memory_limit") {
        let eat =
            ["run", "--memory", "64M", "--", "dd", "if=/dev/zero", "of=/dev/null", "bs=300M", "count=1"];
        let (code, _, stderr) = run(&daemon, &eat);
        assert_eq!(code, Some(137), "{stderr}");
        assert!(stderr.contains("memory limit of 64M"), "{stderr}");
    }
}

#[test]
fn json_gives_the_whole_result_and_the_same_exit_code() {
    let daemon = TestDaemon::start();
    let (code, stdout, _) = run(&daemon, &["--json", "run", "--", "sh", "-c", "echo x; exit 4"]);
    let result: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &result["exit_code"], &result["stdout"]), (Some(4), &4.into(), &"x\n".into()));
}

#[test]
fn a_client_that_is_killed_takes_its_one_shot_with_it() {
    let daemon = TestDaemon::start();
    let marker = format!("78103{:07}", std::process::id());
    let mut child = daemon.isle(&["run", "--", "sleep", &marker]).spawn().unwrap();
    let inside = || {
        processes_with(&format!("sleep {marker} "))
            .into_iter()
            .filter(|pid| *pid != child.id().cast_signed())
            .count()
    };
    until("it runs", || inside() > 0);
    child.kill().unwrap();
    child.wait().unwrap();
    until("it is gone", || processes_with(&format!("sleep {marker} ")).is_empty());
    until("its sandbox is gone", || daemon.get("/v1/health")["one_shots"] == 0);
}
