//! The system call filter: an allow-list. Whatever is not listed does not exist (`ENOSYS`, so that
//! programs fall back as on an older kernel); what is listed as refused is answered `EPERM` by way
//! of the agent, which counts it and reports it to the caller (a violation); other instruction sets die.
//!
//! The agent itself lives under the same filter, so a command inherits it and pays nothing.

mod bpf;
mod calls;
mod install;

pub use bpf::{Instruction, Policy, compile, compile_countable};
pub use calls::{UNWATCHED_ADDRESS, call_name};
pub use install::{Inherited, Listener, Notification, install};

#[cfg(test)]
mod bpf_tests;
#[cfg(test)]
mod executed_tests;
#[cfg(test)]
mod rules_tests;
