//! What goes wrong meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::ground::{Action, Ground};
use crate::plan::{Deed, deed, peace};

/// Does its deeds until the time is up or a client has given up; tells how many.
pub(crate) fn haunt(ground: &mut Ground, seed: u64, until: Instant, broken: &AtomicBool) -> u64 {
    let mut index = 0;
    while Instant::now() < until && !broken.load(Ordering::Acquire) {
        // Not a wait for anything: the moment of the next deed is part of the plan.
        std::thread::sleep(peace(seed, index));
        let deed = deed(seed, index);
        println!("nemesis {index}: {deed:?}");
        match deed {
            Deed::Kill => ground.restart(),
            Deed::Restart => {
                ground.daemon.terminate();
                ground.daemon.launch();
            }
            Deed::Pause(time) => {
                let daemon = Pid::from_raw(i32::try_from(ground.daemon.pid()).unwrap()).unwrap();
                kill_process(daemon, Signal::STOP).unwrap();
                std::thread::sleep(time);
                kill_process(daemon, Signal::CONT).unwrap();
            }
            Deed::Fill(time) => {
                ground.arm_for_good("store.begins", Action::Full);
                std::thread::sleep(time);
                ground.disarm();
            }
        }
        index += 1;
    }
    index
}
