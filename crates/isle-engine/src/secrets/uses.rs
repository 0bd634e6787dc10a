//! Which sandbox has which secret: as a placeholder or as the value, in every command or in single runs. Stored by the
//! address of the sandbox, like its variables, because the workspace outlives the sandbox. A value that was ever exposed
//! is masked for as long as the workspace exists.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Instant;

use isle_egress::{Host, ResponseMasking};
use isle_store::SecretUseRow;
use serde_json::json;

use super::{Secrets, Vault};
use crate::journal::store_error;
use crate::sandbox::Sandbox;
use isle_core::values::{
    Address, Namespace, RunId, SHORTEST_EXPOSED, SHORTEST_REFLECTED, SecretName, SecretText,
};
use isle_core::{Error, Result};
use isle_vault::{Masker, PiiKinds, Values};

/// Most values of one secret that are masked in a sandbox: the current one and earlier ones.
const MOST_VALUES: usize = 8;
/// Most hosts that are remembered to have received a value.
const MOST_HOSTS: usize = 1024;
/// Most reflections that are remembered for the results of runs.
const MOST_REFLECTIONS: usize = 64;

/// One secret of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SecretUse {
    /// What the sandbox has in place of the value.
    pub(crate) placeholder: String,
    /// The variable of every command that has it, and whether that is the value.
    pub(crate) attached: Option<(String, bool)>,
    /// Whether the value was ever exposed.
    pub(crate) ever_exposed: bool,
    /// Runs that requested its placeholder.
    pub(super) runs: BTreeSet<String>,
}

impl SecretUse {
    /// Whether its placeholder is replaced now.
    pub(super) fn is_in_force(&self) -> bool {
        matches!(self.attached, Some((_, false))) || !self.runs.is_empty()
    }

    /// Whether responses are masked: not needed where the sandbox had the value.
    pub(super) fn is_guarded(&self) -> bool {
        self.is_in_force() || !self.ever_exposed
    }

    pub(super) fn new(name: &SecretName) -> Result<Self> {
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
    uses: Mutex<BTreeMap<SecretName, SecretUse>>,
    /// Values that programs of the sandbox may print, newest last.
    values: Mutex<Vec<(SecretName, SecretText)>>,
    masked: RwLock<Option<Arc<Values>>>,
    /// The same for responses, where shorter values are masked, too.
    reflected: RwLock<Option<Arc<isle_egress::SecretFinder>>>,
    /// Hosts that received a value, also when the secret was removed or has other hosts now.
    sent_to: Mutex<BTreeSet<String>>,
    /// Values that servers sent back: time, secret, server.
    reflections: Mutex<VecDeque<(Instant, String, String)>>,
}

/// The variables that a run gets, and what is known about them.
#[derive(Debug, Default)]
pub(crate) struct SecretVariables {
    /// Variables of every command of its sandbox.
    pub(crate) attached: Vec<(String, String)>,
    /// Variables of the run alone.
    pub(crate) own: Vec<(String, String)>,
    /// All names, with whether the run gets the value.
    pub(crate) names: BTreeMap<SecretName, bool>,
    /// A note for the result of the run.
    pub(crate) note: Option<String>,
    /// Removes the secrets of the run alone when dropped.
    pub(crate) guard: Option<RunSecrets>,
}

/// Secrets of one run; when dropped, their placeholders are no longer replaced.
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
    pub(super) fn uses(&self) -> MutexGuard<'_, BTreeMap<SecretName, SecretUse>> {
        crate::lock(&self.uses)
    }

    /// Whether it has and had no secret.
    pub(super) fn is_empty(&self) -> bool {
        self.uses().is_empty()
    }

    /// All secrets, by name.
    pub(crate) fn all(&self) -> BTreeMap<SecretName, SecretUse> {
        self.uses().clone()
    }

    /// The values to mask; `None` when there are none.
    fn masked(&self) -> Option<Arc<Values>> {
        crate::read(&self.masked).clone()
    }

    /// What masks its values in responses.
    pub(super) fn guard(&self) -> ResponseMasking {
        let locked = self.masked().is_some_and(|values| values.finder().is_none());
        match crate::read(&self.reflected).clone() {
            _ if locked => ResponseMasking::Locked,
            Some(finder) => ResponseMasking::Mask(finder),
            None => ResponseMasking::TooShort,
        }
    }

    /// A value was sent to a host.
    pub(super) fn note_sent(&self, host: &Host) {
        let mut sent_to = crate::lock(&self.sent_to);
        if sent_to.len() < MOST_HOSTS {
            sent_to.insert(host.to_string());
        }
    }

    pub(super) fn was_sent_to(&self, host: &Host) -> bool {
        let sent_to = crate::lock(&self.sent_to);
        !sent_to.is_empty() && sent_to.contains(&host.to_string())
    }

    /// A server sent a value back.
    pub(super) fn note_reflection(&self, secret: &str, target: &str) {
        let mut reflections = crate::lock(&self.reflections);
        if reflections.len() == MOST_REFLECTIONS {
            reflections.pop_front();
        }
        reflections.push_back((Instant::now(), secret.to_owned(), target.to_owned()));
    }

    /// What servers sent back since then, as a note.
    pub(crate) fn reflections_since(&self, since: Instant) -> Option<String> {
        let reflections = crate::lock(&self.reflections);
        let mut all: Vec<String> = reflections
            .iter()
            .filter(|(when, ..)| *when >= since)
            .map(|(_, secret, target)| format!("{secret} by {target}"))
            .collect();
        all.sort_unstable();
        all.dedup();
        (!all.is_empty()).then(|| format!("secrets were sent back and masked: {}", all.join(", ")))
    }

    /// Programs of the sandbox may print this value from now on.
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
        let found = found.map(Arc::new);
        let shared = found.as_ref().and_then(|found| found.finder()).cloned();
        let long = |(_, text): &(SecretName, SecretText)| text.reveal().len() >= SHORTEST_EXPOSED;
        *crate::write(&self.reflected) = if values.iter().all(long) {
            shared
        } else {
            let known = values.iter().map(|(name, text)| (name.as_str(), text.reveal()));
            let known = known.filter(|(_, value)| value.len() >= SHORTEST_REFLECTED);
            isle_egress::SecretFinder::new(known).map_err(Error::internal)?.map(Arc::new)
        };
        *crate::write(&self.masked) = found;
        Ok(())
    }

    pub(super) fn rows(&self, sandbox: &Address) -> Vec<SecretUseRow> {
        let row = |(name, one): (&SecretName, &SecretUse)| SecretUseRow {
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
    /// What masks values and personal data in its output.
    pub(crate) fn masker(&self) -> Option<Masker> {
        let values = self.secrets.get().and_then(|secrets| secrets.masked());
        Masker::of(values, self.personal.get().copied().unwrap_or_default())
    }
}

impl Vault {
    /// Values that a sandbox may have seen, to be masked; `None` when it never saw one.
    pub(crate) fn values_of(&self, address: &Address) -> Option<Arc<Values>> {
        crate::lock(&self.uses).get(address).and_then(|secrets| secrets.masked())
    }
}

impl Secrets {
    /// The secrets of a sandbox.
    pub(crate) fn secrets_of<'s>(&self, sandbox: &'s Sandbox) -> &'s Arc<SandboxSecrets> {
        sandbox
            .secrets
            .get_or_init(|| Arc::clone(crate::lock(&self.vault.uses).entry(sandbox.address()).or_default()))
    }

    /// Called before a sandbox is used: sets up masking for the secrets of its name.
    pub(crate) fn recall_secrets(&self, sandbox: &Sandbox) {
        let own = sandbox.profile.as_ref().map(|profile| profile.mask_pii.as_slice()).unwrap_or_default();
        // Parsed when the sandbox was created, so this cannot fail.
        let own = PiiKinds::read(own).unwrap_or_default();
        sandbox.personal.get_or_init(|| self.config.vault.mask_pii.with(own));
        if crate::lock(&self.vault.uses).contains_key(&sandbox.address()) {
            self.secrets_of(sandbox);
        }
    }

    /// Loads the stored uses, at start.
    pub(super) fn load_secret_uses(&self) -> Result<()> {
        for row in self.journal.store().secret_uses().map_err(store_error)? {
            let (Ok(address), Ok(name)) = (row.sandbox.parse::<Address>(), row.name.parse::<SecretName>())
            else {
                tracing::warn!(sandbox = row.sandbox, "unreadable record of a secret in use");
                continue;
            };
            let secrets = Arc::clone(crate::lock(&self.vault.uses).entry(address.clone()).or_default());
            let one = SecretUse {
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

    /// Decrypts the values that sandboxes may print. If one cannot be decrypted, it cannot be masked: then all output of
    /// the sandbox is masked until the key is available.
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
                    *crate::write(&secrets.masked) = Some(Arc::new(Values::mask_everything()));
                    break;
                }
            }
        }
    }

    /// A secret has a new value: masks it in sandboxes that use it, because a host may send it back.
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
