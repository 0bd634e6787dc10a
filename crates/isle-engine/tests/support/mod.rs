//! A backend without isolation, for the engine's own tests: "sandboxes" are temporary directories,
//! their agents tasks of this process that start ordinary processes and speak the real protocol.
//! A [`World`] outlives engines, as a host outlives daemons.

mod agent;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use isle_api::shapes::RunResult;
use isle_core::Result;
use isle_core::backend::{
    Backend, BackendName, Capabilities, Connections, Containment, Created, DiskLimit, DiskStops, Fact, Found,
    Guarantee, GuaranteeStatus, GuestNetwork, GuestRoot, GuestUsers, Images, Keep, Offer, Pause, SandboxSpec,
    Support, Tier, Usage,
};
use isle_core::values::{Address, SandboxId};
use isle_engine::{CallContext, Door, Engine, EngineConfig};
use isle_store::Store;
use isle_wire::DescriptorReceiver;
use serde_json::{Value, json};
use tokio::net::UnixStream;

pub use agent::Place;

/// What exists besides any engine.
#[derive(Default)]
pub struct World {
    places: Mutex<HashMap<String, Arc<Place>>>,
    pub created: AtomicUsize,
    pub destroyed: AtomicUsize,
    pub oom_kills: AtomicU64,
}

impl World {
    pub fn places(&self) -> usize {
        self.places.lock().unwrap().len()
    }

    /// Kills a sandbox as a crash would.
    pub fn crash(&self, id: &str) {
        let place = self.places.lock().unwrap().get(id).cloned().unwrap();
        place.die();
    }
}

/// A state directory, a world, and engines that come and go in it.
pub struct Host {
    pub world: Arc<World>,
    pub state: tempfile::TempDir,
}

impl Host {
    pub fn new() -> Self {
        Self { world: Arc::default(), state: tempfile::tempdir().unwrap() }
    }

    pub async fn engine(&self) -> Engine {
        self.engine_with(EngineConfig { warm_default: false, ..EngineConfig::default() }).await
    }

    pub async fn engine_with(&self, config: EngineConfig) -> Engine {
        let store = Store::open(self.state.path()).unwrap();
        let backend = Arc::new(Plain { world: Arc::clone(&self.world) });
        Engine::start(config, store, vec![backend]).await.unwrap()
    }

    /// Ends an engine and waits until the state directory is free for the next.
    pub async fn stop(&self, engine: Engine) {
        engine.shutdown(Duration::from_millis(200)).await;
        drop(engine);
        // What still holds the store lets go within its last poll.
        while Store::open(self.state.path()).is_err() {
            tokio::task::yield_now().await;
        }
    }
}

pub fn context() -> CallContext {
    CallContext::new(Door::Library, "test")
}

pub async fn call(engine: &Engine, operation: &str, input: Value) -> Result<Value> {
    engine.call(context(), operation, input).await
}

pub async fn exec(engine: &Engine, input: Value) -> RunResult {
    serde_json::from_value(call(engine, "exec", input).await.unwrap()).unwrap()
}

const NAME: BackendName = BackendName::of("plain");

const CAPABILITIES: Capabilities = Capabilities {
    network: GuestNetwork::OwnStack,
    root: GuestRoot::Own,
    users: GuestUsers::RootAndSandbox,
    connections: Connections::Passed,
    pause: Pause::Signals,
    memory_snapshot: Support::Unsupported,
    images: Images::Any,
    disk_limit: DiskLimit::None,
};

struct Plain {
    world: Arc<World>,
}

impl Plain {
    fn connect(&self, place: &Arc<Place>) -> Created {
        let (near, far) = UnixStream::pair().unwrap();
        place.serve(far);
        Created {
            link: Box::new(near),
            passed: Some(DescriptorReceiver::default()),
            containment: containment(),
            welcome: None,
            anchor: json!({ "plain": true }),
        }
    }
}

fn containment() -> Containment {
    let guarantee = Guarantee {
        key: "none".into(),
        status: GuaranteeStatus::Enforced,
        how: "a test promises nothing".into(),
        fix: String::new(),
        open: Vec::new(),
    };
    Containment { tier: Tier::Container, guarantees: vec![guarantee] }
}

impl Backend for Plain {
    fn name(&self) -> BackendName {
        NAME
    }

    fn offers(&self) -> Vec<Offer> {
        let missing = Guarantee {
            key: "landlock".into(),
            status: GuaranteeStatus::Missing,
            how: "the kernel has none".into(),
            fix: "boot with lsm=landlock".into(),
            open: Vec::new(),
        };
        let process = Containment { tier: Tier::Process, guarantees: vec![missing] };
        vec![
            Offer {
                backend: NAME,
                tier: Tier::Container,
                capabilities: CAPABILITIES,
                available: true,
                available_with_downgrade: true,
                containment: containment(),
            },
            Offer {
                backend: NAME,
                tier: Tier::Process,
                capabilities: CAPABILITIES,
                available: false,
                available_with_downgrade: true,
                containment: process,
            },
        ]
    }

    fn capabilities(&self, _: &SandboxSpec) -> Capabilities {
        CAPABILITIES
    }

    fn kill(&self, id: &SandboxId) -> Result<()> {
        let place = self.world.places.lock().unwrap().get(id.as_str()).cloned();
        if let Some(place) = place {
            place.die();
        }
        Ok(())
    }

    fn confirm(&self, _: &SandboxId) -> Result<()> {
        Ok(())
    }

    fn is_confirmed(&self, _: &SandboxId) -> bool {
        false
    }

    fn unrecorded(&self, _: &[SandboxId]) -> Vec<(SandboxId, SandboxSpec)> {
        Vec::new()
    }

    fn create<'a>(&'a self, id: &'a SandboxId, spec: &'a SandboxSpec) -> BoxFuture<'a, Result<Created>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.world.created.fetch_add(1, Ordering::SeqCst);
            let place = Place::new(spec.volume.as_ref().map(ToString::to_string));
            self.world.places.lock().unwrap().insert(id.to_string(), Arc::clone(&place));
            Ok(self.connect(&place))
        })
    }

    fn reconnect<'a>(
        &'a self,
        id: &'a SandboxId,
        _: &'a SandboxSpec,
        anchor: &'a Value,
    ) -> BoxFuture<'a, Result<Found>> {
        Box::pin(async move {
            assert_eq!(anchor, &json!({ "plain": true }));
            let place = self.world.places.lock().unwrap().get(id.as_str()).cloned();
            Ok(match place {
                Some(place) if !place.is_dead() => Found::Alive(self.connect(&place)),
                _ => Found::Dead,
            })
        })
    }

    fn destroy<'a>(&'a self, id: &'a SandboxId, _: Keep) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.world.destroyed.fetch_add(1, Ordering::SeqCst);
            let place = self.world.places.lock().unwrap().remove(id.as_str());
            if let Some(place) = place {
                place.die();
            }
            Ok(())
        })
    }

    fn usage<'a>(&'a self, _: &'a SandboxId) -> BoxFuture<'a, Result<Usage>> {
        Box::pin(async { Ok(Usage { pids: Some(1), ..Usage::default() }) })
    }

    // Not ready at once, as with a backend that asks a service.
    fn oom_kills<'a>(&'a self, _: &'a SandboxId) -> BoxFuture<'a, Option<u64>> {
        Box::pin(async {
            tokio::task::yield_now().await;
            Some(self.world.oom_kills.load(Ordering::SeqCst))
        })
    }

    fn refused_forks<'a>(&'a self, _: &'a SandboxId) -> BoxFuture<'a, Option<u64>> {
        Box::pin(async {
            tokio::task::yield_now().await;
            Some(0)
        })
    }

    fn disk_stops<'a>(&'a self, _: &'a SandboxId) -> BoxFuture<'a, DiskStops> {
        Box::pin(async { DiskStops::default() })
    }

    fn sweep<'a>(&'a self, known: &'a [SandboxId]) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async move {
            let mut places = self.world.places.lock().unwrap();
            let unknown: Vec<String> = places
                .keys()
                .filter(|id| !known.iter().any(|known| known.as_str() == *id))
                .cloned()
                .collect();
            for id in &unknown {
                places.remove(id).unwrap().die();
            }
            Ok(unknown)
        })
    }

    fn wipe<'a>(&'a self, _: &'a Address) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async { Ok(false) })
    }

    fn warm(&self, _: &SandboxSpec) {}

    fn shutdown(&self, _: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn facts(&self) -> BTreeMap<String, Vec<Fact>> {
        BTreeMap::new()
    }
}

/// Where the files of a sandbox are on the host.
pub fn in_place(place: &Place, guest: &str) -> PathBuf {
    match guest.strip_prefix("/workspace") {
        Some(rest) => place.workspace().join(rest.trim_start_matches('/')),
        None => PathBuf::from(guest),
    }
}
