//! What the end-to-end tests share: the real program in a home of its own, a daemon that is checked
//! for leaks when it goes, the doors it is reached through, and waiting for a condition.

mod daemon;
mod home;
pub(crate) mod http;
mod leaks;
mod mcp;
mod receiver;
mod tiers;
mod wait;

pub(crate) use daemon::TestDaemon;
pub(crate) use home::{Home, Watchdog, finish};
pub(crate) use leaks::{instance, processes_with};
pub(crate) use mcp::McpClient;
pub(crate) use receiver::{Received, Receiver};
pub(crate) use tiers::{has_process_tier, tiers};
pub(crate) use wait::{until, until_some};
