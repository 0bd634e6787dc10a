//! The server through its real doors: sockets, bytes, nothing mocked.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod access;
mod requests;
mod streams;
mod support;
