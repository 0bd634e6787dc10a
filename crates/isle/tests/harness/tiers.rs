//! Which tiers this host has: tier `process` needs a newer kernel than some systems come with.

use std::sync::OnceLock;

use serde_json::Value;

use super::home::{Home, finish};

/// The tiers that sandboxes of this host can have; says so when it is not all of them.
pub(crate) fn tiers() -> &'static [&'static str] {
    static TIERS: OnceLock<Vec<&'static str>> = OnceLock::new();
    TIERS.get_or_init(|| {
        let looked = finish(&mut Home::new().isle(&["doctor", "--json"]));
        let found: Value = serde_json::from_slice(&looked.stdout).unwrap_or_else(|_| panic!("{looked:?}"));
        let offered = |tier: &&str| {
            let mut all = found["tiers"].as_array().into_iter().flatten();
            let offered = all.any(|one| one["tier"] == *tier && one["available_with_downgrade"] == true);
            if !offered {
                println!("skipped: this host does not offer tier {tier}");
            }
            offered
        };
        ["container", "process"].into_iter().filter(offered).collect()
    })
}

/// Whether sandboxes can be of tier `process`.
pub(crate) fn has_process_tier() -> bool {
    tiers().contains(&"process")
}
