//! Files and names that mean harm, in sandboxes of both tiers, met through every door that touches files:
//! HTTP, the command line, MCP. Nothing of the host may come out or be changed, nothing may hang, and
//! whatever is shown is safe to show.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod cgroups;
mod config;
mod git;
mod images;
mod links;
mod names;
mod races;
mod scene;
mod swaps;
mod traps;

use isle_e2e as harness;
