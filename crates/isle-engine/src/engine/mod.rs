//! The engine: what doors call. It owns no state; it puts the services together (`build`), brings in order what an
//! earlier daemon left (`start`, `recover`), and takes them down again (`shutdown`). What a service does is in its
//! own folder; `base` lists them from the bottom up. Operations are in `ops`, one file each.

mod build;
mod config;
mod files;
mod recover;
mod shutdown;
mod start;

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use isle_store::Store;
use isle_wire::TerminalSize;

pub use crate::admission::deny::DenyList;
use crate::admission::queue::Admission;
pub use crate::admission::tenants::holds_tenant_token;
use crate::admission::tenants::{Tenant, Tenants};
use crate::admission::tuning::Tuning;
use crate::base::{Settings, Tasks};
use crate::children::Children;
pub use crate::children::{NamePattern, SpawnPolicies, SpawnPolicy};
use crate::context::{CallContext, CallerRole};
use crate::events::{EventSelection, Events, FollowedEvent, Notifier};
use crate::files::carry::FileCopies;
use crate::files::sync::Syncs;
use crate::files::watch::Watches;
use crate::install::Installer;
use crate::journal::Journal;
use crate::metrics::{Metric, MetricSources, Metrics};
pub use crate::network::{
    Answer, NetworkConfig, PortPass, PortStream, PortsAddress, PortsListener, Question, QuestionSender,
};
use crate::network::{GrantSets, Network, Ports};
pub use crate::run::SecretNames;
use crate::run::{LiveRuns, Runs};
use crate::sandbox::{Backends, Fleet, Sandboxes, SpawnCounts};
use crate::secrets::{Secrets, Vault};
use crate::validate::CodeChecker;
use crate::variables::Variables;
use crate::webhooks::Webhooks;
use isle_core::Result;
use isle_core::backend::Backend;
use isle_core::values::{Namespace, RunId, RunOrJob};
pub use isle_vault::{DesktopKeyring, ExposePolicy, ExternalSecret, KeyText, PiiKinds, VaultConfig};

pub use crate::run::{
    Command, FollowFrom, OneShot, OpenExec, RunEvent, RunEventKind, Session, SessionEvent, SessionInput,
    SessionOutput, Target,
};
pub use config::{Deadlines, EngineConfig, Quotas};
pub(crate) use files::{refuse_hollow, while_in_use};

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

/// What all clones of an engine share: its services, from the bottom up.
pub(crate) struct Inner {
    pub(crate) config: Arc<EngineConfig>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) events: Arc<Events>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) backends: Arc<Backends>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) live: Arc<LiveRuns>,
    pub(crate) spawn_counts: Arc<SpawnCounts>,
    pub(crate) vault: Arc<Vault>,
    pub(crate) variables: Arc<Variables>,
    pub(crate) tenants: Arc<Tenants>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) tuning: Arc<Tuning>,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) ports: Arc<Ports>,
    pub(crate) network: Arc<Network>,
    pub(crate) grant_sets: Arc<GrantSets>,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) runs: Arc<Runs>,
    pub(crate) children: Arc<Children>,
    pub(crate) copies: Arc<FileCopies>,
    pub(crate) syncs: Arc<Syncs>,
    pub(crate) watches: Arc<Watches>,
    pub(crate) installer: Arc<Installer>,
    pub(crate) code_checker: Arc<CodeChecker>,
    pub(crate) webhooks: Arc<Webhooks>,
    pub(crate) started: std::time::Instant,
}

/// A stream of bytes from a file.
pub type ByteStream = BoxStream<'static, Result<Bytes>>;

impl Engine {
    /// Starts: reconciles what an earlier engine left (finishes or undoes half-done work, reconnects
    /// to living sandboxes and their runs, cleans up one-shots), then serves.
    pub async fn start(config: EngineConfig, store: Store, backends: Vec<Arc<dyn Backend>>) -> Result<Self> {
        let inner = Arc::new(Inner::new(config, store, backends)?);
        inner.start().await?;
        Ok(Self { inner })
    }

    /// The settings it was started with.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.inner.config
    }

    /// Opens an interactive command.
    pub async fn open(&self, context: CallContext, request: OpenExec) -> Result<Session> {
        self.inner.runs.open_session(&context, request).await
    }

    /// Looks over the shoulder of a run that goes on: its output as it comes, input towards it. Any
    /// number may look; leaving changes nothing.
    pub fn view(
        &self,
        context: &CallContext,
        which: &RunOrJob,
        window: Option<TerminalSize>,
    ) -> Result<Session> {
        self.inner.runs.open_view(context, which, window)
    }

    /// The id of a run that is named by it or by its job.
    pub fn find_run(&self, context: &CallContext, which: &RunOrJob) -> Result<RunId> {
        self.inner.runs.find_run(context, which)
    }

    /// Follows a run.
    pub fn follow(
        &self,
        context: &CallContext,
        run: &RunId,
        from: FollowFrom,
    ) -> Result<BoxStream<'static, RunEvent>> {
        let run = self.inner.runs.find_run(context, &RunOrJob::Run(run.clone()))?;
        self.inner.runs.follow(&run, from)
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
        let listening = match context.role {
            CallerRole::Operator => self.inner.network.listen_for_requests(&selection),
            CallerRole::Tenant => None,
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
        let inner = &self.inner;
        let sources = MetricSources {
            metrics: &inner.metrics,
            events: &inner.events,
            admission: &inner.admission,
            fleet: &inner.fleet,
            runs: &inner.live,
            vault: &inner.vault,
            network: &inner.network,
            ports: &inner.ports,
            sandboxes: &inner.sandboxes,
            webhooks: &inner.webhooks,
            started: inner.started,
        };
        Ok(sources.gather())
    }

    /// Ends what cannot go on without the engine: one-shots and interactive commands, whose callers
    /// still hear how they ended. For a server that is about to go down.
    pub fn leave(&self) {
        self.inner.tasks.leaving().cancel();
    }

    /// Whose token that is; `None` when it is nobody's. Every hash is compared, each in constant time.
    #[must_use]
    pub fn recognise(&self, presented: &[u8]) -> Option<Tenant> {
        self.inner.tenants.recognise(presented)
    }

    /// Refuses a namespace that does not exist.
    pub fn check_namespace(&self, namespace: &Namespace) -> Result<()> {
        self.inner.tenants.check_namespace(namespace)
    }

    /// Says what serves ports of sandboxes. Once; without it, and when it is dropped, no port tokens are minted.
    pub fn serve_ports_by(&self, listener: Weak<dyn PortsListener>) {
        self.inner.ports.serve_ports_by(listener);
    }

    /// What a port token is good for now; `None` when it is unknown, has expired, or its sandbox is gone.
    #[must_use]
    pub fn port_pass(&self, presented: &[u8]) -> Option<PortPass> {
        self.inner.ports.port_pass(presented)
    }

    /// Connects to the port a port token is for.
    pub async fn reach_port(&self, pass: &PortPass) -> Result<PortStream> {
        self.inner.ports.reach_port(pass).await
    }

    /// Stops taking work, lets what runs be recorded, lets go of backends. Named sandboxes live on.
    pub async fn shutdown(&self, within: Duration) {
        self.inner.stop(within).await;
    }
}
