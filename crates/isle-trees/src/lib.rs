//! File trees: walking, packing, unpacking, comparing and watching. Everything works relative to an open
//! directory, never follows a symbolic link and never joins paths, so that the same code is safe in the agent
//! inside a sandbox, in the daemon and in the command line.

mod archive_filter;
mod auto_run;
mod directories;
pub mod git;
mod glob;
mod host_checks;
#[cfg(feature = "host")]
mod ignore_rules;
mod manifest;
mod pack;
mod prune;
mod search_regex;
mod skipped_comments;
mod sync_plan;
pub mod tar;
mod unpack;
mod walk;
mod watch;

pub use archive_filter::{GIT_DIRECTORY, TreeFilter};
pub use auto_run::{EXECUTABLE, Reason, Review, Reviewed, auto_run_reason};
pub use directories::remove_tree;
pub use glob::{Glob, GlobError};
pub use host_checks::{UnpackedTree, leave_out_git_entries};
#[cfg(feature = "host")]
pub use ignore_rules::{Chosen, Rules, SelectError, Selection, Selector, host_manifest};
pub use isle_wire::{Carried, LeftOut};
pub use manifest::{HashCache, Manifest, ManifestEntry, ManifestStep};
pub use pack::{PackOptions, Packer};
pub use prune::{prune, prune_one, remove_tree_beneath};
pub use search_regex::{compile_regex, regex_pattern};
pub use sync_plan::{SyncPlan, plan};
pub use unpack::{Bounds, StagingDir, UnpackError, Unpacker};
pub use walk::{Kind, WalkEntry, Walker, kind_of, open_beneath, open_regular};
pub use watch::{ChangeKind, TreeEvent, TreeWatcher, WatchedBatch};
