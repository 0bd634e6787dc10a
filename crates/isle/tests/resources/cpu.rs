//! Spinning on every core, and the share of CPU a sandbox may have.

use serde_json::{Value, json};

use crate::arena::{Arena, WILD, assert_names, marker};
use crate::harness::{Case, per_tier, require};

#[test]
fn spinning_on_all_cores_disturbs_nobody_and_leaves_nothing() {
    let arena = Arena::new(json!({"cpus": 2}));
    let marker = marker(20);
    arena.endure(&format!(
        "import os, sys  # {marker}
for i in range(8):
    if os.fork() == 0: break
print('worst', file=sys.stderr, flush=True)
while True: pass
"
    ));
    arena.assert_all_gone(&marker);
}

#[test]
fn a_sandbox_gets_no_more_than_its_share_of_cpu_and_a_slow_run_is_told() {
    let arena = Arena::new(json!({"cpus": 0.5}));
    require!(arena.needs_enforced("cpu_limit"));
    let used =
        || arena.daemon.get(&format!("/v1/status?sandbox={WILD}"))["detail"]["usage"]["cpu_ms"].as_f64();
    let before = used();
    // Four at once, on however many cores.
    let spin = "import os\nfor i in range(3):\n  if os.fork() == 0: break\nwhile True: pass";
    let run =
        arena.daemon.exec(WILD, json!({"argv": ["python3", "-c", spin], "timeout": "4s", "wait": "30s"}));
    assert_eq!(run["state"], "timed_out", "{run}");
    let wall = run["duration_ms"].as_f64().unwrap();
    let share = (used().unwrap() - before.unwrap()) / wall;
    assert!(share <= 0.5 * 1.3, "used {share} CPUs of 0.5");
    // One alone: all of its CPU time is the run's own, so it is known that it was held back.
    let run = arena
        .daemon
        .exec(WILD, json!({"argv": ["python3", "-c", "while True: pass"], "timeout": "3s", "wait": "30s"}));
    assert_names(&run, "timeout", "3s");
    // On a machine that is busy with other things it may not even have had its share.
    let history = arena.daemon.get(&format!("/v1/runs?sandbox={WILD}"));
    let cpu = history["runs"][0]["cpu_ms"].as_f64().unwrap();
    if cpu >= 0.85 * 0.5 * run["duration_ms"].as_f64().unwrap() {
        assert_names(&run, "cpus", "0.5");
    }
    let idle: Value = arena.daemon.exec(WILD, json!({"command": "sleep 60", "timeout": "1s", "wait": "30s"}));
    assert!(!idle["limits_hit"].to_string().contains("cpus"), "{idle}");
}

per_tier!(a_command_gets_its_share_of_cpu_with_cgroups_or_without_and_does_not_see_why);

fn a_command_gets_its_share_of_cpu_with_cgroups_or_without_and_does_not_see_why(Case { tier, .. }: Case) {
    let arena = Arena::new(json!({"cpus": 0.5, "tier": tier}));
    assert!(arena.daemon.keeps(WILD, "cpu_limit"));
    let run = arena.run(
        "import os, resource, time
began = time.monotonic()
children = []
for i in range(4):
    child = os.fork()
    if child == 0:
        while time.monotonic() - began < 3: pass
        os._exit(0)
    children.append(child)
for child in children:
    # Somebody else's stopping would be told too.
    assert os.WIFEXITED(os.waitpid(child, os.WUNTRACED)[1])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print((used.ru_utime + used.ru_stime) / (time.monotonic() - began))
",
    );
    assert_eq!(run["state"], "completed", "{tier}: {run}");
    let share: f64 = run["stdout"].as_str().unwrap().trim().parse().unwrap();
    assert!(share <= 0.5 * 1.3, "{tier}: used {share} CPUs of 0.5");
    arena.assert_neighbour_calm();
}
