//! The posture of every process of a sandbox, and of our own, judged from the host: what the kernel says
//! about each in `/proc`, compared with all that is expected of it. Whatever is not expected fails.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod expected;
mod look;
mod network;
mod ourselves;
mod sandboxes;
mod walls;

use isle_e2e as harness;
