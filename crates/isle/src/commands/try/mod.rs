//! `isle try`: a demo session with a real sandbox, step by step, in under a minute.

mod measure;
mod network;
mod snippets;
mod stage;

use std::process::ExitCode;
use std::time::Instant;

use isle_client::{Client, Result};
use isle_core::Code;
use isle_core::backend::{GuaranteeStatus, Offer};
use serde_json::{Value, json};

use super::Context;
use crate::backends;
use crate::config::Settings;
use crate::output::{Form, human_bytes, print_json};
use stage::{Stage, Step};

const SANDBOX: &str = "isle-try";

/// Whether this host needs `allow_downgrade`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Downgrade {
    NotNeeded,
    Needed,
}

pub(super) async fn walk(context: &Context) -> Result<ExitCode> {
    let mut stage = Stage::new(context.form);
    stage.title("Isle: sandboxes for AI agents");
    let settings = Settings::for_command(context.global.config.as_ref(), &[])?;
    let downgrade = look_at_host(&settings, &mut stage);
    let began = Instant::now();
    let client = context.client().await?;
    let daemon = client.version().await?;
    stage.note(&format!(
        "Connected to the daemon (version {}, pid {}) in {}.",
        daemon.version,
        daemon.pid,
        stage::millis(began.elapsed())
    ));
    // Remove what an interrupted demo left behind.
    remove(&client).await?;
    let walked = walk_with(&client, &mut stage, downgrade).await;
    let removed = remove(&client).await;
    walked?;
    removed?;
    stage.note("Removed the sandbox.");
    if downgrade == Downgrade::Needed {
        stage.warn(
            "To use sandboxes on this host without the missing guarantees, set `allow_downgrade = true` in",
        );
        stage.warn("~/.config/isle/config.toml and run `isle restart`. Reports list what is missing.");
    }
    snippets::show(&mut stage);
    if context.form == Form::Json {
        print_json(&stage.record());
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what this host cannot enforce, and how to fix it.
fn look_at_host(settings: &Settings, stage: &mut Stage) -> Downgrade {
    let (_, offers) = backends::probe();
    let (wanted, backend) = (settings.text("tier"), settings.text("backend"));
    let is_wanted = |offer: &Offer| {
        wanted.as_deref() == Some(offer.tier.as_str())
            && backend.as_deref().is_none_or(|backend| backend == offer.backend.as_str())
    };
    let Some(offer) = offers.into_iter().find(is_wanted) else {
        return Downgrade::Needed;
    };
    let tier = offer.tier.as_str();
    if offer.available {
        stage.note(&format!("This host can enforce all guarantees of the {tier} tier."));
        return Downgrade::NotNeeded;
    }
    stage.warn(&format!("This host cannot enforce all guarantees of the {tier} tier:"));
    for guarantee in offer.containment.guarantees {
        if guarantee.status == GuaranteeStatus::Missing {
            stage.warn(&format!("  {}: {}", guarantee.key, guarantee.how));
            if !guarantee.fix.is_empty() {
                stage.warn(&format!("    fix: {}", guarantee.fix));
            }
        }
    }
    stage.warn("Continuing as with --allow-downgrade. Run `isle doctor` for details.");
    Downgrade::Needed
}

async fn remove(client: &Client) -> Result<()> {
    match client.call("destroy", json!({ "sandbox": SANDBOX, "wipe": true })).await {
        Ok(_) => Ok(()),
        Err(error) if error.is(Code::SandboxNotFound) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn walk_with(client: &Client, stage: &mut Stage, downgrade: Downgrade) -> Result<()> {
    let allow_downgrade = downgrade == Downgrade::Needed;
    create(client, stage, allow_downgrade).await?;
    commands(client, stage).await?;
    denials(client, stage).await?;
    network::show(client, stage).await?;
    timeout(client, stage).await?;
    files(client, stage).await?;
    measure::measure(client, stage, SANDBOX, allow_downgrade).await
}

async fn create(client: &Client, stage: &mut Stage, allow_downgrade: bool) -> Result<()> {
    let mut step = Step::begin("Create a sandbox", &format!("create {SANDBOX}"));
    client.call("create", json!({ "sandbox": SANDBOX, "allow_downgrade": allow_downgrade })).await?;
    step.done();
    stage.show(&step);
    Ok(())
}

async fn commands(client: &Client, stage: &mut Stage) -> Result<()> {
    let command = "id; echo; ls /; echo; echo $(ps ax 2>/dev/null | wc -l) lines of ps, and PID 1 is $(cat /proc/1/comm)";
    shell(client, stage, "Inspect the sandbox", command, json!({})).await?;
    let code = "import statistics\nsquares = [n * n for n in range(1, 11)]\nprint(squares)\nprint('mean', statistics.mean(squares))";
    let mut step = Step::begin("Run Python", code);
    match client.call("run_code", json!({ "sandbox": SANDBOX, "language": "python", "code": code })).await {
        Ok(result) => step.output(&result),
        Err(error) if error.is(Code::RuntimeNotAvailable) => step.line(&error.message),
        Err(error) => return Err(error),
    }
    step.done();
    stage.show(&step);
    Ok(())
}

async fn denials(client: &Client, stage: &mut Stage) -> Result<()> {
    let connect = "(exec 3<>/dev/tcp/192.0.2.1/443) 2>&1 && echo connected || echo 'no route: a sandbox has only a loopback interface'";
    bash(client, stage, "Try to reach the Internet", connect).await?;
    let read = "cat /etc/shadow; ls /root /home /var/lib/isle; mount -t tmpfs none /mnt";
    shell(client, stage, "Try to read host files and to mount a file system", read, json!({})).await
}

async fn timeout(client: &Client, stage: &mut Stage) -> Result<()> {
    let hide = "(setsid sleep 3600 &) ; sleep 3600";
    shell(
        client,
        stage,
        "Start background processes that never exit, with a timeout of 1s",
        hide,
        json!({ "timeout": "1s" }),
    )
    .await?;
    let count = "for c in /proc/[0-9]*/comm; do cat $c; done 2>/dev/null | grep -c sleep";
    shell(client, stage, "Count the processes left", count, json!({})).await
}

async fn files(client: &Client, stage: &mut Stage) -> Result<()> {
    let mut step = Step::begin("Write two files at once and read one back", "write_files, read_file");
    let files = json!([
        { "path": "notes/one.txt", "content": "kept in /workspace\n" },
        { "path": "notes/two.txt", "content": "until the sandbox is destroyed\n" },
    ]);
    client.call("write_files", json!({ "sandbox": SANDBOX, "files": files })).await?;
    let mut body = client.get_file(SANDBOX, "notes/two.txt").await?;
    let mut bytes = 0;
    while let Some(piece) = body.next().await? {
        bytes += u64::try_from(piece.len()).unwrap_or_default();
        step.line(String::from_utf8_lossy(&piece).trim_end());
    }
    step.line(&format!("({} read back)", human_bytes(bytes)));
    step.done();
    stage.show(&step);
    Ok(())
}

/// A command in bash, whose `/dev/tcp` needs no other program.
async fn bash(client: &Client, stage: &mut Stage, what: &str, command: &str) -> Result<()> {
    let input = json!({ "sandbox": SANDBOX, "argv": ["bash", "-c", command] });
    run(client, stage, what, command, input).await
}

async fn shell(client: &Client, stage: &mut Stage, what: &str, command: &str, more: Value) -> Result<()> {
    let mut input = json!({ "sandbox": SANDBOX, "command": command });
    if let (Value::Object(input), Value::Object(more)) = (&mut input, more) {
        input.extend(more);
    }
    run(client, stage, what, command, input).await
}

async fn run(client: &Client, stage: &mut Stage, what: &str, shown: &str, input: Value) -> Result<()> {
    let mut step = Step::begin(what, shown);
    match client.call("exec", input).await {
        Ok(result) => step.output(&result),
        // An image without the program is not an error of the demo.
        Err(error) if error.is(Code::CommandNotFound) => step.line(&error.message),
        Err(error) => return Err(error),
    }
    step.done();
    stage.show(&step);
    Ok(())
}
