//! Rows of the audit log to be: who did something, and what.

use isle_core::clock::wall_clock_ms;
use isle_store::{AuditEntry, RunRow, SandboxRow};
use serde_json::{Value, json};

use crate::context::CallContext;
use crate::network::NetworkRequest;
use crate::run::Run;
use crate::sandbox::Sandbox;
use isle_core::values::{Address, Namespace, SandboxName};

/// Who did something, and through which door.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    pub(super) door: String,
    pub(super) name: String,
    pub(super) namespace: Namespace,
}

impl Actor {
    pub(crate) fn of(context: &CallContext) -> Self {
        Self {
            door: context.door.as_str().to_owned(),
            name: context.actor.clone(),
            namespace: context.namespace.clone(),
        }
    }

    /// The engine itself; what it does about a sandbox is on record where that is.
    pub(crate) fn engine() -> Self {
        Self { door: "engine".into(), name: "isle".into(), namespace: Namespace::default() }
    }

    /// Who began a stored run.
    pub(crate) fn of_run(row: &RunRow) -> Self {
        Self { door: row.door.clone(), name: row.actor.clone(), namespace: namespace_of(&row.namespace) }
    }

    /// Something that concerns no sandbox.
    pub(crate) fn about_nothing(&self, action: &str, detail: Value) -> AuditEntry {
        self.entry(action, None, None, detail)
    }

    pub(super) fn entry(
        &self,
        action: &str,
        sandbox: Option<String>,
        run: Option<String>,
        detail: Value,
    ) -> AuditEntry {
        AuditEntry {
            time_ms: wall_clock_ms(),
            actor: self.name.clone(),
            door: self.door.clone(),
            action: action.to_owned(),
            sandbox,
            run,
            detail,
            namespace: recorded(&self.namespace),
        }
    }
}

/// As audit rows name it.
fn recorded(namespace: &Namespace) -> Option<String> {
    (!namespace.is_default()).then(|| namespace.to_string())
}

/// As records name it. What cannot be read is nobody's but the operator's.
pub(crate) fn namespace_of(text: &str) -> Namespace {
    text.parse().unwrap_or_default()
}

/// One audit row to be.
#[derive(Debug)]
pub(crate) struct Audit(pub(super) AuditEntry);

impl Audit {
    /// Something that happened to a sandbox.
    pub(crate) fn lifecycle(actor: &Actor, action: &str, sandbox: &Sandbox, what: &str) -> Self {
        let detail = json!({
            "id": sandbox.id,
            "tier": sandbox.spec.tier,
            "image": sandbox.spec.image,
            "fingerprint": sandbox.fingerprint,
            "what": what,
        });
        let entry = actor.entry(action, Some(sandbox.name.to_string()), None, detail);
        Self(AuditEntry { namespace: recorded(&sandbox.namespace), ..entry })
    }

    /// Something that happened to a sandbox of which only the record is left.
    pub(crate) fn stored(action: &str, row: &SandboxRow, what: &str) -> Self {
        let name = row.name.clone().unwrap_or_else(|| row.id.clone());
        let detail = json!({ "id": row.id, "fingerprint": row.fingerprint, "what": what });
        let entry = Actor::engine().entry(action, Some(name), None, detail);
        Self(AuditEntry { namespace: recorded(&namespace_of(&row.namespace)), ..entry })
    }

    /// Something that happened to a workspace without a sandbox.
    pub(crate) fn workspace(actor: &Actor, action: &str, address: &Address) -> Self {
        let entry = actor.entry(action, Some(address.name.to_string()), None, json!({}));
        Self(AuditEntry { namespace: recorded(&address.namespace), ..entry })
    }

    /// Something that was done about the name of a sandbox, or was refused.
    pub(crate) fn of_name(context: &CallContext, action: &str, name: &SandboxName, detail: Value) -> Self {
        Self(Actor::of(context).entry(action, Some(name.to_string()), None, detail))
    }

    /// Something that was done about the engine itself.
    pub(crate) fn of_engine(context: &CallContext, action: &str, detail: Value) -> Self {
        Self(Actor::of(context).about_nothing(action, detail))
    }

    /// A run that a rule forbade.
    pub(crate) fn denied(context: &CallContext, name: Option<&SandboxName>, detail: Value) -> Self {
        Self(Actor::of(context).entry("denied", name.map(SandboxName::to_string), None, detail))
    }

    /// Something done to a run by somebody who did not start it.
    pub(crate) fn run(context: &CallContext, action: &str, run: &Run, detail: Value) -> Self {
        let sandbox = run.sandbox_name().to_string();
        Self(Actor::of(context).entry(action, Some(sandbox), Some(run.id.to_string()), detail))
    }

    /// An answer to a request, on record where that came from.
    pub(crate) fn answer(context: &CallContext, action: &str, ask: &NetworkRequest, detail: Value) -> Self {
        let run = ask.run().map(|run| run.to_string());
        let entry = Actor::of(context).entry(action, Some(ask.address.name.to_string()), run, detail);
        Self(AuditEntry { namespace: recorded(&ask.address.namespace), ..entry })
    }

    /// A change of files.
    pub(crate) fn files(context: &CallContext, action: &str, sandbox: &Sandbox, detail: Value) -> Self {
        Self(Actor::of(context).entry(action, Some(sandbox.name.to_string()), None, detail))
    }
}
