//! The Model Context Protocol server. Tools, schemas and descriptions come from the engine's registry; nothing
//! about an operation is defined here. One handler serves every protocol revision the SDK supports, over a byte
//! stream ([`serve_stream`]) and over streamable HTTP ([`http_service`]).

mod call;
mod elicitation;
mod handler;
mod http;
mod message_reader;
mod render;
mod run_to_completion;
mod stream;
mod tools;
mod truncate;

pub use handler::{McpHandler, McpOptions, McpPeer};
pub use http::{HttpOptions, HttpService, MAX_SESSIONS, Sessions, http_service};
pub use message_reader::{Rejected, read_message};
pub use rmcp::ServerHandler;
pub use run_to_completion::RunToCompletion;
pub use stream::{MAX_LINE, StreamError, serve_stream};
pub use tools::{Descriptions, tools_of};
pub use truncate::truncate_escaped;
