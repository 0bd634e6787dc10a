//! Budgets at their borders, and raced for.

use std::sync::{Arc, Barrier, Mutex};

use super::*;

fn policy() -> SpawnPolicy {
    SpawnPolicy { child_can_spawn: true, ..SpawnPolicy::default() }
}

fn share(cpus: f64, mib: u64) -> Share {
    Share { cpus, memory: ByteSize::mib(mib) }
}

struct Child {
    id: SandboxId,
    of: ChildOf,
    share: Share,
}

impl Child {
    fn new(parent: &SandboxId, depth: u8, share: Share) -> Self {
        let of = ChildOf {
            name: "child".parse().unwrap(),
            parent: "root".parse().unwrap(),
            parent_id: parent.clone(),
            root: "root".parse().unwrap(),
            depth,
            expires_at_ms: 0,
        };
        Self { id: SandboxId::fresh(), of, share }
    }
}

fn count(parent: &SandboxId, children: &[Child]) -> InUse {
    let kin = children.iter().map(|child| Kin { id: &child.id, of: &child.of, share: child.share });
    InUse::count(parent, &"root".parse().unwrap(), kin)
}

fn limit(result: Result<()>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.code, Code::LimitReached);
    assert!(!error.next_steps.is_empty());
    error.details["limit"].as_str().unwrap().to_owned()
}

#[test]
fn a_child_gets_at_most_what_the_policy_and_its_parent_have() {
    let parent = Limits { cpus: 1.5, memory: ByteSize::mib(256), ..Limits::default() };
    let of = |cpus, memory| Share::asked(&policy(), &parent, cpus, memory);
    assert_eq!(of(None, None).unwrap(), share(1.5, 256));
    assert_eq!(of(Some(64.0), Some(ByteSize::mib(4096))).unwrap(), share(1.5, 256));
    assert_eq!(of(Some(1.0), Some(ByteSize::mib(64))).unwrap(), share(1.0, 64));
    for (cpus, memory) in [
        (Some(0.5), None),
        (Some(f64::NAN), None),
        (Some(-1.0), None),
        (None, Some(ByteSize(1))),
        (None, Some(ByteSize::mib(63))),
    ] {
        assert_eq!(of(cpus, memory).unwrap_err().code, Code::InvalidArgument, "{cpus:?} {memory:?}");
    }
}

#[test]
fn each_limit_says_its_name() {
    let root = policy();
    let wanted = share(2.0, 512);
    let admit = |used: InUse, spawned| used.admit(&root, &root, spawned, wanted);
    assert!(admit(InUse::default(), 9).is_ok());
    assert_eq!(limit(admit(InUse::default(), 10)), "max_total");
    assert_eq!(limit(admit(InUse { children: 3, ..InUse::default() }, 0)), "max_concurrent");
    assert_eq!(limit(admit(InUse { cpus: 4.5, ..InUse::default() }, 0)), "total_child_cpus");
    assert_eq!(limit(admit(InUse { memory: 1025 << 20, ..InUse::default() }, 0)), "total_child_memory");
    assert_eq!(limit(admit(InUse { tree_cpus: 4.5, ..InUse::default() }, 0)), "tree_cpus");
    assert_eq!(limit(admit(InUse { tree_memory: 1025 << 20, ..InUse::default() }, 0)), "tree_memory");
    assert!(admit(InUse { cpus: 4.0, memory: 1024 << 20, ..InUse::default() }, 0).is_ok());
}

#[test]
fn grandchildren_count_for_their_parent_and_for_the_whole_tree() {
    let root = SandboxId::fresh();
    let first = Child::new(&root, 1, share(1.0, 100));
    let second = Child::new(&root, 1, share(1.0, 100));
    let grandchild = Child::new(&first.id, 2, share(2.0, 200));
    let (first_id, second_id) = (first.id.clone(), second.id.clone());
    let all = [first, second, grandchild];
    let of_root = count(&root, &all);
    assert_eq!((of_root.children, of_root.memory >> 20, of_root.tree_memory >> 20), (2, 400, 400));
    let of_first = count(&first_id, &all);
    assert_eq!((of_first.children, of_first.memory >> 20, of_first.tree_memory >> 20), (1, 200, 400));
    let of_second = count(&second_id, &all);
    assert_eq!((of_second.children, of_second.memory, of_second.tree_memory >> 20), (0, 0, 400));
}

#[test]
fn a_child_within_its_own_budget_is_refused_when_the_tree_is_full() {
    let root_policy = SpawnPolicy { total_child_memory: ByteSize::mib(512), ..policy() };
    let own = root_policy.derived().unwrap();
    let root = SandboxId::fresh();
    let all = [Child::new(&root, 1, share(1.0, 300))];
    let used = count(&all[0].id, &all);
    assert_eq!(limit(used.admit(&own, &root_policy, 0, share(1.0, 256))), "tree_memory");
    assert!(used.admit(&own, &root_policy, 0, share(1.0, 200)).is_ok());
}

#[test]
fn fifty_that_ask_at_once_never_get_more_than_there_is() {
    let root = SandboxId::fresh();
    let policy = SpawnPolicy { max_concurrent: 50, max_total: 50, ..policy() };
    let children: Arc<Mutex<Vec<Child>>> = Arc::default();
    let start = Arc::new(Barrier::new(50));
    let asking: Vec<_> = (0..50)
        .map(|_| {
            let (root, policy, children, start) =
                (root.clone(), policy.clone(), Arc::clone(&children), Arc::clone(&start));
            std::thread::spawn(move || {
                start.wait();
                let mut present = children.lock().unwrap();
                let used = count(&root, &present);
                let admitted = used.admit(&policy, &policy, 0, share(1.0, 100)).is_ok();
                if admitted {
                    present.push(Child::new(&root, 1, share(1.0, 100)));
                }
                admitted
            })
        })
        .collect();
    let admitted =
        asking.into_iter().map(|thread| thread.join().unwrap()).filter(|admitted| *admitted).count();
    assert_eq!(admitted, 6, "six CPUs, one for each");
}
