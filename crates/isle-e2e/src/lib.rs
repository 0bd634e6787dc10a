//! What the end-to-end tests share: the real program in a [`Home`] of its own, a [`TestDaemon`] that is
//! checked for leaks when it goes, clients of the doors it is reached through, waiting for a condition,
//! [skips] that are counted, and the [matrix] of cases a test body runs in.
//!
//! The tests themselves are in `crates/isle/tests`; `program` says why.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]
#![expect(clippy::new_without_default, reason = "making one starts something, which no default should do")]

mod certificates;
mod daemon;
#[cfg(debug_assertions)]
pub mod failpoints;
mod home;
pub mod http;
mod leaks;
pub mod matrix;
mod mcp;
mod program;
mod receiver;
pub mod run;
pub mod skips;
mod tiers;
mod wait;

pub use certificates::{certificate_for, sh};
pub use daemon::TestDaemon;
pub use home::{Home, Watchdog, finish};
pub use leaks::{Counts, instance, processes_with};
pub use matrix::{Case, Connections};
pub use mcp::McpClient;
pub use program::program;
pub use receiver::{Received, Receiver};
pub use skips::{Missing, needs_root, needs_user, part};
pub use tiers::{has_process_tier, needs_tier, tiers};
pub use wait::{until, until_some};

/// The name of a sandbox as it stands in a path: that of a child has a slash.
pub fn encoded(sandbox: &str) -> String {
    sandbox.replace('/', "%2F")
}
