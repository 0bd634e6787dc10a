//! `isle doctor --deep`: runs the attacks of the containment suite on this host in a sandbox of each tier,
//! created through the daemon like any other. Every successful attack must be listed in the sandbox's report.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isle_api::shapes::RunResult;
use isle_client::{Client, Result};
use isle_core::backend::{Containment, GuaranteeStatus, Offer, Tier};
use isle_core::{Code, Error};
use isle_probe::Canary;
use isle_probe::limits::{self, CPUS, DISK, MEMORY, PIDS};
use serde::Deserialize;
use serde_json::json;
use tempfile::TempDir;

use super::super::Context;
use super::judge::{Attack, Judged};
use super::show::{report, to_json};
use crate::output::{Form, Paint, print, print_json, print_stderr};
use crate::paths::cannot;

/// How long processes left by a command may take to disappear.
const GONE: Duration = Duration::from_secs(10);

/// Result for one tier.
#[derive(Debug)]
pub(super) enum Examined {
    /// The attacks were run.
    Tried(Judged),
    /// This host cannot create sandboxes of that backend and tier.
    Absent(Offer),
}

pub(super) async fn deep(context: &Context, wanted: Option<&str>) -> Result<ExitCode> {
    let wanted = wanted.map(read_tier).transpose()?;
    let client = context.client().await?;
    let range = Range::set_up(&client).await?;
    let runtimes = client.call("runtimes", json!({})).await?;
    let offers: Vec<Offer> = serde_json::from_value(runtimes["tiers"].clone()).map_err(Error::internal)?;
    let mut examined = Vec::new();
    for offer in offers.into_iter().filter(|offer| wanted.is_none_or(|wanted| wanted == offer.tier)) {
        if !offer.available_with_downgrade && wanted.is_none() {
            examined.push(Examined::Absent(offer));
            continue;
        }
        if context.form == Form::Human {
            print_stderr(&format!(
                "Running attacks in a sandbox of backend {}, tier {} …",
                offer.backend,
                offer.tier.as_str()
            ));
        }
        examined.push(Examined::Tried(range.attack(&client, &offer).await?));
    }
    match context.form {
        Form::Json => print_json(&to_json(&examined)),
        Form::Human => print(&report(&examined, Paint::for_stdout())),
    }
    let holds = examined.iter().all(|one| match one {
        Examined::Tried(judged) => judged.holds(),
        Examined::Absent(..) => true,
    });
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read_tier(text: &str) -> Result<Tier> {
    text.parse().map_err(|error: Error| {
        let message = format!("--tier: {}", error.message);
        Error { message, ..error }.into()
    })
}

/// The attack program, the canary it is aimed at, and the directory they are in.
struct Range {
    canary: Canary,
    arguments: Vec<String>,
    _directory: TempDir,
}

/// One line of the attack program.
#[derive(Debug, Deserialize)]
struct Line {
    name: String,
    verdict: String,
    seen: String,
}

impl Range {
    async fn set_up(client: &Client) -> Result<Self> {
        let socket = match client.endpoint().socket() {
            Some(path) => path.to_owned(),
            None => {
                return Err(Error::new(Code::InvalidArgument, "--deep must run on the daemon's host")
                    .next("run `isle doctor --deep` on that host")
                    .into());
            }
        };
        let directory = tempfile::Builder::new()
            .prefix("isle-doctor-")
            .permissions(std::fs::Permissions::from_mode(0o755))
            .tempdir()
            .map_err(|error| cannot("create a directory in", &std::env::temp_dir(), &error))?;
        let program: PathBuf = directory.path().join("isle-probe");
        let write = || {
            std::fs::write(&program, isle_embed::attack_program())?;
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))
        };
        write().map_err(|error| cannot("write", &program, &error))?;
        let canary = Canary::spawn(&program, directory.path())
            .map_err(|error| cannot("start the canary", &program, &error))?;
        let mut arguments = canary.arguments().to_vec();
        arguments.extend([
            format!("--state={}", client.version().await?.state_dir),
            format!("--daemon-socket={}", socket.display()),
        ]);
        arguments.extend(limits::arguments(isle_core::backend::OPEN_FILES));
        Ok(Self { canary, arguments, _directory: directory })
    }

    async fn attack(&self, client: &Client, offer: &Offer) -> Result<Judged> {
        let sandbox = format!("isle-doctor-{}", std::process::id());
        let tried = self.attack_in(client, offer, &sandbox).await;
        let removed = client.call("destroy", json!({ "sandbox": sandbox, "wipe": true })).await;
        let judged = tried?;
        removed?;
        Ok(judged)
    }

    async fn attack_in(&self, client: &Client, offer: &Offer, sandbox: &str) -> Result<Judged> {
        let created = client
            .call(
                "create",
                json!({
                    "sandbox": sandbox, "backend": offer.backend, "tier": offer.tier, "memory": MEMORY.to_string(), "disk": DISK.to_string(),
                    "pids": PIDS, "cpus": CPUS, "allow_downgrade": true,
                }),
            )
            .await?;
        let containment: Containment =
            serde_json::from_value(created["containment"].clone()).map_err(Error::internal)?;
        let program = json!({
            "path": "isle-probe", "content": STANDARD.encode(isle_embed::attack_program()),
            "encoding": "base64", "mode": "755",
        });
        client.call("write_files", json!({ "sandbox": sandbox, "files": [program] })).await?;
        let mut argv = vec!["/workspace/isle-probe".to_owned(), "attack".to_owned()];
        argv.extend(self.arguments.iter().cloned());
        let skipped = watched(&containment);
        argv.push(format!("--skip={}", skipped.join(",")));
        let run = exec(client, sandbox, &argv).await?;
        let mut attacks: Vec<Attack> = run
            .stdout
            .lines()
            .filter_map(|line| serde_json::from_str::<Line>(line).ok())
            .filter_map(|line| Attack::new(&line.name, &line.verdict, line.seen))
            .collect();
        attacks.push(self.leave_something(client, sandbox).await?);
        Ok(Judged::new(offer.backend.clone(), containment, skipped, attacks))
    }

    /// Whether a background process started inside exits with its command, seen from the host.
    async fn leave_something(&self, client: &Client, sandbox: &str) -> Result<Attack> {
        let mark = self.canary.mark();
        exec(client, sandbox, &["/workspace/isle-probe".to_owned(), "leave".to_owned(), mark.clone()])
            .await?;
        let deadline = Instant::now() + GONE;
        loop {
            let left = processes_with(&mark);
            if left == 0 || Instant::now() > deadline {
                return Ok(Attack::left_behind(left));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Attacks that are skipped where their limit is only watched: the sandbox would be stopped, and the attack
/// would not return.
fn watched(containment: &Containment) -> Vec<String> {
    let lines = containment.guarantees.iter().filter(|one| one.status == GuaranteeStatus::Watched);
    lines.flat_map(|line| line.open.iter().cloned()).collect()
}

/// Runs a program until it exits; its output counts whatever the exit status.
async fn exec(client: &Client, sandbox: &str, argv: &[String]) -> Result<RunResult> {
    let input = json!({
        "sandbox": sandbox, "argv": argv, "wait": "6m", "timeout": "5m", "output_limit": "256K",
    });
    client.call_as("exec", input).await
}

fn processes_with(mark: &str) -> usize {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).split('\0').any(|word| word == mark)).count()
}
