//! Faults: the daemon dies or is told of an error at every step it takes; its parts are killed; the
//! disk fills up; the database is damaged; the clock jumps; descriptors, processes and ports run out;
//! callers come in crowds, go away, or do not read. What was acknowledged stays, nothing is half made.

// Without failpoints there is nothing to drive.
#![cfg(debug_assertions)]
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod clock;
mod crowds;
mod database;
mod disk;
mod exhaustion;
mod medium;
mod parts;
mod points;
mod recovery;
mod scenes;
mod spare;
mod streams;

use isle_e2e as harness;
use isle_e2e::failpoints as ground;
