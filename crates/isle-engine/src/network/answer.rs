//! Answering requests. An approval grants exactly what the request names, is on record before it holds,
//! and nobody but the operator gives one.

use std::sync::Arc;
use std::time::Duration;

use isle_egress::{Gate, Grant};
use isle_fail::Point;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Source;
use super::asks::{Ask, Asks};
use super::grants::RunGrants;
use crate::backend::Lifetime;
use crate::context::CallContext;
use crate::engine::Inner;
use crate::error::{Code, Error, Result};
use crate::events::{Event, EventKind};
use crate::journal::Audit;
use crate::run::Run;
use crate::sandbox::{Sandbox, SandboxState};
use crate::values::{AskId, Namespace};

/// How long one connection, or one request, may let wait for itself.
const ONCE_FOR: Duration = Duration::from_secs(60);

/// For what a request is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum Scope {
    /// One connection, or the one request, made within a minute.
    Once,
    /// The run that asked, as long as it goes on.
    Run,
    /// The sandbox, until it is taken back.
    Sandbox,
    /// Every sandbox of the namespace, until it is taken back.
    Namespace,
}

impl Scope {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Run => "run",
            Self::Sandbox => "sandbox",
            Self::Namespace => "namespace",
        }
    }
}

/// What was granted.
#[derive(Debug)]
pub(crate) struct Approval {
    pub(crate) ask: Arc<Ask>,
    pub(crate) grant: Grant,
    pub(crate) scope: Scope,
}

/// Where a grant goes; found before anything is written down.
enum Place {
    Once(Arc<Sandbox>, Arc<Gate>),
    Run(Arc<Sandbox>, Arc<Gate>, Arc<Run>),
    Sandbox(Arc<Sandbox>, Arc<Gate>),
    Namespace(Namespace),
}

impl Inner {
    /// Grants what a request asks for.
    pub(crate) async fn approve(
        self: &Arc<Self>,
        context: &CallContext,
        id: &AskId,
        scope: Option<Scope>,
        lifetime: Option<Duration>,
    ) -> Result<Approval> {
        context.operator_only("answering requests for network")?;
        let ask = self.asks.find(id).ok_or_else(|| no_such_request(id))?;
        let scope = scope.unwrap_or(match ask.lifetime {
            Lifetime::Named => Scope::Sandbox,
            Lifetime::OneShot => Scope::Run,
        });
        let mut grant = ask.grant.clone();
        grant.limits.lifetime = lifetime;
        if scope == Scope::Once {
            grant.limits.lifetime = lifetime.or(Some(ONCE_FOR));
            if grant.requests.is_all() {
                grant.limits.connections = Some(1);
            } else {
                grant.limits.requests = Some(1);
            }
        }
        let place = self.place(&ask, scope).await?;
        // From here on nothing waits: of two answers one is given.
        let ask = self.asks.claim(id).ok_or_else(|| no_such_request(id))?;
        let facts = ask.facts();
        let detail = facts.with(json!({
            "request": ask.id,
            "grant": grant.to_string(),
            "scope": scope.as_str(),
            "for_seconds": grant.limits.lifetime.map(|lifetime| lifetime.as_secs()),
        }));
        let audit = Audit::answer(context, "approve_request", &ask, detail.clone());
        if let Err(error) = self.enact(&place, &grant, &audit) {
            self.asks.put_back(ask);
            return Err(error);
        }
        Asks::approved(&ask);
        let message = format!("{} is allowed ({})", facts.words(), scope.as_str());
        self.tell_answered(&ask, message, "approved", detail);
        Ok(Approval { ask, grant, scope })
    }

    /// Denies what a request asks for; for a while it cannot be asked for again.
    pub(crate) fn deny(&self, context: &CallContext, id: &AskId) -> Result<Arc<Ask>> {
        context.operator_only("answering requests for network")?;
        let ask = self.asks.claim(id).ok_or_else(|| no_such_request(id))?;
        let detail = json!({ "request": ask.id, "grant": ask.grant.to_string() });
        let audit = Audit::answer(context, "deny_request", &ask, detail.clone());
        if let Err(error) = self.journal.audit(&audit) {
            self.asks.put_back(ask);
            return Err(error);
        }
        isle_fail::pass(Point::AnswerRecorded);
        self.asks.denied(Arc::clone(&ask));
        self.tell_answered(&ask, format!("{} is denied", ask.facts().words()), "denied", detail);
        Ok(ask)
    }

    /// Where the grant goes. Refuses what could not hold.
    async fn place(self: &Arc<Self>, ask: &Ask, scope: Scope) -> Result<Place> {
        let refuse = |what: &str, next: &str| Error::new(Code::InvalidArgument, what.to_owned()).next(next);
        let same = || {
            let sandbox = ask.sandbox.upgrade().filter(|one| one.state() == SandboxState::Running);
            sandbox.ok_or_else(|| match ask.lifetime {
                Lifetime::Named => self.no_such_sandbox(&ask.address),
                Lifetime::OneShot => refuse(
                    "the sandbox that asked was there for one command, which has ended",
                    "choose the scope namespace, or run the command again with what it asked for granted",
                ),
            })
        };
        Ok(match scope {
            Scope::Once => {
                let sandbox = same()?;
                let gate = Arc::clone(self.open_gate(&sandbox).await?);
                Place::Once(sandbox, gate)
            }
            Scope::Run => {
                let sandbox = same()?;
                let run = ask.run().and_then(|run| self.runs.get(&run));
                let run = run.filter(|run| !run.state().is_final()).ok_or_else(|| {
                    refuse("the run that asked has ended", "choose the scope sandbox, or once")
                })?;
                let gate = Arc::clone(self.open_gate(&sandbox).await?);
                Place::Run(sandbox, gate, run)
            }
            Scope::Sandbox if ask.lifetime == Lifetime::OneShot => {
                let next = "choose the scope run, once or namespace";
                return Err(refuse("the sandbox is gone after its one command", next));
            }
            Scope::Sandbox => {
                let sandbox = self.fleet.get(&ask.address).filter(|one| one.is_usable());
                let sandbox = sandbox.ok_or_else(|| self.no_such_sandbox(&ask.address))?;
                let gate = Arc::clone(self.open_gate(&sandbox).await?);
                Place::Sandbox(sandbox, gate)
            }
            Scope::Namespace => Place::Namespace(ask.address.namespace.clone()),
        })
    }

    /// On record first, in force at once.
    fn enact(self: &Arc<Self>, place: &Place, grant: &Grant, audit: &Audit) -> Result<()> {
        let now = |sandbox: &Sandbox, gate: &Gate, source: Source| -> Result<_> {
            self.journal.audit(audit)?;
            isle_fail::pass(Point::AnswerRecorded);
            let id = gate.grant(grant.clone());
            crate::lock(&sandbox.network.sources).push((id, source));
            Ok(id)
        };
        let grants = std::slice::from_ref(grant);
        match place {
            Place::Once(sandbox, gate) => now(sandbox, gate, Source::Once).map(drop),
            Place::Run(sandbox, gate, run) => {
                let ids = vec![now(sandbox, gate, Source::Run)?];
                run.hold_grants(RunGrants { gate: Arc::clone(gate), ids });
                Ok(())
            }
            Place::Sandbox(sandbox, gate) => self.give_grants(sandbox, gate, grants, audit),
            Place::Namespace(namespace) => self.give_namespace(namespace, grants, audit),
        }
    }

    fn tell_answered(&self, ask: &Ask, message: String, answer: &str, mut data: serde_json::Value) {
        data["answer"] = json!(answer);
        let mut event = Event::of(EventKind::NetworkAnswered, &ask.address, message).data(data);
        event.run = ask.run().map(|run| run.to_string());
        self.publish(event);
    }
}

fn no_such_request(id: &AskId) -> Error {
    Error::new(Code::RequestNotFound, format!("there is no request {id}"))
        .next("`network_requests` lists those there are; one that was answered or is too old is gone")
}
