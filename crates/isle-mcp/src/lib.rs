//! The Model Context Protocol door. Tools, their schemas and their words come from the engine's
//! registry; nothing about an operation is written here a second time. One handler serves every
//! protocol revision the SDK knows, over a byte stream ([`serve_stream`]) and over streamable
//! HTTP ([`http_service`]).

mod ask;
mod call;
mod handler;
mod http;
mod lines;
mod outlive;
mod render;
mod shorten;
mod stream;
mod tools;

pub use handler::{McpHandler, McpOptions, McpPeer};
pub use http::{HttpOptions, HttpService, MAX_SESSIONS, Sessions, http_service};
pub use lines::{Refused, read_message};
pub use outlive::Outlive;
pub use rmcp::ServerHandler;
pub use shorten::shorten;
pub use stream::{MAX_LINE, StreamError, serve_stream};
pub use tools::{Descriptions, tools_of};
