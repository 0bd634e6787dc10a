//! What survives: `kill -9` of the daemon, of a sandbox's agent, of the fork server, at any moment;
//! an orderly end; a state directory that cannot be used.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod drain;
#[path = "../harness/mod.rs"]
#[expect(dead_code, unused_imports, reason = "shared with the other end-to-end tests, which use the rest")]
mod harness;
mod idle;
mod in_flight;
mod jobs;
mod parts;
mod state;
mod storms;
