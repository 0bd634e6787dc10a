//! The command line as a user meets it: the real program, its output as snapshots, its daemon.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

#[path = "../harness/mod.rs"]
#[expect(dead_code, unused_imports, reason = "shared with the other end-to-end tests, which use the rest")]
mod common;
mod daemon;
mod help;
mod settings;
mod versions;
