//! Attacks on the host's resources, from inside. While each goes on, a command in another sandbox is
//! answered about as fast as before; afterwards everything of it is gone; and whoever asked for the run is
//! told which limit it met and how to raise it.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod arena;
mod cpu;
mod memory;
mod output;
mod processes;
mod storage;

use isle_e2e as harness;
