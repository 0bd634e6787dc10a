//! Everything that reads bytes of strangers, as functions that take bytes and fail by panicking. The
//! instrumented programs in `fuzz/` call them for as long as they are let; the test of this crate
//! calls them on the same corpora with seeded mutations, wherever the rest is tested.

#![expect(clippy::unwrap_used, reason = "a target that finds something fails by panicking")]

mod archives;
mod bodies;
mod config;
mod control;
mod messages;
mod mux;
mod names;
mod network;
mod paths;
mod places;
mod wire;

// Both are parts of programs, not of libraries; they are read where they stand.
#[path = "../../isle-agent/src/network/dns.rs"]
mod dns;
#[path = "../../isle-agent/src/files/mod.rs"]
#[expect(dead_code, reason = "the agent uses the rest")]
mod files;
#[path = "../../isle-agent/src/place.rs"]
#[expect(dead_code, reason = "the agent uses the rest")]
mod place;
#[path = "../../isle-agent/src/watched.rs"]
mod watched;

type Run = Box<dyn FnMut(&[u8]) + Send>;

/// Something to call with bytes, with what it needs to stand on.
pub struct Target {
    /// What it is called, also as a directory of `fuzz/corpus`.
    pub name: &'static str,
    run: Run,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Target").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Target {
    /// Calls it. Panics when a promise is broken.
    pub fn run(&mut self, bytes: &[u8]) {
        (self.run)(bytes);
    }

    /// One by name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        all().into_iter().find(|target| target.name == name).unwrap()
    }
}

/// All of them.
#[must_use]
pub fn all() -> Vec<Target> {
    let registry = isle_engine::ops::Registry::standard();
    let mut tree = paths::Tree::new();
    let mut archives = archives::Ground::new();
    let runtime = mux::runtime();
    vec![
        Target { name: "wire", run: Box::new(wire::run) },
        Target { name: "mux", run: Box::new(move |bytes| mux::run(&runtime, bytes)) },
        Target { name: "paths", run: Box::new(move |bytes| tree.run(bytes)) },
        Target { name: "archives", run: Box::new(move |bytes| archives.run(bytes)) },
        Target { name: "config", run: Box::new(config::run) },
        Target { name: "bodies", run: Box::new(move |bytes| bodies::run(&registry, bytes)) },
        Target { name: "messages", run: Box::new(messages::run) },
        Target { name: "control", run: Box::new(control::run) },
        Target { name: "names", run: Box::new(names::run) },
        Target { name: "network", run: Box::new(network::run) },
    ]
}
