//! Answering requests. An approval grants exactly what the request names, is on record before it holds,
//! and nobody but the operator gives one.

use std::sync::Arc;
use std::time::Duration;

use isle_api::ops::requests::Scope;
use isle_egress::{Gate, Grant, RunKey};
use isle_fail::Point;
use serde_json::json;

use super::grants::RunGrants;
use super::network_requests::{NetworkRequest, NetworkRequests};
use super::{Network, Source};
use crate::context::CallContext;
use crate::events::{Event, EventKind};
use crate::journal::Audit;
use crate::run::Run;
use crate::sandbox::{Sandbox, SandboxState};
use isle_core::backend::Lifetime;
use isle_core::values::{AskId, Namespace};
use isle_core::{Code, Error, Result};

/// How long one connection, or one request, may let wait for itself.
const ONCE_FOR: Duration = Duration::from_secs(60);

/// What was granted.
#[derive(Debug)]
pub(crate) struct Approval {
    pub(crate) ask: Arc<NetworkRequest>,
    pub(crate) grant: Grant,
    pub(crate) scope: Scope,
}

/// Where a grant goes; found before anything is written down.
enum GrantTarget {
    Once(Arc<Sandbox>, Arc<Gate>),
    Run(Arc<Sandbox>, Arc<Gate>, Arc<Run>),
    Sandbox(Arc<Sandbox>, Arc<Gate>),
    Namespace(Namespace),
}

impl Network {
    /// Grants what a request asks for.
    pub(crate) async fn approve(
        self: &Arc<Self>,
        context: &CallContext,
        id: &AskId,
        scope: Option<Scope>,
        lifetime: Option<Duration>,
    ) -> Result<Approval> {
        context.operator_only("answering requests for network")?;
        let ask = self.requests.find(id).ok_or_else(|| no_such_request(id))?;
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
        let target = self.grant_target(&ask, scope).await?;
        // From here on nothing waits: of two answers one is given.
        let ask = self.requests.claim(id).ok_or_else(|| no_such_request(id))?;
        let facts = ask.facts();
        let detail = facts.with(json!({
            "request": ask.id,
            "grant": grant.to_string(),
            "scope": scope.as_str(),
            "for_seconds": grant.limits.lifetime.map(|lifetime| lifetime.as_secs()),
        }));
        let audit = Audit::answer(context, "approve_request", &ask, detail.clone());
        if let Err(error) = self.enact(&target, &grant, &audit) {
            self.requests.put_back(ask);
            return Err(error);
        }
        NetworkRequests::approved(&ask);
        let message = format!("{} is allowed ({})", facts.words(), scope.as_str());
        self.notify_answered(&ask, message, "approved", detail);
        Ok(Approval { ask, grant, scope })
    }

    /// Denies what a request asks for; for a while it cannot be asked for again.
    pub(crate) fn deny(&self, context: &CallContext, id: &AskId) -> Result<Arc<NetworkRequest>> {
        context.operator_only("answering requests for network")?;
        let ask = self.requests.claim(id).ok_or_else(|| no_such_request(id))?;
        let detail = json!({ "request": ask.id, "grant": ask.grant.to_string() });
        let audit = Audit::answer(context, "deny_request", &ask, detail.clone());
        if let Err(error) = self.journal.audit(&audit) {
            self.requests.put_back(ask);
            return Err(error);
        }
        isle_fail::pass(Point::AnswerRecorded);
        self.requests.denied(Arc::clone(&ask));
        self.notify_answered(&ask, format!("{} is denied", ask.facts().words()), "denied", detail);
        Ok(ask)
    }

    /// Where the grant goes. Refuses what could not hold.
    async fn grant_target(self: &Arc<Self>, ask: &NetworkRequest, scope: Scope) -> Result<GrantTarget> {
        let refuse = |what: &str, next: &str| Error::new(Code::InvalidArgument, what.to_owned()).next(next);
        let same = || {
            let sandbox = ask.sandbox.upgrade().filter(|one| one.state() == SandboxState::Running);
            sandbox.ok_or_else(|| match ask.lifetime {
                Lifetime::Named => self.fleet.no_such_sandbox(&ask.address),
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
                GrantTarget::Once(sandbox, gate)
            }
            Scope::Run => {
                let sandbox = same()?;
                let run = ask.run().and_then(|run| self.runs.get(&run));
                let run = run.filter(|run| !run.state().is_final()).ok_or_else(|| {
                    let what = "the run that asked has ended, or is not known";
                    refuse(what, "choose the scope sandbox, or once")
                })?;
                let gate = Arc::clone(self.open_gate(&sandbox).await?);
                GrantTarget::Run(sandbox, gate, run)
            }
            Scope::Sandbox if ask.lifetime == Lifetime::OneShot => {
                let next = "choose the scope run, once or namespace";
                return Err(refuse("the sandbox is gone after its one command", next));
            }
            Scope::Sandbox => {
                let sandbox = self.fleet.get(&ask.address).filter(|one| one.is_usable());
                let sandbox = sandbox.ok_or_else(|| self.fleet.no_such_sandbox(&ask.address))?;
                let gate = Arc::clone(self.open_gate(&sandbox).await?);
                GrantTarget::Sandbox(sandbox, gate)
            }
            Scope::Namespace => GrantTarget::Namespace(ask.address.namespace.clone()),
        })
    }

    /// On record first, in force at once.
    fn enact(self: &Arc<Self>, target: &GrantTarget, grant: &Grant, audit: &Audit) -> Result<()> {
        let now = |sandbox: &Sandbox, gate: &Gate, source: Source, only: Option<RunKey>| -> Result<_> {
            self.journal.audit(audit)?;
            isle_fail::pass(Point::AnswerRecorded);
            let id = match only {
                None => gate.grant(grant.clone()),
                Some(run) => gate.grant_to(grant.clone(), run),
            };
            crate::lock(&sandbox.network.sources).push((id, source));
            Ok(id)
        };
        let grants = std::slice::from_ref(grant);
        match target {
            GrantTarget::Once(sandbox, gate) => now(sandbox, gate, Source::Once, None).map(drop),
            GrantTarget::Run(sandbox, gate, run) => {
                let ids = vec![now(sandbox, gate, Source::Run, Some(RunKey::new(run.id.as_str())))?];
                run.hold_grants(RunGrants { gate: Arc::clone(gate), ids });
                Ok(())
            }
            GrantTarget::Sandbox(sandbox, gate) => self.give_grants(sandbox, gate, grants, audit),
            GrantTarget::Namespace(namespace) => self.give_namespace(namespace, grants, audit),
        }
    }

    fn notify_answered(
        &self,
        ask: &NetworkRequest,
        message: String,
        answer: &str,
        mut data: serde_json::Value,
    ) {
        data["answer"] = json!(answer);
        let mut event = Event::of(EventKind::NetworkAnswered, &ask.address, message).data(data);
        event.run = ask.run().map(|run| run.to_string());
        self.notifier.publish(event);
    }
}

fn no_such_request(id: &AskId) -> Error {
    Error::new(Code::RequestNotFound, format!("there is no request {id}"))
        .next("`network_requests` lists those there are; one that was answered or is too old is gone")
}
