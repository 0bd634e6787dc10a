//! Fetches commits of a sandbox's repository into one of this host: git in the sandbox creates a bundle, and
//! this host's git fetches from it. Nothing else of the sandbox's git directory is copied.

use std::os::fd::OwnedFd;

use isle_client::{Client, ClientError, Result};
use isle_core::{Code, Error};
use isle_trees::git::{BUNDLE_SCRIPT, BundleFile, Bundled, FetchedRepository, GitError};
use serde_json::json;

use super::Remote;
use crate::commands::trees::max_bytes;

/// Fetches from the repository in a directory of a sandbox, relative to the remote's path.
pub(super) async fn fetch(
    client: &Client,
    remote: &Remote,
    directory: &str,
    to: OwnedFd,
) -> Result<FetchedRepository> {
    let sandbox = remote.sandbox.as_str();
    let from = format!("{}/{directory}", remote.path.absolute());
    let from = from.trim_end_matches('/').to_owned();
    let nanos =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let file = format!(".git/isle-{}-{nanos:x}.bundle", std::process::id());
    let argv = ["sh", "-c", BUNDLE_SCRIPT, "isle-bundle", &from, &file];
    let run = json!({ "sandbox": sandbox, "argv": argv, "env": { "LC_ALL": "C" }, "wait": "15m" });
    let run = client.call("exec", run).await?;
    let text = |name: &str| run[name].as_str().unwrap_or_default().to_owned();
    let path = format!("{from}/{file}");
    let fetched = async {
        if text("state") == "running" || text("state") == "queued" {
            client.call("kill", json!({ "run_id": run["run_id"] })).await?;
            return Err(git_error(&GitError::PackingTooLong));
        }
        if text("state") == "timed_out" {
            return Err(git_error(&GitError::PackingTooLong));
        }
        if text("state") != "completed" {
            let said: String = text("stderr").trim().chars().take(1000).collect();
            return Err(git_error(&GitError::Packing(said)));
        }
        let bundled = Bundled::read(&text("stdout")).map_err(|error| git_error(&error))?;
        let limit = max_bytes(client, sandbox).await;
        let mut bundle = BundleFile::new(to, limit).map_err(|error| git_error(&error.into()))?;
        if !bundled.is_empty {
            let mut body = client.get_file(sandbox, &path).await?;
            while let Some(piece) = body.next().await? {
                bundle.write(&piece).map_err(|error| git_error(&error))?;
            }
        }
        let name = sandbox.to_owned();
        let fetching = tokio::task::spawn_blocking(move || bundle.fetch(&bundled, &name));
        fetching.await.map_err(Error::internal)?.map_err(|error| git_error(&error))
    }
    .await;
    // It may not have been created.
    client.call("remove_file", json!({ "sandbox": sandbox, "path": path })).await.ok();
    fetched
}

fn git_error(error: &GitError) -> ClientError {
    let next = match error {
        GitError::NoGitInside => "install git in the sandbox, or pull without --git",
        GitError::NoGitHere(_) => "install git on this host, or pull without --git",
        GitError::Standing(_) => "move it, or pull to another directory",
        GitError::Packing(_) | GitError::PackingTooLong => {
            "run `git fsck` in the sandbox, or pull without --git"
        }
        GitError::Bundle(_) | GitError::Failed(_) | GitError::TimedOut(_) | GitError::Io(_) => {
            "the files were pulled; run `git fsck` in the sandbox, or pull without --git"
        }
    };
    Error::new(Code::GitFailed, error.to_string()).next(next).into()
}
