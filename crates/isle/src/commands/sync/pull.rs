//! Copies changed files out of a sandbox. The sandbox's `.gitignore` files select what belongs to its tree;
//! they have no other effect.

use std::os::fd::AsFd;
use std::process::ExitCode;

use isle_client::Result;
use isle_core::Error;
use isle_trees::git::{GitDirs, SkippedGitDirs, fetchable, has_git_name, is_git_of, is_within};
use isle_trees::{
    HashCache, Kind, Rules, Selection, host_manifest, leave_out_git_entries, open_beneath, plan, prune,
    remove_tree_beneath,
};
use rustix::fs::OFlags;

use super::fetch::fetch;
use super::{Done, reject_conflicts, remote, report, selection, selector_of};
use crate::arguments::PullArguments;
use crate::commands::transfer_report::TransferReport;
use crate::commands::{Context, trees};
use crate::output::Progress;
use crate::paths::cannot;

/// Maximum size of an ignore file.
const MAX_RULES_BYTES: usize = 1 << 20;

pub(super) async fn pull(context: &Context, arguments: PullArguments) -> Result<ExitCode> {
    let PullArguments { from, to, options, git_dirs } = arguments;
    let git_dirs = GitDirs::from(git_dirs);
    let copies_git = git_dirs == GitDirs::Copy;
    let remote = remote(&from)?;
    let mut selector = selector_of(&Selection { git: copies_git, ..selection(&options) })?;
    trees::refuse_git_directory(&to, git_dirs)?;
    let client = context.client().await?;
    let (sandbox, path) = (remote.sandbox.as_str(), remote.path.as_str());
    let entries = client.manifest(sandbox, path).await?;
    let (entries, mut git, repositories) = if copies_git {
        (entries, SkippedGitDirs::default(), Vec::new())
    } else {
        let described = entries.clone();
        let (entries, git) = leave_out_git_entries(entries);
        let repositories = if options.git { fetchable(&described, &git) } else { Vec::new() };
        (entries, git, repositories)
    };
    if git.named.iter().any(Vec::is_empty) {
        return Err(trees::git_refused(&format!("{from} is a git directory")));
    }
    for entry in &entries {
        if entry.kind != Kind::File || !selector.wants(&entry.path) {
            continue;
        }
        let Ok(name) = std::str::from_utf8(&entry.path) else { continue };
        let mut body = client.get_file(sandbox, &format!("{}/{name}", remote.path.absolute())).await?;
        let mut rules = Vec::new();
        while let Some(piece) = body.next().await? {
            rules.extend_from_slice(&piece);
            if rules.len() > MAX_RULES_BYTES {
                break;
            }
        }
        selector.add(&entry.path, &rules);
    }
    let (chosen, left_out) = selector.choose(entries);
    std::fs::create_dir_all(&to).map_err(|error| cannot("create", &to, &error))?;
    let top = trees::open_directory(&to)?;
    let again = || top.try_clone().map_err(Error::internal);
    let mut here = host_manifest(again()?, &mut selector, HashCache::default(), Rules::Given)
        .map_err(|error| cannot("read", &to, &error))?;
    // Git directories are not compared, so they are not removed either. Not all of them are listed, so every
    // path here with a git name is kept.
    let is_kept = |path: &[u8]| !copies_git && has_git_name(path);
    here.entries.retain(|entry| !is_within(&entry.path, &git.named) && !is_kept(&entry.path));
    let plan = plan(&chosen, &here.entries);
    reject_conflicts(&plan, &options)?;
    let mut done = Done {
        what: "received",
        sent: plan.files(&chosen),
        bytes: plan.bytes,
        removed: 0,
        left_out,
        skipped: Vec::new(),
        transfer: TransferReport::default(),
    };
    let unnamed = git.count.saturating_sub(git.named.len() as u64);
    git.named.retain(|path| !repositories.iter().any(|directory| is_git_of(path, directory)));
    git.count = git.named.len() as u64 + unnamed;
    done.transfer.add_git(&git);
    if options.dry_run {
        done.removed = if options.delete { plan.extra.len() as u64 } else { 0 };
        report(context, &options, &plan, &done);
        return Ok(ExitCode::SUCCESS);
    }
    let mut wanted = plan.send.clone();
    wanted.extend(plan.conflicts.iter().cloned());
    // Requested before anything is removed here: the sandbox may no longer exist.
    let body = client.get_tree(sandbox, path, Some(&wanted), GitDirs::Copy).await?;
    if options.delete {
        done.removed = prune(top.as_fd(), &plan.extra).map_err(|error| cannot("remove from", &to, &error))?;
        for conflict in &plan.conflicts {
            remove_tree_beneath(top.as_fd(), conflict).map_err(|error| cannot("remove from", &to, &error))?;
            done.removed += 1;
        }
    }
    let progress = Progress::new(context.form, "receiving", Some(plan.bytes));
    let arrived = trees::receive(&client, sandbox, body, again()?, (&to, git_dirs), progress).await?;
    (done.sent, done.bytes) = (arrived.carried.files, arrived.carried.bytes);
    done.skipped =
        arrived.carried.skipped.iter().map(|left| String::from_utf8_lossy(&left.path).into_owned()).collect();
    done.transfer.add(&arrived);
    for directory in &repositories {
        let below = String::from_utf8_lossy(directory).into_owned();
        let opened = open_beneath(top.as_fd(), directory, OFlags::RDONLY | OFlags::DIRECTORY);
        let (Ok(to), Ok(_)) = (opened, std::str::from_utf8(directory)) else {
            // Its directory was not pulled.
            done.transfer.git.push(format!("{below}/.git"));
            continue;
        };
        let fetched = fetch(&client, &remote, &below, to).await?;
        let shown = if below.is_empty() { ".".to_owned() } else { below };
        done.transfer.repositories.push((shown, fetched));
    }
    report(context, &options, &plan, &done);
    Ok(ExitCode::SUCCESS)
}
