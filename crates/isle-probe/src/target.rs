//! What the attacks are aimed at: `--name=value` arguments that say where the canaries are and which
//! limits the sandbox is meant to have.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::outcome::NoCanary;

/// Canaries and limits, by name.
#[derive(Debug, Clone, Default)]
pub struct Target {
    values: BTreeMap<String, String>,
}

impl Target {
    /// Reads arguments of the form `--name=value`; gives back the first that is not.
    pub fn from_arguments(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut values = BTreeMap::new();
        for argument in arguments {
            let parts = argument.strip_prefix("--").and_then(|rest| rest.split_once('='));
            let Some((name, value)) = parts else { return Err(argument) };
            values.insert(name.to_owned(), value.to_owned());
        }
        Ok(Self { values })
    }

    pub(crate) fn text(&self, name: &'static str) -> Result<&str, NoCanary> {
        self.values.get(name).map(String::as_str).ok_or(NoCanary(name))
    }

    pub(crate) fn path(&self, name: &'static str) -> Result<PathBuf, NoCanary> {
        self.text(name).map(PathBuf::from)
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, name: &'static str) -> Result<T, NoCanary> {
        self.text(name)?.parse().map_err(|_| NoCanary(name))
    }

    /// What the canary says wherever it can be heard. Arguments carry only the second half, so that an
    /// attack does not find itself.
    pub(crate) fn secret(&self) -> Result<String, NoCanary> {
        self.text("token").map(secret_of)
    }

    /// Names of attacks to leave out or, when given, the only ones to run.
    pub(crate) fn names(&self, option: &'static str) -> Option<Vec<&str>> {
        self.text(option).ok().map(|names| names.split(',').collect())
    }
}

/// The limits of a sandbox the attacks are tried in: small, so that exceeding them is quick, and harmless
/// where nothing holds them.
pub mod limits {
    /// Bytes of memory.
    pub const MEMORY: u64 = 96 << 20;
    /// Bytes of disk.
    pub const DISK: u64 = 32 << 20;
    /// Processes and threads.
    pub const PIDS: u32 = 64;
    /// CPUs.
    pub const CPUS: f64 = 0.4;

    /// The limits as arguments of the attacks; open files are those of every sandbox.
    #[must_use]
    pub fn arguments(open_files: u64) -> Vec<String> {
        vec![
            format!("--memory={MEMORY}"),
            format!("--disk={DISK}"),
            format!("--pids={PIDS}"),
            format!("--cpus={CPUS}"),
            format!("--files={open_files}"),
        ]
    }
}

/// The secret that goes with a token.
pub(crate) fn secret_of(token: &str) -> String {
    format!("isle-canary:{token}")
}
