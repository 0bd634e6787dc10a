//! Connections to other sandboxes. Who may have them is decided by whoever knows the sandboxes; they are
//! denied and logged here like all others.

use std::time::Duration;

use crate::account::Fate;
use crate::denial::{Denial, Reason};
use crate::gate::Gate;

impl Gate {
    /// Denies another sandbox, by name or by name and port, perhaps for a reason of its own.
    pub fn deny_peer(&self, target: String, why: Option<&str>) -> Denial {
        let denial = Denial::new(target, Reason::NotPeer);
        self.deny(match why {
            Some(why) => denial.detail(why),
            None => denial,
        })
    }

    /// A connection to another sandbox has ended.
    pub fn note_peer(&self, target: String, took: Duration, fate: Fate) {
        self.note(target, None, took, fate);
    }
}
