//! The handler of all MCP connections. It is stateless: a clone serves each session (and each request of the
//! sessionless revision), all sharing one engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use isle_api::Toolsets;
use isle_core::values::Namespace;
use isle_engine::{CallerRole, Engine};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestMethod, CompleteRequestParams, CompleteResult,
    Implementation, ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesRequestMethod,
    ListResourceTemplatesResult, ListResourcesRequestMethod, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use crate::elicitation::SuspendedCalls;
use crate::stream::StreamState;
use crate::tools::{Descriptions, ToolList};

const INSTRUCTIONS: &str = "\
Use these tools whenever code or shell commands should run in an isolated Linux sandbox instead of on the user's machine. \
`exec` and `run_code` create the sandbox on first use (named `default` unless you pass a name); files in /workspace persist. \
A command that takes longer than `wait` keeps running: continue with `wait` or `logs`, stop it with `kill`. \
Errors contain a code and the next step.";

/// The authenticated caller; the HTTP server adds it to the extensions of a request.
#[derive(Debug, Clone)]
pub struct McpPeer {
    /// Name in the audit log.
    pub actor: Arc<str>,
    /// Its namespace.
    pub namespace: Namespace,
    /// Its role.
    pub role: CallerRole,
}

/// Options of the MCP server.
#[derive(Debug, Clone, Default)]
pub struct McpOptions {
    /// Log every tool call (name, caller, truncated arguments, outcome).
    pub log_calls: bool,
    /// Default toolsets of a client. An HTTP client selects others with a [`Toolsets`] in the extensions of its
    /// requests.
    pub toolsets: Toolsets,
    /// Tool descriptions set by the operator.
    pub descriptions: Descriptions,
}

/// State shared by all clones of a handler.
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) tools: ToolList,
    pub(crate) log_calls: bool,
    pub(crate) shutting_down: AtomicBool,
    pub(crate) suspended_calls: SuspendedCalls,
}

/// Serves the registry's operations as MCP tools.
#[derive(Clone)]
pub struct McpHandler {
    pub(crate) shared: Arc<Shared>,
    /// Default; a request may override it.
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
    /// A handler for an engine. Create it once and clone it.
    #[must_use]
    pub fn new(engine: Engine, options: McpOptions) -> Self {
        let tools = ToolList::new(engine.registry(), &options.descriptions);
        let shared = Shared {
            engine,
            tools,
            log_calls: options.log_calls,
            shutting_down: AtomicBool::new(false),
            suspended_calls: SuspendedCalls::default(),
        };
        Self { shared: Arc::new(shared), toolsets: options.toolsets, peer: None, stream: None }
    }

    /// The same with other toolsets.
    #[must_use]
    pub fn with_toolsets(&self, toolsets: Toolsets) -> Self {
        Self { toolsets, ..self.clone() }
    }

    /// The daemon shuts down: from here on, closing a connection does not cancel its runs.
    pub fn begin_shutdown(&self) {
        self.shared.shutting_down.store(true, Ordering::Release);
    }

    pub(crate) fn for_stream(&self, peer: McpPeer, stream: Arc<StreamState>) -> Self {
        Self { peer: Some(peer), stream: Some(stream), ..self.clone() }
    }

    /// The toolsets this request may use.
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

    // The SDK returns empty lists; a server without these features must return "method not found".

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
