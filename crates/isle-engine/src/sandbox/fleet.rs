//! Where sandboxes are kept: named ones by address, one-shots by id. Finding an existing one takes a
//! shared lock for the length of a hash look-up and nothing else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock, Weak};

use super::ceilings::Ceilings;
use super::{OneShotShared, Programs, Sandbox};
use crate::context::CallContext;
use isle_core::backend::{BackendName, Lifetime};
use isle_core::values::{Address, Namespace, SandboxId, SandboxName};
use isle_core::{Code, Error, Result};

/// Operations that need no agent, and so do not wait for one.
const WITHOUT_AGENT: [&str; 6] = ["destroy", "reset", "status", "inspect", "extend", "usage"];

/// All sandboxes of an engine.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    named: RwLock<HashMap<Address, Arc<Sandbox>>>,
    one_shots: Mutex<HashMap<SandboxId, Arc<Sandbox>>>,
    gates: Mutex<HashMap<Address, Weak<tokio::sync::Mutex<()>>>>,
    images: OneShotShared,
}

impl Fleet {
    /// The sandbox of that address, in whatever state.
    pub(crate) fn get(&self, address: &Address) -> Option<Arc<Sandbox>> {
        crate::read(&self.named).get(address).cloned()
    }

    pub(crate) fn put(&self, sandbox: Arc<Sandbox>) {
        crate::write(&self.named).insert(sandbox.address(), sandbox);
    }

    /// Takes a new one in, unless that is one too many: counted and put in one step. One that is put in
    /// the place of another counts for it.
    pub(crate) fn admit(&self, sandbox: Arc<Sandbox>, ceilings: &Ceilings) -> Result<()> {
        let mut named = crate::write(&self.named);
        let mut one_shots = crate::lock(&self.one_shots);
        let address = sandbox.address();
        let others = named.iter().filter(|(other, _)| **other != address).map(|(_, other)| &**other);
        ceilings.check(&sandbox, others.chain(one_shots.values().map(|other| &**other)))?;
        match sandbox.spec.lifetime {
            Lifetime::Named => drop(named.insert(address, sandbox)),
            Lifetime::OneShot => drop(one_shots.insert(sandbox.id.clone(), sandbox)),
        }
        Ok(())
    }

    /// The same, unless the name is taken.
    pub(crate) fn put_unless_there(&self, sandbox: Arc<Sandbox>) {
        crate::write(&self.named).entry(sandbox.address()).or_insert(sandbox);
    }

    /// Removes it, unless another incarnation has taken the name.
    pub(crate) fn take_out(&self, sandbox: &Sandbox) {
        let mut named = crate::write(&self.named);
        if named.get(&sandbox.address()).is_some_and(|present| present.id == sandbox.id) {
            named.remove(&sandbox.address());
        }
    }

    pub(crate) fn take_out_one_shot(&self, id: &SandboxId) {
        crate::lock(&self.one_shots).remove(id);
    }

    /// Named sandboxes of a namespace, by name.
    pub(crate) fn named_in(&self, namespace: &Namespace) -> Vec<Arc<Sandbox>> {
        let mut all = self.named();
        all.retain(|sandbox| sandbox.namespace == *namespace);
        all
    }

    /// Shows every named sandbox to `look`, in no order and without copying any.
    pub(crate) fn each(&self, mut look: impl FnMut(&Arc<Sandbox>)) {
        crate::read(&self.named).values().for_each(&mut look);
    }

    /// Named sandboxes of all namespaces, by address.
    pub(crate) fn named(&self) -> Vec<Arc<Sandbox>> {
        let mut all: Vec<_> = crate::read(&self.named).values().cloned().collect();
        all.sort_unstable_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
        all
    }

    /// All of them, one-shots included, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<Sandbox>> {
        let mut all: Vec<_> = crate::read(&self.named).values().cloned().collect();
        all.extend(crate::lock(&self.one_shots).values().cloned());
        all
    }

    /// How many one-shots of a namespace exist now.
    pub(crate) fn one_shots_in(&self, namespace: &Namespace) -> usize {
        crate::lock(&self.one_shots).values().filter(|sandbox| sandbox.namespace == *namespace).count()
    }

    /// What is known of the programs in an image, shared by the one-shots made from it.
    pub(crate) fn programs_of(&self, backend: &BackendName, image: &str) -> Arc<Programs> {
        self.images.programs_of(backend, image)
    }

    /// The gate of an address: whoever makes or ends the sandbox there holds it.
    pub(crate) fn gate(&self, address: &Address) -> Arc<tokio::sync::Mutex<()>> {
        let mut gates = crate::lock(&self.gates);
        if let Some(gate) = gates.get(address).and_then(Weak::upgrade) {
            return gate;
        }
        gates.retain(|_, gate| gate.strong_count() > 0);
        let gate = Arc::default();
        gates.insert(address.clone(), Arc::downgrade(&gate));
        gate
    }

    /// The sandbox a caller names, or all of its namespace.
    pub(crate) fn one_or_all(
        &self,
        context: &CallContext,
        name: Option<&SandboxName>,
    ) -> Result<Vec<Arc<Sandbox>>> {
        let Some(name) = name else { return Ok(self.named_in(&context.namespace)) };
        let address = context.address(name);
        Ok(vec![self.get(&address).ok_or_else(|| self.no_such_sandbox(&address))?])
    }

    /// Says that there is none, and which there are in that namespace.
    pub(crate) fn no_such_sandbox(&self, Address { namespace, name }: &Address) -> Error {
        let names: Vec<String> =
            self.named_in(namespace).iter().take(50).map(|sandbox| sandbox.name.to_string()).collect();
        let error = Error::new(Code::SandboxNotFound, format!("there is no sandbox {name}"))
            .detail("sandboxes", names);
        match name.parent() {
            // Nothing but a spawn makes a child.
            Some(parent) => error.next(format!(
                "use one of the names in `details`, or make it with spawn: `isle spawn {parent} --name {}`",
                name.last_part()
            )),
            None => error.next("use one of the names in `details`, or run a command in it: that makes it"),
        }
    }

    /// All that descends from an incarnation, children before grandchildren, by name.
    pub(crate) fn family(&self, parent: &SandboxId) -> Vec<Arc<Sandbox>> {
        let all = self.named();
        let of = |parent: &SandboxId| -> Vec<Arc<Sandbox>> {
            let is_own =
                |sandbox: &&Arc<Sandbox>| sandbox.child_of().is_some_and(|child| child.parent_id == *parent);
            all.iter().filter(is_own).cloned().collect()
        };
        let mut family = of(parent);
        let grandchildren: Vec<_> = family.iter().flat_map(|child| of(&child.id)).collect();
        family.extend(grandchildren);
        family
    }

    /// For a call that names a sandbox which is being reached: waits for that one, for a bounded time.
    pub(crate) async fn await_reconnected(
        &self,
        context: &CallContext,
        operation: &str,
        input: &serde_json::Value,
    ) {
        if WITHOUT_AGENT.contains(&operation) {
            return;
        }
        let named = input.get("sandbox").and_then(serde_json::Value::as_str);
        let Some(Ok(name)) = named.map(str::parse::<SandboxName>) else { return };
        if let Some(sandbox) = self.get(&context.address(&name)) {
            sandbox.settled().await;
        }
    }
}
