//! Out of a sandbox.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use isle_client::{Client, FileMode, Result};
use isle_engine::{Code, Error};
use tokio::io::AsyncWriteExt;

use super::{Copied, Standing, join, standing};
use crate::commands::trees;
use crate::output::Progress;
use crate::places::cannot;

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
        copied.bytes +=
            write(client, sandbox, path, Path::new("standard output"), &mut stdout, copied).await?.0;
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
    // The sandbox may still refuse; then there is to be no directory.
    let body = client.get_tree(sandbox, path, None).await?;
    let is_new = match std::fs::create_dir(&target) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            refuse_link(&target)?;
            false
        }
        Err(error) => return Err(cannot("make", &target, &error)),
    };
    let progress = Progress::new(copied.form, "copying", None);
    let received =
        trees::receive(client, sandbox, body, trees::open_directory(&target)?, &target, progress).await;
    if received.is_err() && is_new {
        // Empty again, since nothing of a bad archive is kept.
        drop(std::fs::remove_dir(&target));
    }
    let carried = received?;
    copied.files += carried.files;
    copied.bytes += carried.bytes;
    let named = carried.skipped.len() as u64;
    for left in carried.skipped {
        copied.skip_because(join(path, &String::from_utf8_lossy(&left.path)), left.why);
    }
    copied.unnamed += carried.skipped_count.saturating_sub(named);
    Ok(())
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
        let (bytes, mode) = write(client, sandbox, path, target, &mut open, copied).await?;
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
    copied: &Copied,
) -> Result<(u64, Option<FileMode>)> {
    let mut body = client.get_file(sandbox, path).await?;
    let mut progress = Progress::new(copied.form, "copying", body.size);
    let mut bytes = 0;
    while let Some(piece) = body.next().await? {
        to.write_all(&piece).await.map_err(|error| cannot("write", target, &error))?;
        progress.add(piece.len());
        bytes += u64::try_from(piece.len()).unwrap_or_default();
    }
    to.flush().await.map_err(|error| cannot("write", target, &error))?;
    Ok((bytes, body.mode))
}
