//! What every crate of Isle may know: values that are parsed once, error codes, and the trait that backends
//! implement. It links neither the engine nor the store, so backends and clients depend on this crate alone.

pub mod backend;
pub mod clock;
pub mod error;
pub mod keyring;
mod socket_path;
pub mod strict_json;
pub mod values;

pub use error::{Code, Error, Result};
pub use socket_path::SocketPath;
