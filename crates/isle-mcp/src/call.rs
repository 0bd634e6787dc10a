//! One tool call: who calls, progress while it waits, what a cancellation means, what is logged.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use isle_engine::context::Beat;
use isle_engine::{CallContext, Door, Error};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ProgressNotificationParam, ProgressToken, RequestId,
};
use rmcp::service::{Peer, RequestContext};
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::ask::{self, Era, InFlight, Same};
use crate::handler::{McpHandler, McpPeer};
use crate::outlive::Outlive;
use crate::render;
use crate::shorten::shorten;

/// Clients show at most so much of a progress message.
const PROGRESS_CHARACTERS: usize = 200;
const LOG_CHARACTERS: usize = 200;
/// How long an answer may wait for the progress before it.
const LAST_BEATS: Duration = Duration::from_millis(200);
const CLIENT_NAME_CHARACTERS: usize = 64;
/// Questions of one call that wait to be put; who asks more is denied.
const QUESTIONS: usize = 8;

/// Arguments as the log may show them: a token is nobody's business.
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
        let log =
            self.shared.log_calls.then(|| (Instant::now(), shorten(&logged(&arguments), LOG_CHARACTERS)));
        let peer = self.peer(&context);
        let actor = actor(peer.as_ref(), &context);
        let progress =
            context.meta.get_progress_token().map(|token| Progress::start(context.peer.clone(), token));
        let era = ask::era(&context);
        let same = Same { name: name.to_string(), arguments, actor: actor.clone() };
        let mut flight = match &request.request_state {
            Some(state) => {
                let responses = request.input_responses.as_ref();
                match ask::resume(&self.shared, state, responses, &same).await? {
                    Ok(flight) => flight,
                    Err(asked_again) => return Ok(asked_again),
                }
            }
            None => {
                let mut call_context = CallContext::new(Door::Mcp, actor.clone());
                call_context.cancelled = CancellationToken::new();
                call_context.beats = progress.as_ref().map(Progress::sink);
                if let Some(peer) = peer {
                    call_context = call_context.within(peer.namespace, peer.authority);
                }
                self.take_off(call_context, &same, era)
            }
        };

        let mut asking = FuturesUnordered::new();
        let outcome = loop {
            tokio::select! {
                outcome = &mut flight.call => break outcome,
                Some(question) = flight.questions.recv() => match era {
                    Some(Era::Results) => return ask::park(&self.shared, flight, question, same),
                    Some(Era::Requests) | None => {
                        asking.push(ask::elicit(&self.shared, &context, flight.by.clone(), question));
                    }
                },
                Some(()) = asking.next() => {}
                () = context.ct.cancelled() => {
                    if self.lets_go(&context.id) {
                        // The client went away without a word, or the daemon goes down: the run goes on.
                        drop(flight);
                        let message = "the connection ended; the run goes on, and `history` and `wait` find it";
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

    /// Begins a call.
    fn take_off(&self, mut context: CallContext, same: &Same, era: Option<Era>) -> InFlight {
        let (sender, questions) = mpsc::channel(QUESTIONS);
        let by = context.clone();
        context.questions = era.map(|_| sender);
        let (engine, operation, input) =
            (self.shared.engine.clone(), same.name.clone(), same.arguments.clone());
        let call = Outlive::new(async move { engine.call(context, &operation, input).await });
        InFlight { call, questions, by }
    }

    /// A tool of a set that is not on is refused like one that does not exist, with the way to it.
    fn check_shown(&self, name: &str, context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
        let sets = self.toolsets(context);
        let words = match self.shared.tools.set_of(name) {
            Some(set) if sets.has(set) => return Ok(()),
            Some(set) => {
                let set = set.name();
                format!(
                    "the tool {name:?} is in the set {set:?}, which is not on; start with `isle mcp --toolsets {sets},{set}`"
                )
            }
            None => format!("there is no tool {:?}", shorten(name, LOG_CHARACTERS)),
        };
        let shown: Vec<_> = self.shared.tools.shown(sets).into_iter().map(|tool| tool.name).collect();
        Err(ErrorData::invalid_params(words, Some(json!({ "tools": shown }))))
    }

    /// Whether the end of this request is the end of its connection, and not the client's wish.
    fn lets_go(&self, id: &RequestId) -> bool {
        match &self.stream {
            Some(stream) => stream.ended_without_cancelling(id),
            None => self.shared.leaving.load(Ordering::Acquire),
        }
    }

    /// The peer as the door knows it: of the stream, or of this request.
    fn peer(&self, context: &RequestContext<RoleServer>) -> Option<McpPeer> {
        let from_http = || {
            let parts = context.extensions.get::<http::request::Parts>()?;
            parts.extensions.get::<McpPeer>().cloned()
        };
        self.peer.clone().or_else(from_http)
    }
}

/// The client by its own word, and the peer as the door knows it.
fn actor(peer: Option<&McpPeer>, context: &RequestContext<RoleServer>) -> String {
    let client = context.client_info().map(|client| shorten(&client.name, CLIENT_NAME_CHARACTERS));
    let client = client.as_deref().unwrap_or("unknown");
    match peer {
        Some(peer) => format!("mcp:{client} {}", peer.actor),
        None => format!("mcp:{client}"),
    }
}

/// Turns beats into progress notifications, in order, without ever making the engine wait.
struct Progress {
    sender: mpsc::Sender<Beat>,
    forward: tokio::task::JoinHandle<()>,
    end: CancellationToken,
}

impl Progress {
    fn start(peer: Peer<RoleServer>, token: ProgressToken) -> Self {
        let (sender, mut beats) = mpsc::channel::<Beat>(4);
        let end = CancellationToken::new();
        let ended = end.clone();
        let forward = tokio::spawn(async move {
            let mut last = 0.0_f64;
            loop {
                let beat = tokio::select! {
                    biased;
                    beat = beats.recv() => beat,
                    () = ended.cancelled() => None,
                };
                let Some(beat) = beat else { break };
                // The protocol wants every value above the one before.
                last = if beat.progress > last { beat.progress } else { last + 0.001 };
                let message = shorten(&beat.message, PROGRESS_CHARACTERS - 1);
                let mut notice = ProgressNotificationParam::new(token.clone(), last).with_message(message);
                notice.total = beat.total;
                if peer.notify_progress(notice).await.is_err() {
                    break;
                }
            }
        });
        Self { sender, forward, end }
    }

    /// What was said before the answer is told before it; a client that does not read misses it.
    async fn finish(mut self) {
        self.end.cancel();
        tokio::time::timeout(LAST_BEATS, &mut self.forward).await.ok();
    }

    fn sink(&self) -> isle_engine::context::BeatSink {
        let sender = self.sender.clone();
        // A full channel means the client does not read; the next beat will do.
        Arc::new(move |beat| drop(sender.try_send(beat)))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // No progress may follow the answer.
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
