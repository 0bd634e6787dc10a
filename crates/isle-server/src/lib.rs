//! The HTTP doors of the daemon: one router on the Unix socket and, when asked, on TCP. Routes,
//! arguments and answers come from the engine's registry; what is written here is transport:
//! who may come in, how bytes become arguments, how results and events travel back.
//!
//! A client that hangs up loses nothing: the call it waited for is finished and recorded. Only an
//! interactive command ([`attach`]) ends with its connection, because its terminal is gone.

mod accept;
mod app;
pub mod attach;
mod body;
mod config;
mod framing;
mod guard;
mod line;
mod listen;
mod log;
mod openapi;
mod query;
mod reply;
mod routes;
mod serve;
mod token;

pub use config::ServerConfig;
pub use listen::{ListenOptions, Listeners};
pub use routes::mcp_routes;
pub use serve::{serve, serve_open};
pub use token::Token;
