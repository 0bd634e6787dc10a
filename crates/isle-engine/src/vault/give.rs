//! Giving secrets to sandboxes and runs, and taking them back: who may have what, what a command gets, and
//! what is on record of it.

use std::sync::Arc;

use isle_fail::Point;
use isle_store::SecretRow;
use serde_json::json;

use super::secret::{SHORTEST_EXPOSED, SecretName, Wish, Wishes};
use super::uses::{Given, RunSecrets, Use};
use super::{ExposePolicy, hosts_of};
use crate::backend::Lifetime;
use crate::context::{CallContext, Door};
use crate::engine::Inner;
use crate::error::{Code, Error, Result};
use crate::journal::Audit;
use crate::sandbox::Sandbox;
use crate::values::RunId;

/// Secrets one sandbox may have.
const MOST: usize = 64;

impl Inner {
    /// Refuses what a caller may not have, before anything is done about it.
    pub(crate) fn check_wishes(&self, context: &CallContext, wishes: &Wishes) -> Result<()> {
        if !wishes.exposed.is_empty() {
            let refused = match (self.config.vault.expose, context.door) {
                (ExposePolicy::Never, _) => Some("`expose_secrets` is never"),
                (ExposePolicy::People, Door::Mcp | Door::Guest) => {
                    Some("a model does not show itself a secret")
                }
                (ExposePolicy::People, Door::Http | Door::Cli | Door::Library)
                | (ExposePolicy::Anybody, _) => None,
            };
            if let Some(why) = refused {
                return Err(Error::new(
                    Code::PolicyDenied,
                    format!("no value is put into the sandbox: {why}"),
                )
                .next("ask for the secret as a placeholder, which hosts see as the value")
                .next("or ask the person you work for to run `isle secret attach --expose`"));
            }
        }
        for (wish, exposed) in wishes.all() {
            let row = self.vault.usable(&context.namespace, &wish.secret)?;
            self.check_value(wish, &row, exposed)?;
        }
        Ok(())
    }

    fn check_value(&self, wish: &Wish, row: &SecretRow, exposed: bool) -> Result<()> {
        let name = &wish.secret;
        let value = self.vault.open(row)?;
        if exposed && value.reveal().len() < SHORTEST_EXPOSED {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("the secret {name} is shorter than {SHORTEST_EXPOSED} bytes: it could not be masked"),
            )
            .next("choose a longer one, or use it as a placeholder"));
        }
        if !exposed && hosts_of(row).is_empty() {
            return Err(Error::new(
                Code::InvalidArgument,
                format!(
                    "the secret {name} has no hosts, so it would never take the place of its placeholder"
                ),
            )
            .next(format!("say where it may go: isle secret set {name} --host api.example.com")));
        }
        if !exposed && value.reveal().chars().any(|character| character.is_control()) {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("the secret {name} has line breaks or control characters, which no request carries"),
            )
            .next("expose it, if whatever runs in the sandbox may read it"));
        }
        Ok(())
    }

    /// A child has no secret that its parent does not have, and sees no value that its parent does not see.
    fn check_child(&self, sandbox: &Sandbox, wishes: &Wishes) -> Result<()> {
        let Some(child) = &sandbox.spec.child else { return Ok(()) };
        let parent = crate::lock(&self.vault.uses).get(&child.parent).map(Arc::clone);
        let held = parent.map(|parent| parent.all()).unwrap_or_default();
        for (wish, exposed) in wishes.all() {
            let has = held.get(&wish.secret).and_then(|one| one.attached.as_ref());
            if has.is_none_or(|(_, shown)| exposed && !shown) {
                return Err(Error::new(
                    Code::PermissionDenied,
                    format!(
                        "{} is a child of {}, which does not have the secret {}{}",
                        sandbox.name,
                        child.parent.name,
                        wish.secret,
                        if has.is_some() { " as a value" } else { "" }
                    ),
                )
                .next(format!(
                    "attach it to the parent first: isle secret attach {} {}",
                    child.parent.name, wish.secret
                )));
            }
        }
        Ok(())
    }

    /// Gives a sandbox secrets: all of them on record, or none. With a run they are that run's.
    fn give_secrets(
        &self,
        context: &CallContext,
        sandbox: &Sandbox,
        wishes: &Wishes,
        run: Option<&RunId>,
    ) -> Result<Vec<(String, String)>> {
        self.check_wishes(context, wishes)?;
        self.check_child(sandbox, wishes)?;
        let secrets = self.secrets_of(sandbox);
        let mut given = Vec::new();
        let mut uses = secrets.uses();
        let mut after = uses.clone();
        for (wish, exposed) in wishes.all() {
            let row = self.vault.usable(&context.namespace, &wish.secret)?;
            let value = self.vault.open(&row)?;
            let one = match after.get_mut(&wish.secret) {
                Some(one) => one,
                None => after.entry(wish.secret.clone()).or_insert(Use::fresh(&wish.secret)?),
            };
            one.ever_exposed |= exposed;
            let shown = if exposed { value.reveal().to_owned() } else { one.placeholder.clone() };
            let variable = wish.variable.as_str().to_owned();
            match run {
                Some(_) if exposed => {}
                Some(run) => drop(one.runs.insert(run.to_string())),
                None => one.attached = Some((variable.clone(), exposed)),
            }
            given.push((variable, shown));
            // Masked before it can be anywhere; also a placeholder's, which a host may send back.
            secrets.remember(&wish.secret, &value)?;
        }
        if after.len() > MOST {
            return Err(Error::new(Code::LimitReached, format!("a sandbox has at most {MOST} secrets"))
                .next("detach some, or use another sandbox"));
        }
        *uses = after;
        drop(uses);
        Ok(given)
    }

    /// Puts on record what a sandbox has. A one-shot is on no record: it ends with the engine.
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

    /// Gives every command of a sandbox secrets, from the next one on.
    pub(crate) fn attach_secrets(
        &self,
        context: &CallContext,
        sandbox: &Sandbox,
        wishes: &Wishes,
    ) -> Result<()> {
        let secrets = self.secrets_of(sandbox);
        let before = secrets.all();
        self.give_secrets(context, sandbox, wishes, None)?;
        let audit = Audit::files(context, "secret_attach", sandbox, names(wishes));
        self.record_uses(sandbox, &audit).inspect_err(|_| *secrets.uses() = before)
    }

    /// Takes secrets of a sandbox back: new commands do not get them, and their placeholders stay
    /// placeholders. What programs have already is theirs.
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
                    format!("the sandbox {} does not have the secret {name}", sandbox.name),
                )
                .detail("secrets", has)
                .next("name one of those in `details`"));
            }
        }
        *secrets.uses() = after;
        let audit = Audit::files(context, "secret_detach", sandbox, json!({ "secrets": names }));
        self.record_uses(sandbox, &audit).inspect_err(|_| *secrets.uses() = before)?;
        // A child has nothing that its parent does not have.
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

    /// What a run gets: what its sandbox has, and what it asks for itself.
    pub(crate) fn secrets_for_run(
        &self,
        context: &CallContext,
        sandbox: &Sandbox,
        run: &RunId,
        wishes: &Wishes,
    ) -> Result<Given> {
        let known = crate::lock(&self.vault.uses).contains_key(&sandbox.address());
        if !known && wishes.is_empty() {
            return Ok(Given::default());
        }
        let secrets = self.secrets_of(sandbox);
        let mut given = Given::default();
        let mut missing = Vec::new();
        for (name, one) in secrets.all() {
            if let Some(row) = self.vault.row(&sandbox.namespace, &name).filter(|_| one.ever_exposed) {
                // What cannot be masked must not be printed.
                self.vault.open(&row)?;
            }
            let Some((variable, exposed)) = one.attached else { continue };
            if !exposed {
                given.attached.push((variable, one.placeholder));
                given.names.insert(name, false);
                continue;
            }
            match self.vault.usable(&sandbox.namespace, &name) {
                Ok(row) => {
                    let value = self.vault.open(&row)?;
                    secrets.remember(&name, &value)?;
                    given.attached.push((variable, value.reveal().to_owned()));
                    given.names.insert(name, true);
                }
                Err(error) => missing.push(error.message),
            }
        }
        if !missing.is_empty() {
            given.note = Some(format!("not every secret of the sandbox was given: {}", missing.join("; ")));
        }
        if !wishes.is_empty() {
            given.held = Some(RunSecrets { secrets: Arc::clone(secrets), run: run.clone() });
            given.own = self.give_secrets(context, sandbox, wishes, Some(run))?;
            for (wish, exposed) in wishes.all() {
                *given.names.entry(wish.secret.clone()).or_default() |= exposed;
            }
            self.record_uses(sandbox, &Audit::files(context, "secret_use", sandbox, names(wishes)))?;
        }
        Ok(given)
    }
}

/// What is on record about a wish: names, never values.
fn names(wishes: &Wishes) -> serde_json::Value {
    let list = |wishes: &[Wish]| {
        let one = |wish: &Wish| json!({ "secret": wish.secret, "variable": wish.variable.as_str() });
        wishes.iter().map(one).collect::<Vec<_>>()
    };
    json!({ "substituted": list(&wishes.substituted), "exposed": list(&wishes.exposed) })
}
