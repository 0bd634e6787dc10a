//! What sandboxes of a backend and tier can do. The engine decides by these, never by the tier: a tier says
//! how strong the isolation is, capabilities say what works inside it and what the host can do with it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::spec::{HOST_IMAGE, SandboxSpec};
use crate::error::{Code, Error, Result};

/// What sandboxes of a backend and tier can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Capabilities {
    /// Whether the sandbox has a network stack: `own_stack` or `proxy_only`.
    pub network: GuestNetwork,
    /// Which root file system its commands see: `own` or `host`.
    pub root: GuestRoot,
    /// Which users commands can run as: `root_and_sandbox` or `sandbox_only`.
    pub users: GuestUsers,
    /// How connections travel between the sandbox and the host: `passed` or `carried`.
    pub connections: Connections,
    /// How the sandbox is paused: `signals` or `unsupported`.
    pub pause: Pause,
    /// Whether the memory of the sandbox can be saved and restored.
    pub memory_snapshot: Support,
    /// Which images it can be created from: `host_only` or `any`.
    pub images: Images,
    /// How the disk limit of a named sandbox is kept: `enforced`, `watched`, `per_file` or `none`.
    pub disk_limit: DiskLimit,
}

/// How programs in a sandbox reach destinations that were granted, and are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum GuestNetwork {
    /// A network stack of its own with loopback: granted names resolve and connect as usual, programs can
    /// listen, and their ports can be forwarded.
    OwnStack,
    /// No sockets: programs reach granted destinations through a proxy named in variables, and nothing can
    /// listen.
    ProxyOnly,
}

/// Which root file system the commands of a sandbox see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum GuestRoot {
    /// A root of its own: system-wide files such as `/etc` can be changed for this sandbox alone.
    Own,
    /// That of the host, with most of it closed: only the private directories can be written.
    Host,
}

/// Which users commands of a sandbox can run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum GuestUsers {
    /// The sandbox user, and root of the sandbox.
    RootAndSandbox,
    /// The sandbox user only.
    SandboxOnly,
}

/// How connections travel between a sandbox and the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Connections {
    /// As socket descriptors beside the agent's stream: host and sandbox share a kernel.
    Passed,
    /// As streams of their own over the agent's stream.
    Carried,
}

/// How a sandbox is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Pause {
    /// The agent stops every process with `SIGSTOP`; the agent itself keeps running.
    Signals,
    /// It cannot be paused.
    Unsupported,
}

/// Whether something works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Support {
    /// It works.
    Supported,
    /// It does not.
    Unsupported,
}

/// Which images sandboxes can be created from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Images {
    /// Only `host`: the host's own programs, read-only.
    HostOnly,
    /// Any image the backend can find.
    Any,
}

/// How the disk limit of a sandbox is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum DiskLimit {
    /// The kernel returns `ENOSPC` at the limit.
    Enforced,
    /// Isle measures the files from time to time and stops the sandbox while it is over the limit.
    Watched,
    /// The limit applies to each file, not to their sum.
    PerFile,
    /// There is no limit.
    None,
}

impl Capabilities {
    /// Whether a sandbox of this spec can be created.
    pub fn check(&self, spec: &SandboxSpec) -> Result<()> {
        match self.images {
            Images::HostOnly if spec.image != HOST_IMAGE => {
                Err(Error::new(Code::InvalidArgument, format!("unknown image {:?}", spec.image))
                    .next(format!("use image `{HOST_IMAGE}`: the host's own programs, read-only")))
            }
            Images::HostOnly | Images::Any => Ok(()),
        }
    }

    /// Every capability as a name and a value, in the order in which they are shown.
    #[must_use]
    pub fn lines(&self) -> Vec<(String, String)> {
        // Plain data: it is a JSON object of strings.
        let value = serde_json::to_value(self).unwrap_or_default();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        value.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), text(value))).collect()
    }
}
