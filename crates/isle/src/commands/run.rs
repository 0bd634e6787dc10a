//! `isle run`: one command in a fresh sandbox.

use std::path::Path;
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isle_client::{AttachTarget, OneShot, PlacedFile, Result};
use isle_engine::{Code, Error};

use super::{Context, interactive};
use crate::arguments::{RunArguments, SandboxArguments};
use crate::config::{Settings, Value};
use crate::places::cannot;

pub(super) async fn run(context: &Context, arguments: RunArguments) -> Result<ExitCode> {
    let RunArguments { how, file, sandbox } = arguments;
    let settings = settings(context, &sandbox, how.timeout.clone())?;
    // What files say is weaker than a profile, and the daemon reads them by itself.
    let chosen = if how.profile.is_some() { settings.clone().of_flags() } else { settings.clone() };
    let target = AttachTarget::OneShot(one_shot(&chosen, &file)?);
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

/// What was chosen; what was not is left to the daemon, whose ready sandboxes fit its defaults.
pub(super) fn one_shot(settings: &Settings, files: &[String]) -> Result<OneShot> {
    Ok(OneShot {
        tier: settings.chosen("tier"),
        image: settings.chosen("image"),
        memory: settings.chosen("memory"),
        cpus: settings.chosen_value("cpus").and_then(|value| match value {
            Value::Number(number) => Some(*number),
            _ => None,
        }),
        pids: settings.chosen_value("pids").and_then(|value| match value {
            Value::Count(count) => Some(*count),
            _ => None,
        }),
        disk: settings.chosen("disk"),
        allow_downgrade: settings.chosen_value("allow_downgrade").map(|value| *value == Value::Switch(true)),
        files: placed_files(files)?,
    })
}

/// They travel with the command, in one message.
fn placed_files(files: &[String]) -> Result<Vec<PlacedFile>> {
    const LARGEST: usize = 8 * 1024 * 1024;
    let files = files.iter().map(|text| placed_file(text)).collect::<Result<Vec<_>>>()?;
    let size: usize = files.iter().map(|file| file.content_base64.len() / 4 * 3).sum();
    if size > LARGEST + 2 {
        return Err(Error::new(Code::TooLarge, "--file: the files are larger than 8 MiB together")
            .next("make a named sandbox and copy them there: isle cp FILE NAME:PATH")
            .into());
    }
    Ok(files)
}

/// `HOST:GUEST`; the last colon counts, so that a host path may contain one.
fn placed_file(text: &str) -> Result<PlacedFile> {
    let Some((host, guest)) =
        text.rsplit_once(':').filter(|(host, guest)| !host.is_empty() && !guest.is_empty())
    else {
        return Err(Error::new(Code::InvalidArgument, format!("--file: {text:?} is not HOST:GUEST"))
            .next("write the file of this host, a colon, and its path in the sandbox")
            .into());
    };
    let content = std::fs::read(host).map_err(|error| cannot("read", Path::new(host), &error))?;
    Ok(PlacedFile { path: guest.to_owned(), content_base64: STANDARD.encode(content) })
}
