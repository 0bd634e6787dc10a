//! `isle sync`: synchronizes a directory of this host and one of a sandbox, once or live. Only changed files
//! are sent; `.gitignore` files select what belongs to a tree.

mod fetch;
mod live;
mod pull;
mod push;

use std::process::ExitCode;

use isle_client::{Client, Result};
use isle_core::values::{GuestPath, SandboxName};
use isle_core::{Code, Error};
use isle_trees::{ManifestEntry, Selection, Selector, SyncPlan};
use serde_json::json;

use super::Context;
use super::transfer_report::TransferReport;
use crate::arguments::{SyncArguments, SyncCommand, SyncOptions};
use crate::output::{Form, escaped, human_bytes, print_json, print_stderr};

/// Maximum number of conflicts and skipped files listed.
const MAX_LISTED: usize = 20;

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

/// The files selected by the options.
fn selection(options: &SyncOptions) -> Selection {
    Selection { exclude: options.exclude.clone(), git: options.git, ignored: options.ignored }
}

fn selector(options: &SyncOptions) -> Result<Selector> {
    selector_of(&selection(options))
}

fn selector_of(selection: &Selection) -> Result<Selector> {
    Selector::new(selection).map_err(|error| {
        Error::new(Code::InvalidArgument, error.to_string())
            .next("use .gitignore patterns, such as --exclude '*.log'")
            .into()
    })
}

/// The entries of the remote directory; empty when the directory or the sandbox does not exist.
async fn remote_manifest(client: &Client, remote: &Remote) -> Result<Vec<ManifestEntry>> {
    match client.manifest(remote.sandbox.as_str(), remote.path.as_str()).await {
        Err(error) if error.is(Code::FileNotFound) || error.is(Code::SandboxNotFound) => Ok(Vec::new()),
        manifest => manifest,
    }
}

/// A file that replaces a directory, or the reverse, is only removed with `--delete`.
fn reject_conflicts(plan: &SyncPlan, options: &SyncOptions) -> Result<()> {
    if plan.conflicts.is_empty() || options.delete {
        return Ok(());
    }
    let names: Vec<String> = plan
        .conflicts
        .iter()
        .take(MAX_LISTED)
        .map(|path| String::from_utf8_lossy(path).into_owned())
        .collect();
    Err(Error::new(Code::FileExists, plan.conflict_message().unwrap_or_default())
        .detail("conflicts", names)
        .next("remove one of them, or use --delete to overwrite the receiving side")
        .into())
}

/// Result of a sync.
struct Done {
    what: &'static str,
    sent: u64,
    bytes: u64,
    removed: u64,
    left_out: u64,
    skipped: Vec<String>,
    transfer: TransferReport,
}

fn report(context: &Context, options: &SyncOptions, plan: &SyncPlan, done: &Done) {
    let left: Vec<String> = plan
        .left_out
        .iter()
        .map(|path| String::from_utf8_lossy(path).into_owned())
        .chain(done.skipped.iter().cloned())
        .collect();
    match context.form {
        Form::Json => {
            let mut answer = json!({
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
            });
            done.transfer.add_to_json(&mut answer);
            print_json(&answer);
        }
        Form::Human => {
            for path in left.iter().take(MAX_LISTED) {
                print_stderr(&format!(
                    "skipped {}: not a regular file or directory, or not readable",
                    escaped(path)
                ));
            }
            done.transfer.print();
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
                line.push_str(&format!(", {} only on the receiving side", plan.extra.len()));
            }
            print_stderr(&line);
            if !options.exclude.is_empty() {
                print_stderr(&format!("excluded by: {}", escaped(&options.exclude.join(" "))));
            }
        }
    }
}
