//! What sandboxes of the native backend can do.

use isle_core::backend::{
    Capabilities, DiskLimit, GuestNetwork, GuestRoot, GuestUsers, Images, Lifetime, Pause, Support, Tier,
};

use super::facts::Facts;
use super::link;

/// The capabilities of a sandbox.
pub(super) fn of(facts: &Facts, tier: Tier, lifetime: Lifetime) -> Capabilities {
    // Host and sandbox share a kernel, the agent runs in both tiers, and images are yet to come.
    let common = Capabilities {
        network: GuestNetwork::OwnStack,
        root: GuestRoot::Own,
        users: GuestUsers::RootAndSandbox,
        connections: link::connections(),
        pause: Pause::Signals,
        memory_snapshot: Support::Unsupported,
        images: Images::HostOnly,
        disk_limit: match lifetime {
            Lifetime::OneShot => DiskLimit::Enforced,
            Lifetime::Named if facts.images => DiskLimit::Enforced,
            Lifetime::Named => DiskLimit::Watched,
        },
    };
    match tier {
        Tier::Container => common,
        Tier::Process => Capabilities {
            network: GuestNetwork::ProxyOnly,
            root: GuestRoot::Host,
            users: GuestUsers::SandboxOnly,
            disk_limit: DiskLimit::PerFile,
            ..common
        },
    }
}
