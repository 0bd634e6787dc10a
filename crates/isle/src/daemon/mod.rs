//! The daemon: finding it, starting it on demand, and running it.

mod engine_config;
mod find;
mod lock;
mod lock_holder;
mod log;
mod log_rotation;
mod own_files;
mod serve;
mod start;

pub(crate) use find::{MAX_RETRIES, connect, endpoint, ensure_running, reach};
pub(crate) use lock_holder::{WaitLimit, held_message, unknown_holder};
pub(crate) use serve::{ServeMode, serve, store_error};
pub(crate) use start::{Missing, find_or_start, in_systemd_scope, move_into_systemd_scope};
