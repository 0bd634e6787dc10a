//! Where sandboxes are kept: named ones by name, one-shots by id. Finding an existing one takes a
//! shared lock for the length of a hash look-up and nothing else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock, Weak};

use super::{OneShotShared, Programs, Sandbox};
use crate::values::{SandboxId, SandboxName};

/// All sandboxes of an engine.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    named: RwLock<HashMap<SandboxName, Arc<Sandbox>>>,
    one_shots: Mutex<HashMap<SandboxId, Arc<Sandbox>>>,
    gates: Mutex<HashMap<SandboxName, Weak<tokio::sync::Mutex<()>>>>,
    images: OneShotShared,
}

impl Fleet {
    /// The sandbox of that name, in whatever state.
    pub(crate) fn get(&self, name: &SandboxName) -> Option<Arc<Sandbox>> {
        crate::read(&self.named).get(name).cloned()
    }

    pub(crate) fn put(&self, sandbox: Arc<Sandbox>) {
        crate::write(&self.named).insert(sandbox.name.clone(), sandbox);
    }

    /// The same, unless the name is taken.
    pub(crate) fn put_unless_there(&self, sandbox: Arc<Sandbox>) {
        crate::write(&self.named).entry(sandbox.name.clone()).or_insert(sandbox);
    }

    /// Removes it, unless another incarnation has taken the name.
    pub(crate) fn take_out(&self, sandbox: &Sandbox) {
        let mut named = crate::write(&self.named);
        if named.get(&sandbox.name).is_some_and(|present| present.id == sandbox.id) {
            named.remove(&sandbox.name);
        }
    }

    pub(crate) fn put_one_shot(&self, sandbox: Arc<Sandbox>) {
        crate::lock(&self.one_shots).insert(sandbox.id.clone(), sandbox);
    }

    pub(crate) fn take_out_one_shot(&self, id: &SandboxId) {
        crate::lock(&self.one_shots).remove(id);
    }

    /// Named sandboxes, by name.
    pub(crate) fn named(&self) -> Vec<Arc<Sandbox>> {
        let mut all: Vec<_> = crate::read(&self.named).values().cloned().collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Shows every named sandbox to `look`, in no order and without copying any.
    pub(crate) fn each(&self, mut look: impl FnMut(&Arc<Sandbox>)) {
        crate::read(&self.named).values().for_each(&mut look);
    }

    /// How many one-shots exist now.
    pub(crate) fn one_shots(&self) -> usize {
        crate::lock(&self.one_shots).len()
    }

    /// What is known of the programs in an image, shared by the one-shots made from it.
    pub(crate) fn programs_of(&self, backend: &'static str, image: &str) -> Arc<Programs> {
        self.images.programs_of(backend, image)
    }

    /// The gate of a name: whoever makes or ends the sandbox of that name holds it.
    pub(crate) fn gate(&self, name: &SandboxName) -> Arc<tokio::sync::Mutex<()>> {
        let mut gates = crate::lock(&self.gates);
        if let Some(gate) = gates.get(name).and_then(Weak::upgrade) {
            return gate;
        }
        gates.retain(|_, gate| gate.strong_count() > 0);
        let gate = Arc::default();
        gates.insert(name.clone(), Arc::downgrade(&gate));
        gate
    }
}
