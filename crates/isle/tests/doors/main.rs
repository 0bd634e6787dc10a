//! The product through its real doors: the real program, a real daemon with state of its own, real
//! sandboxes. HTTP on the Unix socket and on TCP, MCP on standard streams, the command line.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod access;
mod asking;
mod asking_mcp;
mod asking_requests;
mod attach;
mod bad_input;
mod bridge;
mod ceilings;
mod children;
mod children_ctl;
mod code;
mod code_results;
mod code_stateless;
mod commands;
mod contexts;
mod copy;
mod deadlines;
mod deny;
mod downgrade;
mod ends;
mod env;
mod events;
mod exec;
mod file_command;
mod file_work;
mod files;
mod git_clone;
mod grant_sets;
#[path = "../harness/mod.rs"]
#[expect(dead_code, unused_imports, reason = "shared with the other end-to-end tests, which use the rest")]
mod harness;
mod install;
mod jobs;
mod keyrings;
mod keyrings_desktop;
mod life_refusals;
mod lifecycle;
mod limits;
mod lock;
mod mcp;
mod metrics;
mod named_jobs;
mod network;
mod network_clients;
mod opened;
mod opened_secrets;
mod operators;
mod output;
mod paths;
mod pausing;
mod peers;
mod personal;
mod ports;
mod profiles;
mod records;
mod reset;
mod run;
mod run_limits;
mod secrets;
mod secrets_swapped;
mod spare;
mod spent;
mod syncing;
mod tenants;
mod terminal;
mod toolsets;
mod top;
mod traces;
mod trees;
mod trying;
mod validate;
mod watching;
mod webhooks;
