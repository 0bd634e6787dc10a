//! Events in words: one method for each thing that happens, called from where it happens.
//!
//! The notifier owns nothing; it knows how an event is worded, which values must not be in it, and which counter
//! belongs to it, and hands the rest to the bus ([`Events`]). Values are taken out before anybody can read an
//! event: what variables of the sandbox keep secret by their names, and what the vault knows to have been in the
//! sandbox as a value. For that it looks at the tables of variables, secrets and sandboxes, and changes none.
//!
//! Publishing never waits: not for a listener, not for the history. Every service above the tables has the
//! notifier; whoever changes something on record calls it afterwards, so that an event never reports what did
//! not happen.

use std::collections::BTreeMap;
use std::sync::Arc;

use isle_store::{RunRow, SandboxRow};
use serde_json::{Value, json};

use super::{Event, EventKind, Events, secret_values};
use crate::context::CallContext;
use crate::files::sync::SyncShape;
use crate::metrics::{Metrics, SandboxFate};
use crate::run::{Finish, Plan, Run, RunKind};
use crate::sandbox::{Fleet, Sandbox};
use crate::secrets::Vault;
use crate::variables::Variables;
use isle_api::shapes::{LimitName, RunState};
use isle_core::Error;
use isle_core::backend::Lifetime;
use isle_core::values::{Address, Namespace, SandboxName, SecretName};
use isle_vault::{Masker, PiiKinds};

/// See the module.
#[derive(Debug)]
pub(crate) struct Notifier {
    events: Arc<Events>,
    metrics: Arc<Metrics>,
    variables: Arc<Variables>,
    vault: Arc<Vault>,
    fleet: Arc<Fleet>,
    /// PiiKinds data that is masked for every sandbox.
    personal: PiiKinds,
}

impl Notifier {
    pub(crate) fn new(
        events: Arc<Events>,
        metrics: Arc<Metrics>,
        variables: Arc<Variables>,
        vault: Arc<Vault>,
        fleet: Arc<Fleet>,
        personal: PiiKinds,
    ) -> Self {
        Self { events, metrics, variables, vault, fleet, personal }
    }

    /// What masks values and personal data in what is said about a sandbox, or about one that was never made.
    pub(crate) fn masker_of(&self, address: Option<&Address>) -> Option<Masker> {
        let values = address.and_then(|address| self.vault.values_of(address));
        let sandbox = address.and_then(|address| self.fleet.get(address));
        let own = sandbox.and_then(|sandbox| sandbox.personal.get().copied());
        Masker::of(values, self.personal.with(own.unwrap_or_default()))?.for_messages()
    }

    /// Publishes an event. What a sandbox's variables keep secret is taken out of it.
    pub(crate) fn publish(&self, mut event: Event) {
        let name = event.sandbox.as_deref().and_then(|name| name.parse().ok());
        let secrets = match (event.namespace.parse(), name) {
            (Ok(namespace), Some(name)) => {
                let address = Address::new(namespace, name);
                event.hide(self.masker_of(Some(&address)).as_ref());
                secret_values(self.variables.of(&address).iter())
            }
            _ => Vec::new(),
        };
        self.events.publish(event, &secrets);
    }

    fn publish_of(&self, run: &Run, kind: EventKind, message: String, data: Value) {
        let mut event = Event::of(kind, &run.sandbox.address(), message).run(&run.id).data(data);
        event.hide(run.sandbox.masker().as_ref());
        self.events.publish(event, &run.secrets);
    }

    /// A command was sent.
    pub(crate) fn run_started(&self, run: &Run) {
        let kind = run.kind.as_str();
        let data = json!({ "kind": kind, "command": run.command, "tier": run.sandbox.spec.tier });
        self.publish_of(run, EventKind::RunStarted, format!("started: {}", run.command), data);
        if let Some(job) = &run.job {
            let data = json!({ "job": job, "command": run.command });
            self.publish_of(run, EventKind::JobStarted, format!("the job {job} started"), data);
        }
        if run.kind == RunKind::Session {
            self.session(run, EventKind::SessionOpened, false);
        }
    }

    /// A run was given secrets.
    pub(crate) fn secrets_given(&self, run: &Run, names: &BTreeMap<SecretName, bool>) {
        if names.is_empty() {
            return;
        }
        let of = |wanted: bool| -> Vec<&SecretName> {
            names.iter().filter(|(_, exposed)| **exposed == wanted).map(|(name, _)| name).collect()
        };
        let all: Vec<String> = names.keys().map(ToString::to_string).collect();
        let message = format!("a run was given {}", all.join(", "));
        let data = json!({ "placeholders": of(false), "values": of(true) });
        self.publish_of(run, EventKind::SecretGiven, message, data);
    }

    /// A run has ended; its record is written.
    pub(crate) fn run_ended(&self, run: &Run, finish: &Finish) {
        self.metrics.run_ended(run, finish);
        let how = how_it_ended(finish);
        let data = json!({
            "kind": run.kind.as_str(),
            "command": run.command,
            "state": finish.state,
            "exit_code": finish.exit_code,
            "signal": finish.signal,
            "duration_ms": finish.duration_ms,
            "note": finish.note,
        });
        if run.kind == RunKind::Session {
            self.session(run, EventKind::SessionClosed, false);
        }
        if let Some(kind) = end_of(finish.state) {
            self.publish_of(run, kind, format!("{how}: {}", run.command), data);
        }
        // That the time was up is told already.
        let met: Vec<_> = finish.limits_hit.iter().filter(|hit| hit.limit != LimitName::Timeout).collect();
        if !met.is_empty() {
            let names: Vec<String> =
                met.iter().map(|hit| json!(hit.limit).as_str().unwrap_or_default().to_owned()).collect();
            let message = format!("the run met its limits: {}", names.join(", "));
            self.publish_of(run, EventKind::ResourceExceeded, message, json!({ "limits": met }));
        }
        if let Some(job) = &run.job {
            let data = json!({ "job": job, "state": finish.state, "exit_code": finish.exit_code });
            self.publish_of(run, EventKind::JobEnded, format!("the job {job} {how}"), data);
        }
        if run.kind == RunKind::Install
            && finish.state == RunState::Completed
            && let Some((manager, packages)) = run.command.split_once(" install ")
        {
            let packages: Vec<&str> = packages.split(' ').collect();
            let message = format!("{manager} installed {}", packages.join(" "));
            let data = json!({ "manager": manager, "packages": packages });
            self.publish_of(run, EventKind::PackageInstalled, message, data);
        }
    }

    /// A run whose end nobody saw, or whose turn never came.
    pub(crate) fn run_lost(&self, row: &RunRow, why: &str) {
        self.metrics.run_lost();
        let (kind, how) = if row.state == RunState::Queued.as_str() {
            (EventKind::RunCancelled, "never ran")
        } else {
            (EventKind::RunLost, "was lost")
        };
        let namespace = row.namespace.parse().unwrap_or_default();
        let mut event = Event::new(kind, &namespace, format!("{how} ({why}): {}", row.command))
            .data(json!({ "kind": row.kind, "command": row.command, "why": why }));
        event.sandbox = Some(row.sandbox_name.clone().unwrap_or_else(|| row.sandbox_id.clone()));
        event.run = Some(row.id.clone());
        self.publish(event);
    }

    /// A rule forbade a run.
    pub(crate) fn run_denied(
        &self,
        context: &CallContext,
        name: Option<&SandboxName>,
        plan: &Plan,
        error: &Error,
    ) {
        self.metrics.denied(error.code);
        let command = plan.display();
        let data = json!({ "kind": plan.kind.as_str(), "command": command, "details": error.details });
        let message = format!("{}: {command}", error.message);
        let mut event = Event::new(EventKind::RunDenied, &context.namespace, message).data(data);
        event.sandbox = name.map(SandboxName::to_string);
        event.hide(self.masker_of(name.map(|name| context.address(name)).as_ref()).as_ref());
        let own = name.map(|name| self.variables.of(&context.address(name))).unwrap_or_default();
        let given = plan.variables().map(|(name, value)| (name, value));
        self.events.publish(event, &secret_values(own.iter().chain(given)));
    }

    /// Work was refused because too much waits already. Many refusals are told together.
    pub(crate) fn queue_refused(&self, context: &CallContext, error: &Error) {
        self.metrics.refused();
        if let Some(refused) = self.events.refused(&context.namespace) {
            let data = json!({ "refused": refused, "door": context.door.as_str(), "details": error.details });
            let message = error.message.clone();
            self.publish(Event::new(EventKind::QueueBackPressure, &context.namespace, message).data(data));
        }
    }

    /// Somebody works, or looks, in a run interactively, or no longer.
    pub(crate) fn session(&self, run: &Run, kind: EventKind, view: bool) {
        let what = if kind == EventKind::SessionOpened { "opened" } else { "closed" };
        let data = json!({ "view": view, "terminal": run.terminal });
        self.publish_of(run, kind, format!("a session was {what}: {}", run.command), data);
    }

    /// Something happened to a sandbox.
    pub(crate) fn sandbox(&self, kind: EventKind, sandbox: &Sandbox, what: &str) {
        let verb = match kind {
            EventKind::SandboxCreated => "was made",
            EventKind::SandboxReset => "was reset",
            EventKind::SandboxLost => "died",
            EventKind::SandboxUnresponsive => "does not answer",
            EventKind::SandboxResponsive => "answers again",
            EventKind::SandboxExtended => "got more time",
            EventKind::SandboxExpired => "came to its end",
            EventKind::SandboxPaused => "was paused",
            EventKind::SandboxResumed => "goes on",
            EventKind::ChildSpawned => "was spawned",
            _ => "was removed",
        };
        match kind {
            EventKind::SandboxDestroyed | EventKind::SandboxExpired | EventKind::ChildDestroyed => {
                self.metrics.became(sandbox, SandboxFate::Destroyed)
            }
            EventKind::SandboxLost => self.metrics.became(sandbox, SandboxFate::Lost),
            _ => {}
        }
        let lifetime = match sandbox.spec.lifetime {
            Lifetime::Named => "named",
            Lifetime::OneShot => "one_shot",
        };
        let data = json!({
            "id": sandbox.id,
            "tier": sandbox.spec.tier,
            "image": sandbox.spec.image,
            "backend": sandbox.backend.name(),
            "lifetime": lifetime,
            "what": what,
            "parent": sandbox.child_of().map(|child| child.parent.name.as_str()),
        });
        let message = match what {
            "" => format!("the sandbox {} {verb}", sandbox.name),
            what => format!("the sandbox {} {verb}: {what}", sandbox.name),
        };
        self.publish(Event::of(kind, &sandbox.address(), message).data(data));
    }

    /// A sandbox that was being removed when an earlier engine died is gone now.
    pub(crate) fn sandbox_removed(&self, row: &SandboxRow) {
        let name = row.name.clone().unwrap_or_else(|| row.id.clone());
        let message = format!("the sandbox {name} was removed: half done when the daemon died");
        let namespace = row.namespace.parse().unwrap_or_default();
        let mut event =
            Event::new(EventKind::SandboxDestroyed, &namespace, message).data(json!({ "id": row.id }));
        event.sandbox = Some(name);
        self.publish(event);
    }

    /// A sync began or is over.
    pub(crate) fn sync(&self, kind: EventKind, namespace: &Namespace, sync: &SyncShape) {
        let message = match kind {
            EventKind::SyncStarted => format!("{} follows {}", sync.path, sync.host_path),
            _ => format!("{} no longer follows {}", sync.path, sync.host_path),
        };
        let sandbox = Address::new(namespace.clone(), sync.sandbox.clone());
        self.publish(Event::of(kind, &sandbox, message).data(json!(sync)));
    }
}

/// The event that tells how a run ended; `None` for one that goes on.
fn end_of(state: RunState) -> Option<EventKind> {
    match state {
        RunState::Queued | RunState::Running => None,
        RunState::Completed => Some(EventKind::RunCompleted),
        RunState::Failed => Some(EventKind::RunFailed),
        RunState::TimedOut => Some(EventKind::RunTimedOut),
        RunState::OomKilled => Some(EventKind::RunOutOfMemory),
        RunState::Killed => Some(EventKind::RunKilled),
        RunState::Cancelled => Some(EventKind::RunCancelled),
        RunState::Lost => Some(EventKind::RunLost),
    }
}

fn how_it_ended(finish: &Finish) -> String {
    let after = finish.duration_ms;
    match (finish.state, finish.exit_code) {
        (RunState::Completed, _) => format!("completed in {after} ms"),
        (RunState::Failed, Some(code)) => format!("failed with exit code {code} after {after} ms"),
        (RunState::Failed, None) => "could not be run".to_owned(),
        (RunState::TimedOut, _) => format!("timed out after {after} ms"),
        (RunState::OomKilled, _) => format!("ran out of memory after {after} ms"),
        (RunState::Killed, _) => format!("was killed after {after} ms"),
        (RunState::Cancelled, _) => format!("was cancelled after {after} ms"),
        (RunState::Lost, _) => "was lost".to_owned(),
        (RunState::Queued | RunState::Running, _) => "goes on".to_owned(),
    }
}
