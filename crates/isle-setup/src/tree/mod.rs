//! Trees that an unfriendly program made, removed and measured: any depth, any names, any permissions.
//! Links are never followed, no path is ever put together, and only a few descriptors are open.

mod measure;
mod remove;
mod unlinked;

pub use measure::{Measurement, measure};
pub use remove::{remove, remove_at, remove_contents};
pub use unlinked::{FileKey, UnlinkedFiles, enter_namespace_above};
