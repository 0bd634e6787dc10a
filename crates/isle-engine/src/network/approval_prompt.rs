//! A question to the client that made a call: whether its sandbox may reach something.

use std::time::Duration;

use super::network_requests::NetworkRequest;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::sandbox::Sandbox;
use isle_api::ops::requests::Scope;
use isle_core::Result;
use isle_core::backend::Lifetime;
use isle_core::values::{AskId, RunId};

/// Where questions go for as long as somebody there can answer; when it is closed, nobody can.
pub type QuestionSender = tokio::sync::mpsc::Sender<Question>;

/// A question. Everything in it is canonical: hosts are plain ASCII, names follow the rules of names.
#[derive(Debug, Clone)]
pub struct Question {
    /// Of which request.
    pub request: AskId,
    /// What is asked, as sentences.
    pub text: String,
    /// What can be answered, the safest first.
    pub answers: Vec<Answer>,
    /// How long an answer helps.
    pub within: Duration,
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// No.
    Deny,
    /// One connection, or the one request.
    Once,
    /// As long as the run goes on.
    Run,
    /// Until it is taken back.
    Sandbox,
}

impl Answer {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Deny, Self::Once, Self::Run, Self::Sandbox];

    /// A word for programs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Once => "once",
            Self::Run => "run",
            Self::Sandbox => "sandbox",
        }
    }

    /// Words for people.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Deny => "Deny",
            Self::Once => "Allow once",
            Self::Run => "Allow during this run",
            Self::Sandbox => "Allow for this sandbox, until taken back",
        }
    }
}

impl Question {
    pub(super) fn of(ask: &NetworkRequest, run: Option<&RunId>, sandbox: &Sandbox, within: Duration) -> Self {
        let mut answers = vec![Answer::Deny, Answer::Once];
        answers.extend(run.map(|_| Answer::Run));
        let (what, named) = match sandbox.spec.lifetime {
            Lifetime::Named => (format!("The sandbox {}", sandbox.name), true),
            Lifetime::OneShot => ("A sandbox for one command".to_owned(), false),
        };
        if named {
            answers.push(Answer::Sandbox);
        }
        let text = format!(
            "{what} asks to reach {}. It is denied unless you allow it within {} seconds.",
            ask.facts().words(),
            within.as_secs()
        );
        Self { request: ask.id.clone(), text, answers, within }
    }
}

impl Engine {
    /// Answers a question that was put to a caller. Audited as that caller's.
    pub async fn answer(&self, context: &CallContext, request: &AskId, answer: Answer) -> Result<()> {
        let scope = match answer {
            Answer::Deny => return self.inner.network.deny(context, request).map(drop),
            Answer::Once => Scope::Once,
            Answer::Run => Scope::Run,
            Answer::Sandbox => Scope::Sandbox,
        };
        self.inner.network.approve(context, request, Some(scope), None).await.map(drop)
    }
}
