//! Which sandbox has which secret, and how: as a placeholder or as the value itself, in every command or
//! in single runs. Kept by the address of the sandbox, like its variables, since what a workspace holds
//! outlives the sandbox. What was ever there as a value is masked for as long as its workspace exists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use isle_fail::Point;
use isle_store::{SecretRow, SecretUseRow};
use serde_json::json;

use super::secret::{SHORTEST_EXPOSED, SecretName, SecretText, Wish, Wishes};
use super::{ExposePolicy, Masker, hosts_of};
use crate::backend::Lifetime;
use crate::context::{CallContext, Door};
use crate::engine::Inner;
use crate::error::{Code, Error, Result};
use crate::journal::{Audit, store_error};
use crate::sandbox::Sandbox;
use crate::values::{Address, Namespace, RunId};

/// Secrets one sandbox may have.
const MOST: usize = 64;
/// Values of one secret that a sandbox is remembered to have seen: the newest, and those before it.
const MOST_VALUES: usize = 8;

/// One secret of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Use {
    /// What the sandbox sees of it, unless it sees the value.
    pub(crate) placeholder: String,
    /// Which variable of every command has it, and whether that is the value.
    pub(crate) attached: Option<(String, bool)>,
    /// Whether the value was ever there.
    pub(crate) ever_exposed: bool,
    /// Runs that have its placeholder for themselves.
    runs: BTreeSet<String>,
}

impl Use {
    /// Whether its placeholder means something now.
    pub(super) fn is_in_force(&self) -> bool {
        matches!(self.attached, Some((_, false))) || !self.runs.is_empty()
    }

    fn fresh(name: &SecretName) -> Result<Self> {
        let mut random = [0u8; 16];
        getrandom::fill(&mut random).map_err(Error::internal)?;
        let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self {
            placeholder: format!("isle-secret-{name}-{digits}"),
            attached: None,
            ever_exposed: false,
            runs: BTreeSet::new(),
        })
    }
}

/// The secrets of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct SandboxSecrets {
    uses: Mutex<BTreeMap<SecretName, Use>>,
    /// Values that may be in the sandbox, newest last.
    values: Mutex<Vec<(SecretName, SecretText)>>,
    masker: RwLock<Option<Arc<Masker>>>,
}

/// What a run gets.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// Variables of every command of its sandbox.
    pub(crate) attached: Vec<(String, String)>,
    /// Variables of the run alone.
    pub(crate) own: Vec<(String, String)>,
    /// Names of all of them, with whether the run sees the value itself.
    pub(crate) names: BTreeMap<SecretName, bool>,
    /// What should be said about it.
    pub(crate) note: Option<String>,
    /// Ends what is the run's alone.
    pub(crate) held: Option<RunSecrets>,
}

/// Secrets of one run; their placeholders mean nothing more when this is dropped.
#[derive(Debug)]
pub(crate) struct RunSecrets {
    secrets: Arc<SandboxSecrets>,
    run: RunId,
}

impl Drop for RunSecrets {
    fn drop(&mut self) {
        for one in self.secrets.uses().values_mut() {
            one.runs.remove(self.run.as_str());
        }
    }
}

impl SandboxSecrets {
    fn uses(&self) -> MutexGuard<'_, BTreeMap<SecretName, Use>> {
        crate::lock(&self.uses)
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> BTreeMap<SecretName, Use> {
        self.uses().clone()
    }

    /// What masks its values; `None` when it never saw one.
    pub(crate) fn masker(&self) -> Option<Arc<Masker>> {
        crate::read(&self.masker).clone()
    }

    /// A value may be in the sandbox from now on.
    fn remember(&self, name: &SecretName, value: &SecretText) -> Result<()> {
        let mut values = crate::lock(&self.values);
        if values.iter().any(|(known, text)| known == name && text.reveal() == value.reveal()) {
            return Ok(());
        }
        values.push((name.clone(), value.clone()));
        if values.iter().filter(|(known, _)| known == name).count() > MOST_VALUES
            && let Some(oldest) = values.iter().position(|(known, _)| known == name)
        {
            values.remove(oldest);
        }
        let masker = Masker::new(values.iter().map(|(name, text)| (name, text.reveal())))?;
        *crate::write(&self.masker) = masker.map(Arc::new);
        Ok(())
    }

    fn rows(&self, sandbox: &Address) -> Vec<SecretUseRow> {
        let row = |(name, one): (&SecretName, &Use)| SecretUseRow {
            sandbox: sandbox.to_string(),
            name: name.to_string(),
            placeholder: one.placeholder.clone(),
            variable: one.attached.as_ref().map(|(variable, _)| variable.clone()),
            exposed: one.attached.as_ref().is_some_and(|(_, exposed)| *exposed),
            ever_exposed: one.ever_exposed,
            runs: json!(one.runs).to_string(),
        };
        self.uses().iter().map(row).collect()
    }
}

impl Sandbox {
    /// What masks values in what comes out of it.
    pub(crate) fn masker(&self) -> Option<Arc<Masker>> {
        self.secrets.get().and_then(|secrets| secrets.masker())
    }
}

impl Inner {
    /// The secrets of a sandbox.
    pub(crate) fn secrets_of<'s>(&self, sandbox: &'s Sandbox) -> &'s Arc<SandboxSecrets> {
        sandbox
            .secrets
            .get_or_init(|| Arc::clone(crate::lock(&self.vault.uses).entry(sandbox.address()).or_default()))
    }

    /// A sandbox is about to be used: what its name has, and what its workspace may hold, is its own.
    pub(crate) fn recall_secrets(&self, sandbox: &Sandbox) {
        if crate::lock(&self.vault.uses).contains_key(&sandbox.address()) {
            self.secrets_of(sandbox);
        }
    }

    /// What masks values in what is told of a sandbox.
    pub(crate) fn masker_of(&self, address: &Address) -> Option<Arc<Masker>> {
        crate::lock(&self.vault.uses).get(address).and_then(|secrets| secrets.masker())
    }

    /// Reads what is stored, at start.
    pub(super) fn load_secret_uses(&self) -> Result<()> {
        for row in self.journal.store().secret_uses().map_err(store_error)? {
            let (Ok(address), Ok(name)) = (row.sandbox.parse::<Address>(), row.name.parse::<SecretName>())
            else {
                tracing::warn!(sandbox = row.sandbox, "the record of a secret in use cannot be read");
                continue;
            };
            let secrets = Arc::clone(crate::lock(&self.vault.uses).entry(address.clone()).or_default());
            let one = Use {
                placeholder: row.placeholder,
                attached: row.variable.map(|variable| (variable, row.exposed)),
                ever_exposed: row.ever_exposed,
                runs: serde_json::from_str(&row.runs).unwrap_or_default(),
            };
            secrets.uses().insert(name, one);
        }
        self.recall_values();
        Ok(())
    }

    /// Remembers what sandboxes may have seen. What cannot be opened cannot be masked: then nothing of the
    /// sandbox is shown until the key is there.
    pub(super) fn recall_values(&self) {
        let all: Vec<_> = crate::lock(&self.vault.uses)
            .iter()
            .map(|(address, secrets)| (address.namespace.clone(), Arc::clone(secrets)))
            .collect();
        for (namespace, secrets) in all {
            for name in secrets.all().into_keys() {
                let Some(sealed) = self.vault.row(&namespace, &name) else { continue };
                let opened = self.vault.open(&sealed).and_then(|value| secrets.remember(&name, &value));
                if let Err(error) = opened {
                    tracing::error!(secret = %name, %error, "a secret cannot be masked");
                    *crate::write(&secrets.masker) = Masker::withholding().ok().map(Arc::new);
                    break;
                }
            }
        }
    }

    /// A secret has another value: sandboxes that have it as a placeholder may hear it from a host.
    pub(super) fn secret_changed(&self, namespace: &Namespace, name: &SecretName) {
        let Some(row) = self.vault.row(namespace, name) else { return };
        let users: Vec<_> = crate::lock(&self.vault.uses)
            .iter()
            .filter(|(address, secrets)| address.namespace == *namespace && secrets.uses().contains_key(name))
            .map(|(_, secrets)| Arc::clone(secrets))
            .collect();
        for secrets in users {
            if let Err(error) = self.vault.open(&row).and_then(|value| secrets.remember(name, &value)) {
                tracing::error!(secret = %name, %error, "a secret cannot be masked");
            }
        }
    }

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

    /// A run that is taken over has what an earlier engine gave it.
    pub(crate) fn secrets_of_taken(&self, sandbox: &Sandbox, run: &RunId) -> Option<RunSecrets> {
        let secrets = sandbox.secrets.get()?;
        let has = secrets.uses().values().any(|one| one.runs.contains(run.as_str()));
        has.then(|| RunSecrets { secrets: Arc::clone(secrets), run: run.clone() })
    }

    fn is_going_on(&self, run: &str) -> bool {
        run.parse().ok().and_then(|id| self.runs.get(&id)).is_some_and(|run| !run.state().is_final())
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

    /// Nothing of a sandbox is left, nor of its workspace.
    pub(crate) fn forget_secrets(&self, sandbox: &Address) {
        crate::lock(&self.vault.uses).remove(sandbox);
    }

    /// A sandbox was destroyed and its workspace stays: nothing is attached any more, and what was once
    /// there as a value stays masked.
    pub(crate) fn detach_all_secrets(&self, address: &Address) {
        let Some(secrets) = crate::lock(&self.vault.uses).get(address).map(Arc::clone) else { return };
        {
            let mut uses = secrets.uses();
            if uses.is_empty() {
                return;
            }
            uses.retain(|_, one| one.ever_exposed);
            for one in uses.values_mut() {
                one.attached = None;
                one.runs.clear();
            }
        }
        if let Err(error) =
            self.journal.store().put_secret_uses(&address.to_string(), &secrets.rows(address), None)
        {
            tracing::warn!(sandbox = %address, %error, "the secrets of a destroyed sandbox stay on record");
        }
        isle_fail::pass(Point::SecretUseForgotten);
    }

    /// After a start: sandboxes that are gone have nothing attached, and runs that are over have nothing.
    pub(crate) fn settle_secrets(&self) {
        for secrets in crate::lock(&self.vault.uses).values() {
            for one in secrets.uses().values_mut() {
                one.runs.retain(|run| self.is_going_on(run));
            }
        }
        let gone: Vec<Address> = crate::lock(&self.vault.uses)
            .iter()
            .filter(|(_, secrets)| secrets.uses().values().any(|one| one.attached.is_some()))
            .map(|(address, _)| address.clone())
            .filter(|address| self.fleet.get(address).is_none())
            .collect();
        for address in gone {
            self.detach_all_secrets(&address);
        }
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
