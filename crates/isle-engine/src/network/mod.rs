//! The network of sandboxes: who was granted what, and the gate each granted sandbox has on this side.
//! What a grant means and what goes through is decided in `isle-egress`; here it is kept, recorded and
//! put between a sandbox and the world.

mod approval_prompt;
mod approve;
mod forward;
mod grants;
mod namespace_grants;
mod network_requests;
mod peers;
mod port_streams;
mod port_tokens;
mod ports;
mod run_traffic;
mod serve;
mod service;
mod sets;
mod trust;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use isle_egress::{Denial, Gate, Grant, GrantId, Name, Table, TrafficTotals, TrustedCas};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::context::{CallContext, Door};
use crate::sandbox::Sandbox;
use isle_api::shapes::ViolationShape;
use isle_core::backend::Lifetime;
use isle_core::values::{RunId, Span};
use isle_core::{Code, Error, Result};

pub use approval_prompt::{Answer, Question, QuestionSender};
pub(crate) use forward::Forward;
pub(crate) use grants::{InForce, RunGrants};
pub(crate) use network_requests::NetworkRequest;
pub(crate) use peers::peer_name;
pub use port_streams::PortStream;
pub(crate) use port_streams::{PortCount, PortCounts, Proxied};
pub(crate) use port_tokens::Minted;
pub use port_tokens::{PortPass, PortsAddress, PortsListener};
pub(crate) use ports::Ports;
use run_traffic::Others;
pub(crate) use run_traffic::{Began, RunTraffic};
pub(crate) use service::{Network, NetworkParts};
pub use sets::GrantSet;
pub(crate) use sets::{AskedGrants, GrantSets, InstallNetwork, NetworkWish};

/// Most grants one sandbox, or one namespace, may have.
const MOST_GRANTS: usize = 256;
/// Names and connections of one sandbox that wait for a person; more are denied at once.
const MOST_HELD: usize = 64;

/// What every sandbox may reach, and names that are known here only.
#[derive(Debug, Clone, Default)]
pub struct NetworkConfig {
    /// Grants of every sandbox.
    pub allow: Vec<Grant>,
    /// Names with fixed addresses, asked before the system.
    pub hosts: Table,
    /// Whom the gate believes where it opens encryption.
    pub roots: Arc<TrustedCas>,
    /// Clients whose packages anybody may install, over the network that takes.
    pub install: Vec<GrantSet>,
    /// How long what is denied waits for a person to answer; without it nobody is asked.
    pub ask: Option<Span>,
}

impl NetworkConfig {
    /// Reads it from settings.
    pub fn new(
        allow: &[String],
        hosts: &BTreeMap<String, String>,
        ca_files: &[String],
        install: &[String],
    ) -> Result<Self> {
        let invalid = |error: Error| Error { code: Code::ConfigInvalid, ..error };
        let mut table = Table::new();
        for (name, address) in hosts {
            let refuse = |what: String| {
                Error::new(Code::ConfigInvalid, format!("network_hosts: {what}"))
                    .next("write names and addresses, such as { \"db.internal\" = \"10.0.0.5\" }")
            };
            let name = Name::parse(name).map_err(|error| refuse(format!("{name:?}: {error}")))?;
            let address: IpAddr =
                address.parse().map_err(|_| refuse(format!("{address:?} is not an address")))?;
            table.entry(name).or_default().push(address);
        }
        let install = install.iter().map(|text| {
            GrantSet::named(text).filter(|set| *set != GrantSet::Cargo).ok_or_else(|| {
                Error::new(
                    Code::ConfigInvalid,
                    format!("network_install: {text:?} installs no packages here"),
                )
                .next("choose from pip, npm and apt")
            })
        });
        Ok(Self {
            allow: parse_grants(allow).map_err(invalid)?,
            hosts: table,
            roots: Arc::new(read_roots(ca_files)?),
            install: install.collect::<Result<_>>()?,
            ask: None,
        })
    }
}

/// Reads the authorities the operator adds to those of the system.
fn read_roots(files: &[String]) -> Result<TrustedCas> {
    let mut roots = TrustedCas::default();
    for file in files {
        let refuse = |what: String| {
            Error::new(Code::ConfigInvalid, format!("network_ca_files: {file}: {what}"))
                .next("name files with certificates in PEM that the daemon can read")
        };
        let pem = std::fs::read(Path::new(file)).map_err(|error| refuse(error.to_string()))?;
        roots.add_pem(&pem).map_err(|error| refuse(error.to_string()))?;
    }
    Ok(roots)
}

/// Granting is the operator's: neither a tenant nor a model gives itself what it may reach.
pub(crate) fn may_grant(context: &CallContext) -> Result<()> {
    context.operator_only("granting network")?;
    if context.door == Door::Mcp {
        return Err(Error::new(Code::Forbidden, "a model does not grant itself what it may reach")
            .next("ask the person you work for to run `isle allow SANDBOX HOST:PORT`"));
    }
    Ok(())
}

/// Reads grants as they are written.
pub(crate) fn parse_grants<T: AsRef<str>>(texts: &[T]) -> Result<Vec<Grant>> {
    texts
        .iter()
        .map(|text| {
            let text = text.as_ref();
            Grant::parse(text).map_err(|error| {
                Error::new(Code::InvalidArgument, format!("{text:?} is no grant: {error}")).next(
                    "write HOST, HOST:PORT or *.HOST:PORT, such as example.com:443; /tcp, /tls or /http may follow",
                )
                .next("some requests only: `https://example.com/path/* GET,POST`")
            })
        })
        .collect()
}

/// Where a grant comes from; says how long it stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// From the configuration: every sandbox has it.
    Config,
    /// From the profile the sandbox was made by: stays as long as the sandbox does.
    Profile,
    /// Given to all sandboxes of a namespace: stays until it is taken back or expires.
    Namespace,
    /// Given to the sandbox: stays until it is taken back, expires, or the sandbox is destroyed.
    Sandbox,
    /// Given to a run: ends with it.
    Run,
    /// Given for one connection.
    Once,
}

/// A grant of a sandbox, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredGrant {
    /// In its canonical form, without limits.
    pub(crate) grant: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) total_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes_per_second: Option<u64>,
    /// On the wall clock, which is the one that goes on while no daemon is alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at_ms: Option<i64>,
}

/// The network of one sandbox.
#[derive(Debug)]
pub(crate) struct SandboxNetwork {
    gate: OnceLock<Arc<Gate>>,
    /// What went through the gate; there since there is one.
    traffic: OnceLock<Arc<TrafficTotals>>,
    /// In whose time that was.
    going: Mutex<run_traffic::RunsInProgress>,
    /// Whether its agent serves the gate; held while that is being asked.
    served: tokio::sync::Mutex<bool>,
    sources: Mutex<Vec<(GrantId, Source)>>,
    stored: Mutex<Vec<StoredGrant>>,
    /// The authority of the gate, as it is stored.
    authority: Mutex<Option<String>>,
    /// What programs inside are told once they believe it; held while that is being seen to.
    trusted: tokio::sync::Mutex<Option<Vec<(String, String)>>>,
    /// What went to its ports through the HTTP door.
    pub(crate) proxied: Proxied,
    /// What went to its ports from others of its family.
    pub(crate) peers: Arc<PortCounts>,
    /// Names and connections that may wait for a person.
    patience: Arc<Semaphore>,
}

impl Source {
    /// As it is told.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Profile => "profile",
            Self::Namespace => "namespace",
            Self::Sandbox => "sandbox",
            Self::Run => "run",
            Self::Once => "once",
        }
    }
}

impl SandboxNetwork {
    /// With what was stored of it.
    pub(crate) fn with(stored: Vec<StoredGrant>, authority: Option<String>) -> Self {
        Self {
            gate: OnceLock::new(),
            traffic: OnceLock::new(),
            going: Mutex::default(),
            served: tokio::sync::Mutex::new(false),
            sources: Mutex::default(),
            stored: Mutex::new(stored),
            authority: Mutex::new(authority),
            trusted: tokio::sync::Mutex::default(),
            proxied: Proxied::default(),
            peers: Arc::default(),
            patience: Arc::new(Semaphore::new(MOST_HELD)),
        }
    }

    /// What is stored of its authority.
    pub(crate) fn authority(&self) -> Option<String> {
        crate::lock(&self.authority).clone()
    }

    /// What is stored of it.
    pub(crate) fn stored(&self) -> Vec<StoredGrant> {
        crate::lock(&self.stored).clone()
    }

    /// The gate, when it has one.
    pub(crate) fn gate(&self) -> Option<&Arc<Gate>> {
        self.gate.get()
    }

    /// What may be reached now, as it is written.
    pub(crate) fn reach(&self) -> Vec<String> {
        let grants = self.gate().map(|gate| gate.grants()).unwrap_or_default();
        grants.into_iter().map(|(_, grant, ..)| grant.to_string()).collect()
    }
}

impl Sandbox {
    /// What programs of a run were denied after a point of the log, and what was denied to somebody, as the
    /// run tells it; the latter is the run's where it went on alone.
    fn denials_of(&self, run: &RunId, sequence: u64, others: Others) -> Vec<ViolationShape> {
        let denials = self.network.gate().map(|gate| gate.denials_after(sequence)).unwrap_or_default();
        let told = |denial: &Denial| match &denial.by {
            Some(by) => (by.as_str() == run.as_str()).then(|| violation(denial, self)),
            None => Some(ViolationShape { shared: others == Others::Some, ..violation(denial, self) }),
        };
        denials.iter().filter_map(told).collect()
    }

    /// Programs of a run dialed addresses so many times; it is in the log from now on, if there is one.
    fn dialed_addresses(&self, count: u64, others: Others) -> Option<ViolationShape> {
        if count == 0 {
            return None;
        }
        if let Some(gate) = self.network.gate() {
            gate.deny_unrouted();
        }
        let shared = others == Others::Some;
        Some(ViolationShape { count, shared, ..violation(&Denial::no_route(), self) })
    }
}

fn violation(denial: &Denial, sandbox: &Sandbox) -> ViolationShape {
    ViolationShape {
        what: format!("network: {}", denial.target),
        count: 1,
        remedy: format!("{} ({}); {}", denial.sentence(), denial.reason.as_str(), remedy(denial, sandbox)),
        shared: false,
    }
}

fn remedy(denial: &Denial, sandbox: &Sandbox) -> String {
    match (&denial.wanted, sandbox.spec.lifetime) {
        (Some(grant), Lifetime::Named) => {
            format!("`isle allow {} {}` would grant it", sandbox.name, quoted(grant))
        }
        (Some(grant), Lifetime::OneShot) => format!("`--allow {}` would grant it", quoted(grant)),
        (None, Lifetime::Named | Lifetime::OneShot) => denial.remedy(),
    }
}

/// As a shell takes it for one word. Grants have no quotes in them.
fn quoted(grant: &str) -> String {
    if grant.contains([' ', '*', '?', '[', ';', '&', '(', ')', '$', '!', '~', '\'']) {
        format!("'{}'", grant.replace('\'', "%27"))
    } else {
        grant.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clients_that_install_may_be_let_through_for_everybody() {
        let config = |install: &str| NetworkConfig::new(&[], &BTreeMap::new(), &[], &[install.to_owned()]);
        assert_eq!(config("pip").unwrap().install, [GrantSet::Pip]);
        for wrong in ["cargo", "git", "example.com", ""] {
            assert_eq!(config(wrong).unwrap_err().code, Code::ConfigInvalid, "{wrong}");
        }
    }
}
