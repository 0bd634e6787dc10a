//! `validate`: a look at code before it runs. Advice, never a wall.

use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{GuestPath, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `validate`.
#[derive(Debug)]
pub struct Validate;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Sandbox name, default "default".
    pub sandbox: Option<SandboxName>,
    /// The code. Give this or path.
    pub code: Option<String>,
    /// File in the sandbox.
    pub path: Option<GuestPath>,
    /// python, node or shell; detected when left out.
    pub language: Option<String>,
    /// Suggest fixes, default true.
    pub fix: Option<bool>,
    /// Reject code with findings, default false.
    pub reject_findings: Option<bool>,
    /// Names of findings to leave out.
    pub ignore: Option<Vec<String>>,
}

/// What becomes of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Verdict {
    /// As it is.
    Pass,
    /// Better with the fixes.
    Fixed,
    /// It cannot run, or must not by what the caller asked.
    Reject,
}

/// A place in the code, counted from 1.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct ProblemShape {
    pub line: u32,
    pub column: u32,
    pub message: String,
}

/// Something dangerous.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct FindingShape {
    pub name: String,
    pub line: u32,
    pub column: u32,
    pub message: String,
}

/// Something put right.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct FixShape {
    pub name: String,
    pub line: u32,
    pub message: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub sandbox: SandboxName,
    pub language: &'static str,
    pub verdict: Verdict,
    /// Why it is no code.
    pub errors: Vec<ProblemShape>,
    /// What is dangerous in it.
    pub findings: Vec<FindingShape>,
    /// What was put right in `code`.
    pub fixes: Vec<FixShape>,
    /// The code with the fixes in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The code as it was given, when `code` is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original: Option<String>,
    /// Hosts its addresses name. None of them is opened by this.
    pub domains: Vec<String>,
    /// What could not be looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Operation for Validate {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "validate";
    const TITLE: &'static str = "Check code";
    const DESCRIPTION: &'static str = "Check Python, Node or shell code without running it: syntax error with line and column, dangers, hosts it names, suggested fixes. Advice only.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/validate" };
    const TOOLSET: Toolset = Toolset::Environment;
    const EFFECT: Effect = Effect::Reads;
}
