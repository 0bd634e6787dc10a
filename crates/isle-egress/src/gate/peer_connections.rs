//! Connections to other sandboxes. The engine decides about them; they are denied and logged here like all
//! others.

use std::time::Duration;

use crate::accounting::connection_log::ConnectionResult;
use crate::gate::Gate;
use crate::policy::denial::{Denial, Reason};
use crate::policy::grant::RunKey;

impl Gate {
    /// Denies another sandbox, by name or by name and port, optionally with a reason.
    pub fn deny_peer(&self, target: String, why: Option<&str>, by: Option<RunKey>) -> Denial {
        let denial = Denial::new(target, Reason::NotPeer).by(by);
        self.deny(match why {
            Some(why) => denial.detail(why),
            None => denial,
        })
    }

    /// A connection to another sandbox has ended.
    pub fn note_peer(&self, target: String, took: Duration, result: ConnectionResult) {
        self.note(target, None, took, result);
    }
}
