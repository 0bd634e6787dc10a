//! The real agent program as a plain child process: every kind of link, and finding processes without
//! namespaces.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod descendants;
mod links;
mod support;
