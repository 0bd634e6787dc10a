//! What Isle remembers between two starts: sandboxes, runs, the audit chain and a few facts, in one
//! SQLite file. Calls are synchronous and short, so that async code makes them inline: one writer,
//! one reader, prepared statements, and every `fsync` on a thread of its own.

mod audit;
mod checkpoint;
mod clock;
mod connection;
mod error;
mod events;
mod evict;
mod facts;
mod files;
mod namespace_grants;
mod open;
mod quarantine;
mod rows;
mod runs;
mod sandboxes;
mod schema;
mod secrets;
mod spawns;
mod store;
mod syncs;
mod tenants;
mod variables;
mod webhooks;

pub use audit::{AuditEntry, AuditFault, AuditFilter, AuditKey, AuditProblem, AuditRow, AuditVerdict};
pub use clock::{boot_clock_ms, boot_id, wall_clock_ms};
pub use error::StoreError;
pub use events::{EventCounter, EventFilter, EventRow};
pub use quarantine::Quarantined;
pub use rows::{RunEnd, RunFilter, RunNetwork, RunOutput, RunRow, RunTotals, SandboxChange, SandboxRow};
pub use secrets::{SecretRow, SecretUseRow};
pub use store::Store;
pub use syncs::SyncRow;
pub use tenants::TokenRow;
pub use variables::VariableRow;
pub use webhooks::{WEBHOOK_KEY_LENGTH, WebhookRow};
