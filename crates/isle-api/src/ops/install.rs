//! `install`: packages for a sandbox, by its own tools.

use crate::shapes::RunResult;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{SandboxName, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who installs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Manager {
    /// Python packages.
    Pip,
    /// Node.js packages.
    Npm,
    /// System packages of Debian and its kin.
    Apt,
    /// System packages of Alpine.
    Apk,
}

impl Manager {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pip, Self::Npm, Self::Apt, Self::Apk];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pip => "pip",
            Self::Npm => "npm",
            Self::Apt => "apt",
            Self::Apk => "apk",
        }
    }
}

/// The operation `install`.
#[derive(Debug)]
pub struct Install;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Sandbox name, default "default".
    pub sandbox: Option<SandboxName>,
    /// E.g. ["numpy", "pandas==2.2"]; paths of package files start with / or ./.
    pub packages: Vec<String>,
    /// Left out: by what the image has.
    pub manager: Option<Manager>,
    /// Address of another package index.
    pub index: Option<String>,
    /// Take addresses as packages, default false.
    pub allow_urls: Option<bool>,
    /// What the installation may reach: pip, npm, apt for what these use on this host, or hosts. The operator's.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Default 120s.
    pub timeout: Option<Span>,
    /// Answer after this at the latest; the run goes on.
    pub wait: Option<Span>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub sandbox: SandboxName,
    pub manager: Manager,
    pub packages: Vec<String>,
    /// Whether they are there now.
    pub installed: bool,
    /// What to do when they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The installation as a run.
    pub run: RunResult,
}

impl Operation for Install {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "install";
    const TITLE: &'static str = "Install packages";
    const DESCRIPTION: &'static str =
        "Install packages in a sandbox with pip, npm, apt or apk. They stay until it is reset or destroyed.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/install" };
    const TOOLSET: Toolset = Toolset::Environment;
    const EFFECT: Effect = Effect::Changes;
}
