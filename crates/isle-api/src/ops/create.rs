//! `create`: a named sandbox with settings of its own.

use super::list::SandboxBrief;
use super::write_files::FileInput;
use crate::inputs::{Environment, files};
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::backend::{BackendName, Containment, Limits, Tier};
use isle_core::values::{ByteSize, SandboxName, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `create`.
#[derive(Debug)]
pub struct Create;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Its name.
    pub sandbox: SandboxName,
    /// How strongly isolated.
    pub tier: Option<Tier>,
    /// Which backend creates it; the first that offers the tier when left out.
    pub backend: Option<BackendName>,
    /// Which image.
    pub image: Option<String>,
    /// Memory limit.
    pub memory: Option<ByteSize>,
    /// CPUs, such as 0.5.
    pub cpus: Option<f64>,
    /// Limit on processes and threads.
    pub pids: Option<u32>,
    /// Limit on what it writes.
    pub disk: Option<ByteSize>,
    /// Accept less than the tier promises where the host cannot do it.
    pub allow_downgrade: Option<bool>,
    /// How long it lives, e.g. 2h, whatever goes on in it.
    pub ttl: Option<Term>,
    /// How long it lives unused, e.g. 30m.
    pub idle: Option<Term>,
    /// Settings under a name of the configuration; what is given here is stronger.
    pub profile: Option<String>,
    /// What it may reach, such as "example.com:443".
    #[serde(default)]
    pub allow: Vec<String>,
    /// Secrets every command has as placeholders, such as "KEY" or "KEY=VARIABLE".
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Secrets every command has as values, masked in what comes out.
    #[serde(default)]
    pub expose_secrets: Vec<String>,
    /// Files placed in it.
    #[serde(default, deserialize_with = "files")]
    pub files: Vec<FileInput>,
    /// Variables of every command in it.
    pub env: Option<Environment>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    /// The sandbox.
    #[serde(flatten)]
    pub brief: SandboxBrief,
    /// What it may use.
    pub limits: Limits,
    /// What is enforced.
    pub containment: Option<Containment>,
}

impl Operation for Create {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "create";
    const TITLE: &'static str = "Create a sandbox";
    const DESCRIPTION: &'static str = "Make a named sandbox with settings of its own. Sandboxes are also made on first use, with the defaults.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes" };
    const TOOLSET: Toolset = Toolset::Lifecycle;
    const EFFECT: Effect = Effect::Idempotent;
}
