//! Out of a sandbox onto this host. The sandbox's own `.gitignore` files decide what belongs to its
//! tree; they are read like any other file and never obeyed in anything else.

use std::os::fd::AsFd;
use std::process::ExitCode;

use isle_client::Result;
use isle_engine::Error;
use isle_trees::{Kind, Known, Rules, host_manifest, plan, prune, remove_tree_beneath};

use super::{Done, refuse_conflicts, remote, report, selector};
use crate::arguments::PullArguments;
use crate::commands::{Context, trees};
use crate::output::Progress;
use crate::places::cannot;

/// What is read of an ignore file.
const LONGEST_RULES: usize = 1 << 20;

pub(super) async fn pull(context: &Context, arguments: PullArguments) -> Result<ExitCode> {
    let PullArguments { from, to, options } = arguments;
    let remote = remote(&from)?;
    let mut selector = selector(&options)?;
    let client = context.client().await?;
    let (sandbox, path) = (remote.sandbox.as_str(), remote.path.as_str());
    let entries = client.manifest(sandbox, path).await?;
    for entry in &entries {
        if entry.kind != Kind::File || !selector.wants(&entry.path) {
            continue;
        }
        let Ok(name) = std::str::from_utf8(&entry.path) else { continue };
        let mut body = client.get_file(sandbox, &format!("{}/{name}", remote.path.absolute())).await?;
        let mut rules = Vec::new();
        while let Some(piece) = body.next().await? {
            rules.extend_from_slice(&piece);
            if rules.len() > LONGEST_RULES {
                break;
            }
        }
        selector.add(&entry.path, &rules);
    }
    let (chosen, left_out) = selector.choose(entries);
    std::fs::create_dir_all(&to).map_err(|error| cannot("make", &to, &error))?;
    let top = trees::open_directory(&to)?;
    let again = || top.try_clone().map_err(Error::internal);
    let here = host_manifest(again()?, &mut selector, Known::default(), Rules::Given)
        .map_err(|error| cannot("read", &to, &error))?;
    let plan = plan(&chosen, &here.entries);
    refuse_conflicts(&plan, &options)?;
    let mut done = Done {
        what: "received",
        sent: plan.files(&chosen),
        bytes: plan.bytes,
        removed: 0,
        left_out,
        skipped: Vec::new(),
    };
    if options.dry_run {
        done.removed = if options.delete { plan.extra.len() as u64 } else { 0 };
        report(context, &options, &plan, &done);
        return Ok(ExitCode::SUCCESS);
    }
    let mut wanted = plan.send.clone();
    wanted.extend(plan.conflicts.iter().cloned());
    // Asked for before anything is removed here: the sandbox may be gone.
    let body = client.get_tree(sandbox, path, Some(&wanted)).await?;
    if options.delete {
        done.removed = prune(top.as_fd(), &plan.extra).map_err(|error| cannot("remove from", &to, &error))?;
        for conflict in &plan.conflicts {
            remove_tree_beneath(top.as_fd(), conflict).map_err(|error| cannot("remove from", &to, &error))?;
            done.removed += 1;
        }
    }
    let progress = Progress::new(context.form, "receiving", Some(plan.bytes));
    let carried = trees::receive(&client, sandbox, body, again()?, &to, progress).await?;
    (done.sent, done.bytes) = (carried.files, carried.bytes);
    done.skipped =
        carried.skipped.iter().map(|left| String::from_utf8_lossy(&left.path).into_owned()).collect();
    report(context, &options, &plan, &done);
    Ok(ExitCode::SUCCESS)
}
