//! The HTTP server of the daemon: one router on the Unix socket and, if configured, on TCP. Routes,
//! arguments and results are defined in `isle-api`; this crate is transport: access control, parsing of
//! arguments, and sending of results and events.
//!
//! A client that disconnects loses nothing: its call is completed and recorded. Only an interactive command
//! (`session`) is killed with its connection, because its terminal is gone.

mod accept;
mod access;
mod app;
mod body;
mod config;
mod connection;
mod listen;
mod log;
pub mod ports;
mod query;
mod reply;
mod routes;
mod serve;
mod session;
mod token;

pub use config::ServerConfig;
pub use listen::{ListenOptions, Listeners};
pub use routes::mcp_routes;
pub use serve::{serve, serve_open};
pub use token::Token;
