//! `isle doctor --deep`: the attacks of the containment suite, run on this host in a sandbox of each
//! tier, made through the daemon as any other. What gets through must be named in the sandbox's report.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isle_client::{Client, Result};
use isle_engine::backend::{Containment, GuaranteeStatus, Tier};
use isle_engine::ops::shapes::RunResult;
use isle_engine::{Code, Error};
use isle_probe::Canary;
use isle_probe::limits::{self, CPUS, DISK, MEMORY, PIDS};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::Context;
use super::judge::{Attack, Judged};
use super::show::{report, to_json};
use crate::output::{Form, Paint, print, print_json, say};
use crate::places::cannot;

/// How long what a command left behind may need to disappear.
const GONE: Duration = Duration::from_secs(10);

/// What became of one tier.
#[derive(Debug)]
pub(super) enum Examined {
    /// Attacked.
    Tried(Judged),
    /// This host has no sandboxes of that tier.
    Absent(Tier, Vec<String>),
}

pub(super) async fn deep(context: &Context, wanted: Option<&str>) -> Result<ExitCode> {
    let wanted = wanted.map(read_tier).transpose()?;
    let client = context.client().await?;
    let range = Range::set_up(&client).await?;
    let health = client.call("health", json!({})).await?;
    let mut examined = Vec::new();
    for tier in [Tier::Container, Tier::Process] {
        if wanted.is_some_and(|wanted| wanted != tier) {
            continue;
        }
        let offer = health["tiers"].as_array().into_iter().flatten().find(|one| one["tier"] == tier.as_str());
        let possible = offer.is_some_and(|offer| offer["available_with_downgrade"] == true);
        if !possible && wanted.is_none() {
            let reasons = offer.map(|offer| offer["reasons"].clone()).unwrap_or_default();
            examined.push(Examined::Absent(tier, serde_json::from_value(reasons).unwrap_or_default()));
            continue;
        }
        if context.form == Form::Human {
            say(&format!("Attacking a sandbox of tier {} …", tier.as_str()));
        }
        examined.push(Examined::Tried(range.attack(&client, tier).await?));
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
    serde_json::from_value(Value::from(text)).map_err(|_| {
        Error::new(Code::InvalidArgument, format!("--tier: {text:?} is not a tier"))
            .next("choose container or process")
            .into()
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
                return Err(Error::new(Code::InvalidArgument, "the attacks need the daemon's own host")
                    .next("run `isle doctor --deep` there")
                    .into());
            }
        };
        let directory = tempfile::Builder::new()
            .prefix("isle-doctor-")
            .permissions(std::fs::Permissions::from_mode(0o755))
            .tempdir()
            .map_err(|error| cannot("make a directory in", &std::env::temp_dir(), &error))?;
        let program: PathBuf = directory.path().join("isle-probe");
        let write = || {
            std::fs::write(&program, isle_linux::attack_program())?;
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
        arguments.extend(limits::arguments(isle_engine::backend::OPEN_FILES));
        Ok(Self { canary, arguments, _directory: directory })
    }

    async fn attack(&self, client: &Client, tier: Tier) -> Result<Judged> {
        let sandbox = format!("isle-doctor-{}", std::process::id());
        let tried = self.attack_in(client, tier, &sandbox).await;
        let removed = client.call("destroy", json!({ "sandbox": sandbox, "wipe": true })).await;
        let judged = tried?;
        removed?;
        Ok(judged)
    }

    async fn attack_in(&self, client: &Client, tier: Tier, sandbox: &str) -> Result<Judged> {
        let created = client
            .call(
                "create",
                json!({
                    "sandbox": sandbox, "tier": tier, "memory": MEMORY.to_string(), "disk": DISK.to_string(),
                    "pids": PIDS, "cpus": CPUS, "allow_downgrade": true,
                }),
            )
            .await?;
        let containment: Containment =
            serde_json::from_value(created["containment"].clone()).map_err(Error::internal)?;
        let program = json!({
            "path": "isle-probe", "content": STANDARD.encode(isle_linux::attack_program()),
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
        Ok(Judged::new(containment, skipped, attacks))
    }

    /// Whether a daemon started inside is gone when its command is; seen from here.
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

/// Attacks that are not tried where their limit is only watched: the sandbox would be stopped, and its
/// end would be waited for in vain.
fn watched(containment: &Containment) -> Vec<String> {
    let lines = containment.guarantees.iter().filter(|one| one.status == GuaranteeStatus::Watched);
    lines.flat_map(|line| line.open.iter().cloned()).collect()
}

/// Runs a program to its end; whatever that is, what it printed before counts.
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
