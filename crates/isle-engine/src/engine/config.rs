//! Settings of an engine.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{DenyList, NetworkConfig, SecretNames, SpawnPolicies};
use crate::profile::Profile;
use isle_core::backend::{BackendName, Limits, Tier};
use isle_core::values::{Address, ByteSize, Namespace, SandboxName, Span};
use isle_vault::VaultConfig;

/// Settings of an engine; every field has a default.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Backend of new sandboxes; `None` for the first that offers the tier.
    pub backend: Option<BackendName>,
    /// Tier of new sandboxes.
    pub tier: Tier,
    /// Image of new sandboxes.
    pub image: String,
    /// Limits of new sandboxes.
    pub limits: Limits,
    /// Whether new sandboxes may hold less than their tier promises where the host cannot do it.
    pub allow_downgrade: bool,
    /// How long a command may run when the call says nothing.
    pub timeout: Span,
    /// The longest timeout a call may ask for.
    pub max_timeout: Span,
    /// How long `exec` waits before it answers with a run that goes on.
    pub wait: Span,
    /// Bytes of each output kept per run (first half and last half).
    pub output_cap: ByteSize,
    /// Where all output of jobs is kept in files; nowhere when `None`.
    pub job_files: Option<PathBuf>,
    /// Bytes of each output of a job kept there.
    pub job_output_cap: ByteSize,
    /// Largest file the JSON doors read or write.
    pub file_cap: ByteSize,
    /// Make the sandbox `default` at start.
    pub warm_default: bool,
    /// What is done about variables whose names look like those of secrets.
    pub secret_names: SecretNames,
    /// Commands that are refused, by pattern.
    pub deny: DenyList,
    /// Directories of the host that operations may copy from, copy to and keep in step.
    pub host_roots: Vec<PathBuf>,
    /// What sandboxes may spawn; none may unless it is said here.
    pub spawn_policies: SpawnPolicies,
    /// How long named sandboxes live.
    pub deadlines: Deadlines,
    /// Settings of sandboxes under a name.
    pub profiles: BTreeMap<String, Profile>,
    /// What every sandbox may reach.
    pub network: NetworkConfig,
    /// Where the key of secrets comes from, and who may have values.
    pub vault: VaultConfig,
    /// How much there may be of everything.
    pub quotas: Quotas,
}

/// How much there may be of everything, and what each tenant's share of it is.
#[derive(Debug, Clone)]
pub struct Quotas {
    /// Commands that run at once.
    pub max_running: u32,
    /// Calls that wait for their turn.
    pub max_waiting: u32,
    /// Shares of namespaces that are not 1.
    pub weights: BTreeMap<Namespace, u32>,
    /// Sandboxes of all namespaces, those for one command included.
    pub max_sandboxes: u32,
    /// Sandboxes of each namespace.
    pub max_sandboxes_per_namespace: u32,
    /// What the memory limits of all sandboxes may come to.
    pub memory_budget: Option<ByteSize>,
    /// What ended runs of each namespace may come to, with their output.
    pub keep_output: ByteSize,
    /// How long they are kept.
    pub keep_runs_for: Span,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            max_running: 2048,
            max_waiting: 2048,
            weights: BTreeMap::new(),
            max_sandboxes: 4096,
            max_sandboxes_per_namespace: 4096,
            memory_budget: None,
            keep_output: ByteSize(1 << 30),
            keep_runs_for: Span::seconds(7 * 24 * 3600),
        }
    }
}

/// How long named sandboxes live. `None` is without an end.
#[derive(Debug, Clone)]
pub struct Deadlines {
    /// TTL of sandboxes made without one.
    pub default_ttl: Option<Span>,
    /// The longest TTL and idle time a call may ask for.
    pub max_ttl: Option<Span>,
    /// Idle time of sandboxes made without one.
    pub default_idle: Option<Span>,
    /// Sandboxes the two defaults do not apply to.
    pub exempt: Vec<Address>,
    /// How often is looked for sandboxes whose time is up.
    pub sweep_interval: Span,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            default_ttl: None,
            max_ttl: Some(Span::seconds(30 * 24 * 3600)),
            default_idle: Some(Span::seconds(7 * 24 * 3600)),
            exempt: vec![Address::new(Namespace::default(), SandboxName::default_sandbox())],
            sweep_interval: Span::seconds(5),
        }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            backend: None,
            tier: Tier::Container,
            image: "host".into(),
            limits: Limits::default(),
            allow_downgrade: false,
            timeout: Span::seconds(10 * 60),
            max_timeout: Span::seconds(24 * 3600),
            wait: Span::seconds(45),
            output_cap: ByteSize::mib(1),
            job_files: None,
            job_output_cap: ByteSize::mib(64),
            file_cap: ByteSize::mib(16),
            warm_default: true,
            secret_names: SecretNames::default(),
            deny: DenyList::default(),
            host_roots: Vec::new(),
            deadlines: Deadlines::default(),
            spawn_policies: SpawnPolicies::default(),
            profiles: BTreeMap::new(),
            network: NetworkConfig::default(),
            vault: VaultConfig::default(),
            quotas: Quotas::default(),
        }
    }
}
