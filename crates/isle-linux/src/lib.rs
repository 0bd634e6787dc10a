//! The native backend. Two halves that meet in [`request`]: the host's half ([`backend`]) lives in
//! the daemon and owns cgroups, directories and the pool; the set-up half ([`setup`]) runs in the
//! fork server and turns a cloned process into the first process of a sandbox. The order of the
//! set-up is one function that reads like a list: [`setup::container::enter`].

#[cfg(feature = "backend")]
pub mod backend;
#[cfg(feature = "backend")]
mod keyring;
pub mod request;
pub mod setup;
pub mod sys;
pub mod tree;

#[cfg(feature = "backend")]
pub use backend::{NativeBackend, NativeConfig, attack_program, probe};
#[cfg(feature = "backend")]
pub use keyring::KernelKeyring;
