//! `isle run`: runs a command in a new sandbox.

use std::path::Path;
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isle_api::session::{OneShotSpec, PlacedFile, StartTarget};
use isle_client::Result;
use isle_core::{Code, Error};

use super::{Context, interactive};
use crate::arguments::{RunArguments, SandboxArguments};
use crate::config::{Settings, Value};
use crate::paths::cannot;

pub(super) async fn run(context: &Context, arguments: RunArguments) -> Result<ExitCode> {
    let RunArguments { how, file, sandbox } = arguments;
    let settings = settings(context, &sandbox, how.timeout.clone())?;
    // A profile overrides configuration files, which the daemon reads itself: send only flags.
    let chosen = if how.profile.is_some() { settings.clone().of_flags() } else { settings.clone() };
    let target = StartTarget::OneShot(one_shot(&chosen, &file)?);
    let request = interactive::request(target, how, &settings)?;
    interactive::open(context, &settings, request).await?.drive().await
}

pub(super) fn settings(
    context: &Context,
    sandbox: &SandboxArguments,
    timeout: Option<String>,
) -> Result<Settings> {
    let flags = [
        ("tier", sandbox.tier.clone()),
        ("backend", sandbox.backend.clone()),
        ("image", sandbox.image.clone()),
        ("memory", sandbox.memory.clone()),
        ("cpus", sandbox.cpus.clone()),
        ("pids", sandbox.pids.clone()),
        ("disk", sandbox.disk.clone()),
        ("allow_downgrade", sandbox.allow_downgrade.then(|| "true".to_owned())),
        ("timeout", timeout),
    ];
    Settings::for_command(context.global.config.as_ref(), &flags)
}

/// The options that were set; the others are left to the daemon, whose pooled sandboxes have its defaults.
pub(super) fn one_shot(settings: &Settings, files: &[String]) -> Result<OneShotSpec> {
    Ok(OneShotSpec {
        tier: settings.chosen_as("tier")?,
        backend: settings.chosen_as("backend")?,
        image: settings.chosen("image"),
        memory: settings.chosen_as("memory")?,
        cpus: settings.chosen_value("cpus").and_then(|value| match value {
            Value::Number(number) => Some(*number),
            _ => None,
        }),
        pids: settings.chosen_value("pids").and_then(|value| match value {
            Value::Count(count) => Some(*count),
            _ => None,
        }),
        disk: settings.chosen_as("disk")?,
        allow_downgrade: settings.chosen_value("allow_downgrade").map(|value| *value == Value::Switch(true)),
        files: placed_files(files)?,
    })
}

/// The files are sent with the command, in one message.
fn placed_files(files: &[String]) -> Result<Vec<PlacedFile>> {
    const MAX_BYTES: usize = 8 * 1024 * 1024;
    let files = files.iter().map(|text| placed_file(text)).collect::<Result<Vec<_>>>()?;
    let size: usize = files.iter().map(|file| file.content_base64.len() / 4 * 3).sum();
    if size > MAX_BYTES + 2 {
        return Err(Error::new(Code::TooLarge, "--file: total size of the files exceeds 8 MiB")
            .next("create a named sandbox and copy them: isle cp FILE NAME:PATH")
            .into());
    }
    Ok(files)
}

/// `HOST:GUEST`, split at the last colon, so that a host path may contain one.
fn placed_file(text: &str) -> Result<PlacedFile> {
    let Some((host, guest)) =
        text.rsplit_once(':').filter(|(host, guest)| !host.is_empty() && !guest.is_empty())
    else {
        return Err(Error::new(Code::InvalidArgument, format!("--file: expected HOST:GUEST, got {text:?}"))
            .next("pass the path on this host, a colon, and the path in the sandbox")
            .into());
    };
    let content = std::fs::read(host).map_err(|error| cannot("read", Path::new(host), &error))?;
    Ok(PlacedFile { path: guest.parse()?, content_base64: STANDARD.encode(content) })
}
