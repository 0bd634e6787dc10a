//! Variables of sandboxes: set once, seen by everything that starts in a sandbox of that name from then
//! on. In the store for good, in memory for speed: every run asks for them.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use serde_json::json;

use crate::context::CallContext;
use crate::engine::Inner;
use crate::error::{Code, Error, Result};
use crate::journal::Audit;
use crate::run::steers_loader;
use crate::values::{Address, SandboxName};

const LONGEST_NAME: usize = 128;
/// What the kernel takes as one string, with room for the name.
const LONGEST_VALUE: usize = 96 * 1024;
const MOST: usize = 256;
/// All of a sandbox together: what the kernel takes is shared with arguments and a caller's variables.
const MOST_BYTES: usize = 256 * 1024;

/// The name of a variable: what every shell takes for one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VariableName(String);

impl VariableName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VariableName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for VariableName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
        let good = text.len() <= LONGEST_NAME
            && text.starts_with(letter)
            && text.chars().all(|c| letter(c) || c.is_ascii_digit());
        if !good {
            return Err(Error::new(Code::InvalidName, format!("{text:?} is not the name of a variable"))
                .next(format!(
                    "use letters, digits and `_`, not a digit first, at most {LONGEST_NAME}, such as API_URL"
                )));
        }
        if steers_loader(text) {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("{text} steers the loader of every program and is not set from outside"),
            )
            .next("set it inside the command, such as `env LD_LIBRARY_PATH=… program`"));
        }
        Ok(Self(text.to_owned()))
    }
}

/// A change: what is set and what is unset.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) set: Vec<(VariableName, String)>,
    pub(crate) unset: Vec<VariableName>,
}

/// The variables of one sandbox.
pub(crate) type Set = Arc<BTreeMap<String, String>>;

/// Those of all sandboxes.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    known: RwLock<HashMap<Address, Set>>,
    /// Held while one changes, so that memory and store change in the same order.
    changing: Mutex<()>,
}

impl Variables {
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
}

impl Inner {
    /// Reads all of them, at start.
    pub(crate) fn load_variables(&self) -> Result<()> {
        let mut all: HashMap<Address, BTreeMap<String, String>> = HashMap::new();
        for row in self.journal.variables()? {
            match row.sandbox.parse::<Address>() {
                Ok(sandbox) => drop(all.entry(sandbox).or_default().insert(row.name, row.value)),
                Err(_) => tracing::warn!(sandbox = row.sandbox, "a variable has no valid sandbox"),
            }
        }
        for (sandbox, set) in all {
            self.variables.put(&sandbox, set);
        }
        Ok(())
    }

    /// Changes those of a sandbox, all or none. Says which really changed.
    pub(crate) fn change_variables(
        &self,
        context: &CallContext,
        sandbox: &SandboxName,
        change: &Change,
    ) -> Result<Vec<String>> {
        let address = context.address(sandbox);
        let _held = self.variables.hold();
        let before = self.variables.of(&address);
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
        self.variables.put(&address, after);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_a_shell_takes_and_never_the_loaders() {
        for name in ["A", "_x", "API_URL", "a1", &"A".repeat(LONGEST_NAME)] {
            assert_eq!(name.parse::<VariableName>().unwrap().as_str(), name);
        }
        for name in ["", "1A", "A-B", "A=B", "A B", "Ä", "A\n", "A\0", &"A".repeat(LONGEST_NAME + 1)] {
            assert_eq!(name.parse::<VariableName>().unwrap_err().code, Code::InvalidName, "{name:?}");
        }
        for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "GLIBC_TUNABLES", "GCONV_PATH"]
        {
            assert_eq!(name.parse::<VariableName>().unwrap_err().code, Code::InvalidArgument, "{name}");
        }
    }
}
