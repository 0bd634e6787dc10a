//! How often each sandbox has spawned: a table, on record in the store. Whoever spawns holds it from counting
//! what exists until the new child is among it, so that any number of spawns at once stay within the budget;
//! whoever ends a parent takes it once, so that no child is added afterwards.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use isle_core::values::Address;

/// Spawns by parent.
#[derive(Debug, Default)]
pub(crate) struct SpawnCounts {
    counts: Mutex<HashMap<Address, u32>>,
}

impl SpawnCounts {
    /// How many children a sandbox ever had, those that are being made included.
    pub(crate) fn spawned(&self, parent: &Address) -> u32 {
        self.hold().get(parent).copied().unwrap_or(0)
    }

    /// A name is gone, and with it what it spawned.
    pub(crate) fn forget(&self, parent: &Address) {
        self.hold().remove(parent);
    }

    /// Keeps all others from spawning.
    pub(crate) fn hold(&self) -> MutexGuard<'_, HashMap<Address, u32>> {
        crate::lock(&self.counts)
    }
}

/// A child that counts for its parent. Dropped before it is on record, it no longer does.
#[derive(Debug)]
pub(crate) struct CountedChild {
    counts: Arc<SpawnCounts>,
    parent: Address,
    recorded: AtomicBool,
}

impl CountedChild {
    /// Counts one more, for whoever holds the counts.
    pub(crate) fn add(
        counts: &Arc<SpawnCounts>,
        held: &mut MutexGuard<'_, HashMap<Address, u32>>,
        parent: Address,
    ) -> Self {
        *held.entry(parent.clone()).or_default() += 1;
        Self { counts: Arc::clone(counts), parent, recorded: AtomicBool::new(false) }
    }

    pub(crate) fn parent(&self) -> &str {
        self.parent.name.as_str()
    }

    pub(crate) fn parent_address(&self) -> &Address {
        &self.parent
    }

    /// The record counts it too.
    pub(crate) fn on_record(&self) {
        self.recorded.store(true, Ordering::Relaxed);
    }
}

impl Drop for CountedChild {
    fn drop(&mut self) {
        if !self.recorded.load(Ordering::Relaxed)
            && let Some(count) = self.counts.hold().get_mut(&self.parent)
        {
            *count = count.saturating_sub(1);
        }
    }
}
