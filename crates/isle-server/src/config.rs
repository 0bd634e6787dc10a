//! Settings of the server.

use std::path::PathBuf;
use std::time::Duration;

use isle_mcp::McpOptions;

use crate::ports::PortsConfig;
use crate::token::Token;

/// Settings of the server. [`ServerConfig::new`] gives every field but two its default.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Version of the program, for `/v1/version`.
    pub version: String,
    /// State directory of the daemon, for `/v1/version`.
    pub state_dir: PathBuf,
    /// The identity of the state directory. A client on the Unix socket with another one is rejected.
    pub instance: Option<String>,
    /// The operator's token for TCP; required to listen on TCP.
    pub token: Option<Token>,
    /// Host names accepted over TCP in addition to loopback names.
    pub allowed_hosts: Vec<String>,
    /// CORS origins (`scheme://host[:port]`). Empty: CORS is disabled.
    pub cors_origins: Vec<String>,
    /// Log every request.
    pub log_http: bool,
    /// Options of the MCP server.
    pub mcp: McpOptions,
    /// The proxy for sandbox ports; disabled when `None`.
    pub ports: Option<PortsConfig>,
    /// How long requests in progress may take to finish at shutdown.
    pub drain: Duration,
    /// Maximum number of connections per listener.
    pub max_connections: usize,
}

impl ServerConfig {
    /// The defaults.
    #[must_use]
    pub fn new(version: impl Into<String>, state_dir: impl Into<PathBuf>) -> Self {
        Self {
            version: version.into(),
            state_dir: state_dir.into(),
            instance: None,
            token: None,
            allowed_hosts: Vec::new(),
            cors_origins: Vec::new(),
            log_http: false,
            mcp: McpOptions::default(),
            ports: None,
            drain: Duration::from_secs(8),
            max_connections: 1024,
        }
    }
}
