//! Builds the services of an engine, from the bottom up. Each is given what it needs and nothing else; the order
//! here is the order of the layers in `base`.

use std::sync::{Arc, Weak};

use isle_egress::Resolver;
use isle_store::Store;

use super::{EngineConfig, Inner};
use crate::admission::queue::{Admission, Capacity};
use crate::admission::tenants::Tenants;
use crate::admission::tuning::Tuning;
use crate::base::{Settings, Tasks};
use crate::children::{Children, ChildrenParts};
use crate::events::{Events, Notifier};
use crate::files::carry::FileCopies;
use crate::files::sync::Syncs;
use crate::files::watch::Watches;
use crate::install::Installer;
use crate::journal::Journal;
use crate::metrics::Metrics;
use crate::network::{GrantSets, Network, NetworkParts, Ports};
use crate::run::{LiveRuns, Runs, RunsParts};
use crate::sandbox::{Backends, ControlSockets, Fleet, Sandboxes, SandboxesParts, SpawnCounts};
use crate::secrets::{Secrets, Vault};
use crate::validate::CodeChecker;
use crate::variables::Variables;
use crate::webhooks::Webhooks;
use isle_core::Result;
use isle_core::backend::Backend;

impl Inner {
    pub(super) fn new(config: EngineConfig, store: Store, backends: Vec<Arc<dyn Backend>>) -> Result<Self> {
        let settings = Arc::new(Settings::new(config));
        let config = Arc::clone(settings.started_with());
        let tasks = Arc::<Tasks>::default();
        let events = Arc::new(Events::open(store.clone())?);
        let journal = Arc::new(Journal::new(store, &config.quotas));
        let metrics = Arc::<Metrics>::default();
        let resolver = Arc::new(Resolver::new(config.network.hosts.clone()));

        let backends = Arc::new(Backends::new(backends));
        let profiles = config.profiles.values().map(|profile| &profile.settings.backend);
        backends.all_known(profiles.chain([&config.backend]).flatten())?;
        let fleet = Arc::<Fleet>::default();
        let live = Arc::<LiveRuns>::default();
        let spawn_counts = Arc::<SpawnCounts>::default();
        let vault = Arc::<Vault>::default();

        let variables = Arc::new(Variables::new(Arc::clone(&journal)));
        let tenants = Arc::new(Tenants::new(Arc::clone(&journal)));
        let admission = Arc::new(Admission::new(Capacity::of(&config.quotas), config.quotas.weights.clone()));
        let tuning =
            Arc::new(Tuning::new(Arc::clone(&settings), Arc::clone(&journal), Arc::clone(&admission)));
        let notifier = Arc::new(Notifier::new(
            Arc::clone(&events),
            Arc::clone(&metrics),
            Arc::clone(&variables),
            Arc::clone(&vault),
            Arc::clone(&fleet),
            config.vault.mask_pii,
        ));

        let secrets = Arc::new(Secrets::new(
            Arc::clone(&vault),
            Arc::clone(&config),
            Arc::clone(&journal),
            Arc::clone(&fleet),
            Arc::clone(&live),
            Arc::clone(&notifier),
        ));
        let ports = Arc::new(Ports::new(
            Arc::clone(&config),
            Arc::clone(&tasks),
            Arc::clone(&journal),
            Arc::clone(&fleet),
        ));
        let network = Arc::new(Network::new(NetworkParts {
            config: Arc::clone(&config),
            tasks: Arc::clone(&tasks),
            journal: Arc::clone(&journal),
            notifier: Arc::clone(&notifier),
            fleet: Arc::clone(&fleet),
            runs: Arc::clone(&live),
            secrets: Arc::clone(&secrets),
            ports: Arc::clone(&ports),
            resolver: Arc::clone(&resolver),
        }));
        let grant_sets = Arc::new(GrantSets::new(Arc::clone(&resolver)));
        let sandboxes = Arc::new(Sandboxes::new(SandboxesParts {
            settings: Arc::clone(&settings),
            tasks: Arc::clone(&tasks),
            journal: Arc::clone(&journal),
            notifier: Arc::clone(&notifier),
            metrics: Arc::clone(&metrics),
            backends: Arc::clone(&backends),
            fleet: Arc::clone(&fleet),
            runs: Arc::clone(&live),
            spawn_counts: Arc::clone(&spawn_counts),
            variables: Arc::clone(&variables),
            secrets: Arc::clone(&secrets),
            network: Arc::clone(&network),
            ports: Arc::clone(&ports),
        }));
        let runs = Arc::new(Runs::new(RunsParts {
            settings: Arc::clone(&settings),
            tasks: Arc::clone(&tasks),
            journal: Arc::clone(&journal),
            notifier: Arc::clone(&notifier),
            admission: Arc::clone(&admission),
            variables: Arc::clone(&variables),
            secrets: Arc::clone(&secrets),
            network: Arc::clone(&network),
            grant_sets: Arc::clone(&grant_sets),
            sandboxes: Arc::clone(&sandboxes),
            live: Arc::clone(&live),
        }));

        let children = Arc::new(Children::new(ChildrenParts {
            settings: Arc::clone(&settings),
            tasks: Arc::clone(&tasks),
            journal: Arc::clone(&journal),
            notifier: Arc::clone(&notifier),
            backends: Arc::clone(&backends),
            fleet: Arc::clone(&fleet),
            spawn_counts: Arc::clone(&spawn_counts),
            variables: Arc::clone(&variables),
            sandboxes: Arc::clone(&sandboxes),
            runs: Arc::clone(&runs),
        }));
        let control: Weak<Children> = Arc::downgrade(&children);
        sandboxes.control_by(control as Weak<dyn ControlSockets>);
        let syncs = Arc::new(Syncs::new(
            Arc::clone(&config),
            Arc::clone(&tasks),
            Arc::clone(&journal),
            Arc::clone(&notifier),
            Arc::clone(&fleet),
        ));
        let copies =
            Arc::new(FileCopies::new(Arc::clone(&journal), Arc::clone(&sandboxes), Arc::clone(&runs)));
        let watches = Arc::new(Watches::new(Arc::clone(&tasks)));
        let installer = Arc::new(Installer::new(
            Arc::clone(&config),
            Arc::clone(&fleet),
            Arc::clone(&variables),
            Arc::clone(&runs),
        ));
        let code_checker = Arc::new(CodeChecker::new(Arc::clone(&config), Arc::clone(&runs)));
        let webhooks = Arc::new(Webhooks::new(
            Arc::clone(&config),
            Arc::clone(&tasks),
            Arc::clone(&journal),
            Arc::clone(&events),
            resolver,
        ));
        Ok(Self {
            config,
            settings,
            tasks,
            journal,
            events,
            metrics,
            notifier,
            backends,
            fleet,
            live,
            spawn_counts,
            vault,
            variables,
            tenants,
            admission,
            tuning,
            secrets,
            ports,
            network,
            grant_sets,
            sandboxes,
            runs,
            children,
            copies,
            syncs,
            watches,
            installer,
            code_checker,
            webhooks,
            started: std::time::Instant::now(),
        })
    }
}
