//! File trees, on either side of the wall: walked, packed, unpacked, compared and watched. All of it
//! works from an open directory downwards, never follows a link and never puts a path together, so
//! the same code serves the agent inside a sandbox, the daemon and the command line.

mod carried;
mod expression;
mod glob;
mod manifest;
mod pack;
mod plan;
mod prune;
#[cfg(feature = "host")]
mod select;
pub mod tar;
mod unpack;
mod walk;
mod watch;

pub use expression::{expression, searched};
pub use glob::{Glob, GlobError};
pub use isle_wire::{Carried, LeftOut};
pub use manifest::{Known, Manifest, ManifestEntry, ManifestStep};
pub use pack::{PackOptions, Packer};
pub use plan::{Plan, plan};
pub use prune::{prune, prune_one, remove_tree_beneath};
#[cfg(feature = "host")]
pub use select::{Chosen, Rules, SelectError, Selection, Selector, host_manifest};
pub use unpack::{Bounds, Draft, UnpackError, Unpacker, remove_tree};
pub use walk::{Found, Kind, Walker, kind_of, open_beneath, open_regular};
pub use watch::{Happened, TreeEvent, TreeWatcher, WatchedBatch};
