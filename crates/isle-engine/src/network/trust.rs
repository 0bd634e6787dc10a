//! Where a gate opens encryption, the programs inside have to believe it: the authority it answers in the
//! name of is put beside those the image knows, in that sandbox only. The system's own stores get it, which
//! most programs use, and the variables of those that bring stores of their own say where it is.

use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use isle_egress::{CertificateAuthority, Gate, TrafficTotals, java_store, java_store_with};
use isle_fail::Point;
use isle_wire::{GuestUser, PROXY_PORT};

use super::Network;
use crate::agent::{AgentClient, FileToWrite};
use crate::sandbox::Sandbox;
use isle_core::backend::{GuestNetwork, GuestRoot, Lifetime};
use isle_core::values::GuestPath;
use isle_core::{Code, Error, Result};

/// Where systems keep the authorities they know, all in one file. What others are links to comes first:
/// it has the new one by the time a link is looked at, and the link stays one.
const BUNDLES: &[&str] = &[
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ca-certificates/extracted/tls-ca-bundle.pem",
    "/var/lib/ca-certificates/ca-bundle.pem",
    USUAL_BUNDLE,
    "/etc/ssl/certs/ca-bundle.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Made where there is none.
const USUAL_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
/// None is longer.
const LONGEST_STORE: u64 = 8 * 1024 * 1024;
/// Where OpenSSL looks for an authority by its name. The first is made where it is missing.
const BY_NAME: &[&str] = &[
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted/pem/directory-hash",
    "/var/lib/ca-certificates/openssl",
    "/var/lib/ca-certificates/pem",
];
/// Where systems with p11-kit keep authorities of the machine's own: GnuTLS asks that there, and the
/// system's tools keep what is there when they write the stores anew.
const ANCHORS: &[&str] = &[
    "/etc/pki/ca-trust/source/anchors",
    "/etc/ca-certificates/trust-source/anchors",
    "/etc/pki/trust/anchors",
];
/// All of them for Java, which has a format of its own; what others are links to comes first.
const JAVA_STORES: &[&str] = &[
    "/etc/pki/ca-trust/extracted/java/cacerts",
    "/etc/ca-certificates/extracted/java-cacerts.jks",
    "/var/lib/ca-certificates/java-cacerts",
    "/etc/ssl/certs/java/cacerts",
    "/etc/pki/java/cacerts",
];

/// Files that are the sandbox's own, so that no change of the system's takes the authority out of them:
/// the one authority, and all of them.
const OWN: &str = "/etc/isle/ca.pem";
const OWN_BUNDLE: &str = "/etc/isle/ca-bundle.pem";
/// Where a file is made that is then put in its place.
const MOVING: &str = "/etc/isle/ca-new";
/// All of them for a Java whose own store cannot be written.
const OWN_JAVA_STORE: &str = "/etc/isle/ca-bundle.jks";
/// The same two where there is no root of the sandbox's own, and nothing of the host's can be changed.
const PRIVATE: &str = "/home/sandbox/.isle/ca.pem";
const PRIVATE_BUNDLE: &str = "/home/sandbox/.isle/ca-bundle.pem";

/// Variables that name all authorities in one file, and whose they are: OpenSSL, Go and Rust; curl; Python
/// requests; pip; git; cargo; AWS; gRPC; httplib2; Google Cloud; Nix; Perl.
const WHOLE: &[&str] = &[
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "HTTPLIB2_CA_CERTS",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "NIX_SSL_CERT_FILE",
    "PERL_LWP_SSL_CA_FILE",
];
/// Variables that name authorities beside the known ones: Node and Deno.
const EXTRA: &[&str] = &["NODE_EXTRA_CA_CERTS", "DENO_CERT"];

/// Variables as programs are given them.
type Variables = Vec<(String, String)>;

/// What every program is told: where all authorities are, and where the one is.
fn variables(whole: &str, own: &str) -> Variables {
    [named(WHOLE, whole), named(EXTRA, own)].concat()
}

/// The same value for several variables.
fn named(names: &[&str], value: &str) -> Variables {
    names.iter().map(|name| ((*name).to_owned(), value.to_owned())).collect()
}

/// Variables that say where a proxy is. Programs read one spelling or the other; Node is told to read them.
/// `ALL_PROXY` speaks HTTP, too: what it is asked for it opens with `CONNECT`, and Python's httpx, which reads
/// it before anything is sent, does without a package for SOCKS.
const PROXIES: &[&str] =
    &["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

/// Whether a file is one in which a system keeps all authorities it knows: a sandbox has the same there.
pub(super) fn is_bundle(path: &str) -> bool {
    BUNDLES.contains(&path)
}

/// What programs are told that reach what is granted through a proxy.
fn proxy_variables() -> Variables {
    let mut variables = named(PROXIES, &format!("http://127.0.0.1:{PROXY_PORT}"));
    variables.extend(named(&["NODE_USE_ENV_PROXY"], "1"));
    variables
}

impl Network {
    /// A gate for a sandbox, which answers in the name it had before.
    pub(super) fn new_gate(&self, sandbox: &Sandbox) -> Gate {
        // Made once in the life of a sandbox, as the gate is.
        let traffic = sandbox
            .network
            .traffic
            .get_or_init(|| Arc::new(TrafficTotals::within(Arc::clone(&self.traffic))));
        let gate = Gate::new(Arc::clone(&self.resolver))
            .with_trusted_cas(Arc::clone(&self.config.network.roots))
            .counted_in(Arc::clone(traffic))
            .with_secrets(self.secrets.swaps(sandbox));
        match sandbox.network.authority().map(|kept| CertificateAuthority::restore(&kept)) {
            Some(Ok(authority)) => gate.with_certificate_authority(Arc::new(authority)),
            Some(Err(error)) => {
                tracing::warn!(sandbox = %sandbox.name, %error, "its certificate authority is made anew");
                gate
            }
            None => gate,
        }
    }

    /// Variables that lead programs of a sandbox to what is granted, and have them believe whom they meet
    /// there. None where nothing is granted.
    pub(crate) async fn network_variables(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> Result<Variables> {
        let mut variables = match sandbox.capabilities.network {
            GuestNetwork::OwnStack => Vec::new(),
            GuestNetwork::ProxyOnly => {
                // Nobody there asks for names, which would open it.
                self.open_granted_gate(sandbox).await;
                let proxied = sandbox.network.gate().is_some_and(|gate| {
                    !gate.is_empty() || !self.peer_ports(sandbox).is_empty() || self.asks_by_proxy(sandbox)
                });
                if proxied { proxy_variables() } else { Vec::new() }
            }
        };
        variables.extend(self.trust(sandbox).await?);
        Ok(variables)
    }

    /// Sees to it that programs of a sandbox believe its gate where that opens encryption. Gives the
    /// variables that tell them how; none where nothing is opened.
    async fn trust(&self, sandbox: &Sandbox) -> Result<Variables> {
        let Some(gate) = sandbox.network.gate().filter(|gate| gate.opens_tls()) else {
            return Ok(Vec::new());
        };
        let mut told = sandbox.network.trusted.lock().await;
        if let Some(variables) = &*told {
            return Ok(variables.clone());
        }
        let authority = gate.authority().map_err(Error::internal)?;
        self.record_authority(sandbox, &authority)?;
        let placed = match sandbox.capabilities.root {
            GuestRoot::Own => place(sandbox.agent()?, &authority).await,
            GuestRoot::Host => place_privately(sandbox.agent()?, &authority).await,
        };
        let variables = placed.map_err(|error| {
            Error::new(
                Code::SandboxFailed,
                format!("the sandbox's certificate authority cannot be placed in it: {}", error.message),
            )
            .next("make room in the sandbox, or `isle reset` it; /workspace stays")
        })?;
        isle_fail::pass(Point::AuthorityPlaced);
        Ok(told.insert(variables).clone())
    }

    /// On record before anybody believes it, so that a later daemon answers in the same name.
    fn record_authority(&self, sandbox: &Sandbox, authority: &CertificateAuthority) -> Result<()> {
        if sandbox.spec.lifetime == Lifetime::OneShot {
            return Ok(());
        }
        // The record speaks of grants as well: both change in one order.
        let _order = crate::lock(&sandbox.network.sources);
        let kept = authority.to_stored().to_string();
        let before = crate::lock(&sandbox.network.authority).replace(kept.clone());
        if before.as_ref() == Some(&kept) {
            return Ok(());
        }
        self.journal.sandbox_authority(sandbox).inspect_err(|_| {
            *crate::lock(&sandbox.network.authority) = before;
        })?;
        isle_fail::pass(Point::AuthorityRecorded);
        Ok(())
    }
}

/// Puts the authority into the sandbox: alone, behind those the image knows, and where its programs look.
/// Gives what they are told.
async fn place(agent: &AgentClient, authority: &CertificateAuthority) -> Result<Variables> {
    let own = authority.pem();
    let mut whole = None;
    for &path in BUNDLES {
        let Some(known) = read_existing(agent, GuestUser::Root, path).await? else { continue };
        let known = String::from_utf8_lossy(&known).into_owned();
        let more = with(known.clone(), &own);
        if more != known {
            put(agent, path, more.clone()).await;
        }
        whole.get_or_insert(more);
    }
    if whole.is_none() {
        put(agent, USUAL_BUNDLE, own.clone()).await;
    }
    let whole = whole.unwrap_or_else(|| own.clone());
    let files = vec![file(OWN_BUNDLE, whole.clone())?, file(OWN, own.clone())?];
    agent.write_files(GuestUser::Root, files).await?;
    let (usual, others) = BY_NAME.split_at(1);
    let by_name = others.iter().map(|directory| (*directory, authority.file_name()));
    let anchors = ANCHORS.iter().map(|directory| (*directory, "isle.crt".to_owned()));
    let mut directories: Vec<String> =
        usual.iter().map(|usual| format!("{usual}/{}", authority.file_name())).collect();
    for (directory, name) in by_name.chain(anchors) {
        if agent.stat(&directory.parse()?, GuestUser::Root).await.is_ok() {
            directories.push(format!("{directory}/{name}"));
        }
    }
    for path in directories {
        put(agent, &path, own.clone()).await;
    }
    let mut variables = variables(OWN_BUNDLE, OWN);
    if !place_for_java(agent, &own, &whole).await? && agent.which(&["java"]).await?.is_some() {
        put(agent, OWN_JAVA_STORE, java_store(&whole)).await;
        let option = format!("-Djavax.net.ssl.trustStore={OWN_JAVA_STORE}");
        variables.push(("JAVA_TOOL_OPTIONS".to_owned(), option));
    }
    Ok(variables)
}

/// The same where the system's stores are the host's: programs have it by the variables alone.
async fn place_privately(agent: &AgentClient, authority: &CertificateAuthority) -> Result<Variables> {
    let own = authority.pem();
    let mut whole = None;
    for &path in BUNDLES {
        if whole.is_none() {
            whole = read_existing(agent, GuestUser::Sandbox, path).await?;
        }
    }
    let whole = with(String::from_utf8_lossy(&whole.unwrap_or_default()).into_owned(), &own);
    agent.write_files(GuestUser::Sandbox, vec![file(PRIVATE_BUNDLE, whole)?, file(PRIVATE, own)?]).await?;
    Ok(variables(PRIVATE_BUNDLE, PRIVATE))
}

/// Puts the authority into the stores of Java; says whether there are any.
async fn place_for_java(agent: &AgentClient, own: &str, whole: &str) -> Result<bool> {
    let mut any = false;
    for &path in JAVA_STORES {
        let Some(known) = read_existing(agent, GuestUser::Root, path).await? else { continue };
        any = true;
        let store = java_store_with(&known, own).unwrap_or_else(|| java_store(whole));
        if store != known {
            put(agent, path, store).await;
        }
    }
    Ok(any)
}

/// Puts a file in the place of one of the image's, at once. Nobody inside may write to that one, but its
/// directory is the sandbox's own. Where root of the sandbox has put something else, it stays; programs
/// then still have what the variables say.
async fn put(agent: &AgentClient, path: &str, contents: impl Into<Bytes>) {
    let moved = async {
        agent.write_files(GuestUser::Root, vec![file(MOVING, contents)?]).await?;
        agent.relocate(&MOVING.parse()?, &path.parse()?, GuestUser::Root, true).await
    };
    if let Err(error) = moved.await {
        if let Ok(moving) = MOVING.parse() {
            // It may never have come that far.
            agent.remove(&moving, GuestUser::Root, false).await.ok();
        }
        tracing::debug!(path, error = error.message, "a store of the image stays as it is");
    }
}

/// A bundle with the authority behind those that are in it.
fn with(mut bundle: String, own: &str) -> String {
    if !bundle.contains(own) {
        if !bundle.ends_with('\n') && !bundle.is_empty() {
            bundle.push('\n');
        }
        bundle.push_str(own);
    }
    bundle
}

fn file(path: &str, contents: impl Into<Bytes>) -> Result<FileToWrite> {
    Ok(FileToWrite::whole(path.parse()?, Some(0o644), false, contents.into()))
}

/// What is in a store, if it is there.
async fn read_existing(agent: &AgentClient, user: GuestUser, path: &str) -> Result<Option<Vec<u8>>> {
    let guest: GuestPath = path.parse()?;
    let Ok((stat, body)) = agent.read_file(&guest, user, 0, None).await else { return Ok(None) };
    if stat.size > LONGEST_STORE {
        return Ok(None);
    }
    let parts: Vec<Bytes> = body.try_collect().await?;
    Ok(Some(parts.concat()))
}
