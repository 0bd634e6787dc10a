//! Copies out of a sandbox.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use isle_client::{Client, FileMode, Result};
use isle_core::{Code, Error};
use isle_trees::git::GitDirs;
use isle_trees::{EXECUTABLE, Review, auto_run_reason};
use tokio::io::AsyncWriteExt;

use super::{Copied, PathKind, join, path_kind};
use crate::commands::trees;
use crate::output::Progress;
use crate::paths::cannot;

/// Copies a file or a tree. As with `cp`, it is copied into an existing directory under its own name.
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
    trees::refuse_git_directory(&target, copied.git_dirs)?;
    match path_kind(client, sandbox, path).await? {
        PathKind::Directory => tree(client, sandbox, path, target, copied).await,
        // For a missing path, reading the file returns the daemon's error.
        PathKind::Missing | PathKind::Other => file(client, sandbox, path, &target, copied).await,
    }
}

async fn tree(
    client: &Client,
    sandbox: &str,
    path: &str,
    target: PathBuf,
    copied: &mut Copied,
) -> Result<()> {
    // Requested before the directory is created, since the request may fail.
    // Git directories are skipped on this side, where existing files are known too.
    let body = client.get_tree(sandbox, path, None, GitDirs::Copy).await?;
    let is_new = match std::fs::create_dir(&target) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            reject_link(&target)?;
            false
        }
        Err(error) => return Err(cannot("create", &target, &error)),
    };
    let progress = Progress::new(copied.form, "copying", None);
    let there = trees::open_directory(&target)?;
    let received = trees::receive(client, sandbox, body, there, (&target, copied.git_dirs), progress).await;
    if received.is_err() && is_new {
        // It is empty, since nothing of an invalid archive is kept.
        drop(std::fs::remove_dir(&target));
    }
    let arrived = received?;
    copied.transfer.add(&arrived);
    let carried = arrived.carried;
    copied.files += carried.files;
    copied.bytes += carried.bytes;
    let named = carried.skipped.len() as u64;
    for left in carried.skipped {
        copied.skip_because(join(path, &String::from_utf8_lossy(&left.path)), left.why);
    }
    copied.unnamed += carried.skipped_count.saturating_sub(named);
    Ok(())
}

/// Whether the name is a single path component.
fn is_plain(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

/// An existing directory may be used, a symbolic link may not.
fn reject_link(target: &Path) -> Result<()> {
    match std::fs::symlink_metadata(target) {
        Ok(known) if known.is_dir() => Ok(()),
        Ok(_) => {
            Err(Error::new(Code::NotDirectory, format!("{} exists and is not a directory", target.display()))
                .next("move it, or copy to another path")
                .into())
        }
        Err(error) => Err(cannot("stat", target, &error)),
    }
}

/// Written to a temporary file and renamed, so that the file is never seen incomplete.
async fn file(client: &Client, sandbox: &str, path: &str, target: &Path, copied: &mut Copied) -> Result<()> {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".isle-{}", std::process::id()));
    let temporary = target.with_file_name(name);
    let was_executable = std::fs::metadata(target).is_ok_and(|known| known.permissions().mode() & 0o111 != 0);
    let written: Result<(u64, u32)> = async {
        let mut open = tokio::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .await
            .map_err(|error| cannot("write", target, &error))?;
        let (bytes, mode) = write(client, sandbox, path, target, &mut open, copied).await?;
        // The mode from the sandbox is not trusted: no set-uid.
        let mode = mode.map_or(0o644, |mode| mode.0 & 0o755);
        open.set_permissions(std::fs::Permissions::from_mode(mode))
            .await
            .map_err(|error| cannot("write", target, &error))?;
        std::fs::rename(&temporary, target).map_err(|error| cannot("write", target, &error))?;
        Ok((bytes, mode))
    }
    .await;
    if written.is_err() {
        // It may not have been created.
        drop(std::fs::remove_file(&temporary));
    }
    let (bytes, mode) = written?;
    copied.bytes += bytes;
    copied.files += 1;
    let name = target.file_name().map_or(&[][..], OsStrExt::as_bytes);
    let mut review = Review::default();
    match auto_run_reason(target.to_string_lossy().trim_start_matches('/').as_bytes()) {
        Some(why) => review.add(name, why),
        None if mode & 0o111 != 0 && !was_executable => review.add(name, EXECUTABLE),
        None => {}
    }
    copied.transfer.add_review(&review);
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
