//! Forks, threads, zombies, daemons, and trees that will not go.

use serde_json::json;

use crate::arena::{Arena, WILD, assert_names, marker};
use crate::harness::{Case, per_tier, processes_with, require, until};

#[test]
fn a_fork_bomb_disturbs_nobody_is_named_and_leaves_nothing() {
    let arena = Arena::new(json!({"pids": 64}));
    let marker = marker(1);
    let run = arena.endure(&format!(
        "import os, sys, time  # {marker}
told = False
while True:
    try:
        os.fork()
    except OSError:
        if not told: print('worst', file=sys.stderr, flush=True)
        told = True
        time.sleep(0.001)
"
    ));
    assert_eq!(run["state"], "killed", "{run}");
    // Nothing counts what an rlimit refuses, and this attack does not complain.
    if arena.has_cgroups() {
        assert_names(&run, "pids", "64");
    }
    arena.assert_all_gone(&marker);
}

#[test]
fn a_command_that_may_fork_no_more_is_told_the_limit() {
    let arena = Arena::new(json!({"pids": 32}));
    require!(arena.needs_enforced("pids_limit"));
    let command = "for i in $(seq 1 80); do sleep 600 & done; wait";
    let run = arena.daemon.exec(WILD, json!({"command": command, "timeout": "20s"}));
    assert_eq!(run["state"], "failed", "{run}");
    assert_names(&run, "pids", "32");
    let run = arena.run("import threading, time\nfor i in range(200): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()");
    assert_eq!(run["state"], "failed", "{run}");
    assert_names(&run, "pids", "32");
    // A later failure that has nothing to do with it does not name it again, and it stays on record.
    let own = arena.daemon.exec(WILD, json!({"command": "exit 3"}));
    assert!(own.get("limits_hit").is_none() && own.get("note").is_none(), "{own}");
    let id = run["run_id"].as_str().unwrap();
    let again = arena.daemon.post(&format!("/v1/runs/{id}/wait"), json!({}));
    assert_eq!(again["limits_hit"], run["limits_hit"]);
    let shown = crate::harness::finish(&mut arena.daemon.isle(&["exec", WILD, "--", "sh", "-c", command]));
    let words = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(words.contains("limit of 32 processes") && words.contains("`pids`"), "{words}");
}

#[test]
fn zombies_are_reaped_and_those_kept_on_purpose_go_with_their_run() {
    let arena = Arena::new(json!({"pids": 128}));
    let marker = marker(2);
    // Half are orphans, which the first process of the sandbox must reap; half have a parent that does not.
    let run = arena.endure(&format!(
        "import os, sys, time  # {marker}
def fork():
    while True:
        try: return os.fork()
        except BlockingIOError: time.sleep(0.001)  # the first process is still busy reaping
for i in range(200):
    if fork() == 0:
        fork()
        os._exit(0)
    if i % 4: os.wait()
print('worst', file=sys.stderr, flush=True)
time.sleep(600)
"
    ));
    assert_eq!(run["state"], "killed", "{run}");
    arena.assert_all_gone(&marker);
}

/// In a session of its own, forked twice, deaf to every signal it may be deaf to, and stopped.
const STUBBORN: &str = "
import os, signal, sys, time
def stubborn():
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
for depth in range(3):
    if os.fork() == 0:
        os.setsid(); stubborn()
        if os.fork() == 0:
            os.setsid(); os.close(0); os.close(1); os.close(2)
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(600)
        if depth == 1: os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(600)
";

per_tier!(daemons_that_are_deaf_or_stopped_end_with_the_command_that_started_them);

fn daemons_that_are_deaf_or_stopped_end_with_the_command_that_started_them(Case { tier, .. }: Case) {
    let arena = Arena::new(json!({"tier": tier}));
    let marker = marker(format_args!("3-{tier}"));
    let run = arena.run(&format!("# {marker}{STUBBORN}print('left')"));
    assert_eq!((&run["state"], &run["stdout"]), (&json!("completed"), &json!("left\n")), "{run}");
    arena.assert_all_gone(&marker);
}

per_tier!(trees_that_are_deaf_or_stopped_are_ended_by_a_polite_kill_a_deadline_and_a_destroy);

fn trees_that_are_deaf_or_stopped_are_ended_by_a_polite_kill_a_deadline_and_a_destroy(
    Case { tier, .. }: Case,
) {
    let arena = Arena::new(json!({"tier": tier}));
    let marker = marker(format_args!("4-{tier}"));
    let program = format!(
        "# {marker}{STUBBORN}stubborn()\nprint('worst', file=sys.stderr, flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(600)"
    );
    let start = |timeout: &str| {
        let body = json!({"argv": ["python3", "-c", program], "wait": "0s", "timeout": timeout});
        let run = arena.daemon.exec(WILD, body)["run_id"].as_str().unwrap().to_owned();
        until("all of it stands", || processes_with(&marker).len() >= 7);
        run
    };
    let run = start("600s");
    arena.assert_neighbour_calm();
    let killed = arena.daemon.post(&format!("/v1/runs/{run}/kill"), json!({}));
    assert_eq!(killed["state"], "killed", "{tier}: {killed}");
    arena.assert_all_gone(&marker);
    let run = start("3s");
    let ended = arena.daemon.post(&format!("/v1/runs/{run}/wait"), json!({"timeout": "40s"}));
    assert_eq!(ended["state"], "timed_out", "{tier}: {ended}");
    assert_names(&ended, "timeout", "3s");
    arena.assert_all_gone(&marker);
    start("600s");
    arena.daemon.succeeds(&["rm", WILD]);
    until("every process of it is gone", || processes_with(&marker).is_empty());
}
