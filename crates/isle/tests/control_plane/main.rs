//! Attacks on the doors of a real daemon. Each is refused with a code, a sentence and a next step,
//! changes nothing and costs bounded memory; and beside each the allowed thing still works.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod bodies;
mod doors;
mod floods;
mod heads;
mod ids;
mod mcp;
mod peers;
mod redirects;
mod slow;
mod support;
mod websocket;
mod words;

use isle_e2e as harness;
