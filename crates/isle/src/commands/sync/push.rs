//! Copies changed files into a sandbox.

use std::process::ExitCode;

use isle_client::Result;
use isle_core::Error;
use isle_trees::{HashCache, Rules, host_manifest, plan};
use serde_json::json;

use super::{Done, reject_conflicts, remote, remote_manifest, report, selector};
use crate::arguments::PushArguments;
use crate::commands::transfer_report::TransferReport;
use crate::commands::{Context, trees};
use crate::output::Progress;
use crate::paths::cannot;

pub(super) async fn push(context: &Context, arguments: PushArguments) -> Result<ExitCode> {
    let PushArguments { from, to, options } = arguments;
    let remote = remote(&to)?;
    let mut selector = selector(&options)?;
    let top = trees::open_directory(&from)?;
    let again = top.try_clone().map_err(Error::internal)?;
    let chosen = host_manifest(top, &mut selector, HashCache::default(), Rules::FromTree)
        .map_err(|error| cannot("read", &from, &error))?;
    let client = context.client().await?;
    // Excluded files are left unchanged in the sandbox too.
    let (there, _) = selector.choose(remote_manifest(&client, &remote).await?);
    let plan = plan(&chosen.entries, &there);
    reject_conflicts(&plan, &options)?;
    let mut done = Done {
        what: "sent",
        sent: plan.files(&chosen.entries),
        bytes: plan.bytes,
        removed: 0,
        left_out: chosen.left_out,
        skipped: Vec::new(),
        transfer: TransferReport::default(),
    };
    let (sandbox, path) = (remote.sandbox.as_str(), remote.path.as_str());
    if options.dry_run {
        done.removed = if options.delete { plan.extra.len() as u64 } else { 0 };
        report(context, &options, &plan, &done);
        return Ok(ExitCode::SUCCESS);
    }
    if options.delete && !plan.extra.is_empty() {
        done.removed = client.prune(sandbox, path, &plan.extra).await?;
    }
    for conflict in &plan.conflicts {
        let place = format!("{}/{}", remote.path.absolute(), String::from_utf8_lossy(conflict));
        client.call("remove_file", json!({ "sandbox": sandbox, "path": place, "recursive": true })).await?;
        done.removed += 1;
    }
    // Conflicts are resolved now and sent like all changed files.
    let mut send = plan.send.clone();
    send.extend(plan.conflicts.iter().cloned());
    let progress = Progress::new(context.form, "sending", Some(plan.bytes));
    // Sending an empty tree creates the directory.
    if !send.is_empty() || there.is_empty() {
        let (packed, _) = trees::send(&client, again, Some(send), (sandbox, path), progress).await?;
        done.skipped =
            packed.skipped.iter().map(|left| String::from_utf8_lossy(&left.path).into_owned()).collect();
        (done.sent, done.bytes) = (packed.files, packed.bytes);
    }
    report(context, &options, &plan, &done);
    Ok(ExitCode::SUCCESS)
}
