//! Events: one bus on which everything that happens is told once, from where it happens. Telling never
//! waits: what listens reads from a ring of fixed size and from a bounded history, and who is too slow for
//! both is told how much it missed.

mod bus;
mod follow;
mod mask;
mod notifier;

use std::sync::Arc;

use serde_json::Value;

use crate::context::CallContext;
use isle_core::Result;
use isle_core::values::{Address, Namespace, RunId};

pub(crate) use bus::Events;
pub(crate) use follow::Follower;
pub use follow::{EventSelection, FollowedEvent};
pub use isle_api::EventKind;
pub(crate) use mask::secret_values;
pub(crate) use notifier::Notifier;

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
    /// Something that happened in a namespace, of which nothing else is known yet.
    pub(crate) fn new(kind: EventKind, namespace: &Namespace, message: impl Into<String>) -> Self {
        Self {
            namespace: namespace.to_string(),
            kind,
            sandbox: None,
            run: None,
            message: message.into(),
            data: Value::Object(serde_json::Map::new()),
        }
    }

    /// Something that happened in a sandbox.
    pub(crate) fn of(kind: EventKind, sandbox: &Address, message: impl Into<String>) -> Self {
        let mut event = Self::new(kind, &sandbox.namespace, message);
        event.sandbox = Some(sandbox.name.to_string());
        event
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

/// Whose events a caller gets: those of its namespace, or with `all` everybody's.
pub(crate) fn within(context: &CallContext, all: bool) -> Result<Option<String>> {
    if !all {
        return Ok(Some(context.namespace.to_string()));
    }
    context.operator_only("what happens in all namespaces")?;
    Ok(None)
}
