//! `isle sync`: a directory of this host and one of a sandbox made alike, once or for as long as both
//! are there. Only what differs is sent; `.gitignore` decides what belongs to a tree.

mod live;
mod pull;
mod push;

use std::process::ExitCode;

use isle_client::{Client, Result};
use isle_engine::values::{GuestPath, SandboxName};
use isle_engine::{Code, Error};
use isle_trees::{ManifestEntry, Plan, Selection, Selector};
use serde_json::json;

use super::Context;
use crate::arguments::{SyncArguments, SyncCommand, SyncOptions};
use crate::output::{Form, escaped, human_bytes, print_json, say};

/// Conflicts that are named.
const NAMED: usize = 20;

pub(super) async fn sync(context: &Context, arguments: SyncArguments) -> Result<ExitCode> {
    match arguments.command {
        SyncCommand::Push(arguments) => push::push(context, arguments).await,
        SyncCommand::Pull(arguments) => pull::pull(context, arguments).await,
        SyncCommand::Start(arguments) => live::start(context, arguments).await,
        SyncCommand::Stop(arguments) => live::stop(context, arguments).await,
        SyncCommand::Ls => live::ls(context).await,
    }
}

/// A directory of a sandbox.
struct Remote {
    sandbox: SandboxName,
    path: GuestPath,
}

/// Reads `NAME` or `NAME:PATH`.
fn remote(text: &str) -> Result<Remote> {
    let (name, path) = text.split_once(':').unwrap_or((text, "."));
    let path = if path.is_empty() { "." } else { path };
    Ok(Remote { sandbox: name.parse()?, path: path.parse()? })
}

/// What the options choose.
fn selection(options: &SyncOptions) -> Selection {
    Selection { exclude: options.exclude.clone(), git: options.git, ignored: options.ignored }
}

fn selector(options: &SyncOptions) -> Result<Selector> {
    Selector::new(&selection(options)).map_err(|error| {
        Error::new(Code::InvalidArgument, error.to_string())
            .next("write patterns as in a .gitignore file, such as --exclude '*.log'")
            .into()
    })
}

/// What is there; nothing when the directory or the sandbox is not.
async fn remote_manifest(client: &Client, remote: &Remote) -> Result<Vec<ManifestEntry>> {
    match client.manifest(remote.sandbox.as_str(), remote.path.as_str()).await {
        Err(error) if error.is(Code::FileNotFound) || error.is(Code::SandboxNotFound) => Ok(Vec::new()),
        manifest => manifest,
    }
}

/// A file in the place of a directory, or the other way round, is only removed by those who say so.
fn refuse_conflicts(plan: &Plan, options: &SyncOptions) -> Result<()> {
    if plan.conflicts.is_empty() || options.delete {
        return Ok(());
    }
    let names: Vec<String> =
        plan.conflicts.iter().take(NAMED).map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    Err(Error::new(
        Code::FileExists,
        format!("{:?} is a file on one side and a directory on the other", names[0]),
    )
    .detail("conflicts", names)
    .next("remove one of them, or use --delete to make the other side like this one")
    .into())
}

/// What was done.
struct Done {
    what: &'static str,
    sent: u64,
    bytes: u64,
    removed: u64,
    left_out: u64,
    skipped: Vec<String>,
}

fn report(context: &Context, options: &SyncOptions, plan: &Plan, done: &Done) {
    let left: Vec<String> = plan
        .left_out
        .iter()
        .map(|path| String::from_utf8_lossy(path).into_owned())
        .chain(done.skipped.iter().cloned())
        .collect();
    match context.form {
        Form::Json => print_json(&json!({
            "files": done.sent,
            "bytes": done.bytes,
            "unchanged": plan.unchanged,
            "removed": done.removed,
            "extra": if options.delete { 0 } else { plan.extra.len() },
            "excluded": done.left_out,
            "exclude": options.exclude,
            "git": options.git,
            "skipped": left,
            "dry_run": options.dry_run,
        })),
        Form::Human => {
            for path in left.iter().take(NAMED) {
                say(&format!("skipped {}: neither file nor directory, or not readable", escaped(path)));
            }
            let would = if options.dry_run { "would have " } else { "" };
            let word = if done.sent == 1 { "file" } else { "files" };
            let mut line = format!(
                "{would}{} {} {word}, {}; {} unchanged, {} excluded",
                done.what,
                done.sent,
                human_bytes(done.bytes),
                plan.unchanged,
                done.left_out
            );
            if options.delete {
                line.push_str(&format!(", {} removed", done.removed));
            } else if !plan.extra.is_empty() {
                line.push_str(&format!(", {} only on the other side", plan.extra.len()));
            }
            say(&line);
            if !options.exclude.is_empty() {
                say(&format!("excluded by: {}", escaped(&options.exclude.join(" "))));
            }
        }
    }
}
