//! Attacks on the host's resources, from inside. While each goes on, a command in another sandbox is
//! answered about as fast as before; afterwards everything of it is gone; and whoever asked for the run is
//! told which limit it met and how to raise it.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod arena;
mod cpu;
#[path = "../harness/mod.rs"]
#[expect(dead_code, unused_imports, reason = "shared with the other end-to-end tests, which use the rest")]
mod harness;
mod memory;
mod output;
mod processes;
mod storage;
