//! Questions of the engine to the user of a client while a call of that client waits (MCP elicitation): as a
//! request to the client in revisions that have it, else as a result that the client answers by calling again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use isle_core::Error;
use isle_core::values::AskId;
use isle_engine::CallContext;
use isle_engine::engine::{Answer, Question};
use rmcp::model::{
    CallToolResponse, ElicitRequestParams, InputRequests, InputRequiredResult, InputResponses,
    ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::handler::Shared;
use crate::run_to_completion::RunToCompletion;

/// Key of the question in a result.
const KEY: &str = "network";
/// Maximum number of suspended calls.
const MAX_SUSPENDED: usize = 256;
/// How long a call is kept after its question timed out.
const RETENTION: Duration = Duration::from_secs(300);

/// How questions are sent to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElicitationMode {
    /// As a request.
    Requests,
    /// As a result; the client calls again with the answer.
    Results,
}

/// Whether and how questions can be sent to the client of a request.
pub(crate) fn elicitation_mode(context: &RequestContext<RoleServer>) -> Option<ElicitationMode> {
    let declared = context.client_capabilities()?.elicitation?;
    // A client that declares neither supports forms.
    if declared.form.is_none() && declared.url.is_some() {
        return None;
    }
    let has_requests = context.protocol_version().is_none_or(|version| version.has_initialize());
    Some(if has_requests { ElicitationMode::Requests } else { ElicitationMode::Results })
}

/// A running call and its questions.
pub(crate) struct InFlight {
    pub(crate) call: RunToCompletion<Result<Value, Error>>,
    pub(crate) questions: mpsc::Receiver<Question>,
    /// The caller on whose behalf questions are answered.
    pub(crate) by: CallContext,
}

/// Identifies a suspended call: the client must repeat the same call.
#[derive(Debug, PartialEq)]
pub(crate) struct CallKey {
    pub(crate) name: String,
    pub(crate) arguments: Value,
    pub(crate) actor: String,
}

struct SuspendedCall {
    flight: InFlight,
    question: Question,
    key: CallKey,
}

/// Calls that returned a question, until their clients call again.
#[derive(Default)]
pub(crate) struct SuspendedCalls(Mutex<HashMap<String, SuspendedCall>>);

impl SuspendedCalls {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, SuspendedCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a question as the result. The call keeps running; the client resumes it with the state.
pub(crate) fn suspend(
    shared: &Arc<Shared>,
    flight: InFlight,
    question: Question,
    key: CallKey,
) -> Result<CallToolResponse, ErrorData> {
    // As hard to guess as any id.
    let state = AskId::fresh().to_string();
    let form = json!({ KEY: { "method": "elicitation/create", "params": form(&question, Titles::OneOf) } });
    let questions: InputRequests = serde_json::from_value(form).map_err(internal)?;
    let (within, request, by) = (question.within, question.request.clone(), flight.by.clone());
    let mut suspended = shared.suspended_calls.lock();
    if suspended.len() >= MAX_SUSPENDED {
        return Err(ErrorData::internal_error(
            "too many calls wait for an answer; the run continues, use `history` and `wait` to find it",
            None,
        ));
    }
    suspended.insert(state.clone(), SuspendedCall { flight, question, key });
    drop(suspended);
    let (shared, token) = (Arc::downgrade(shared), state.clone());
    tokio::spawn(async move {
        tokio::time::sleep(within).await;
        let Some(there) = shared.upgrade() else { return };
        if there.suspended_calls.lock().contains_key(&token) {
            // No answer means deny.
            there.engine.answer(&by, &request, Answer::Deny).await.ok();
        }
        drop(there);
        tokio::time::sleep(RETENTION).await;
        if let Some(there) = shared.upgrade() {
            there.suspended_calls.lock().remove(&token);
        }
    });
    Ok(InputRequiredResult::new(Some(questions), Some(state)).into())
}

/// Resumes a suspended call with the client's answer; without an answer the question is returned again.
pub(crate) async fn resume(
    shared: &Arc<Shared>,
    state: &str,
    responses: Option<&InputResponses>,
    key: &CallKey,
) -> Result<Result<InFlight, CallToolResponse>, ErrorData> {
    let suspended = {
        let mut suspended = shared.suspended_calls.lock();
        match suspended.get(state) {
            Some(one) if one.key == *key => suspended.remove(state),
            Some(_) | None => None,
        }
    };
    let Some(SuspendedCall { flight, question, .. }) = suspended else {
        let message = "no call is waiting for this answer; see `history` for its run";
        return Err(ErrorData::invalid_params(message, None));
    };
    let Some(response) = responses.and_then(|responses| responses.get(KEY)) else {
        let key =
            CallKey { name: key.name.clone(), arguments: key.arguments.clone(), actor: key.actor.clone() };
        return suspend(shared, flight, question, key).map(Err);
    };
    answer(shared, &flight.by, &question, read(response, &question)).await;
    Ok(Ok(flight))
}

/// Sends the question as a request to the client and passes the answer to the engine. Must run in the task of
/// its call, so that the question is sent on the stream of the call.
pub(crate) async fn elicit(
    shared: &Shared,
    context: &RequestContext<RoleServer>,
    by: CallContext,
    question: Question,
) {
    let titles = match context.protocol_version() {
        Some(version) if version.as_str() < ProtocolVersion::V_2025_11_25.as_str() => Titles::Names,
        Some(_) | None => Titles::OneOf,
    };
    let said = match serde_json::from_value::<ElicitRequestParams>(form(&question, titles)) {
        Ok(form) => context.peer.create_elicitation_with_timeout(form, Some(question.within)).await.ok(),
        Err(_) => None,
    };
    let said = said.and_then(|said| serde_json::to_value(said).ok()).unwrap_or_default();
    answer(shared, &by, &question, read(&said, &question)).await;
}

async fn answer(shared: &Shared, by: &CallContext, question: &Question, answer: Answer) {
    if let Err(error) = shared.engine.answer(by, &question.request, answer).await {
        // The request was answered already, or the run has exited.
        tracing::debug!(request = %question.request, %error, "answer rejected");
    }
}

/// How a form lists its choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Titles {
    /// `oneOf`, in revisions since 2025-11-25.
    OneOf,
    /// `enumNames`, in earlier revisions.
    Names,
}

fn form(question: &Question, titles: Titles) -> Value {
    let mut choice = json!({ "type": "string", "title": "Answer", "default": Answer::Deny.as_str() });
    match titles {
        Titles::OneOf => {
            let one = |answer: &Answer| json!({ "const": answer.as_str(), "title": answer.title() });
            choice["oneOf"] = question.answers.iter().map(one).collect();
        }
        Titles::Names => {
            choice["enum"] = question.answers.iter().map(|answer| json!(answer.as_str())).collect();
            choice["enumNames"] = question.answers.iter().map(|answer| json!(answer.title())).collect();
        }
    }
    json!({
        "mode": "form",
        "message": question.text,
        "requestedSchema": { "type": "object", "properties": { "answer": choice }, "required": ["answer"] },
    })
}

/// Parses the answer of a client. Everything but an offered choice means deny.
fn read(said: &Value, question: &Question) -> Answer {
    let chosen = (said["action"] == "accept").then(|| said["content"]["answer"].as_str()).flatten();
    let offered = question.answers.iter().find(|answer| Some(answer.as_str()) == chosen);
    offered.copied().unwrap_or(Answer::Deny)
}

fn internal(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        Question {
            request: AskId::fresh(),
            text: "May it?".into(),
            answers: vec![Answer::Deny, Answer::Once],
            within: Duration::from_secs(1),
        }
    }

    #[test]
    fn everything_but_a_choice_that_was_offered_is_a_no() {
        let accepted = |answer: Value| json!({ "action": "accept", "content": { "answer": answer } });
        assert_eq!(read(&accepted(json!("once")), &question()), Answer::Once);
        for said in [
            accepted(json!("deny")),
            accepted(json!("sandbox")),
            accepted(json!(true)),
            json!({ "action": "accept" }),
            json!({ "action": "decline", "content": { "answer": "once" } }),
            json!({ "action": "cancel" }),
            json!("once"),
            Value::Null,
        ] {
            assert_eq!(read(&said, &question()), Answer::Deny, "{said}");
        }
    }

    #[test]
    fn forms_are_such_as_the_protocol_has() {
        for titles in [Titles::OneOf, Titles::Names] {
            let form = form(&question(), titles);
            let read: ElicitRequestParams = serde_json::from_value(form.clone()).unwrap();
            let again = serde_json::to_value(read).unwrap();
            assert_eq!(again["requestedSchema"]["properties"], form["requestedSchema"]["properties"]);
        }
    }
}
