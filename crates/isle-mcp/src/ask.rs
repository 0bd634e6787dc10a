//! Questions of the engine to the person at a client, while a call of that client waits: as requests to
//! the client where its revision has them, as a result that is to be answered by calling again where not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use isle_engine::engine::{Answer, Question};
use isle_engine::values::AskId;
use isle_engine::{CallContext, Error};
use rmcp::model::{
    CallToolResponse, ElicitRequestParams, InputRequests, InputRequiredResult, InputResponses,
    ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::handler::Shared;
use crate::outlive::Outlive;

/// The question in a result.
const KEY: &str = "network";
/// Calls that wait for their client to come back.
const MOST_PARKED: usize = 256;
/// How long one is kept after its question was answered by nobody.
const KEPT_FOR: Duration = Duration::from_secs(300);

/// How a client can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// By a request to it.
    Requests,
    /// By a result; it calls again with the answer.
    Results,
}

/// Whether and how the client of a request can be asked something.
pub(crate) fn era(context: &RequestContext<RoleServer>) -> Option<Era> {
    let declared = context.client_capabilities()?.elicitation?;
    // One that says neither has forms.
    if declared.form.is_none() && declared.url.is_some() {
        return None;
    }
    let has_requests = context.protocol_version().is_none_or(|version| version.has_initialize());
    Some(if has_requests { Era::Requests } else { Era::Results })
}

/// A call that goes on, and what is needed to answer its questions.
pub(crate) struct InFlight {
    pub(crate) call: Outlive<Result<Value, Error>>,
    pub(crate) questions: mpsc::Receiver<Question>,
    /// As whom questions are answered.
    pub(crate) by: CallContext,
}

/// Which call somebody comes back to: it has to be the same.
#[derive(Debug, PartialEq)]
pub(crate) struct Same {
    pub(crate) name: String,
    pub(crate) arguments: Value,
    pub(crate) actor: String,
}

struct Parked {
    flight: InFlight,
    question: Question,
    same: Same,
}

/// Calls whose clients were asked by a result, until they call again.
#[derive(Default)]
pub(crate) struct Parking(Mutex<HashMap<String, Parked>>);

impl Parking {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Parked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks by a result. The call goes on meanwhile, and its client finds it by the state.
pub(crate) fn park(
    shared: &Arc<Shared>,
    flight: InFlight,
    question: Question,
    same: Same,
) -> Result<CallToolResponse, ErrorData> {
    // As hard to guess as any id.
    let state = AskId::fresh().to_string();
    let form = json!({ KEY: { "method": "elicitation/create", "params": form(&question, Titles::OneOf) } });
    let questions: InputRequests = serde_json::from_value(form).map_err(lost)?;
    let (within, request, by) = (question.within, question.request.clone(), flight.by.clone());
    let mut parked = shared.parking.lock();
    if parked.len() >= MOST_PARKED {
        return Err(ErrorData::internal_error(
            "too many calls wait for an answer; the run goes on, and `history` and `wait` find it",
            None,
        ));
    }
    parked.insert(state.clone(), Parked { flight, question, same });
    drop(parked);
    let (shared, token) = (Arc::downgrade(shared), state.clone());
    tokio::spawn(async move {
        tokio::time::sleep(within).await;
        let Some(there) = shared.upgrade() else { return };
        if there.parking.lock().contains_key(&token) {
            // No answer is one, too.
            there.engine.answer(&by, &request, Answer::Deny).await.ok();
        }
        drop(there);
        tokio::time::sleep(KEPT_FOR).await;
        if let Some(there) = shared.upgrade() {
            there.parking.lock().remove(&token);
        }
    });
    Ok(InputRequiredResult::new(Some(questions), Some(state)).into())
}

/// A client comes back: the call it left, after its answer was given. One that brings no answer is asked
/// again.
pub(crate) async fn resume(
    shared: &Arc<Shared>,
    state: &str,
    responses: Option<&InputResponses>,
    same: &Same,
) -> Result<Result<InFlight, CallToolResponse>, ErrorData> {
    let parked = {
        let mut parked = shared.parking.lock();
        match parked.get(state) {
            Some(one) if one.same == *same => parked.remove(state),
            Some(_) | None => None,
        }
    };
    let Some(Parked { flight, question, .. }) = parked else {
        let words = "no call waits for this answer; `history` tells what became of its run";
        return Err(ErrorData::invalid_params(words, None));
    };
    let Some(response) = responses.and_then(|responses| responses.get(KEY)) else {
        let same =
            Same { name: same.name.clone(), arguments: same.arguments.clone(), actor: same.actor.clone() };
        return park(shared, flight, question, same).map(Err);
    };
    answer(shared, &flight.by, &question, read(response, &question)).await;
    Ok(Ok(flight))
}

/// Asks by a request to the client, and gives its answer. It has to be called in the task of the call it
/// belongs to: that is how the question finds the stream of the call.
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
        // Somebody else was quicker, or what asked is over.
        tracing::debug!(request = %question.request, %error, "an answer came too late");
    }
}

/// How a form names its choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Titles {
    /// As the revisions from 2025-11-25 on.
    OneOf,
    /// As those before.
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

/// What a client answered. Everything but a choice that was offered is a no.
fn read(said: &Value, question: &Question) -> Answer {
    let chosen = (said["action"] == "accept").then(|| said["content"]["answer"].as_str()).flatten();
    let offered = question.answers.iter().find(|answer| Some(answer.as_str()) == chosen);
    offered.copied().unwrap_or(Answer::Deny)
}

fn lost(error: impl std::fmt::Display) -> ErrorData {
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
