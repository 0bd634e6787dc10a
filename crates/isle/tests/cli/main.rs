//! The command line as a user meets it: the real program, its output as snapshots, its daemon.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod daemon;
mod errors;
mod help;
mod settings;
mod versions;

use isle_e2e as harness;
