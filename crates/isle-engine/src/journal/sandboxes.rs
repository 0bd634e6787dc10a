//! What is written down of sandboxes, from the intent to make one to the last trace of it.

use isle_store::{SandboxChange, SandboxRow, WipeMark};
use serde_json::Value;

use super::{Actor, Audit, Journal, store_error};
use crate::network::StoredGrant;
use crate::sandbox::{Sandbox, SandboxState, StoredSpec, Wipe};
use isle_core::backend::Lifetime;
use isle_core::values::{Address, SandboxId};
use isle_core::{Error, Result};

/// What changes in the record of a sandbox that is up.
fn running(sandbox: &Sandbox, anchor: Value) -> Result<SandboxChange> {
    Ok(SandboxChange {
        state: Some(SandboxState::Running.as_str().into()),
        anchor: Some(anchor),
        containment: Some(serde_json::to_value(sandbox.containment()).map_err(Error::internal)?),
        ..SandboxChange::default()
    })
}

impl Journal {
    /// A sandbox is about to be made.
    pub(crate) fn sandbox_creating(&self, sandbox: &Sandbox) -> Result<()> {
        let row = row_of(sandbox, SandboxState::Creating)?;
        self.store.insert_sandbox(&row).map_err(store_error)
    }

    /// A living sandbox that no record spoke of.
    pub(crate) fn sandbox_adopted(&self, sandbox: &Sandbox, anchor: Value, audit: &Audit) -> Result<()> {
        let containment = serde_json::to_value(sandbox.containment()).map_err(Error::internal)?;
        let row = SandboxRow { anchor, containment, ..row_of(sandbox, SandboxState::Running)? };
        self.store.insert_sandbox_audited(&row, &audit.0).map_err(store_error)
    }

    /// It is up, and can be found again by its anchor.
    pub(crate) fn sandbox_running(&self, sandbox: &Sandbox, anchor: Value, audit: &Audit) -> Result<()> {
        let change = running(sandbox, anchor)?;
        self.store.update_sandbox_audited(sandbox.id.as_str(), change, &audit.0).map_err(store_error)
    }

    /// A child is up; from now on it counts for its parent.
    pub(crate) fn child_running(
        &self,
        sandbox: &Sandbox,
        anchor: Value,
        parent: &Address,
        audit: &Audit,
    ) -> Result<()> {
        let (id, change) = (sandbox.id.as_str(), running(sandbox, anchor)?);
        self.store.count_spawn_audited(id, change, &parent.to_string(), &audit.0).map_err(store_error)
    }

    /// It is in the place of others, which are forgotten.
    pub(crate) fn sandbox_replaced_others(&self, sandbox: &Sandbox) -> Result<()> {
        self.store.forget_replaced(sandbox.id.as_str()).map_err(store_error)
    }

    /// It was destroyed: nothing of it is left.
    pub(crate) fn sandbox_destroyed(&self, id: &SandboxId, audit: &Audit) -> Result<()> {
        self.store.destroy_sandbox_audited(id.as_str(), &audit.0).map_err(store_error)
    }

    /// It is about to be replaced by another incarnation. Until that one runs, the record stays: it has
    /// the settings.
    pub(crate) fn sandbox_given_up(
        &self,
        sandbox: &Sandbox,
        audit: &Audit,
        wipe: Option<Wipe>,
    ) -> Result<()> {
        let change =
            SandboxChange { state: Some(SandboxState::Failed.as_str().into()), ..SandboxChange::default() };
        let id = sandbox.id.as_str();
        match wipe {
            None => self.store.update_sandbox_audited(id, change, &audit.0),
            Some(wipe) => {
                let mark = WipeMark { id, change, audit: Some(&audit.0) };
                self.store.begin_wipe(&wipe.row(&sandbox.address()), Some(mark))
            }
        }
        .map_err(store_error)
    }

    /// It runs, and its workspace was emptied as was wanted.
    pub(crate) fn sandbox_emptied(&self, sandbox: &Sandbox, anchor: Value, audit: &Audit) -> Result<()> {
        let (id, address) = (sandbox.id.as_str(), sandbox.address().to_string());
        let change = running(sandbox, anchor)?;
        self.store.emptied_sandbox_audited(id, &address, &change, &audit.0).map_err(store_error)
    }

    /// All that belongs to a name is about to be wiped.
    pub(crate) fn wipe_begins(&self, address: &Address) -> Result<()> {
        self.store.begin_wipe(&Wipe::Volume.row(address), None).map_err(store_error)
    }

    /// It is about to be removed, and its volume as well if that is to be wiped.
    pub(crate) fn sandbox_destroying(&self, sandbox: &Sandbox, wipe: Option<Wipe>) -> Result<()> {
        let change = SandboxChange {
            state: Some(SandboxState::Destroying.as_str().into()),
            ..SandboxChange::default()
        };
        let Some(wipe) = wipe else { return self.change(sandbox, change) };
        let mark = WipeMark { id: sandbox.id.as_str(), change, audit: None };
        self.store.begin_wipe(&wipe.row(&sandbox.address()), Some(mark)).map_err(store_error)
    }

    /// It died. Not being able to say so is logged only: the next start finds out again.
    pub(crate) fn sandbox_failed(&self, sandbox: &Sandbox, what: &str) {
        let change =
            SandboxChange { state: Some(SandboxState::Failed.as_str().into()), ..SandboxChange::default() };
        let audit = Audit::lifecycle(&Actor::engine(), "sandbox_failed", sandbox, what);
        if let Err(error) = self.store.update_sandbox_audited(sandbox.id.as_str(), change, &audit.0) {
            tracing::warn!(sandbox = %sandbox.name, %error, "the failure of a sandbox could not be recorded");
        }
    }

    /// What it is granted from now on.
    pub(crate) fn sandbox_grants(
        &self,
        sandbox: &Sandbox,
        grants: Vec<StoredGrant>,
        audit: &Audit,
    ) -> Result<()> {
        let change = SandboxChange { spec: Some(stored_spec(sandbox, grants)?), ..SandboxChange::default() };
        self.store.update_sandbox_audited(sandbox.id.as_str(), change, &audit.0).map_err(store_error)
    }

    /// The authority its gate answers in the name of.
    pub(crate) fn sandbox_authority(&self, sandbox: &Sandbox) -> Result<()> {
        let spec = stored_spec(sandbox, sandbox.network.stored())?;
        self.change(sandbox, SandboxChange { spec: Some(spec), ..SandboxChange::default() })
    }

    /// When it was last used, and what is left of its time.
    pub(crate) fn sandbox_last_used(&self, sandbox: &Sandbox) -> Result<()> {
        let change = SandboxChange {
            last_used_ms: Some(sandbox.last_used_ms()),
            lease: Some(sandbox.lease.stored()),
            ..SandboxChange::default()
        };
        self.change(sandbox, change)
    }

    /// Its deadlines changed, because somebody wanted it.
    pub(crate) fn lease_changed(&self, sandbox: &Sandbox, lease: Value, audit: &Audit) -> Result<()> {
        let change = SandboxChange { lease: Some(lease), ..SandboxChange::default() };
        self.store.update_sandbox_audited(sandbox.id.as_str(), change, &audit.0).map_err(store_error)
    }

    /// Nothing of it is left. One that was never told to anybody leaves no audit row either.
    pub(crate) fn forget_sandbox(&self, id: &SandboxId, audit: Option<&Audit>) -> Result<()> {
        let forgotten = match audit {
            Some(audit) => self.store.remove_sandbox_audited(id.as_str(), &audit.0),
            None => self.store.remove_sandbox(id.as_str()),
        };
        forgotten.map_err(store_error)
    }

    /// Nothing of it is left, nor of what belonged to its name.
    pub(crate) fn wipe_sandbox(&self, id: &SandboxId, address: &Address, audit: &Audit) -> Result<()> {
        self.store.wipe_sandbox_audited(id.as_str(), &address.to_string(), &audit.0).map_err(store_error)
    }

    fn change(&self, sandbox: &Sandbox, change: SandboxChange) -> Result<()> {
        self.store.update_sandbox(sandbox.id.as_str(), change).map_err(store_error)
    }
}

/// How a sandbox was made and what it was granted since, as it is stored.
fn stored_spec(sandbox: &Sandbox, grants: Vec<StoredGrant>) -> Result<Value> {
    let stored = StoredSpec {
        origin: sandbox.origin,
        backend: sandbox.backend.name(),
        spec: sandbox.spec.clone(),
        terms: sandbox.terms,
        profile: sandbox.profile.clone(),
        grants,
        authority: sandbox.network.authority(),
    };
    serde_json::to_value(stored).map_err(Error::internal)
}

fn row_of(sandbox: &Sandbox, state: SandboxState) -> Result<SandboxRow> {
    let (name, kind) = match sandbox.spec.lifetime {
        Lifetime::Named => (Some(sandbox.name.to_string()), "named"),
        Lifetime::OneShot => (None, "one_shot"),
    };
    Ok(SandboxRow {
        id: sandbox.id.to_string(),
        namespace: sandbox.namespace.to_string(),
        name,
        kind: kind.into(),
        state: state.as_str().into(),
        spec: stored_spec(sandbox, sandbox.network.stored())?,
        fingerprint: sandbox.fingerprint.clone(),
        anchor: Value::Null,
        containment: Value::Null,
        created_at_ms: sandbox.created_at_ms,
        last_used_ms: sandbox.created_at_ms,
        lease: sandbox.lease.stored(),
    })
}
