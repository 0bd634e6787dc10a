//! The domain of Isle. A door (MCP, HTTP, command line, a program that links this crate) hands a
//! call to [`Engine::call`]; the engine walks it through the pipeline and is the only owner of
//! backends, so no door can go around a stage.

mod admission;
mod agent;
mod base;
mod children;
pub mod context;
pub mod engine;
pub mod events;
mod files;
mod install;
mod journal;
pub mod metrics;
pub mod network;
mod ops;
mod pipeline;
pub mod profile;
mod run;
pub mod sandbox;
mod secrets;
mod validate;
mod variables;
mod webhooks;

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use isle_core::{Error, Result};

pub use admission::tenants::Tenant;
pub use children::control_protocol;
pub use context::{CallContext, CallerRole, Door};
pub use engine::{Engine, EngineConfig};
pub use files::{carry, watch};

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
