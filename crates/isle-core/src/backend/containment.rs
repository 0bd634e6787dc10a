//! The containment report: what is enforced for a sandbox and what is missing; and what a host can offer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::capabilities::Capabilities;
use super::name::BackendName;
use super::spec::Tier;

/// One line of a containment report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Guarantee {
    /// Stable key, such as `user_namespace`.
    pub key: String,
    /// `enforced`, `watched` or `missing`.
    pub status: GuaranteeStatus,
    /// How it is enforced, or why it is not.
    pub how: String,
    /// What would make it enforced; empty when it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fix: String,
    /// Attacks of the containment suite that succeed because of it; empty when it is enforced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<String>,
}

/// How a guarantee is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum GuaranteeStatus {
    /// The kernel enforces it.
    Enforced,
    /// Isle measures and reacts, which can be late.
    Watched,
    /// It is not enforced.
    Missing,
}

/// What is enforced for a sandbox, and what is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Containment {
    /// The tier in force.
    pub tier: Tier,
    /// Every guarantee of that tier, in a fixed order.
    pub guarantees: Vec<Guarantee>,
}

/// What a backend offers on this host: one tier, with its capabilities and its containment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Offer {
    /// Which backend.
    pub backend: BackendName,
    /// Which tier.
    pub tier: Tier,
    /// What its sandboxes can do.
    pub capabilities: Capabilities,
    /// Whether everything the tier promises is enforced.
    pub available: bool,
    /// Whether sandboxes can be created when the caller allows a downgrade.
    pub available_with_downgrade: bool,
    /// What would be enforced, line by line, with fixes.
    pub containment: Containment,
}

/// One line of `isle doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Fact {
    /// What was checked.
    pub name: String,
    /// Whether it meets Isle's requirements.
    pub good: bool,
    /// What was found.
    pub found: String,
    /// The command or setting that fixes it; empty when there is nothing to fix.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fix: String,
}
