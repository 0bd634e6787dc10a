//! The engine: owner of backends, sandboxes and runs. What it does is in files of their own, by
//! verb; here is what it is and what doors call.

mod config;
mod recover;
mod requests;
mod session;
mod shutdown;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use isle_fail::Point;
use isle_store::Store;
use isle_wire::{GuestUser, Stat, TerminalSize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::{FileToWrite, KeepMode};
use crate::backend::{Backend, Offer, SandboxSpec};
use crate::children::Children;
pub use crate::children::{NamePattern, SpawnPolicies, SpawnPolicy};
use crate::context::{Authority, CallContext};
pub use crate::deny::DenyList;
use crate::error::{Code, Error, Result};
use crate::events::{EventSelection, Events, FollowedEvent};
use crate::failpoint;
use crate::journal::{Audit, Journal};
use crate::metrics::{Metric, Metrics};
pub use crate::network::{Answer, NetworkConfig, Question, QuestionSender};
use crate::network::{Asks, Forwards, NamespaceGrants};
use crate::ops::Registry;
use crate::pipeline::stopping;
use crate::queue::{Admission, Capacity};
use crate::run::Runs;
use crate::run::spool::{Fate, Spools};
pub use crate::run::{RunLimits, SecretNames};
use crate::sandbox::{Fleet, Sandbox, Settings, Sweeper, offers};
use crate::sync::Syncs;
use crate::tenants::Tenants;
use crate::values::{ByteSize, GuestPath, RunId, RunOrJob, SandboxName};
use crate::variables::Variables;
use crate::vault::Vault;
pub use crate::vault::{DesktopKeyring, ExposePolicy, GivenSecret, KeyText, Keyring, Personal, VaultConfig};
use crate::watch::{FileUpdate, Watches};
use crate::webhooks::Webhooks;

pub use config::{Deadlines, EngineConfig, Quotas};
pub use requests::{Command, FollowFrom, OneShot, OpenExec, RunEvent, RunEventKind, Target};
pub use session::{Session, SessionEvent, SessionInput, SessionOutput};

/// The engine. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Engine").field("config", &self.inner.config).finish_non_exhaustive()
    }
}

/// What all clones of an engine share.
pub(crate) struct Inner {
    /// Itself, for what outlives a call and must not keep it.
    pub(crate) me: Weak<Inner>,
    /// As it was started.
    pub(crate) config: EngineConfig,
    /// With what was changed since; see [`Inner::current`].
    pub(crate) tuned: RwLock<Arc<EngineConfig>>,
    pub(crate) journal: Journal,
    pub(crate) events: Arc<Events>,
    pub(crate) metrics: Metrics,
    pub(crate) backends: Vec<Arc<dyn Backend>>,
    pub(crate) offers: RwLock<Vec<(Arc<dyn Backend>, Offer)>>,
    pub(crate) fleet: Fleet,
    pub(crate) runs: Runs,
    /// Files with the output of jobs.
    pub(crate) spools: Option<Spools>,
    pub(crate) variables: Variables,
    pub(crate) tenants: Tenants,
    /// Secrets, and who uses them.
    pub(crate) vault: Vault,
    pub(crate) admission: Admission,
    pub(crate) watches: Watches,
    pub(crate) syncs: Syncs,
    /// What the sweeper has done, for whoever counts.
    pub(crate) sweeper: Sweeper,
    pub(crate) children: Children,
    /// How names become addresses.
    pub(crate) resolver: Arc<isle_egress::Resolver>,
    /// What went through the gates of all sandboxes.
    pub(crate) traffic: Arc<isle_egress::Totals>,
    /// Ports of sandboxes on this host.
    pub(crate) forwards: Forwards,
    /// Where events are sent.
    pub(crate) webhooks: Webhooks,
    /// What sandboxes were denied and a person may grant.
    pub(crate) asks: Asks,
    /// What all sandboxes of a namespace may reach.
    pub(crate) namespace_grants: NamespaceGrants,
    /// Everything that goes on in the background; stopping waits for it.
    pub(crate) tasks: TaskTracker,
    pub(crate) started: std::time::Instant,
    /// Fires when what cannot go on without the engine is ended: one-shots and interactive commands.
    pub(crate) leaving: CancellationToken,
    /// Fires when the engine no longer follows what goes on.
    pub(crate) halted: CancellationToken,
    registry: Registry,
    stopping: AtomicBool,
}

impl Inner {
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The settings as they are now: defaults and ceilings can change while the engine runs.
    pub(crate) fn current(&self) -> Arc<EngineConfig> {
        Arc::clone(&crate::read(&self.tuned))
    }

    /// Nothing new is made while the engine stops.
    pub(crate) fn refuse_when_stopping(&self) -> Result<()> {
        if self.is_stopping() { Err(stopping()) } else { Ok(()) }
    }
}

/// A stream of bytes from a file.
pub type ByteStream = BoxStream<'static, Result<Bytes>>;

impl Engine {
    /// Starts: reconciles what an earlier engine left (finishes or undoes half-done work, reconnects
    /// to living sandboxes and their runs, cleans up one-shots), then serves.
    pub async fn start(config: EngineConfig, store: Store, backends: Vec<Arc<dyn Backend>>) -> Result<Self> {
        let offers = offers(&backends);
        let resolver = Arc::new(isle_egress::Resolver::new(config.network.hosts.clone()));
        let events = Arc::new(Events::open(store.clone())?);
        let inner = Arc::new_cyclic(|me| Inner {
            me: Weak::clone(me),
            tuned: RwLock::new(Arc::new(config.clone())),
            admission: Admission::new(Capacity::of(&config.quotas), config.quotas.weights.clone()),
            events,
            metrics: Metrics::default(),
            journal: Journal::new(store, &config.quotas),
            spools: Spools::new(config.job_files.as_deref(), config.job_output_cap),
            config,
            backends,
            offers: RwLock::new(offers),
            fleet: Fleet::default(),
            runs: Runs::default(),
            variables: Variables::default(),
            tenants: Tenants::default(),
            vault: Vault::default(),
            watches: Watches::default(),
            syncs: Syncs::default(),
            sweeper: Sweeper::default(),
            children: Children::default(),
            resolver,
            traffic: Arc::default(),
            forwards: Forwards::default(),
            webhooks: Webhooks::default(),
            asks: Asks::default(),
            namespace_grants: NamespaceGrants::default(),
            tasks: TaskTracker::new(),
            started: std::time::Instant::now(),
            leaving: CancellationToken::new(),
            halted: CancellationToken::new(),
            registry: Registry::standard(),
            stopping: AtomicBool::new(false),
        });
        inner.load_tenants()?;
        inner.load_namespace_grants()?;
        inner.load_changes()?;
        tokio::spawn(inner.events.keep());
        inner.load_variables()?;
        inner.load_vault().await?;
        inner.load_spawns()?;
        inner.recover().await?;
        inner.settle_secrets();
        inner.end_orphans().await;
        inner.resume_syncs()?;
        inner.load_webhooks()?;
        inner.keep_house();
        inner.sweep_regularly();
        inner.warm_up();
        Ok(Self { inner })
    }

    /// All operations.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// The settings it was started with.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.inner.config
    }

    /// Calls an operation by name.
    pub async fn call(&self, context: CallContext, operation: &str, input: Value) -> Result<Value> {
        let entry = self.inner.registry.get(operation)?;
        entry.call(self.clone(), context, input).await
    }

    /// Opens an interactive command.
    pub async fn open(&self, context: CallContext, request: OpenExec) -> Result<Session> {
        self.inner.open_session(&context, request).await
    }

    /// Looks over the shoulder of a run that goes on: its output as it comes, input towards it. Any
    /// number may look; leaving changes nothing.
    pub fn view(
        &self,
        context: &CallContext,
        which: &RunOrJob,
        window: Option<TerminalSize>,
    ) -> Result<Session> {
        self.inner.open_view(context, which, window)
    }

    /// The id of a run that is named by it or by its job.
    pub fn find_run(&self, context: &CallContext, which: &RunOrJob) -> Result<RunId> {
        self.inner.find_run(context, which)
    }

    /// Follows a run.
    pub fn follow(
        &self,
        context: &CallContext,
        run: &RunId,
        from: FollowFrom,
    ) -> Result<BoxStream<'static, RunEvent>> {
        let run = self.inner.find_run(context, &RunOrJob::Run(run.clone()))?;
        self.inner.follow(&run, from)
    }

    /// Follows what happens in the caller's namespace, or with `all` everywhere, which is the operator's:
    /// from after the event with that id, or from now on.
    pub fn follow_events(
        &self,
        context: &CallContext,
        all: bool,
        after: Option<u64>,
        selection: EventSelection,
    ) -> Result<BoxStream<'static, FollowedEvent>> {
        let selection = EventSelection { namespace: crate::events::within(context, all)?, ..selection };
        let listening = match context.authority {
            Authority::Operator => self.inner.listen_for_requests(&selection),
            Authority::Tenant => None,
        };
        let events = self.inner.events.follow(after, selection);
        Ok(events
            .inspect(move |_| {
                let _ = &listening;
            })
            .boxed())
    }

    /// Everything that is counted and measured; the operator's, since it is about all namespaces.
    pub fn metrics(&self, context: &CallContext) -> Result<Vec<Metric>> {
        context.operator_only("what all namespaces do together")?;
        Ok(self.inner.metrics_now())
    }

    /// Reads a file as a stream.
    pub async fn read_stream(
        &self,
        context: CallContext,
        sandbox: SandboxName,
        path: GuestPath,
        user: GuestUser,
    ) -> Result<(Stat, ByteStream)> {
        let sandbox = self.inner.looked_at(&context, &sandbox).await?;
        let (stat, bytes) = sandbox.agent()?.read_file(&path, user, 0, None).await?;
        refuse_hollow(&path, &stat, sandbox.spec.limits.disk)?;
        Ok((stat, while_in_use(&sandbox, bytes)))
    }

    /// Writes one file from a stream; nothing is visible until all of it arrived. Returns its size.
    pub async fn write_stream(
        &self,
        context: CallContext,
        sandbox: SandboxName,
        path: GuestPath,
        user: GuestUser,
        mode: u32,
        body: ByteStream,
    ) -> Result<u64> {
        let sandbox = self.inner.ensure(&context, &sandbox).await?;
        let _used = sandbox.hold();
        let file = FileToWrite { path: path.clone(), mode, append: false, keep_mode: KeepMode::No, body };
        let sizes = sandbox.agent()?.write_files(user, vec![file]).await?;
        failpoint(Point::WriteDone)?;
        let size = sizes.first().copied().unwrap_or(0);
        let detail = json!({ "files": [{ "path": path, "size": size }] });
        let audit = Audit::files(&context, "write_files", &sandbox, detail);
        self.inner.journal.audit(&audit).map_err(|error| error.unrecorded("the file was written"))?;
        isle_fail::pass(Point::WriteAudited);
        Ok(size)
    }

    /// Tells what happens to files of a sandbox, as it happens. The stream ends with the directory, and
    /// with an error when the sandbox ends.
    pub async fn watch(
        &self,
        context: CallContext,
        sandbox: SandboxName,
        path: GuestPath,
        user: GuestUser,
        recursive: bool,
    ) -> Result<BoxStream<'static, Result<FileUpdate>>> {
        let sandbox = self.inner.looked_at(&context, &sandbox).await?;
        let batches = sandbox.agent()?.watch(&path, user, recursive).await?;
        Ok(while_in_use(&sandbox, batches.map(|batch| batch.map(FileUpdate::of))))
    }

    /// Ends what cannot go on without the engine: one-shots and interactive commands, whose callers
    /// still hear how they ended. For a server that is about to go down.
    pub fn leave(&self) {
        self.inner.leaving.cancel();
    }

    /// Stops taking work, lets what runs be recorded, lets go of backends. Named sandboxes live on.
    pub async fn shutdown(&self, within: Duration) {
        self.inner.stop(within).await;
    }
}

impl Inner {
    /// Removes files of jobs that are not kept any more.
    pub(crate) fn sweep_spools(&self) {
        let Some(spools) = &self.spools else { return };
        spools.sweep(|run| match self.journal.run(run) {
            Ok(Some(row)) if row.ended_at_ms.is_some() => Fate::Ended,
            Ok(None) => Fate::Forgotten,
            // One that cannot be looked up is not taken for forgotten.
            Ok(Some(_)) | Err(_) => Fate::Open,
        });
    }

    /// Drops old runs, now and every hour. The clock ticks more often than that: a timer that is nearer
    /// than the timers of calls spares each of them the waking of whoever waits for timers.
    fn keep_house(self: &Arc<Self>) {
        const TICK: Duration = Duration::from_secs(20);
        const TICKS: u32 = 180;
        let engine = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                let Some(inner) = engine.upgrade() else { return };
                inner.journal.evict();
                inner.sweep_spools();
                inner.events.evict();
                drop(inner);
                for _ in 0..TICKS {
                    tokio::time::sleep(TICK).await;
                    if engine.strong_count() == 0 {
                        return;
                    }
                }
            }
        });
    }

    /// Has the default sandbox, and what one-shots need, ready before anybody asks.
    fn warm_up(self: &Arc<Self>) {
        let Ok(usual) = Settings::default().spec(&self.current(), None) else { return };
        let one_shot = SandboxSpec { fixed_etc: true, ..usual };
        if let Ok(backend) = self.backend_for(&one_shot) {
            backend.warm(&one_shot);
        }
        if self.config.warm_default {
            self.make_spare();
        }
    }
}

/// A stream that counts as use of its sandbox until it ends or is dropped.
pub(crate) fn while_in_use<T: 'static>(
    sandbox: &Arc<Sandbox>,
    stream: impl futures::Stream<Item = T> + Send + 'static,
) -> BoxStream<'static, T> {
    let used = sandbox.hold();
    stream
        .inspect(move |_| {
            let _ = &used;
        })
        .boxed()
}

/// A file that claims to be larger than the disk it is on is mostly hole. Whoever asks for all of it
/// would get nothing but zeros, for hours, and fill a disk of their own.
pub(crate) fn refuse_hollow(path: &GuestPath, stat: &Stat, disk: ByteSize) -> Result<()> {
    let hollow = stat.allocated.is_some_and(|allocated| allocated < stat.size);
    if !hollow || stat.size <= disk.0 {
        return Ok(());
    }
    let size = stat.size;
    Err(Error::new(
        Code::TooLarge,
        format!("{:?} claims {size} bytes on a disk of {disk}: it is mostly empty", path.as_str()),
    )
    .next("read parts of it with `read_file`")
    .next("pack it in the sandbox with `tar --sparse` and copy the archive"))
}
