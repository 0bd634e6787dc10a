//! What the store promises, tested from outside through its public calls and a second, raw connection.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod audit;
mod common;
mod events;
mod faults;
mod open;
mod records;
