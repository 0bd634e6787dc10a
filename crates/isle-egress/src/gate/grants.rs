//! Adding, revoking and listing the grants of a sandbox. Open connections are checked again on every change.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::accounting::grant_counters::{GrantCounters, TrafficCount};
use crate::gate::Gate;
use crate::policy::grant::{Grant, GrantId, RunKey};

impl Gate {
    /// Adds a grant; it applies at once.
    pub fn grant(&self, grant: Grant) -> GrantId {
        self.add_grant(grant, None)
    }

    /// Adds a grant for the programs of one run only.
    pub fn grant_to(&self, grant: Grant, only: RunKey) -> GrantId {
        self.add_grant(grant, Some(only))
    }

    pub(super) fn add_grant(&self, grant: Grant, only: Option<RunKey>) -> GrantId {
        let mut state = self.state();
        state.last_id += 1;
        let id = state.last_id;
        let totals = Arc::clone(&self.totals);
        let counters = GrantCounters::new(grant.limits.total_bytes, grant.limits.bytes_per_second, totals);
        state.tallies.insert(id, Arc::new(counters));
        state.policy.add(id, grant, only, Instant::now());
        drop(state);
        self.changed.send_replace(());
        id
    }

    /// Revokes a grant; connections that only it allowed are cut. Returns whether there was such a grant.
    pub fn revoke(&self, id: GrantId) -> bool {
        let mut state = self.state();
        let was_there = state.policy.remove(id);
        state.tallies.remove(&id);
        drop(state);
        self.changed.send_replace(());
        was_there
    }

    /// The active grants: definition, usage and remaining lifetime.
    #[must_use]
    pub fn grants(&self) -> Vec<(GrantId, Grant, TrafficCount, Option<Duration>)> {
        let now = Instant::now();
        let mut state = self.state();
        state.policy.sweep(now);
        let one = |held: &crate::policy::ActiveGrant| {
            let count = state.tallies.get(&held.id).map(|counters| counters.count()).unwrap_or_default();
            (held.id, held.grant.clone(), count, held.until.map(|until| until.saturating_duration_since(now)))
        };
        state.policy.held().iter().map(one).collect()
    }

    /// Whether nothing is granted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.state().policy.held().is_empty()
    }

    /// Notifies of changes of the grants from now on.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The secrets have changed: connections that are not inspected and now would have to be are cut.
    pub fn secrets_changed(&self) {
        self.changed.send_replace(());
    }
}
