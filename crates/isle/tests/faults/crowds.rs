//! Crowds: thousands of creates at once, destroying what is just being made or used, destroying twice.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::ground::{Ground, Told, assert_usable};
use crate::harness::until;

/// Calls at once, for so many names; one in ten asks for settings nobody else asks for.
const CREATES: usize = 2_000;
const NAMES: usize = 40;
/// Enough for a thread that sends one request.
const STACK: usize = 256 * 1024;

#[test]
fn two_thousand_creates_at_once_are_served_or_refused_and_none_is_half_made() {
    // Each of them is a connection of ours.
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).unwrap();
    let mut ground = Ground::new();
    let gate = Barrier::new(CREATES);
    let (served, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for number in 0..CREATES {
            let (ground, gate, served, refused) = (&ground, &gate, &served, &refused);
            let call = move || {
                let name = format!("box{}", number % NAMES);
                let memory = if number % 10 == 9 { "300M" } else { "200M" };
                gate.wait();
                match ground.ask("POST /v1/sandboxes", Some(&json!({"sandbox": name, "memory": memory}))) {
                    Told::Done(_) => served.fetch_add(1, Ordering::Relaxed),
                    Told::Refused(code) => {
                        assert!(
                            matches!(code.as_str(), "ALREADY_EXISTS" | "LIMIT_REACHED" | "BUSY"),
                            "{code}"
                        );
                        refused.fetch_add(1, Ordering::Relaxed)
                    }
                    Told::Nothing => panic!("{name}: the daemon hung up"),
                };
            };
            std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, call).unwrap();
        }
    });
    let (served, refused) = (served.into_inner(), refused.into_inner());
    println!("{served} served, {refused} refused");
    assert_eq!(served + refused, CREATES);
    let expected: BTreeSet<String> = (0..NAMES).map(|number| format!("box{number}")).collect();
    assert_eq!(ground.names(), expected);
    ground.restart();
    ground.check(&[]);
    for name in &expected {
        assert_usable(&ground, name);
    }
    ground.clear();
}

#[test]
fn destroying_what_is_being_made_leaves_a_whole_sandbox_or_none() {
    let mut ground = Ground::new();
    for round in 0..25 {
        let name = format!("box{}", round % 5);
        let gate = Barrier::new(3);
        std::thread::scope(|scope| {
            let making = scope.spawn(|| {
                gate.wait();
                ground.ask("POST /v1/sandboxes", Some(&json!({"sandbox": name})))
            });
            let destroying: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        gate.wait();
                        ground.ask(&format!("DELETE /v1/sandboxes/{name}"), None)
                    })
                })
                .collect();
            let made = making.join().unwrap();
            assert!(matches!(made, Told::Done(_)), "{made:?}");
            for destroyed in destroying {
                let destroyed = destroyed.join().unwrap();
                let known = match &destroyed {
                    Told::Done(_) => true,
                    Told::Refused(code) => code == "SANDBOX_NOT_FOUND",
                    Told::Nothing => false,
                };
                assert!(known, "{destroyed:?}");
            }
        });
    }
    let there: BTreeSet<String> = ground.names();
    ground.restart();
    assert_eq!(ground.names(), there, "what was there is there");
    ground.check(&["box0", "box1", "box2", "box3", "box4"]);
    for name in &there {
        assert_usable(&ground, name);
    }
    ground.clear();
}

#[test]
fn destroying_what_is_being_used_ends_each_command_in_one_way() {
    let mut ground = Ground::new();
    for round in 0..10 {
        ground.daemon.shell("box", "true");
        let gate = Barrier::new(5);
        std::thread::scope(|scope| {
            let commands: Vec<_> = (0..4)
                .map(|number| {
                    let (ground, gate) = (&ground, &gate);
                    scope.spawn(move || {
                        let command = format!("echo {round}-{number} >> said; sleep 0.0{number}");
                        gate.wait();
                        (
                            number,
                            ground.ask("POST /v1/sandboxes/box/exec", Some(&json!({"command": command}))),
                        )
                    })
                })
                .collect();
            gate.wait();
            let destroyed = ground.ask("DELETE /v1/sandboxes/box", None);
            assert!(matches!(destroyed, Told::Done(_)), "{destroyed:?}");
            for command in commands {
                let (number, told) = command.join().unwrap();
                let done = match told {
                    Told::Done(answer) => {
                        let run: Value = serde_json::from_str(&answer).unwrap();
                        let state = run["state"].as_str().unwrap().to_owned();
                        assert!(matches!(state.as_str(), "completed" | "killed" | "lost"), "{run}");
                        state == "completed"
                    }
                    Told::Refused(code) => {
                        assert!(matches!(code.as_str(), "SANDBOX_FAILED" | "SANDBOX_NOT_FOUND"), "{code}");
                        false
                    }
                    Told::Nothing => panic!("the daemon hung up"),
                };
                let line = format!("{round}-{number}");
                let said = ground.daemon.shell("box", "cat said 2>/dev/null || true");
                let times = said.lines().filter(|said| *said == line).count();
                assert!(times <= 1 && (!done || times == 1), "{line} was told as done: {said}");
            }
        });
    }
    ground.restart();
    ground.check(&["box"]);
    ground.clear();
}

#[test]
fn destroying_twice_is_told_the_second_time() {
    let ground = Ground::new();
    ground.daemon.shell("box", "true");
    assert!(matches!(ground.ask("DELETE /v1/sandboxes/box", Some(&json!({"wipe": true}))), Told::Done(_)));
    for body in [json!({}), json!({"wipe": true})] {
        let again = ground.ask("DELETE /v1/sandboxes/box", Some(&body));
        assert_eq!(again, Told::Refused("SANDBOX_NOT_FOUND".into()));
    }
    until("nothing is left", || ground.volumes().is_empty());
}
