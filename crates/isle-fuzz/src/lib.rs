//! The parsers of untrusted input, as functions that take bytes and panic when a property is violated. The
//! instrumented programs in `fuzz/` call them without end; the test of this crate calls them on the same
//! corpora with seeded mutations.

#![expect(clippy::unwrap_used, reason = "a target that finds something fails by panicking")]

mod archives;
mod bodies;
mod config;
mod control;
mod guest_paths;
mod messages;
mod mux;
mod names;
mod network;
mod paths;
mod port_headers;
mod reflections;
mod wire;

type Run = Box<dyn FnMut(&[u8]) + Send>;

/// A fuzz target and its context.
pub struct Target {
    /// Its name, also that of its directory in `fuzz/corpus`.
    pub name: &'static str,
    run: Run,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Target").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Target {
    /// Runs it. Panics when a property is violated.
    pub fn run(&mut self, bytes: &[u8]) {
        (self.run)(bytes);
    }

    /// The target of a name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        all().into_iter().find(|target| target.name == name).unwrap()
    }
}

/// All targets.
#[must_use]
pub fn all() -> Vec<Target> {
    let registry = isle_api::Registry::standard();
    let mut tree = guest_paths::Tree::new();
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
        Target { name: "port_headers", run: Box::new(port_headers::run) },
        Target { name: "reflections", run: Box::new(reflections::run) },
    ]
}
