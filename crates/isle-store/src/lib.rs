//! Persistent state: sandboxes, runs, the audit chain and settings, in one SQLite file. Calls are synchronous
//! and short, so that async code makes them inline: one writer, one reader, prepared statements, and every
//! `fsync` on a separate thread.

mod audit;
mod checkpoint;
mod integrity_check;

mod connection;
mod error;
mod events;
mod files;
mod instance;
mod key_values;
mod list_runs;
mod listing;
#[cfg(test)]
mod listing_tests;
mod namespace_grants;
mod open;
mod quarantine;
mod readers;
mod records;
mod run_retention;
mod runs;
mod sandboxes;
mod schema;
mod secrets;
mod spawn_counts;
mod state_lock;
mod store;
mod syncs;
mod tenants;
mod variables;
mod webhooks;
mod wipes;

pub use audit::{AuditEntry, AuditFault, AuditFilter, AuditKey, AuditProblem, AuditRow, AuditVerdict};

pub use error::StoreError;
pub use events::{EventCounter, EventFilter, EventRow};
pub use instance::{Instance, InstanceId};
pub use listing::{Listing, Page};
pub use quarantine::Quarantined;
pub use readers::ReadShare;
pub use records::{RunEnd, RunFilter, RunNetwork, RunOutput, RunRow, RunTotals, SandboxChange, SandboxRow};
pub use run_retention::RunRetention;
pub use secrets::{SecretRow, SecretUseRow};
pub use state_lock::{LOCK_FILE, LockHolder, LockState, Phase};
pub use store::{OwnFiles, Store};
pub use syncs::SyncRow;
pub use tenants::TokenRow;
pub use variables::VariableRow;
pub use webhooks::{WEBHOOK_KEY_LENGTH, WebhookRow};
pub use wipes::{WipeMark, WipeRow};
