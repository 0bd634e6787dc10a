//! The daemon: finding it, starting it when it is not there, and being it.

mod engine_config;
mod find;
mod lock;
mod log;
mod serve;
mod start;

pub(crate) use find::{connect, endpoint, ensure_running, reach};
pub(crate) use serve::{Ground, serve, store_error};
pub(crate) use start::{in_a_scope, move_into_a_scope, start};
