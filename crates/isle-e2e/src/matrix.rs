//! The cases a test body runs in: a backend, a tier of it, and how connections get out of a sandbox and into
//! it. Every case is a test of its own in the output, so that one that fails, or that a host does not offer,
//! has a name.

use std::cell::Cell;

use crate::skips::{Extent, Missing, record};
use crate::tiers::needs_tier;

thread_local! {
    /// Of the test that runs on this thread.
    static CONNECTIONS: Cell<Option<Connections>> = const { Cell::new(None) };
}

/// How a connection passes between a sandbox and the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// Its descriptor is passed.
    Passed,
    /// Its bytes are carried on a stream, as by backends that cannot pass descriptors.
    Carried,
}

impl Connections {
    /// What a daemon of a debug build takes its way from.
    pub(crate) const SETTING: &str = "ISLE_TEST_CONNECTIONS";

    /// The way by its name in that setting.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Carried => "carried",
        }
    }

    /// Runs a body all of whose daemons have their connections in this way.
    pub fn run(self, body: impl FnOnce()) {
        // A release build has no such setting.
        if self == Self::Carried && !cfg!(debug_assertions) {
            let reason = "connections are carried on the native backend in debug builds only";
            return record(&Missing::on_host(reason), Extent::Whole);
        }
        CONNECTIONS.set(Some(self));
        body();
        CONNECTIONS.set(None);
    }

    /// The way that the test on this thread is about; none where it is not about one.
    pub(crate) fn of_this_test() -> Option<Self> {
        CONNECTIONS.get()
    }
}

/// One combination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The backend, by its name in settings.
    pub backend: &'static str,
    /// The tier, by its name in settings.
    pub tier: &'static str,
    /// How connections pass.
    pub connections: Connections,
}

impl Case {
    /// Tier `container` of the native backend.
    pub const NATIVE_CONTAINER: Self =
        Self { backend: "native", tier: "container", connections: Connections::Passed };
    /// Tier `process` of the native backend.
    pub const NATIVE_PROCESS: Self = Self { tier: "process", ..Self::NATIVE_CONTAINER };

    /// Runs a body in this case, or skips it where the host does not offer the case.
    pub fn run(self, body: impl FnOnce(Self)) {
        match needs_tier(self.tier) {
            Ok(()) => self.connections.run(|| body(self)),
            Err(missing) => record(&missing, Extent::Whole),
        }
    }
}

/// Makes a test per tier of functions that take a [`Case`]: `per_tier!(name)` beside `fn name(case: Case)`
/// gives the tests `name::native_container` and `name::native_process`.
#[macro_export]
macro_rules! per_tier {
    ($($body:ident),+ $(,)?) => {$(
        mod $body {
            #[test]
            fn native_container() {
                $crate::Case::NATIVE_CONTAINER.run(super::$body);
            }

            #[test]
            fn native_process() {
                $crate::Case::NATIVE_PROCESS.run(super::$body);
            }
        }
    )+};
}

/// Makes a test per way that connections pass: `per_connection!(name)` beside `fn name()` gives the tests
/// `name::passed` and `name::carried`.
#[macro_export]
macro_rules! per_connection {
    ($($body:ident),+ $(,)?) => {$(
        mod $body {
            #[test]
            fn passed() {
                $crate::Connections::Passed.run(super::$body);
            }

            #[test]
            fn carried() {
                $crate::Connections::Carried.run(super::$body);
            }
        }
    )+};
}
