//! Where a gate opens encryption, the programs inside have to believe it: the authority it answers in the
//! name of is put beside those the image knows, in that sandbox only, and the usual variables say where.

use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use isle_egress::{Authority, Gate};
use isle_fail::Point;
use isle_wire::GuestUser;

use crate::agent::{AgentClient, FileToWrite};
use crate::backend::{Lifetime, Tier};
use crate::engine::Inner;
use crate::error::{Code, Error, Result};
use crate::sandbox::Sandbox;
use crate::values::GuestPath;

/// Where images keep the authorities they know.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// No bundle is longer.
const LONGEST_BUNDLE: u64 = 8 * 1024 * 1024;

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

/// Where the files are, and whose.
struct Places {
    user: GuestUser,
    bundle: &'static str,
    own: &'static str,
}

impl Places {
    fn of(tier: Tier) -> Self {
        match tier {
            Tier::Process => Self {
                user: GuestUser::Sandbox,
                bundle: "/home/sandbox/.config/isle/ca-bundle.pem",
                own: "/home/sandbox/.config/isle/ca.pem",
            },
            Tier::Container => {
                Self { user: GuestUser::Root, bundle: "/etc/isle/ca-bundle.pem", own: "/etc/isle/ca.pem" }
            }
        }
    }

    fn variables(&self) -> Vec<(String, String)> {
        let whole = WHOLE.iter().map(|name| ((*name).to_owned(), self.bundle.to_owned()));
        let extra = EXTRA.iter().map(|name| ((*name).to_owned(), self.own.to_owned()));
        whole.chain(extra).collect()
    }
}

impl Inner {
    /// A gate for a sandbox, which answers in the name it had before.
    pub(super) fn new_gate(&self, sandbox: &Sandbox) -> Gate {
        let gate = Gate::new(Arc::clone(&self.resolver))
            .with_roots(Arc::clone(&self.config.network.roots))
            .counted_in(Arc::clone(&self.traffic))
            .with_swaps(self.swaps(sandbox));
        match sandbox.network.authority().map(|kept| Authority::restore(&kept)) {
            Some(Ok(authority)) => gate.with_authority(Arc::new(authority)),
            Some(Err(error)) => {
                tracing::warn!(sandbox = %sandbox.name, %error, "its certificate authority is made anew");
                gate
            }
            None => gate,
        }
    }

    /// Sees to it that programs of a sandbox believe its gate where that opens encryption. Gives the
    /// variables that tell them how; none where nothing is opened.
    pub(crate) async fn trust(&self, sandbox: &Sandbox) -> Result<Vec<(String, String)>> {
        let Some(gate) = sandbox.network.gate().filter(|gate| gate.opens_tls()) else {
            return Ok(Vec::new());
        };
        let places = Places::of(sandbox.spec.tier);
        let mut trusted = sandbox.network.trusted.lock().await;
        if !*trusted {
            let authority = gate.authority().map_err(Error::internal)?;
            self.record_authority(sandbox, &authority)?;
            place(sandbox.agent()?, &places, &authority.pem()).await.map_err(|error| {
                Error::new(
                    Code::SandboxFailed,
                    format!("the sandbox's certificate authority cannot be placed in it: {}", error.message),
                )
                .next("make room in the sandbox, or `isle reset` it; /workspace stays")
            })?;
            isle_fail::pass(Point::AuthorityPlaced);
            *trusted = true;
        }
        Ok(places.variables())
    }

    /// On record before anybody believes it, so that a later daemon answers in the same name.
    fn record_authority(&self, sandbox: &Sandbox, authority: &Authority) -> Result<()> {
        if sandbox.spec.lifetime == Lifetime::OneShot {
            return Ok(());
        }
        // The record speaks of grants as well: both change in one order.
        let _order = crate::lock(&sandbox.network.sources);
        let kept = authority.kept().to_string();
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

/// Puts the authority into the sandbox: alone, and behind those the image knows.
async fn place(agent: &AgentClient, places: &Places, own: &str) -> Result<()> {
    let mut bundle = image_bundle(agent).await?;
    if !bundle.ends_with('\n') && !bundle.is_empty() {
        bundle.push('\n');
    }
    if !bundle.contains(own) {
        bundle.push_str(own);
    }
    let file = |path: &str, text: &str| -> Result<FileToWrite> {
        let contents = Bytes::copy_from_slice(text.as_bytes());
        Ok(FileToWrite::whole(path.parse()?, Some(0o644), false, contents))
    };
    let files = vec![file(places.bundle, &bundle)?, file(places.own, own)?];
    agent.write_files(places.user, files).await.map(drop)
}

/// The authorities the image knows.
async fn image_bundle(agent: &AgentClient) -> Result<String> {
    for &path in BUNDLES {
        let guest: GuestPath = path.parse()?;
        let Ok((_, body)) = agent.read_file(&guest, GuestUser::Root, 0, Some(LONGEST_BUNDLE)).await else {
            continue;
        };
        let parts: Vec<Bytes> = body.try_collect().await?;
        return Ok(String::from_utf8_lossy(&parts.concat()).into_owned());
    }
    Ok(String::new())
}
