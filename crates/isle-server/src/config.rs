//! Settings of the server.

use std::path::PathBuf;
use std::time::Duration;

use isle_mcp::McpOptions;

use crate::token::Token;

/// Settings of the server. [`ServerConfig::new`] gives every field but two its default.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Version of the program, for `/v1/version`.
    pub version: String,
    /// Where the daemon keeps its state, for `/v1/version`.
    pub state_dir: PathBuf,
    /// What TCP callers must present. Without it TCP is refused at start.
    pub token: Option<Token>,
    /// Names besides the loopback ones under which TCP callers may address this server.
    pub allowed_hosts: Vec<String>,
    /// Origins (`scheme://host[:port]`) whose pages may call and read answers. Empty: CORS is off.
    pub cors_origins: Vec<String>,
    /// Log every request.
    pub log_http: bool,
    /// Of the MCP door.
    pub mcp: McpOptions,
    /// How long requests that are under way at shutdown may take to finish.
    pub drain: Duration,
    /// Connections at once, for each listener on its own.
    pub max_connections: usize,
}

impl ServerConfig {
    /// The defaults.
    #[must_use]
    pub fn new(version: impl Into<String>, state_dir: impl Into<PathBuf>) -> Self {
        Self {
            version: version.into(),
            state_dir: state_dir.into(),
            token: None,
            allowed_hosts: Vec::new(),
            cors_origins: Vec::new(),
            log_http: false,
            mcp: McpOptions::default(),
            drain: Duration::from_secs(8),
            max_connections: 1024,
        }
    }
}
