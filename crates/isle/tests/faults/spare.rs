//! The sandbox that was made ready and never used, and a fault while it goes with its daemon.

use isle_fail::Point;
use rustix::process::{Pid, Signal, kill_process};

use crate::ground::{Action, Ground, assert_usable};
use crate::harness::until;
use crate::points::actions;

#[test]
fn a_fault_while_a_sandbox_that_nobody_used_goes_leaves_a_whole_one_or_none() {
    let mut ground = Ground::with(&[("ISLE_WARM_DEFAULT", "true")]);
    let ready = |ground: &Ground| {
        until("it is made ready", || {
            ground.daemon.get("/v1/sandboxes")["sandboxes"][0]["state"] == "running"
        });
    };
    for point in [Point::DestroyMarked, Point::DestroyRemoved, Point::DestroyForgotten] {
        for &action in actions(point) {
            println!("{action:?} at {}", point.name());
            ready(&ground);
            ground.arm(point.name(), action, 1);
            match action {
                Action::Die => {
                    let pid = Pid::from_raw(ground.daemon.pid().try_into().unwrap()).unwrap();
                    kill_process(pid, Signal::TERM).unwrap();
                    ground.daemon.died();
                }
                Action::Fail | Action::Full => {
                    let status = ground.daemon.terminate();
                    assert!(status.success(), "{status}");
                }
            }
            assert!(ground.has_fired());
            ground.daemon.launch();
            ready(&ground);
            ground.check(&[]);
            assert_usable(&ground, "default");
            ground.clear();
            ground.restart();
        }
    }
}
