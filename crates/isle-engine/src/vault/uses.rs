//! Which sandbox has which secret, and how: as a placeholder or as the value itself, in every command or
//! in single runs. Kept by the address of the sandbox, like its variables, since what a workspace holds
//! outlives the sandbox. What was ever there as a value is masked for as long as its workspace exists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use isle_store::SecretUseRow;
use serde_json::json;

use super::find::Values;
use super::secret::{SecretName, SecretText};
use super::{Masker, Personal};
use crate::engine::Inner;
use crate::error::{Error, Result};
use crate::journal::store_error;
use crate::sandbox::Sandbox;
use crate::values::{Address, Namespace, RunId};

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
    pub(super) runs: BTreeSet<String>,
}

impl Use {
    /// Whether its placeholder means something now.
    pub(super) fn is_in_force(&self) -> bool {
        matches!(self.attached, Some((_, false))) || !self.runs.is_empty()
    }

    pub(super) fn fresh(name: &SecretName) -> Result<Self> {
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
    masked: RwLock<Option<Arc<Values>>>,
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
    pub(super) secrets: Arc<SandboxSecrets>,
    pub(super) run: RunId,
}

impl Drop for RunSecrets {
    fn drop(&mut self) {
        for one in self.secrets.uses().values_mut() {
            one.runs.remove(self.run.as_str());
        }
    }
}

impl SandboxSecrets {
    pub(super) fn uses(&self) -> MutexGuard<'_, BTreeMap<SecretName, Use>> {
        crate::lock(&self.uses)
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> BTreeMap<SecretName, Use> {
        self.uses().clone()
    }

    /// Its values, to be masked; `None` when it never saw one.
    fn masked(&self) -> Option<Arc<Values>> {
        crate::read(&self.masked).clone()
    }

    /// A value may be in the sandbox from now on.
    pub(super) fn remember(&self, name: &SecretName, value: &SecretText) -> Result<()> {
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
        let found = Values::new(values.iter().map(|(name, text)| (name, text.reveal())))?;
        *crate::write(&self.masked) = found.map(Arc::new);
        Ok(())
    }

    pub(super) fn rows(&self, sandbox: &Address) -> Vec<SecretUseRow> {
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
    /// What masks values and personal data in what comes out of it.
    pub(crate) fn masker(&self) -> Option<Masker> {
        let values = self.secrets.get().and_then(|secrets| secrets.masked());
        Masker::of(values, self.personal.get().copied().unwrap_or_default())
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
        let own = sandbox.profile.as_ref().map(|profile| profile.mask_pii.as_slice()).unwrap_or_default();
        // They were read when the sandbox was made.
        let own = Personal::read(own).unwrap_or_default();
        sandbox.personal.get_or_init(|| self.config.vault.mask_pii.with(own));
        if crate::lock(&self.vault.uses).contains_key(&sandbox.address()) {
            self.secrets_of(sandbox);
        }
    }

    /// What masks values and personal data in what is told of a sandbox, or of one that was never made.
    pub(crate) fn masker_of(&self, address: Option<&Address>) -> Option<Masker> {
        let uses = crate::lock(&self.vault.uses);
        let values = address.and_then(|address| uses.get(address)).and_then(|secrets| secrets.masked());
        drop(uses);
        let sandbox = address.and_then(|address| self.fleet.get(address));
        let own = sandbox.and_then(|sandbox| sandbox.personal.get().copied());
        Masker::of(values, self.config.vault.mask_pii.with(own.unwrap_or_default()))?.for_words()
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
                    *crate::write(&secrets.masked) = Values::withholding().ok().map(Arc::new);
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
}
