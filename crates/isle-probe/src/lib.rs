//! The attacks Isle is tested with. One static program (`isle-probe attack`) runs in any sandbox, tries to
//! escape, and prints one JSON line per attack: its name, `contained`, `escaped` or `not_testable`, and what
//! was seen. A successful attack does no harm: it opens but does not write, and its targets are canaries that
//! [`canary`] creates on the host.
//!
//! The program does not know what is expected of a tier. It reports what it sees; the caller compares that
//! with the tier.

#[macro_use]
mod kernel;
pub mod canary;
mod filesystem;
mod gate;
mod json;
mod leftover;
mod namespaces;
mod network;
mod outcome;
mod privileges;
mod processes;
mod resources;
mod runner;
mod surface;
mod target;
mod terminal;

pub use canary::Canary;
pub use outcome::{Outcome, Verdict};
pub use runner::main;
pub use target::{Target, limits};

use outcome::Tried;

/// One attack.
#[derive(Debug)]
pub struct Attack {
    /// Stable name: the area and the target, such as `fs.canary_read`.
    pub name: &'static str,
    /// A description of what it tries.
    pub tries: &'static str,
    run: fn(&Target) -> Tried,
}

impl Attack {
    const fn new(name: &'static str, tries: &'static str, run: fn(&Target) -> Tried) -> Self {
        Self { name, tries, run }
    }
}

/// Every attack whose result is known inside, in the order in which they run.
pub fn attacks() -> impl Iterator<Item = &'static Attack> {
    [
        filesystem::HOST_FILES,
        filesystem::HOST_CHANGES,
        filesystem::PSEUDO,
        filesystem::MOUNTS,
        processes::ATTACKS,
        namespaces::ATTACKS,
        privileges::ATTACKS,
        surface::ATTACKS,
        network::ATTACKS,
        gate::ATTACKS,
        resources::ATTACKS,
    ]
    .into_iter()
    .flatten()
}

/// The attack whose result is checked from outside: whether a daemon started inside outlives its command.
pub const DAEMON: (&str, &str) = ("res.daemon", "leave a process behind that outlives its command");
