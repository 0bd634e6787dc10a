//! One tool call: caller, progress notifications, cancellation, logging.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use isle_core::Error;
use isle_engine::context::Progress;
use isle_engine::{CallContext, Door};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ProgressNotificationParam, ProgressToken, RequestId,
};
use rmcp::service::{Peer, RequestContext};
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::elicitation::{self, CallKey, ElicitationMode, InFlight};
use crate::handler::{McpHandler, McpPeer};
use crate::render;
use crate::run_to_completion::RunToCompletion;
use crate::truncate::truncate_escaped;

/// Maximum length of a progress message.
const PROGRESS_CHARACTERS: usize = 200;
const LOG_CHARACTERS: usize = 200;
/// How long a result waits for pending progress notifications.
const PROGRESS_FLUSH_TIMEOUT: Duration = Duration::from_millis(200);
const CLIENT_NAME_CHARACTERS: usize = 64;
/// Maximum number of pending questions of one call; further ones are denied.
const MAX_QUESTIONS: usize = 8;

/// Arguments for the log, with tokens masked.
fn logged(arguments: &Value) -> String {
    let mut shown = arguments.clone();
    if let Some(token) = shown.get_mut("token") {
        *token = json!("***");
    }
    shown.to_string()
}

impl McpHandler {
    pub(crate) async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name;
        self.check_shown(&name, &context)?;
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let log = self
            .shared
            .log_calls
            .then(|| (Instant::now(), truncate_escaped(&logged(&arguments), LOG_CHARACTERS)));
        let peer = self.peer(&context);
        let actor = actor(peer.as_ref(), &context);
        let progress = context
            .meta
            .get_progress_token()
            .map(|token| ProgressReporter::start(context.peer.clone(), token));
        let mode = elicitation::elicitation_mode(&context);
        let key = CallKey { name: name.to_string(), arguments, actor: actor.clone() };
        let mut flight = match &request.request_state {
            Some(state) => {
                let responses = request.input_responses.as_ref();
                match elicitation::resume(&self.shared, state, responses, &key).await? {
                    Ok(flight) => flight,
                    Err(asked_again) => return Ok(asked_again),
                }
            }
            None => {
                let mut call_context = CallContext::new(Door::Mcp, actor.clone());
                call_context.cancelled = CancellationToken::new();
                call_context.progress = progress.as_ref().map(ProgressReporter::sink);
                if let Some(peer) = peer {
                    call_context = call_context.within(peer.namespace, peer.role);
                }
                self.start_call(call_context, &key, mode)
            }
        };

        let mut asking = FuturesUnordered::new();
        let outcome = loop {
            tokio::select! {
                outcome = &mut flight.call => break outcome,
                Some(question) = flight.questions.recv() => match mode {
                    Some(ElicitationMode::Results) => return elicitation::suspend(&self.shared, flight, question, key),
                    Some(ElicitationMode::Requests) | None => {
                        asking.push(elicitation::elicit(&self.shared, &context, flight.by.clone(), question));
                    }
                },
                Some(()) = asking.next() => {}
                () = context.ct.cancelled() => {
                    if self.is_disconnected(&context.id) {
                        // The client disconnected, or the daemon shuts down: the run continues.
                        drop(flight);
                        let message = "the connection was closed; the run continues, use `history` and `wait` to find it";
                        return Err(ErrorData::internal_error(message, None));
                    }
                    flight.by.cancelled.cancel();
                    break flight.call.await;
                }
            }
        };
        if let Some(progress) = progress {
            progress.finish().await;
        }
        if let Some((begun, arguments)) = log {
            log_call(&name, &actor, &arguments, &outcome, begun);
        }
        Ok(match outcome {
            Ok(output) => render::success(output).into(),
            Err(error) => render::failure(&error).into(),
        })
    }

    /// Starts a call.
    fn start_call(&self, mut context: CallContext, key: &CallKey, mode: Option<ElicitationMode>) -> InFlight {
        let (sender, questions) = mpsc::channel(MAX_QUESTIONS);
        let by = context.clone();
        context.questions = mode.map(|_| sender);
        let (engine, operation, input) =
            (self.shared.engine.clone(), key.name.clone(), key.arguments.clone());
        let call = RunToCompletion::new(async move { engine.call(context, &operation, input).await });
        InFlight { call, questions, by }
    }

    /// A tool of a toolset that is not enabled is rejected like an unknown tool, with a hint how to enable it.
    fn check_shown(&self, name: &str, context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
        let sets = self.toolsets(context);
        let message = match self.shared.tools.set_of(name) {
            Some(set) if sets.has(set) => return Ok(()),
            Some(set) => {
                let set = set.name();
                format!(
                    "tool {name:?} is in toolset {set:?}, which is not enabled; start with `isle mcp --toolsets {sets},{set}`"
                )
            }
            None => format!("unknown tool: {:?}", truncate_escaped(name, LOG_CHARACTERS)),
        };
        let shown: Vec<_> = self.shared.tools.shown(sets).into_iter().map(|tool| tool.name).collect();
        Err(ErrorData::invalid_params(message, Some(json!({ "tools": shown }))))
    }

    /// Whether the request was cancelled by the end of its connection, and not by the client.
    fn is_disconnected(&self, id: &RequestId) -> bool {
        match &self.stream {
            Some(stream) => stream.ended_without_cancelling(id),
            None => self.shared.shutting_down.load(Ordering::Acquire),
        }
    }

    /// The peer of the stream, or of this HTTP request.
    fn peer(&self, context: &RequestContext<RoleServer>) -> Option<McpPeer> {
        let from_http = || {
            let parts = context.extensions.get::<http::request::Parts>()?;
            parts.extensions.get::<McpPeer>().cloned()
        };
        self.peer.clone().or_else(from_http)
    }
}

/// The name the client gives itself, and the authenticated peer.
fn actor(peer: Option<&McpPeer>, context: &RequestContext<RoleServer>) -> String {
    let client = context.client_info().map(|client| truncate_escaped(&client.name, CLIENT_NAME_CHARACTERS));
    let client = client.as_deref().unwrap_or("unknown");
    match peer {
        Some(peer) => format!("mcp:{client} {}", peer.actor),
        None => format!("mcp:{client}"),
    }
}

/// Sends progress notifications in order, without blocking the engine.
struct ProgressReporter {
    sender: mpsc::Sender<Progress>,
    forward: tokio::task::JoinHandle<()>,
    end: CancellationToken,
}

impl ProgressReporter {
    fn start(peer: Peer<RoleServer>, token: ProgressToken) -> Self {
        let (sender, mut updates) = mpsc::channel::<Progress>(4);
        let end = CancellationToken::new();
        let ended = end.clone();
        let forward = tokio::spawn(async move {
            let mut last = 0.0_f64;
            loop {
                let update = tokio::select! {
                    biased;
                    update = updates.recv() => update,
                    () = ended.cancelled() => None,
                };
                let Some(update) = update else { break };
                // The protocol requires increasing values.
                last = if update.progress > last { update.progress } else { last + 0.001 };
                let message = truncate_escaped(&update.message, PROGRESS_CHARACTERS - 1);
                let mut notice = ProgressNotificationParam::new(token.clone(), last).with_message(message);
                notice.total = update.total;
                if peer.notify_progress(notice).await.is_err() {
                    break;
                }
            }
        });
        Self { sender, forward, end }
    }

    /// Sends pending notifications before the result; a client that does not read misses them.
    async fn finish(mut self) {
        self.end.cancel();
        tokio::time::timeout(PROGRESS_FLUSH_TIMEOUT, &mut self.forward).await.ok();
    }

    fn sink(&self) -> isle_engine::context::ProgressSink {
        let sender = self.sender.clone();
        // A full channel means that the client does not read; drop the notification.
        Arc::new(move |update| drop(sender.try_send(update)))
    }
}

impl Drop for ProgressReporter {
    fn drop(&mut self) {
        // No progress notification may follow the result.
        self.forward.abort();
    }
}

fn log_call(name: &str, actor: &str, arguments: &str, outcome: &Result<Value, Error>, begun: Instant) {
    let outcome = match outcome {
        Ok(_) => "ok",
        Err(error) => error.code.as_str(),
    };
    let milliseconds = begun.elapsed().as_millis();
    tracing::info!(target: "isle::mcp", tool = name, actor, arguments, outcome, milliseconds, "tool call");
}
