//! The one handler behind every MCP connection. It holds no state of its own: a new copy serves
//! each session (and each request of the sessionless revision), all sharing one engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use isle_engine::ops::Toolsets;
use isle_engine::values::Namespace;
use isle_engine::{Authority, Engine};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestMethod, CompleteRequestParams, CompleteResult,
    Implementation, ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesRequestMethod,
    ListResourceTemplatesResult, ListResourcesRequestMethod, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use crate::ask::Parking;
use crate::stream::StreamState;
use crate::tools::{Descriptions, Shelf};

const INSTRUCTIONS: &str = "\
Use these tools whenever code or shell commands should run in an isolated Linux sandbox instead of on the user's machine. \
`exec` and `run_code` make the sandbox on first use (name `default` unless you give one); files live in /workspace and stay there. \
A command that outlasts `wait` keeps running: pick it up with `wait` or `logs`, end it with `kill`. \
Errors carry a code and what to do next.";

/// Who is at the other end, put into a request's extensions by the HTTP door.
#[derive(Debug, Clone)]
pub struct McpPeer {
    /// As the audit names it.
    pub actor: Arc<str>,
    /// Where it works.
    pub namespace: Namespace,
    /// What it may do besides.
    pub authority: Authority,
}

/// Switches of the MCP door.
#[derive(Debug, Clone, Default)]
pub struct McpOptions {
    /// Log every tool call (name, caller, shortened arguments, outcome).
    pub log_calls: bool,
    /// What a client that does not choose is shown. A client of the HTTP door chooses by a [`Toolsets`]
    /// among the extensions of its requests.
    pub toolsets: Toolsets,
    /// What the operator says about tools.
    pub descriptions: Descriptions,
}

/// What all copies of a handler share.
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) tools: Shelf,
    pub(crate) log_calls: bool,
    pub(crate) leaving: AtomicBool,
    pub(crate) parking: Parking,
}

/// Serves the registry's operations as MCP tools.
#[derive(Clone)]
pub struct McpHandler {
    pub(crate) shared: Arc<Shared>,
    /// Unless the request says otherwise.
    toolsets: Toolsets,
    pub(crate) peer: Option<McpPeer>,
    pub(crate) stream: Option<Arc<StreamState>>,
}

impl std::fmt::Debug for McpHandler {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("McpHandler").field("tools", &self.shared.tools.len()).finish_non_exhaustive()
    }
}

impl McpHandler {
    /// A handler over an engine. Make it once and clone it.
    #[must_use]
    pub fn new(engine: Engine, options: McpOptions) -> Self {
        let tools = Shelf::new(engine.registry(), &options.descriptions);
        let shared = Shared {
            engine,
            tools,
            log_calls: options.log_calls,
            leaving: AtomicBool::new(false),
            parking: Parking::default(),
        };
        Self { shared: Arc::new(shared), toolsets: options.toolsets, peer: None, stream: None }
    }

    /// The same for a client that wants these sets of tools.
    #[must_use]
    pub fn with_toolsets(&self, toolsets: Toolsets) -> Self {
        Self { toolsets, ..self.clone() }
    }

    /// The daemon goes down: from here on a connection that ends leaves its runs alone.
    pub fn leave(&self) {
        self.shared.leaving.store(true, Ordering::Release);
    }

    pub(crate) fn for_stream(&self, peer: McpPeer, stream: Arc<StreamState>) -> Self {
        Self { peer: Some(peer), stream: Some(stream), ..self.clone() }
    }

    /// The sets of tools this request may use.
    pub(crate) fn toolsets<'a>(&'a self, context: &'a RequestContext<RoleServer>) -> &'a Toolsets {
        let parts = context.extensions.get::<http::request::Parts>();
        parts.and_then(|parts| parts.extensions.get::<Toolsets>()).unwrap_or(&self.toolsets)
    }
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("isle", env!("CARGO_PKG_VERSION")).with_title("Isle"))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.shared.tools.shown(self.toolsets(&context))))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.shared.tools.find(name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.call(request, context).await
    }

    // The SDK answers these with empty lists; a server that has no such thing must say so.

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourcesRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourceTemplatesRequestMethod>())
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }
}
