//! Out of a sandbox.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use isle_client::{Client, ClientError, FileMode, Result};
use isle_engine::ops::shapes::KindName;
use isle_engine::{Code, Error};
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::{Copied, Standing, join, standing};
use crate::places::cannot;

/// One entry of a directory, as the sandbox says; its path is its name.
#[derive(Debug, Deserialize)]
struct Entry {
    path: String,
    kind: KindName,
    /// There when the name is not UTF-8; then `path` is not the name.
    path_base64: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Listing {
    entries: Vec<Entry>,
    truncated: bool,
}

/// Copies a file or a tree. As with `cp`, an existing directory receives it under its own name.
pub(super) async fn download(
    client: &Client,
    sandbox: &str,
    path: &str,
    host: &Path,
    copied: &mut Copied,
) -> Result<()> {
    if host.as_os_str() == "-" {
        let mut stdout = tokio::io::stdout();
        copied.bytes += write(client, sandbox, path, Path::new("standard output"), &mut stdout).await?.0;
        return Ok(());
    }
    let name = path.trim_end_matches('/').rsplit('/').next().filter(|name| is_plain(name)).unwrap_or(sandbox);
    let target = if host.is_dir() { host.join(name) } else { host.to_owned() };
    match standing(client, sandbox, path).await? {
        Standing::Directory => tree(client, sandbox, path, target, copied).await,
        // When there is nothing, reading says so in the daemon's own words.
        Standing::Nothing | Standing::Other => file(client, sandbox, path, &target, copied).await,
    }
}

async fn tree(
    client: &Client,
    sandbox: &str,
    path: &str,
    target: PathBuf,
    copied: &mut Copied,
) -> Result<()> {
    let top = path;
    let mut open = vec![(path.to_owned(), target)];
    while let Some((path, target)) = open.pop() {
        let is_top = path == top;
        match std::fs::create_dir(&target) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => refuse_link(&target)?,
            Err(error) if error.kind() == io::ErrorKind::InvalidFilename => {
                copied.skip_because(path, "its path is too long for this host");
                continue;
            }
            Err(error) => return Err(cannot("make", &target, &error)),
        }
        let input = json!({ "sandbox": sandbox, "path": path, "limit": 10_000 });
        let listing: Listing = match client.call_as("list_files", input).await {
            Ok(listing) => listing,
            // The one that was asked for must be there; those below it may be gone or swapped meanwhile.
            Err(error) if !is_top && is_elusive(&error) => {
                copied.skip_because(path, error.message);
                continue;
            }
            Err(error) => return Err(error),
        };
        if listing.truncated {
            return Err(Error::new(
                Code::TooLarge,
                format!("{path:?} has too many entries to copy one by one"),
            )
            .next("pack it in the sandbox with tar and copy the archive")
            .into());
        }
        for entry in listing.entries {
            let (from, to) = (join(&path, &entry.path), target.join(&entry.path));
            if !is_plain(&entry.path) || entry.path_base64.is_some() {
                copied.skip_because(from, "its name is not text, or would lead elsewhere");
                continue;
            }
            match entry.kind {
                KindName::Directory => open.push((from, to)),
                KindName::File => match file(client, sandbox, &from, &to, copied).await {
                    Ok(()) => {}
                    Err(error) if is_elusive(&error) => copied.skip_because(from, error.message),
                    Err(error) => return Err(error),
                },
                KindName::Symlink | KindName::Other => copied.skip(from),
            }
        }
    }
    Ok(())
}

/// Whether a file that was listed cannot be had as one: it was swapped for something else or removed
/// meanwhile, or is nothing but a claim. One such file does not end the copy of the others.
fn is_elusive(error: &ClientError) -> bool {
    [
        Code::FileNotFound,
        Code::NotRegular,
        Code::InvalidPath,
        Code::IsDirectory,
        Code::NotDirectory,
        Code::TooLarge,
    ]
    .into_iter()
    .any(|code| error.is(code))
}

/// A name that cannot lead out of its directory.
fn is_plain(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

/// What was a directory before we came may be used, a link in its place may not.
fn refuse_link(target: &Path) -> Result<()> {
    match std::fs::symlink_metadata(target) {
        Ok(known) if known.is_dir() => Ok(()),
        Ok(_) => Err(Error::new(
            Code::NotDirectory,
            format!("{} stands where a directory is due", target.display()),
        )
        .next("move it away, or copy to another place")
        .into()),
        Err(error) => Err(cannot("look at", target, &error)),
    }
}

/// Written beside its place first: whoever finds the file finds all of it.
async fn file(client: &Client, sandbox: &str, path: &str, target: &Path, copied: &mut Copied) -> Result<()> {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".isle-{}", std::process::id()));
    let draft = target.with_file_name(name);
    let written: Result<u64> = async {
        let mut open = tokio::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)
            .await
            .map_err(|error| cannot("write", target, &error))?;
        let (bytes, mode) = write(client, sandbox, path, target, &mut open).await?;
        // Whatever the sandbox says, nothing becomes set-uid here.
        let mode = std::fs::Permissions::from_mode(mode.map_or(0o644, |mode| mode.0 & 0o755));
        open.set_permissions(mode).await.map_err(|error| cannot("write", target, &error))?;
        std::fs::rename(&draft, target).map_err(|error| cannot("write", target, &error))?;
        Ok(bytes)
    }
    .await;
    if written.is_err() {
        // It may never have been made.
        drop(std::fs::remove_file(&draft));
    }
    copied.bytes += written?;
    copied.files += 1;
    Ok(())
}

async fn write(
    client: &Client,
    sandbox: &str,
    path: &str,
    target: &Path,
    to: &mut (impl tokio::io::AsyncWrite + Unpin),
) -> Result<(u64, Option<FileMode>)> {
    let mut body = client.get_file(sandbox, path).await?;
    let mut bytes = 0;
    while let Some(piece) = body.next().await? {
        to.write_all(&piece).await.map_err(|error| cannot("write", target, &error))?;
        bytes += u64::try_from(piece.len()).unwrap_or_default();
    }
    to.flush().await.map_err(|error| cannot("write", target, &error))?;
    Ok((bytes, body.mode))
}
