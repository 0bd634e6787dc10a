//! Which fixture answers what.
#![expect(
    deprecated,
    reason = "the revisions before 2026-07-28 still have logging, sampling and resource subscriptions"
)]

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, CompleteRequestParams, CompleteResult,
    GetPromptRequestParams, GetPromptResponse, Implementation, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, RequestStateCodec, ServerCapabilities, ServerConfig,
    SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::sync::broadcast;

use crate::input_required::{self, Retry};
use crate::{asking, catalog, content, prompts, resources};

/// What subscribers hear of.
#[derive(Debug, Clone, Copy)]
enum Change {
    Tools,
    Prompts,
}

struct Shared {
    tools: Vec<Tool>,
    changes: broadcast::Sender<Change>,
    codec: RequestStateCodec,
}

/// The suite's fixtures behind one handler.
#[derive(Clone)]
pub(crate) struct Fixtures(Arc<Shared>);

impl Fixtures {
    pub(crate) fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let mut key = vec![0_u8; 32];
        std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut key)?;
        let codec = RequestStateCodec::try_new(key)?;
        Ok(Self(Arc::new(Shared { tools: catalog::tools(), changes: broadcast::channel(16).0, codec })))
    }

    fn announce(&self, change: Change) -> CallToolResponse {
        // Nobody may be listening, which is fine.
        let _ = self.0.changes.send(change);
        content::text("Announced").into()
    }
}

fn announced_capabilities() -> ServerCapabilities {
    ServerCapabilities::builder()
        .enable_tools()
        .enable_tool_list_changed()
        .enable_prompts()
        .enable_prompts_list_changed()
        .enable_resources()
        .enable_resources_subscribe()
        .enable_completions()
        .enable_logging()
        .build()
}

fn needs_sampling(context: &RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
    if context.client_capabilities().is_some_and(|declared| declared.sampling.is_some()) {
        return Ok(content::text("The client can sample").into());
    }
    Err(ErrorData::missing_required_client_capability(
        ClientCapabilities::builder().enable_sampling().build(),
    ))
}

impl ServerHandler for Fixtures {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(announced_capabilities())
            .with_server_info(Implementation::new("isle-conformance", env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.0.tools.clone()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.0.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let retry =
            Retry { responses: request.input_responses.as_ref(), state: request.request_state.as_deref() };
        let codec = &self.0.codec;
        Ok(match request.name.as_ref() {
            "test_simple_text" => content::text("This is a simple text response for testing.").into(),
            "test_image_content" => content::image().into(),
            "test_audio_content" => content::audio().into(),
            "test_embedded_resource" => content::resource().into(),
            "test_multiple_content_types" => content::mixed().into(),
            "test_error_handling" => content::failure().into(),
            "test_custom_header" | "json_schema_2020_12_tool" => content::text("Accepted").into(),
            "test_tool_with_logging" => content::logging(&context).await?.into(),
            "test_logging_tool" => content::logging_when_asked(&context).await?.into(),
            "test_tool_with_progress" => content::progress(&context).await?.into(),
            "test_sampling" => asking::sampling(&context, &arguments).await?.into(),
            "test_elicitation" => asking::elicitation(&context, &arguments).await?.into(),
            "test_elicitation_sep1034_defaults" => asking::elicitation_with_defaults(&context).await?.into(),
            "test_elicitation_sep1330_enums" => asking::elicitation_with_choices(&context).await?.into(),
            "test_missing_capability" => needs_sampling(&context)?,
            "test_trigger_tool_change" => self.announce(Change::Tools),
            "test_trigger_prompt_change" => self.announce(Change::Prompts),
            "test_streaming_elicitation" | "test_input_required_result_elicitation" => {
                input_required::elicitation(&retry)?
            }
            "test_input_required_result_sampling" => input_required::sampling(&retry)?,
            "test_input_required_result_list_roots" => input_required::list_roots(&retry)?,
            "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
                input_required::request_state(codec, &retry)?
            }
            "test_input_required_result_multiple_inputs" => input_required::multiple_inputs(codec, &retry)?,
            "test_input_required_result_multi_round" => input_required::multi_round(codec, &retry)?,
            "test_input_required_result_capabilities" => {
                input_required::capabilities(&context.client_capabilities().unwrap_or_default())?
            }
            product if self.get_tool(product).is_some() => {
                content::text("There is no engine behind this server; its tools are only listed").into()
            }
            unknown => return Err(ErrorData::invalid_params(format!("there is no tool {unknown:?}"), None)),
        })
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(prompts::list()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        prompts::get(&request)
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::list()))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        resources::read(&request.uri).map(Into::into)
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Ok(CompleteResult::default())
    }

    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn subscribe(
        &self,
        _request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.0.changes.subscribe();
        loop {
            let change = tokio::select! {
                change = changes.recv() => change,
                () = context.cancelled() => return Ok(()),
            };
            // A change the client did not subscribe to is refused by the sink; that is the filter.
            let _ = match change {
                Ok(Change::Tools) => context.sink().notify_tool_list_changed().await,
                Ok(Change::Prompts) => context.sink().notify_prompt_list_changed().await,
                Err(broadcast::error::RecvError::Lagged(_)) => Ok(()),
                Err(broadcast::error::RecvError::Closed) => return Ok(()),
            };
        }
    }
}
