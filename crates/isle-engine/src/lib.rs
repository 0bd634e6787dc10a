//! The domain of Isle. A door (MCP, HTTP, command line, a program that links this crate) hands a
//! call to [`Engine::call`]; the engine walks it through the pipeline and is the only owner of
//! backends, so no door can go around a stage.

mod agent;
pub mod backend;
pub mod carry;
mod children;
pub mod context;
mod deny;
pub mod engine;
pub mod error;
pub mod events;
mod install;
mod journal;
pub mod metrics;
pub mod network;
pub mod ops;
mod pipeline;
pub mod profile;
mod queue;
mod run;
pub mod sandbox;
pub mod strict_json;
mod sync;
mod tenants;
mod tuning;
mod validate;
pub mod values;
mod variables;
mod vault;
pub mod watch;
mod webhooks;

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub use children::line as control_line;
pub use context::{Authority, CallContext, Door};
pub use engine::{Engine, EngineConfig};
pub use error::{Code, Error, Result};
pub use tenants::Tenant;

/// A failpoint whose error is one of ours.
fn failpoint(point: isle_fail::Point) -> Result<()> {
    isle_fail::fail(point).map_err(Error::internal)
}

// What these locks guard is changed in single steps, so a panic elsewhere leaves it whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
