//! Variables of sandboxes: set once, seen by everything that starts in a sandbox of that name from then on.
//!
//! Owns the variables of every sandbox, by address: a workspace outlives its sandbox, and so do they. The store
//! has all of them, memory has a copy, since every run asks for them. Both change in the same order: whoever
//! changes some, or removes the workspace they belong to, holds [`Variables::hold`] from the record until
//! memory is changed.
//!
//! Called by the operation `env`, by `run` at every start, by the notifier for what must not be in events, and
//! by `sandbox` when a workspace is wiped. Calls the journal only.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use serde_json::json;

use crate::context::CallContext;
use crate::journal::{Audit, Journal};
use isle_core::values::{Address, SandboxName, VariableName};
use isle_core::{Code, Error, Result};

/// What the kernel takes as one string, with room for the name.
const LONGEST_VALUE: usize = 96 * 1024;
const MOST: usize = 256;
/// All of a sandbox together: what the kernel takes is shared with arguments and a caller's variables.
const MOST_BYTES: usize = 256 * 1024;

/// A change: what is set and what is unset.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) set: Vec<(VariableName, String)>,
    pub(crate) unset: Vec<VariableName>,
}

/// The variables of one sandbox.
pub(crate) type Set = Arc<BTreeMap<String, String>>;

/// Those of all sandboxes.
#[derive(Debug)]
pub(crate) struct Variables {
    journal: Arc<Journal>,
    known: RwLock<HashMap<Address, Set>>,
    /// Held while one changes, so that memory and store change in the same order.
    changing: Mutex<()>,
}

impl Variables {
    pub(crate) fn new(journal: Arc<Journal>) -> Self {
        Self { journal, known: RwLock::default(), changing: Mutex::default() }
    }

    /// Those of a sandbox; empty when it has none.
    pub(crate) fn of(&self, sandbox: &Address) -> Set {
        crate::read(&self.known).get(sandbox).cloned().unwrap_or_default()
    }

    fn put(&self, sandbox: &Address, set: BTreeMap<String, String>) {
        let mut known = crate::write(&self.known);
        if set.is_empty() {
            known.remove(sandbox);
        } else {
            known.insert(sandbox.clone(), Arc::new(set));
        }
    }

    /// Keeps others from changing any.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        crate::lock(&self.changing)
    }

    /// Forgets those of a sandbox that the store has forgotten.
    pub(crate) fn forget(&self, sandbox: &Address) {
        self.put(sandbox, BTreeMap::new());
    }

    /// Reads all of them, at start.
    pub(crate) fn load(&self) -> Result<()> {
        let mut all: HashMap<Address, BTreeMap<String, String>> = HashMap::new();
        for row in self.journal.variables()? {
            match row.sandbox.parse::<Address>() {
                Ok(sandbox) => drop(all.entry(sandbox).or_default().insert(row.name, row.value)),
                Err(_) => tracing::warn!(sandbox = row.sandbox, "a variable has no valid sandbox"),
            }
        }
        for (sandbox, set) in all {
            self.put(&sandbox, set);
        }
        Ok(())
    }

    /// Changes those of a sandbox, all or none. Says which really changed.
    pub(crate) fn change(
        &self,
        context: &CallContext,
        sandbox: &SandboxName,
        change: &Change,
    ) -> Result<Vec<String>> {
        let address = context.address(sandbox);
        let _held = self.hold();
        let before = self.of(&address);
        let mut after = BTreeMap::clone(&before);
        for (name, value) in &change.set {
            check_value(name, value)?;
            after.insert(name.as_str().to_owned(), value.clone());
        }
        for name in &change.unset {
            after.remove(name.as_str());
        }
        check_size(&after)?;
        let mut changed: Vec<String> = (before.keys().chain(after.keys()))
            .filter(|name| before.get(*name) != after.get(*name))
            .cloned()
            .collect();
        changed.sort();
        changed.dedup();
        let detail = json!({
            "set": change.set.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            "unset": change.unset.iter().map(VariableName::as_str).collect::<Vec<_>>(),
        });
        let set: Vec<(String, String)> =
            change.set.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        let unset: Vec<String> = change.unset.iter().map(VariableName::to_string).collect();
        let audit = Audit::of_name(context, "env", sandbox, detail);
        self.journal.change_variables(&address, &set, &unset, &audit)?;
        self.put(&address, after);
        Ok(changed)
    }
}

pub(crate) fn check_value(name: &VariableName, value: &str) -> Result<()> {
    if value.contains('\0') {
        return Err(Error::new(Code::InvalidArgument, format!("the value of {name} contains NUL"))
            .next("remove it; write binary data to a file instead"));
    }
    if value.len() > LONGEST_VALUE {
        return Err(Error::new(
            Code::TooLarge,
            format!("the value of {name} has {} bytes, more than {LONGEST_VALUE}", value.len()),
        )
        .next("write it to a file, and set the variable to its path"));
    }
    Ok(())
}

fn check_size(set: &BTreeMap<String, String>) -> Result<()> {
    let bytes: usize = set.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    if set.len() > MOST || bytes > MOST_BYTES {
        return Err(Error::new(
            Code::TooLarge,
            format!(
                "that would be {} variables of {bytes} bytes; a sandbox has at most {MOST}, of {MOST_BYTES} bytes in all",
                set.len()
            ),
        )
        .next("unset some, or write long values to files"));
    }
    Ok(())
}
