//! What survives: `kill -9` of the daemon, of a sandbox's agent, of the fork server, at any moment;
//! an orderly end; a state directory that cannot be used.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod drain;
mod first_thread;
mod idle;
mod in_flight;
mod jobs;
mod parts;
mod state;
mod storms;
mod unresponsive;

use isle_e2e as harness;
