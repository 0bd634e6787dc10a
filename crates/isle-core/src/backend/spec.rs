//! The spec of a sandbox: the request a backend gets, and what records contain.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::name::BackendName;
use crate::error::{Code, Error};
use crate::values::{Address, ByteSize, SandboxId};

/// How strongly a sandbox is isolated, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Tier {
    /// Landlock, seccomp and rlimits in a private directory; shares the host's namespaces.
    Process,
    /// Own namespaces, own root, seccomp, Landlock, cgroup limits.
    Container,
}

impl Tier {
    /// Every tier, weakest first.
    pub const ALL: &'static [Self] = &[Self::Process, Self::Container];

    /// The tier as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Container => "container",
        }
    }
}

impl FromStr for Tier {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.iter().copied().find(|tier| tier.as_str() == text).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|tier| tier.as_str()).collect();
            Error::new(Code::InvalidArgument, format!("unknown tier {text:?}"))
                .detail("tiers", known.clone())
                .next(format!("use one of {}", known.join(", ")))
        })
    }
}

/// The image that is the host's own programs, read-only.
pub const HOST_IMAGE: &str = "host";

/// How long a sandbox is meant to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifetime {
    /// For one command; dies with the daemon. Its writable layer is in memory.
    OneShot,
    /// Until it is destroyed; survives the daemon. Its writable layer is on disk.
    Named,
}

/// Files one process of a sandbox may have open, whatever the tier.
pub const OPEN_FILES: u64 = 4096;

/// What a sandbox may use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Limits {
    /// Memory, tmpfs and page cache included.
    pub memory: ByteSize,
    /// CPUs, such as 0.5 or 2.
    pub cpus: f64,
    /// Processes and threads.
    pub pids: u32,
    /// Writable layer and workspace.
    pub disk: ByteSize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: ByteSize::mib(1024), cpus: 2.0, pids: 256, disk: ByteSize::mib(1024) }
    }
}

/// The spec of a sandbox. The same spec gives the same sandbox; its fingerprint is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// The backend that must create it; `None` for the first that offers the tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendName>,
    /// How strongly isolated.
    pub tier: Tier,
    /// Which image; `host` is the host's own programs, read-only.
    pub image: String,
    /// What it may use.
    pub limits: Limits,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// Name of the workspace volume of a named sandbox: it outlives the sandbox unless destroyed
    /// with [`Keep::Nothing`](super::Keep::Nothing).
    pub volume: Option<Address>,
    /// Whether less than the tier promises is acceptable where the host cannot do it.
    pub allow_downgrade: bool,
    /// Whether it gets a control socket, to spawn from inside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub control: bool,
    /// Whether `/etc` can be the image's, read-only: no command runs as root of the sandbox, and nothing has
    /// to be written there. Such a sandbox is created faster.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fixed_etc: bool,
    /// Whose child it is. Part of the spec, so that every record of it contains this: a child never becomes
    /// an independent sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<ChildOf>,
}

/// Where a child belongs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RecordedChild")]
pub struct ChildOf {
    /// Itself, below its parent; its volume is its own and has an internal name.
    pub name: Address,
    /// Its parent.
    pub parent: Address,
    /// The incarnation of its parent: the child is destroyed with it.
    pub parent_id: SandboxId,
    /// The sandbox at the root of the tree.
    pub root: Address,
    /// 1 for a child, 2 for a grandchild.
    pub depth: u8,
    /// When it expires, in milliseconds since 1970.
    pub expires_at_ms: i64,
}

/// The same in records. Earlier versions recorded children by a name that did not contain that of their
/// parent; those are read as the name they have now.
#[derive(Deserialize)]
struct RecordedChild {
    name: Address,
    parent: Address,
    parent_id: SandboxId,
    root: Address,
    depth: u8,
    expires_at_ms: i64,
}

impl From<RecordedChild> for ChildOf {
    fn from(recorded: RecordedChild) -> Self {
        let RecordedChild { name, parent, parent_id, root, depth, expires_at_ms } = recorded;
        let below = |parent: &Address, child: &Address| -> Address {
            let name = child.name.last_part().parse().and_then(|name| parent.name.child(&name));
            // A name that cannot stand below its parent cannot have been recorded.
            name.map_or_else(|_| child.clone(), |name| Address::new(child.namespace.clone(), name))
        };
        let parent = if depth > 1 { below(&root, &parent) } else { parent };
        let name = below(&parent, &name);
        Self { name, parent, parent_id, root, depth, expires_at_ms }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn children_recorded_by_a_name_of_their_own_are_read_as_below_their_parent() {
        let read = |name: &str, parent: &str, depth: u8| {
            let recorded = json!({
                "name": name, "parent": parent, "parent_id": SandboxId::fresh(), "root": "acme@work",
                "depth": depth, "expires_at_ms": 1,
            });
            let child: ChildOf = serde_json::from_value(recorded).unwrap();
            let again: ChildOf = serde_json::from_value(serde_json::to_value(&child).unwrap()).unwrap();
            assert_eq!(again, child, "what is written now stays");
            (child.name.to_string(), child.parent.to_string())
        };
        let below = |name: &str, parent: &str| (name.to_owned(), parent.to_owned());
        assert_eq!(read("acme@prod", "acme@work", 1), below("acme@work/prod", "acme@work"));
        assert_eq!(read("acme@x", "acme@prod", 2), below("acme@work/prod/x", "acme@work/prod"));
    }
}
