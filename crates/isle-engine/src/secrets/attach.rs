//! Attaching secrets to sandboxes and runs, and detaching them: which caller may request which secret, what a command
//! gets, and what is recorded.

use std::sync::Arc;

use isle_fail::Point;
use isle_store::SecretRow;
use serde_json::json;

use super::Secrets;
use super::scope_of;
use super::uses::{RunSecrets, SecretUse, SecretVariables};
use crate::context::{CallContext, Door};
use crate::journal::Audit;
use crate::sandbox::Sandbox;
use isle_core::backend::Lifetime;
use isle_core::values::{RunId, SHORTEST_EXPOSED, SecretName};
use isle_core::{Code, Error, Result};
use isle_vault::{ExposePolicy, RequestedSecrets, SecretRequest};

/// Most secrets of one sandbox.
const MOST: usize = 64;

impl Secrets {
    /// Rejects secrets that the caller may not request, before anything is changed.
    pub(crate) fn check_requested_secrets(
        &self,
        context: &CallContext,
        requested: &RequestedSecrets,
    ) -> Result<()> {
        if !requested.exposed.is_empty() {
            let denied = match (self.config.vault.expose, context.door) {
                (ExposePolicy::Never, _) => Some("`expose_secrets` is set to never"),
                (ExposePolicy::People, Door::Mcp | Door::Guest) => {
                    Some("models may not request values of secrets")
                }
                (ExposePolicy::People, Door::Http | Door::Cli | Door::Library)
                | (ExposePolicy::Anybody, _) => None,
            };
            if let Some(why) = denied {
                return Err(Error::new(
                    Code::PolicyDenied,
                    format!("exposing the value of a secret is denied: {why}"),
                )
                .next("request the secret as a placeholder; its hosts receive the value")
                .next("or ask the user to run `isle secret attach --expose`"));
            }
        }
        for (request, exposed) in requested.all() {
            let row = self.vault.usable(&context.namespace, &request.secret)?;
            self.check_value(request, &row, exposed)?;
        }
        Ok(())
    }

    fn check_value(&self, request: &SecretRequest, row: &SecretRow, exposed: bool) -> Result<()> {
        let name = &request.secret;
        let value = self.vault.open(row)?;
        if exposed && value.reveal().len() < SHORTEST_EXPOSED {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("the secret {name} is shorter than {SHORTEST_EXPOSED} bytes and cannot be masked"),
            )
            .next("use a longer value, or request it as a placeholder"));
        }
        if !exposed && scope_of(row).hosts.is_empty() {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("the secret {name} has no hosts, so its placeholder would never be replaced"),
            )
            .next(format!("name its hosts: isle secret set {name} --host api.example.com")));
        }
        if !exposed && value.reveal().chars().any(|character| character.is_control()) {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("the secret {name} contains line breaks or control characters, which a request cannot carry"),
            )
            .next("expose it, if programs in the sandbox may read it"));
        }
        Ok(())
    }

    /// A child may only have secrets of its parent, and values only where the parent has the value.
    fn check_child(&self, sandbox: &Sandbox, requested: &RequestedSecrets) -> Result<()> {
        let Some(child) = &sandbox.spec.child else { return Ok(()) };
        let parent = crate::lock(&self.vault.uses).get(&child.parent).map(Arc::clone);
        let known = parent.map(|parent| parent.all()).unwrap_or_default();
        for (request, exposed) in requested.all() {
            let has = known.get(&request.secret).and_then(|one| one.attached.as_ref());
            if has.is_none_or(|(_, shown)| exposed && !shown) {
                return Err(Error::new(
                    Code::PermissionDenied,
                    format!(
                        "{} is a child of {}, which does not have the secret {}{}",
                        sandbox.name,
                        child.parent.name,
                        request.secret,
                        if has.is_some() { " as a value" } else { "" }
                    ),
                )
                .next(format!(
                    "attach it to the parent first: isle secret attach {} {}",
                    child.parent.name, request.secret
                )));
            }
        }
        Ok(())
    }

    /// Adds secrets to a sandbox: all or none. With a run they belong to that run.
    fn add_secrets(
        &self,
        context: &CallContext,
        sandbox: &Sandbox,
        requested: &RequestedSecrets,
        run: Option<&RunId>,
    ) -> Result<Vec<(String, String)>> {
        self.check_requested_secrets(context, requested)?;
        self.check_child(sandbox, requested)?;
        let secrets = self.secrets_of(sandbox);
        let mut variables = Vec::new();
        let mut uses = secrets.uses();
        let mut after = uses.clone();
        for (request, exposed) in requested.all() {
            let row = self.vault.usable(&context.namespace, &request.secret)?;
            let value = self.vault.open(&row)?;
            let one = match after.get_mut(&request.secret) {
                Some(one) => one,
                None => after.entry(request.secret.clone()).or_insert(SecretUse::new(&request.secret)?),
            };
            one.ever_exposed |= exposed;
            let shown = if exposed { value.reveal().to_owned() } else { one.placeholder.clone() };
            let variable = request.variable.as_str().to_owned();
            match run {
                Some(_) if exposed => {}
                Some(run) => drop(one.runs.insert(run.to_string())),
                None => one.attached = Some((variable.clone(), exposed)),
            }
            variables.push((variable, shown));
            // Masked before a program can print it; also for a placeholder, because a host may send the value back.
            secrets.remember(&request.secret, &value)?;
        }
        if after.len() > MOST {
            return Err(Error::new(Code::LimitReached, format!("a sandbox has at most {MOST} secrets"))
                .next("detach some, or use another sandbox"));
        }
        *uses = after;
        drop(uses);
        // Connections that are not intercepted are closed, also those of children, which may ask a server for the value.
        let children = self.fleet.named_in(&sandbox.namespace);
        let children = children.iter().filter(|other| other.spec.child.is_some());
        for gate in children.filter_map(|child| child.network.gate()).chain(sandbox.network.gate()) {
            gate.secrets_changed();
        }
        Ok(variables)
    }

    /// Records which secrets a sandbox has. A one-shot is not recorded: it ends with the engine.
    fn record_uses(&self, sandbox: &Sandbox, audit: &Audit) -> Result<()> {
        if sandbox.spec.lifetime == Lifetime::OneShot {
            return self.journal.audit(audit);
        }
        let address = sandbox.address();
        let rows = self.secrets_of(sandbox).rows(&address);
        self.journal.secret_uses(&address, &rows, audit)?;
        isle_fail::pass(Point::SecretUseRecorded);
        Ok(())
    }

    /// Attaches secrets to a sandbox: every command from the next one on gets them.
    pub(crate) fn attach_secrets(
        &self,
        context: &CallContext,
        sandbox: &Sandbox,
        requested: &RequestedSecrets,
    ) -> Result<()> {
        let secrets = self.secrets_of(sandbox);
        let before = secrets.all();
        self.add_secrets(context, sandbox, requested, None)?;
        let audit = Audit::files(context, "secret_attach", sandbox, names(requested));
        self.record_uses(sandbox, &audit).inspect_err(|_| *secrets.uses() = before)
    }

    /// Detaches secrets from a sandbox: new commands do not get them, and their placeholders are no longer replaced.
    /// Running programs keep what they have.
    pub(crate) fn detach_secrets(
        &self,
        context: &CallContext,
        sandbox: &Sandbox,
        names: &[SecretName],
    ) -> Result<()> {
        let secrets = self.secrets_of(sandbox);
        let before = secrets.all();
        let mut after = before.clone();
        for name in names {
            let attached = after.get_mut(name).and_then(|one| one.attached.take());
            if attached.is_none() {
                let has: Vec<&str> = before
                    .iter()
                    .filter(|(_, one)| one.attached.is_some())
                    .map(|(name, _)| name.as_str())
                    .collect();
                return Err(Error::new(
                    Code::SecretNotFound,
                    format!("the secret {name} is not attached to the sandbox {}", sandbox.name),
                )
                .detail("secrets", has)
                .next("use one of those in `details`"));
            }
        }
        *secrets.uses() = after;
        let audit = Audit::files(context, "secret_detach", sandbox, json!({ "secrets": names }));
        self.record_uses(sandbox, &audit).inspect_err(|_| *secrets.uses() = before)?;
        // A child may only have secrets of its parent.
        let address = sandbox.address();
        let children = self
            .fleet
            .named_in(&sandbox.namespace)
            .into_iter()
            .filter(|other| other.spec.child.as_ref().is_some_and(|child| child.parent == address));
        for child in children {
            let has = self.secrets_of(&child).all();
            let is_attached = |name: &&SecretName| has.get(name).is_some_and(|one| one.attached.is_some());
            let shared: Vec<SecretName> = names.iter().filter(is_attached).cloned().collect();
            if !shared.is_empty() {
                self.detach_secrets(context, &child, &shared)?;
            }
        }
        Ok(())
    }

    /// The secrets of a run: those of its sandbox, and those it requests itself.
    pub(crate) fn secrets_for_run(
        &self,
        context: &CallContext,
        sandbox: &Sandbox,
        run: &RunId,
        requested: &RequestedSecrets,
    ) -> Result<SecretVariables> {
        let known = crate::lock(&self.vault.uses).contains_key(&sandbox.address());
        if !known && requested.is_empty() {
            return Ok(SecretVariables::default());
        }
        let secrets = self.secrets_of(sandbox);
        let mut variables = SecretVariables::default();
        let mut missing = Vec::new();
        for (name, one) in secrets.all() {
            if let Some(row) = self.vault.row(&sandbox.namespace, &name).filter(|_| one.ever_exposed) {
                // Fails when the value is not available: output could not be masked.
                self.vault.open(&row)?;
            }
            let Some((variable, exposed)) = one.attached else { continue };
            if !exposed {
                variables.attached.push((variable, one.placeholder));
                variables.names.insert(name, false);
                continue;
            }
            match self.vault.usable(&sandbox.namespace, &name) {
                Ok(row) => {
                    let value = self.vault.open(&row)?;
                    secrets.remember(&name, &value)?;
                    variables.attached.push((variable, value.reveal().to_owned()));
                    variables.names.insert(name, true);
                }
                Err(error) => missing.push(error.message),
            }
        }
        if !missing.is_empty() {
            variables.note = Some(format!("some secrets of the sandbox are missing: {}", missing.join("; ")));
        }
        if !requested.is_empty() {
            variables.guard = Some(RunSecrets { secrets: Arc::clone(secrets), run: run.clone() });
            variables.own = self.add_secrets(context, sandbox, requested, Some(run))?;
            for (request, exposed) in requested.all() {
                *variables.names.entry(request.secret.clone()).or_default() |= exposed;
            }
            self.record_uses(sandbox, &Audit::files(context, "secret_use", sandbox, names(requested)))?;
        }
        Ok(variables)
    }
}

/// What is recorded of a request: names, never values.
fn names(requested: &RequestedSecrets) -> serde_json::Value {
    let list = |requests: &[SecretRequest]| {
        let one = |request: &SecretRequest| json!({ "secret": request.secret, "variable": request.variable.as_str() });
        requests.iter().map(one).collect::<Vec<_>>()
    };
    json!({ "substituted": list(&requested.substituted), "exposed": list(&requested.exposed) })
}
