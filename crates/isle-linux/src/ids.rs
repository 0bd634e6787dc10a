//! Which host ids a sandbox's users are. As root every sandbox gets 65,536 ids far above anything a
//! distribution hands out; as an ordinary user, slices of the subordinate ids. Never the daemon's own.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Mutex, PoisonError};

use isle_setup::SANDBOX_ID;
use isle_setup::request::Extent;

/// First id used as root.
const ROOT_BASE: u32 = 0x7000_0000;
const ROOT_RANGE: u32 = 0x1_0000;
const ROOT_SLOTS: u32 = 0x4000;
/// Where a daemon's slots begin is random below this, so that daemons on one host seldom share host ids;
/// all of it is below 2^31, which some programs take for the end of user ids.
pub(super) const START_SLOTS: u32 = 0xf00;
/// Ids per sandbox out of a user's subordinate ids: guest root, the sandbox user, nobody, 61 others.
const SLICE: u32 = 64;
const NOBODY: u32 = 65_534;

/// Hands out slots.
#[derive(Debug)]
pub(super) struct IdPool {
    kind: IdKind,
    used: Mutex<BTreeSet<u32>>,
}

/// Where ids come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum IdKind {
    /// The daemon is root.
    Root {
        /// The slot it begins with.
        start: u32,
    },
    /// The fork server's user namespace maps `count` subordinate ids from 1 on.
    Subordinate {
        /// How many.
        count: u32,
    },
}

impl IdPool {
    pub(super) fn new(kind: IdKind) -> Self {
        Self { kind, used: Mutex::new(BTreeSet::new()) }
    }

    /// Takes `wanted` when it is free, else the first free slot.
    pub(super) fn take(&self, wanted: Option<u32>) -> Option<u32> {
        let (start, slots) = match self.kind {
            IdKind::Root { start } => (start, ROOT_SLOTS),
            IdKind::Subordinate { count } => (0, count / SLICE),
        };
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = wanted
            .filter(|slot| *slot < slots && !used.contains(slot))
            .or_else(|| (start..slots).chain(0..start).find(|slot| !used.contains(slot)))?;
        used.insert(slot);
        Some(slot)
    }

    pub(super) fn release(&self, slot: u32) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).remove(&slot);
    }

    /// The id map of a slot, as the fork server sees ids.
    pub(super) fn map(&self, slot: u32) -> Vec<Extent> {
        let extent = |inside, outside, length| Extent { inside, outside, length };
        match self.kind {
            IdKind::Root { .. } => vec![extent(0, ROOT_BASE + slot * ROOT_RANGE, ROOT_RANGE)],
            IdKind::Subordinate { .. } => {
                let base = 1 + slot * SLICE;
                vec![
                    extent(0, base, 1),
                    extent(1, base + 3, SLICE - 3),
                    extent(SANDBOX_ID, base + 1, 1),
                    extent(NOBODY, base + 2, 1),
                ]
            }
        }
    }
}

/// The name of a user id, from `/etc/passwd`.
pub(super) fn user_name(uid: u32) -> Option<String> {
    let text = fs::read_to_string("/etc/passwd").ok()?;
    text.lines().find_map(|line| {
        let mut parts = line.split(':');
        let name = parts.next()?;
        (parts.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}
