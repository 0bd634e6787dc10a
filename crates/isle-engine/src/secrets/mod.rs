//! Secrets of namespaces: encrypted in the store, decrypted only while one is used. Sandboxes get placeholders, or, where
//! a person requested it, values that are masked in all output. Encryption and masking are in `isle-vault`; here is
//! which secrets exist, and which sandbox and run uses which.

mod attach;
mod cleanup;
mod service;
mod swaps;
mod uses;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, RwLock};

use isle_core::clock::wall_clock_ms;
use isle_egress::Placements;
use isle_fail::Point;
use isle_store::SecretRow;
use serde_json::json;

use crate::context::CallContext;
use crate::journal::{Actor, store_error};
use isle_core::values::{Address, Namespace, SecretName, SecretText, Span};
use isle_core::{Code, Error, Result};
use isle_vault::{AssociatedData, IfMissing, Key, Scope, SecretHost};

pub(crate) use service::Secrets;
pub(crate) use uses::{RunSecrets, SandboxSecrets, SecretUse, SecretVariables};

/// Most secrets of one namespace.
const MOST: usize = 1000;
/// Most hosts of one secret.
const MOST_HOSTS: usize = 32;

/// A secret by its namespace and name.
type SecretId = (Namespace, SecretName);

/// All secrets, encrypted, and which sandbox uses which.
#[derive(Debug, Default)]
pub(crate) struct Vault {
    key: Mutex<Option<Key>>,
    rows: RwLock<BTreeMap<SecretId, SecretRow>>,
    /// Held while one changes, so that memory and store change in the same order.
    changing: tokio::sync::Mutex<()>,
    uses: Mutex<HashMap<Address, Arc<SandboxSecrets>>>,
    /// Values of secrets from outside, which are not stored.
    external: RwLock<BTreeMap<SecretId, SecretText>>,
    /// Values inserted into requests, and values masked in responses.
    pub(crate) swapped: AtomicU64,
    pub(crate) reflected: AtomicU64,
}

/// A change of the scope of a secret; `None` keeps what it has.
#[derive(Debug, Default)]
pub(crate) struct WantedScope {
    pub(crate) hosts: Option<Vec<SecretHost>>,
    pub(crate) places: Option<Placements>,
}

/// What is shown of a secret; never its value.
#[derive(Debug, Clone)]
pub(crate) struct SecretFacts {
    pub(crate) name: SecretName,
    pub(crate) version: u64,
    pub(crate) scope: Scope,
    pub(crate) set_at_ms: i64,
    pub(crate) expires_at_ms: Option<i64>,
    pub(crate) expired: bool,
}

impl SecretFacts {
    fn of(name: &SecretName, row: &SecretRow) -> Self {
        Self {
            name: name.clone(),
            version: row.version,
            scope: scope_of(row),
            set_at_ms: row.set_at_ms,
            expires_at_ms: row.expires_at_ms,
            expired: is_expired(row),
        }
    }
}

/// Whether it comes from outside, so that nothing of it is stored.
fn is_external(row: &SecretRow) -> bool {
    row.sealed.is_empty()
}

fn is_expired(row: &SecretRow) -> bool {
    row.expires_at_ms.is_some_and(|expires| expires <= wall_clock_ms())
}

fn scope_of(row: &SecretRow) -> Scope {
    Scope::read(&row.name, &row.hosts)
}

fn associated_data(row: &SecretRow) -> AssociatedData<'_> {
    AssociatedData {
        namespace: &row.namespace,
        name: &row.name,
        version: row.version,
        hosts: &row.hosts,
        expires_at_ms: row.expires_at_ms,
    }
}

/// Rejects changes of secrets from outside.
fn refuse_external(row: Option<&SecretRow>) -> Result<()> {
    match row.filter(|row| is_external(row)) {
        None => Ok(()),
        Some(row) => Err(Error::new(
            Code::PolicyDenied,
            format!("the secret {} comes from `secrets_from_env` and cannot be changed here", row.name),
        )
        .next("change the environment or the configuration of the daemon, and restart it")),
    }
}

impl Vault {
    fn row(&self, namespace: &Namespace, name: &SecretName) -> Option<SecretRow> {
        crate::read(&self.rows).get(&(namespace.clone(), name.clone())).cloned()
    }

    /// All secrets of a namespace, by name.
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
        Error::new(Code::SecretNotFound, format!("secret {name} not found"))
            .detail("secrets", names)
            .next(format!("set it with `isle secret set {name}`, or use one of those in `details`"))
    }

    /// A secret that exists and has not expired.
    fn usable(&self, namespace: &Namespace, name: &SecretName) -> Result<SecretRow> {
        let row = self.row(namespace, name).ok_or_else(|| self.no_such_secret(namespace, name))?;
        if is_expired(&row) {
            return Err(Error::new(Code::SecretExpired, format!("the secret {name} has expired"))
                .next(format!("set it again with `isle secret set {name}`")));
        }
        Ok(row)
    }

    /// Whether any secret needs the key.
    fn has_sealed(&self) -> bool {
        crate::read(&self.rows).values().any(|row| !is_external(row))
    }

    /// Decrypts a value, if the key is available.
    fn open(&self, row: &SecretRow) -> Result<SecretText> {
        if is_external(row) {
            let id = (row.namespace.parse()?, row.name.parse()?);
            return crate::read(&self.external)
                .get(&id)
                .cloned()
                .ok_or_else(|| Error::internal("a secret from outside has no value"));
        }
        let key = crate::lock(&self.key).clone().ok_or_else(|| {
            Error::new(Code::VaultLocked, "the vault is locked: its key was not found at start")
                .next("`isle secret list` shows why")
        })?;
        SecretText::new(key.open(&row.nonce, &row.sealed, &associated_data(row))?)
    }
}

impl Secrets {
    /// Loads the stored secrets, and finds the key if one of them needs it.
    pub(crate) async fn load_vault(self: &Arc<Self>) -> Result<()> {
        let store = self.journal.store();
        let mut rows = BTreeMap::new();
        for row in store.secrets().map_err(store_error)? {
            match (row.namespace.parse(), row.name.parse()) {
                (Ok(namespace), Ok(name)) => drop(rows.insert((namespace, name), row)),
                _ => tracing::warn!(name = row.name, "unreadable record of a secret"),
            }
        }
        let now = wall_clock_ms();
        for external in &self.config.vault.external {
            let id = (external.namespace.clone(), external.name.clone());
            let hosts = external.hosts.iter().map(|host| host.text.clone()).collect();
            let scope = Scope { hosts, places: external.places.clone() };
            // The configuration takes precedence over a stored secret.
            rows.insert(
                id.clone(),
                SecretRow {
                    namespace: external.namespace.to_string(),
                    name: external.name.to_string(),
                    version: 0,
                    nonce: Vec::new(),
                    sealed: Vec::new(),
                    hosts: scope.stored()?,
                    expires_at_ms: None,
                    set_at_ms: now,
                },
            );
            crate::write(&self.vault.external).insert(id, external.value.clone());
        }
        *crate::write(&self.vault.rows) = rows;
        if self.vault.has_sealed()
            && let Err(error) = self.vault_key(IfMissing::Fail).await
        {
            tracing::error!(%error, "the vault is locked");
        }
        self.load_secret_uses()
    }

    /// The key, found and verified.
    async fn vault_key(&self, missing: IfMissing) -> Result<Key> {
        if let Some(key) = crate::lock(&self.vault.key).clone() {
            return Ok(key);
        }
        let check = self.journal.store().vault_check().map_err(store_error)?;
        let missing = if check.is_some() { IfMissing::Fail } else { missing };
        let config = self.config.vault.clone();
        // May run a program, which blocks.
        let key =
            tokio::task::spawn_blocking(move || config.find(missing)).await.map_err(Error::internal)??;
        if let Some(check) = check
            && !key.opens(&check)
        {
            return Err(Error::new(Code::VaultLocked, "the secrets were encrypted with another key")
                .next("start the daemon with that key (ISLE_VAULT_KEY, vault_key_command, vault_keyring or the key file)")
                .next("without it they cannot be recovered: remove them and set them again"));
        }
        *crate::lock(&self.vault.key) = Some(key.clone());
        self.recall_values();
        Ok(key)
    }

    /// Why the key cannot be used, if it cannot.
    pub(crate) async fn vault_trouble(&self) -> Option<Error> {
        if !self.vault.has_sealed() {
            return None;
        }
        self.vault_key(IfMissing::Fail).await.err()
    }

    /// Sets a secret, or replaces its value. The next use has the new value.
    pub(crate) async fn set_secret(
        &self,
        context: &CallContext,
        name: &SecretName,
        value: &SecretText,
        wanted: WantedScope,
        expires: Option<Span>,
    ) -> Result<SecretFacts> {
        let _changing = self.vault.changing.lock().await;
        let namespace = &context.namespace;
        let before = self.vault.row(namespace, name);
        refuse_external(before.as_ref())?;
        let key = self.vault_key(IfMissing::Create).await?;
        if before.is_none() && self.vault.list(namespace).len() >= MOST {
            return Err(Error::new(Code::LimitReached, format!("a namespace has at most {MOST} secrets"))
                .next("remove secrets that are not used"));
        }
        // A new value keeps the scope.
        let mut scope = before.as_ref().map(scope_of).unwrap_or_default();
        if let Some(hosts) = wanted.hosts {
            scope.hosts = hosts.into_iter().map(|host| host.text).collect();
        }
        if let Some(places) = wanted.places {
            scope.places = places;
        }
        if scope.hosts.len() > MOST_HOSTS {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("a secret has at most {MOST_HOSTS} hosts"),
            )
            .next("use *.example.com for all names below a domain"));
        }
        let now = wall_clock_ms();
        let hosts = scope.stored()?;
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
        (row.nonce, row.sealed) = key.seal(value.reveal(), &associated_data(&row))?;
        let facts = SecretFacts::of(name, &row);
        let detail = json!({
            "secret": name,
            "version": facts.version,
            "hosts": facts.scope.hosts,
            "places": facts.scope.places.texts(),
            "expires_at_ms": facts.expires_at_ms,
        });
        let entry = Actor::of(context).about_nothing("secret_set", detail);
        self.journal.store().put_secret(&row, &key.check()?, &entry).map_err(store_error)?;
        isle_fail::pass(Point::SecretRecorded);
        crate::write(&self.vault.rows).insert((namespace.clone(), name.clone()), row);
        self.secret_changed(namespace, name);
        Ok(facts)
    }

    /// Removes a secret. It is not handed out from now on.
    pub(crate) async fn remove_secret(&self, context: &CallContext, name: &SecretName) -> Result<()> {
        let _changing = self.vault.changing.lock().await;
        let namespace = &context.namespace;
        let Some(row) = self.vault.row(namespace, name) else {
            return Err(self.vault.no_such_secret(namespace, name));
        };
        refuse_external(Some(&row))?;
        let entry = Actor::of(context).about_nothing("secret_remove", json!({ "secret": name }));
        self.journal.store().remove_secret(namespace.as_str(), name.as_str(), &entry).map_err(store_error)?;
        isle_fail::pass(Point::SecretRemoved);
        crate::write(&self.vault.rows).remove(&(namespace.clone(), name.clone()));
        if !self.vault.has_sealed() {
            // Without stored secrets the key may be changed.
            *crate::lock(&self.vault.key) = None;
        }
        Ok(())
    }
}
