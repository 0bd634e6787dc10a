//! Events: one bus on which everything that happens is told once, from where it happens. Telling never
//! waits: what listens reads from a ring of fixed size and from a bounded history, and who is too slow for
//! both is told how much it missed.

mod bus;
mod follow;
mod hooks;
mod kind;
mod mask;

use std::sync::Arc;

use serde_json::Value;

use crate::values::{RunId, SandboxName};

pub(crate) use bus::Events;
pub use follow::{EventSelection, FollowedEvent};
pub use kind::EventKind;
pub(crate) use mask::secret_values;

/// The namespace of everything while there is only one.
pub(crate) const NAMESPACE: &str = "default";

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Whose.
    pub namespace: String,
    /// What.
    pub kind: EventKind,
    /// In which sandbox.
    pub sandbox: Option<String>,
    /// In which run.
    pub run: Option<String>,
    /// A sentence for people.
    pub message: String,
    /// The facts for programs: an object.
    pub data: Value,
}

impl Event {
    /// Something that happened, of which nothing else is known yet.
    pub(crate) fn new(kind: EventKind, message: impl Into<String>) -> Self {
        Self {
            namespace: NAMESPACE.into(),
            kind,
            sandbox: None,
            run: None,
            message: message.into(),
            data: Value::Object(serde_json::Map::new()),
        }
    }

    /// In which sandbox.
    pub(crate) fn sandbox(mut self, name: &SandboxName) -> Self {
        self.sandbox = Some(name.to_string());
        self
    }

    /// In which run.
    pub(crate) fn run(mut self, id: &RunId) -> Self {
        self.run = Some(id.to_string());
        self
    }

    /// The facts: an object.
    pub(crate) fn data(mut self, data: Value) -> Self {
        self.data = data;
        self
    }
}

/// An event that was told: it has its place and time.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// Counts up, also over restarts.
    pub id: u64,
    /// When, by the wall clock.
    pub time_ms: i64,
    /// What happened.
    pub event: Event,
}

/// Shared by all who read it.
pub(crate) type Shared = Arc<Told>;
