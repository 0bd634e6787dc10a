//! Which tiers this host has: tier `process` needs a newer kernel than some systems come with.

use std::sync::OnceLock;

use serde_json::Value;

use crate::home::{Home, finish};
use crate::skips::Missing;

const ALL: [&str; 2] = ["container", "process"];

/// The tiers that sandboxes of this host can have, for a test that tries one after the other; those that
/// are missing are reported. A test body of its own per tier is better: see [`crate::per_tier`].
pub fn tiers() -> &'static [&'static str] {
    for tier in ALL.iter().filter(|tier| !offered().contains(tier)) {
        crate::skip_part!("this host does not offer tier {tier}");
    }
    offered()
}

fn offered() -> &'static [&'static str] {
    static TIERS: OnceLock<Vec<&'static str>> = OnceLock::new();
    TIERS.get_or_init(|| {
        let looked = finish(&mut Home::new().isle(&["doctor", "--json"]));
        let found: Value = serde_json::from_slice(&looked.stdout).unwrap_or_else(|_| panic!("{looked:?}"));
        let offered = |tier: &&str| {
            let mut all = found["tiers"].as_array().into_iter().flatten();
            all.any(|one| one["tier"] == *tier && one["available_with_downgrade"] == true)
        };
        ALL.into_iter().filter(offered).collect()
    })
}

/// Whether sandboxes can be of tier `process`.
pub fn has_process_tier() -> bool {
    offered().contains(&"process")
}

/// What a test needs that is about one tier only.
pub fn needs_tier(tier: &str) -> Result<(), Missing> {
    if offered().contains(&tier) {
        return Ok(());
    }
    Err(Missing::on_host(format!("this host does not offer tier {tier}")))
}
