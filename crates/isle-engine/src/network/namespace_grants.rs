//! What all sandboxes of a namespace may reach: stored, and in every gate at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use isle_core::clock::wall_clock_ms;
use isle_egress::Grant;
use isle_fail::Point;
use serde_json::json;

use super::grants::{grants_detail, replace, texts, with_grants, withdraw, without_grants};
use super::{Network, Source, StoredGrant};
use crate::context::CallContext;
use crate::events::{Event, EventKind};
use crate::journal::{Audit, store_error};
use isle_core::Result;
use isle_core::backend::GuestNetwork;
use isle_core::values::Namespace;

type Lists = BTreeMap<Namespace, Vec<StoredGrant>>;

/// Grants of all namespaces.
#[derive(Debug, Default)]
pub(crate) struct NamespaceGrants {
    lists: Mutex<Lists>,
}

/// Nobody changes them while this is held.
pub(super) struct HeldGrants<'g>(MutexGuard<'g, Lists>);

impl HeldGrants<'_> {
    /// Those of one.
    pub(super) fn of(&self, namespace: &Namespace) -> &[StoredGrant] {
        self.0.get(namespace).map(Vec::as_slice).unwrap_or_default()
    }
}

impl NamespaceGrants {
    pub(super) fn hold(&self) -> HeldGrants<'_> {
        HeldGrants(crate::lock(&self.lists))
    }

    /// Whether a namespace was granted something.
    pub(super) fn has(&self, namespace: &Namespace) -> bool {
        !self.hold().of(namespace).is_empty()
    }
}

impl Network {
    /// Reads them, at start.
    pub(crate) fn load_namespace_grants(&self) -> Result<()> {
        let mut lists = crate::lock(&self.namespace_grants.lists);
        for (namespace, grants) in self.journal.store().namespace_grants().map_err(store_error)? {
            match (namespace.parse(), serde_json::from_value(grants)) {
                (Ok(namespace), Ok(grants)) => drop(lists.insert(namespace, grants)),
                _ => tracing::warn!(namespace, "grants of a namespace cannot be read; they grant nothing"),
            }
        }
        Ok(())
    }

    /// What all sandboxes of a namespace may reach, as it was granted, and for how long yet.
    pub(crate) fn grants_of_namespace(&self, namespace: &Namespace) -> Vec<Grant> {
        let now = wall_clock_ms();
        self.namespace_grants.hold().of(namespace).iter().filter_map(|one| one.revived(now)).collect()
    }

    /// Grants something to all sandboxes of the caller's namespace, those to come included.
    pub(crate) fn allow_namespace(self: &Arc<Self>, context: &CallContext, grants: &[Grant]) -> Result<()> {
        context.operator_only("granting network")?;
        let detail = json!({ "grants": grants_detail(grants) });
        self.give_namespace(&context.namespace, grants, &Audit::of_engine(context, "allow_namespace", detail))
    }

    /// The same for whoever says why.
    pub(super) fn give_namespace(
        self: &Arc<Self>,
        namespace: &Namespace,
        grants: &[Grant],
        audit: &Audit,
    ) -> Result<()> {
        let mut lists = crate::lock(&self.namespace_grants.lists);
        let stored = with_grants(lists.get(namespace).cloned().unwrap_or_default(), grants, "a namespace")?;
        self.journal.namespace_grants(namespace, &stored, audit)?;
        isle_fail::pass(Point::NamespaceGrantRecorded);
        lists.insert(namespace.clone(), stored);
        self.each_gate(namespace, |gate, sources| replace(gate, sources, grants, Source::Namespace));
        drop(lists);
        // Where no program asks for names nobody else would open its gate.
        for sandbox in self.fleet.all() {
            if sandbox.namespace == *namespace && sandbox.capabilities.network == GuestNetwork::ProxyOnly {
                self.open_gate_later(&sandbox);
            }
        }
        let message = format!("every sandbox may reach {}", texts(grants).join(", "));
        let data = json!({ "grants": grants_detail(grants), "scope": "namespace" });
        self.notifier.publish(Event::new(EventKind::NetworkGranted, namespace, message).data(data));
        Ok(())
    }

    /// Takes them back; connections they allowed are cut.
    pub(crate) fn revoke_namespace(&self, context: &CallContext, grants: &[Grant]) -> Result<()> {
        context.operator_only("taking back what a namespace was granted")?;
        let namespace = &context.namespace;
        let mut lists = crate::lock(&self.namespace_grants.lists);
        let whose = format!("the namespace {namespace}");
        let stored = without_grants(lists.get(namespace).cloned().unwrap_or_default(), grants, &whose)?;
        let audit = Audit::of_engine(context, "revoke_namespace_grant", json!({ "grants": texts(grants) }));
        self.journal.namespace_grants(namespace, &stored, &audit)?;
        isle_fail::pass(Point::NamespaceGrantRecorded);
        lists.insert(namespace.clone(), stored);
        self.each_gate(namespace, |gate, sources| withdraw(gate, sources, grants, Source::Namespace));
        Ok(())
    }

    /// Every gate there is in a namespace. One that is made later asks what the namespace may reach.
    fn each_gate(
        &self,
        namespace: &Namespace,
        mut change: impl FnMut(&isle_egress::Gate, &mut Vec<(isle_egress::GrantId, Source)>),
    ) {
        for sandbox in self.fleet.all() {
            if sandbox.namespace == *namespace
                && let Some(gate) = sandbox.network.gate()
            {
                change(gate, &mut crate::lock(&sandbox.network.sources));
                self.requests.settle(&sandbox, gate);
            }
        }
    }
}
