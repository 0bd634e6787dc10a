//! Fixtures that only return something, or tell how far they are.
#![expect(deprecated, reason = "the revisions before 2026-07-28 still have logging")]

use std::time::Duration;

use rmcp::model::{
    CallToolResult, ContentBlock, LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam,
    ResourceContents,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::json;

/// One red pixel.
pub(crate) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// A WAV header with no sound behind it.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";
/// The suite wants to see messages apart from each other.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) fn text(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

pub(crate) fn image() -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::image(PNG, "image/png")])
}

pub(crate) fn audio() -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::audio(WAV, "audio/wav")])
}

fn embedded(uri: &str, mime_type: &str, text: &str) -> ContentBlock {
    ContentBlock::resource(ResourceContents::text(text, uri).with_mime_type(mime_type))
}

pub(crate) fn resource() -> CallToolResult {
    let block = embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.");
    CallToolResult::success(vec![block])
}

pub(crate) fn mixed() -> CallToolResult {
    CallToolResult::success(vec![
        ContentBlock::text("Multiple content types test:"),
        ContentBlock::image(PNG, "image/png"),
        embedded("test://mixed-content-resource", "application/json", "{\"test\":\"data\",\"value\":123}"),
    ])
}

pub(crate) fn failure() -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text("This tool intentionally returns an error for testing")])
}

pub(crate) async fn logging(context: &RequestContext<RoleServer>) -> Result<CallToolResult, ErrorData> {
    for message in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
        let notice = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(message));
        context.peer.notify_logging_message(notice).await.map_err(lost)?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(text("Tool with logging executed successfully"))
}

pub(crate) async fn logging_when_asked(
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    match context.meta.log_level() {
        Some(_) => logging(context).await,
        None => Ok(text("No logs were asked for")),
    }
}

pub(crate) async fn progress(context: &RequestContext<RoleServer>) -> Result<CallToolResult, ErrorData> {
    if let Some(token) = context.meta.get_progress_token() {
        for step in [0.0, 50.0, 100.0] {
            let notice = ProgressNotificationParam::new(token.clone(), step).with_total(100.0);
            context.peer.notify_progress(notice).await.map_err(lost)?;
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(text("Tool with progress executed successfully"))
}

pub(crate) fn lost(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
