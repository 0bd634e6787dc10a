//! The vault: secrets of namespaces, sealed in the store, opened for the moment in which one is used and
//! told to nobody. Sandboxes get placeholders, or, where a person asked for it, values that are masked in
//! everything that comes out again.

mod find;
mod forget;
mod forms;
mod give;
mod key;
mod keyring;
mod mask;
mod personal;
mod program;
mod seal;
mod secret;
mod stream;
mod swaps;
mod uses;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, RwLock};

use isle_fail::Point;
use isle_store::{SecretRow, wall_clock_ms};
use serde_json::json;

use crate::context::CallContext;
use crate::engine::Inner;
use crate::error::{Code, Error, Result};
use crate::journal::{Actor, store_error};
use crate::values::{Address, Namespace, Span};
use key::Missing;
use seal::{About, Key};

pub use key::{ExposePolicy, GivenSecret, KeyText, VaultConfig};
pub use keyring::{DesktopKeyring, Keyring};
pub(crate) use mask::Masker;
pub use personal::Personal;
pub(crate) use secret::{SecretHost, SecretName, SecretText, Wishes};
pub(crate) use stream::Stream as MaskedStream;
pub(crate) use uses::{RunSecrets, SandboxSecrets, Use};

/// Secrets of one namespace.
const MOST: usize = 1000;
/// Hosts of one secret.
const MOST_HOSTS: usize = 32;

type Place = (Namespace, SecretName);

/// All secrets, sealed, and who uses them.
#[derive(Debug, Default)]
pub(crate) struct Vault {
    key: Mutex<Option<Key>>,
    rows: RwLock<BTreeMap<Place, SecretRow>>,
    /// Held while one changes, so that memory and store change in the same order.
    changing: tokio::sync::Mutex<()>,
    uses: Mutex<HashMap<Address, Arc<SandboxSecrets>>>,
    /// Values of secrets from outside, which are not sealed because they are not stored.
    given: RwLock<BTreeMap<Place, SecretText>>,
}

/// What may be told of a secret.
#[derive(Debug, Clone)]
pub(crate) struct SecretFacts {
    pub(crate) name: SecretName,
    pub(crate) version: u64,
    pub(crate) hosts: Vec<String>,
    pub(crate) set_at_ms: i64,
    pub(crate) expires_at_ms: Option<i64>,
    pub(crate) expired: bool,
}

impl SecretFacts {
    fn of(name: &SecretName, row: &SecretRow) -> Self {
        Self {
            name: name.clone(),
            version: row.version,
            hosts: hosts_of(row),
            set_at_ms: row.set_at_ms,
            expires_at_ms: row.expires_at_ms,
            expired: is_expired(row),
        }
    }
}

fn hosts_of(row: &SecretRow) -> Vec<String> {
    serde_json::from_str(&row.hosts).unwrap_or_default()
}

/// Whether it comes from outside: nothing of it is stored.
fn is_given(row: &SecretRow) -> bool {
    row.sealed.is_empty()
}

fn is_expired(row: &SecretRow) -> bool {
    row.expires_at_ms.is_some_and(|expires| expires <= wall_clock_ms())
}

fn about(row: &SecretRow) -> About<'_> {
    About {
        namespace: &row.namespace,
        name: &row.name,
        version: row.version,
        hosts: &row.hosts,
        expires_at_ms: row.expires_at_ms,
    }
}

/// What comes from outside is changed there.
fn refuse_given(row: Option<&SecretRow>) -> Result<()> {
    match row.filter(|row| is_given(row)) {
        None => Ok(()),
        Some(row) => Err(Error::new(
            Code::PolicyDenied,
            format!("the secret {} comes from `secrets_from_env` and is changed there", row.name),
        )
        .next("change the environment or the configuration of the daemon, and start it again")),
    }
}

impl Vault {
    fn row(&self, namespace: &Namespace, name: &SecretName) -> Option<SecretRow> {
        crate::read(&self.rows).get(&(namespace.clone(), name.clone())).cloned()
    }

    /// All of a namespace, by name.
    pub(crate) fn list(&self, namespace: &Namespace) -> Vec<SecretFacts> {
        crate::read(&self.rows)
            .iter()
            .filter(|((owner, _), _)| owner == namespace)
            .map(|((_, name), row)| SecretFacts::of(name, row))
            .collect()
    }

    fn no_such_secret(&self, namespace: &Namespace, name: &SecretName) -> Error {
        let names: Vec<String> =
            self.list(namespace).into_iter().take(50).map(|facts| facts.name.to_string()).collect();
        Error::new(Code::SecretNotFound, format!("there is no secret {name}"))
            .detail("secrets", names)
            .next(format!("set it with `isle secret set {name}`, or name one of those in `details`"))
    }

    /// One that can be used now.
    fn usable(&self, namespace: &Namespace, name: &SecretName) -> Result<SecretRow> {
        let row = self.row(namespace, name).ok_or_else(|| self.no_such_secret(namespace, name))?;
        if is_expired(&row) {
            return Err(Error::new(Code::SecretExpired, format!("the secret {name} has expired"))
                .next(format!("set it anew with `isle secret set {name}`")));
        }
        Ok(row)
    }

    /// Whether there is one that a key is needed for.
    fn has_sealed(&self) -> bool {
        crate::read(&self.rows).values().any(|row| !is_given(row))
    }

    /// Opens one, if the key is there.
    fn open(&self, row: &SecretRow) -> Result<SecretText> {
        if is_given(row) {
            let place = (row.namespace.parse()?, row.name.parse()?);
            return crate::read(&self.given)
                .get(&place)
                .cloned()
                .ok_or_else(|| Error::internal("a secret from outside has no value"));
        }
        let key = crate::lock(&self.key).clone().ok_or_else(|| {
            Error::new(Code::VaultLocked, "the secrets are locked: their key was not found at start")
                .next("`isle secret list` says what is wrong with it")
        })?;
        SecretText::new(key.open(&row.nonce, &row.sealed, &about(row))?)
    }
}

impl Inner {
    /// Reads what is stored, and finds the key when there is something to open.
    pub(crate) async fn load_vault(self: &Arc<Self>) -> Result<()> {
        let store = self.journal.store();
        let mut rows = BTreeMap::new();
        for row in store.secrets().map_err(store_error)? {
            match (row.namespace.parse(), row.name.parse()) {
                (Ok(namespace), Ok(name)) => drop(rows.insert((namespace, name), row)),
                _ => tracing::warn!(name = row.name, "the record of a secret cannot be read"),
            }
        }
        let now = wall_clock_ms();
        for given in &self.config.vault.given {
            let place = (given.namespace.clone(), given.name.clone());
            let hosts: Vec<&str> = given.hosts.iter().map(|host| host.text.as_str()).collect();
            // What is written down in the settings is stronger than what was set before.
            rows.insert(
                place.clone(),
                SecretRow {
                    namespace: given.namespace.to_string(),
                    name: given.name.to_string(),
                    version: 0,
                    nonce: Vec::new(),
                    sealed: Vec::new(),
                    hosts: json!(hosts).to_string(),
                    expires_at_ms: None,
                    set_at_ms: now,
                },
            );
            crate::write(&self.vault.given).insert(place, given.value.clone());
        }
        *crate::write(&self.vault.rows) = rows;
        if self.vault.has_sealed()
            && let Err(error) = self.vault_key(Missing::Refuse).await
        {
            tracing::error!(%error, "the secrets are locked");
        }
        self.load_secret_uses()
    }

    /// The key, found and checked.
    async fn vault_key(&self, missing: Missing) -> Result<Key> {
        if let Some(key) = crate::lock(&self.vault.key).clone() {
            return Ok(key);
        }
        let check = self.journal.store().vault_check().map_err(store_error)?;
        let missing = if check.is_some() { Missing::Refuse } else { missing };
        let config = self.config.vault.clone();
        // A program may be asked, and that may take its time.
        let key =
            tokio::task::spawn_blocking(move || config.find(missing)).await.map_err(Error::internal)??;
        if let Some(check) = check
            && !key.opens(&check)
        {
            return Err(Error::new(Code::VaultLocked, "the secrets were sealed with another key")
                .next("start the daemon with the key they were sealed with (ISLE_VAULT_KEY, vault_key_command, vault_keyring or the key file)")
                .next("without it they are lost: remove them, and set them again"));
        }
        *crate::lock(&self.vault.key) = Some(key.clone());
        self.recall_values();
        Ok(key)
    }

    /// Says what is wrong with the key, if anything is.
    pub(crate) async fn vault_trouble(&self) -> Option<Error> {
        if !self.vault.has_sealed() {
            return None;
        }
        self.vault_key(Missing::Refuse).await.err()
    }

    /// Sets a secret, or sets it anew. Whoever uses it has the new value with the next use.
    pub(crate) async fn set_secret(
        &self,
        context: &CallContext,
        name: &SecretName,
        value: &SecretText,
        hosts: Option<Vec<SecretHost>>,
        expires: Option<Span>,
    ) -> Result<SecretFacts> {
        let _held = self.vault.changing.lock().await;
        let namespace = &context.namespace;
        let before = self.vault.row(namespace, name);
        refuse_given(before.as_ref())?;
        let key = self.vault_key(Missing::Make).await?;
        if before.is_none() && self.vault.list(namespace).len() >= MOST {
            return Err(Error::new(Code::LimitReached, format!("a namespace has at most {MOST} secrets"))
                .next("remove those that nobody uses"));
        }
        // Where it goes is a decision of its own; a new value does not undo it.
        let hosts = match (hosts, &before) {
            (Some(hosts), _) => hosts.into_iter().map(|host| host.text).collect(),
            (None, Some(before)) => hosts_of(before),
            (None, None) => Vec::new(),
        };
        if hosts.len() > MOST_HOSTS {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("a secret has at most {MOST_HOSTS} hosts"),
            )
            .next("write *.example.com for many names below one"));
        }
        let now = wall_clock_ms();
        let hosts = serde_json::to_string(&hosts).map_err(Error::internal)?;
        let mut row = SecretRow {
            namespace: namespace.to_string(),
            name: name.to_string(),
            version: before.map_or(1, |before| before.version + 1),
            nonce: Vec::new(),
            sealed: Vec::new(),
            hosts,
            expires_at_ms: expires
                .map(|span| now.saturating_add(i64::try_from(span.0.as_millis()).unwrap_or(i64::MAX))),
            set_at_ms: now,
        };
        (row.nonce, row.sealed) = key.seal(value.reveal(), &about(&row))?;
        let facts = SecretFacts::of(name, &row);
        let detail = json!({
            "secret": name,
            "version": facts.version,
            "hosts": facts.hosts,
            "expires_at_ms": facts.expires_at_ms,
        });
        let entry = Actor::of(context).about_nothing("secret_set", detail);
        self.journal.store().put_secret(&row, &key.check()?, &entry).map_err(store_error)?;
        isle_fail::pass(Point::SecretRecorded);
        crate::write(&self.vault.rows).insert((namespace.clone(), name.clone()), row);
        self.secret_changed(namespace, name);
        Ok(facts)
    }

    /// Forgets a secret. Nobody gets it from now on.
    pub(crate) async fn remove_secret(&self, context: &CallContext, name: &SecretName) -> Result<()> {
        let _held = self.vault.changing.lock().await;
        let namespace = &context.namespace;
        let Some(row) = self.vault.row(namespace, name) else {
            return Err(self.vault.no_such_secret(namespace, name));
        };
        refuse_given(Some(&row))?;
        let entry = Actor::of(context).about_nothing("secret_remove", json!({ "secret": name }));
        self.journal.store().remove_secret(namespace.as_str(), name.as_str(), &entry).map_err(store_error)?;
        isle_fail::pass(Point::SecretRemoved);
        crate::write(&self.vault.rows).remove(&(namespace.clone(), name.clone()));
        if !self.vault.has_sealed() {
            // With the last secret its key is free to be changed.
            *crate::lock(&self.vault.key) = None;
        }
        Ok(())
    }
}
