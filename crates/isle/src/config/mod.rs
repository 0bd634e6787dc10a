//! Settings: one table of keys, from which files, environment, flags, `isle config` and the JSON
//! schema all follow. Flag > environment > workspace file > user file > system file > default.

pub(crate) mod backend_names;
mod definition;
mod file;
mod keys;
mod resolve;
mod tables;
mod value;

pub(crate) use definition::{Key, Scope};
pub(crate) use keys::{KEYS, key};
pub(crate) use resolve::{Origin, Settings};
pub(crate) use tables::Table;
pub(crate) use value::{Value, check_variable, schema};
