//! Memory in every form that is charged to somebody: anonymous, in files without a name, in `/dev/shm`, in
//! the writable layer of a one-shot, and as page cache.

use serde_json::json;

use crate::arena::{Arena, WILD, assert_names, marker};
use crate::harness::{Case, per_tier, require};

/// Takes memory by `take`, all that is allowed, again and again, in a child, so that the attack goes on.
fn again_and_again(marker: &str, take: &str) -> String {
    format!(
        "import os, sys  # {marker}
told = 0
while True:
    child = os.fork()
    if child == 0:
{take}
    os.waitpid(child, 0)
    told += 1
    if told == 2: print('worst', file=sys.stderr, flush=True)
"
    )
}

const ANONYMOUS: &str = "        keep = []
        while True: keep.append(bytearray(b'x') * (1 << 20))";
const NAMELESS_FILE: &str = "        fd = os.memfd_create('x')
        while True: os.write(fd, b'x' * (1 << 20))";

#[test]
fn memory_without_end_disturbs_nobody_and_is_named() {
    let arena = Arena::new(json!({"memory": "96M"}));
    require!(arena.needs_enforced("memory_limit"));
    let marker = marker(10);
    let run = arena.endure(&again_and_again(&marker, ANONYMOUS));
    assert_names(&run, "memory", "96M");
    arena.assert_all_gone(&marker);
    // What is in a file without a name is in nobody's own memory, and still everybody's together.
    for take in [ANONYMOUS, NAMELESS_FILE] {
        let whole = take.lines().map(|line| &line[8..]).collect::<Vec<_>>().join("\n");
        let run = arena.run(&format!("import os\n{whole}"));
        assert_eq!(run["state"], "oom_killed", "{run}");
        assert_names(&run, "memory", "96M");
        arena.assert_neighbour_calm();
    }
}

per_tier!(memory_spread_over_many_processes_is_limited_with_cgroups_or_without);

fn memory_spread_over_many_processes_is_limited_with_cgroups_or_without(Case { tier, .. }: Case) {
    let arena = Arena::new(json!({"memory": "96M", "tier": tier}));
    assert!(arena.daemon.keeps(WILD, "memory_limit"));
    let marker = marker(format_args!("11-{tier}"));
    // None has too much by itself.
    let run = arena.run(&format!(
        "import os, time  # {marker}
own = os.getpid()
for i in range(5):
    if os.fork() == 0: break
if os.getpid() == own:
    for i in range(5): print(os.wait()[1], flush=True)
    os._exit(0)
keep = bytearray(b'x') * (60 << 20)
time.sleep(3)
"
    ));
    // How many the limit leaves alone depends on who is looked at first.
    let ends: Vec<&str> = run["stdout"].as_str().unwrap().lines().collect();
    assert!(ends.len() == 5 && ends.contains(&"9"), "{tier}: nobody was killed: {run}");
    assert_names(&run, "memory", "96M");
    arena.assert_all_gone(&marker);
}

#[test]
fn shared_memory_is_limited_by_itself_and_named() {
    let arena = Arena::new(json!({"memory": "256M", "disk": "512M"}));
    let run = arena.run(
        "
with open('/dev/shm/x', 'wb', buffering=0) as f:
    while True:
        if f.write(b'x' * (1 << 20)) == 0: break
",
    );
    assert_eq!(run["state"], "failed", "{run}");
    assert!(run["stderr"].as_str().unwrap().contains("No space left"), "{run}");
    assert_names(&run, "shared_memory", "64M");
    arena.assert_neighbour_calm();
    assert_eq!(arena.daemon.shell(WILD, "rm /dev/shm/x; echo room > /dev/shm/y; cat /dev/shm/y"), "room\n");
}

#[test]
fn a_one_shots_files_count_as_its_memory() {
    let arena = Arena::new(json!({}));
    require!(arena.needs_enforced("memory_limit"));
    let body = json!({"command": "exec head -c 400M /dev/zero > big", "memory": "64M", "disk": "1G"});
    let run = arena.daemon.post("/v1/runs", body);
    assert_eq!(run["state"], "oom_killed", "{run}");
    assert_names(&run, "memory", "64M");
    assert!(run["limits_hit"][0]["raise"].as_str().unwrap().contains("give the run more `memory`"), "{run}");
}

#[test]
fn page_cache_is_given_back_and_kills_nobody() {
    let arena = Arena::new(json!({"memory": "64M", "disk": "512M"}));
    require!(arena.needs_enforced("memory_limit"));
    let run = arena.run(
        "
import os, sys
for turn in range(2):
    with open('big', 'wb') as f:
        for i in range(200): f.write(b'x' * (1 << 20))
    with open('big', 'rb') as f:
        while f.read(1 << 20): pass
",
    );
    assert_eq!(run["state"], "completed", "{run}");
    assert!(run.get("limits_hit").is_none(), "{run}");
    arena.assert_neighbour_calm();
}
