//! A directory of a sandbox made like one of the host, or the other way round: files are compared by
//! content, only those that differ are sent, and the rules of `.gitignore` say what belongs to a tree.

use std::os::fd::{AsFd, OwnedFd};

use futures::StreamExt;
use isle_api::ops::mirror::MirroredShape;
use isle_fail::Point;
use isle_trees::git::{GitDirs, SkippedGitDirs, fetchable, has_git_name, is_git_of, is_within};
use isle_trees::{
    Chosen, HashCache, Kind, ManifestEntry, Rules, Selection, Selector, SyncPlan, host_manifest,
    leave_out_git_entries, open_beneath, plan,
};
use isle_wire::GuestUser;
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};

use super::git_bundle;
use super::host::host_error;
use super::leave::receive;
use super::{
    FileCopies, HostPlace, MOST_ENTRIES, TransferProgress, git_refused, pack_on_host, reviewed, skipped_git,
};
use crate::context::CallContext;
use crate::failpoint;
use crate::journal::Audit;
use crate::sandbox::Sandbox;
use isle_core::values::{GuestPath, SandboxName};
use isle_core::{Code, Error, Result};

/// How many paths an answer names.
const NAMED: usize = 20;
/// What is read of an ignore file.
const LONGEST_RULES: u64 = 1 << 20;

/// What is to be made alike, and how.
pub(crate) struct Mirror {
    pub(crate) host: HostPlace,
    pub(crate) path: GuestPath,
    pub(crate) user: GuestUser,
    pub(crate) selection: Selection,
    /// What becomes of git directories that a sandbox would send as files.
    pub(crate) git_dirs: GitDirs,
    /// Remove what is only on the side that changes.
    pub(crate) delete: bool,
    /// Only say what would be done.
    pub(crate) dry_run: bool,
}

impl Mirror {
    pub(crate) fn selector(&self) -> Result<Selector> {
        Self::selector_of(&self.selection)
    }

    fn selector_of(selection: &Selection) -> Result<Selector> {
        Selector::new(selection).map_err(|error| {
            Error::new(Code::InvalidArgument, error.to_string())
                .next("write patterns as in a .gitignore file")
        })
    }

    /// What would be done, before anything is.
    fn planned(&self, plan: &SyncPlan, from: &[ManifestEntry], excluded: u64) -> Result<MirroredShape> {
        if !plan.conflicts.is_empty() && !self.delete {
            let names = shown(&plan.conflicts);
            let message = plan.conflict_message().unwrap_or_default();
            return Err(Error::new(Code::FileExists, message)
                .detail("conflicts", names)
                .next("remove one of them, or set delete to make the other side like this one"));
        }
        Ok(MirroredShape {
            path: self.path.absolute(),
            host_path: self.host.shown().display().to_string(),
            files: plan.files(from),
            bytes: plan.bytes,
            unchanged: plan.unchanged,
            removed: if self.delete { (plan.extra.len() + plan.conflicts.len()) as u64 } else { 0 },
            extra: if self.delete { 0 } else { plan.extra.len() as u64 },
            excluded,
            exclude: self.selection.exclude.clone(),
            git: self.selection.git,
            skipped: shown(&plan.left_out),
            dry_run: self.dry_run,
            ..MirroredShape::default()
        })
    }

    /// Opens the directory of the host.
    fn top(&self) -> Result<OwnedFd> {
        match self.host.open()? {
            (top, Kind::Directory) => Ok(top),
            (_, Kind::File | Kind::Symlink | Kind::Other) => Err(Error::new(
                Code::NotDirectory,
                format!("{} is no directory", self.host.shown().display()),
            )
            .next("name a directory of the host; copy_in and copy_out take single files")),
        }
    }

    /// The same, made when there is none.
    fn top_or_new(&self) -> Result<OwnedFd> {
        let missing = |error: &Error| error.code == Code::FileNotFound;
        match self.top() {
            Err(error) if missing(&error) => {
                let (above, name, _) = self.host.above()?;
                let failed = |error: rustix::io::Errno| host_error(self.host.shown(), &error.into());
                rustix::fs::mkdirat(&above, &name[..], Mode::from_raw_mode(0o755)).map_err(failed)?;
                failpoint(Point::PullDirectoryMade)?;
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat(&above, &name[..], flags, Mode::empty()).map_err(failed)
            }
            top => top,
        }
    }

    async fn describe(
        &self,
        top: OwnedFd,
        mut selector: Selector,
        rules: Rules,
    ) -> Result<(Selector, Chosen)> {
        let described = tokio::task::spawn_blocking(move || {
            let chosen = host_manifest(top, &mut selector, HashCache::default(), rules);
            (selector, chosen)
        });
        let (selector, chosen) = described.await.map_err(Error::internal)?;
        Ok((selector, chosen.map_err(|error| host_error(self.host.shown(), &error))?))
    }
}

impl FileCopies {
    /// Makes a directory of a sandbox like one of the host.
    pub(crate) async fn push(
        &self,
        context: &CallContext,
        sandbox: &Sandbox,
        mirror: &Mirror,
    ) -> Result<MirroredShape> {
        let top = mirror.top()?;
        let again = top.try_clone().map_err(Error::internal)?;
        let (selector, chosen) = mirror.describe(top, mirror.selector()?, Rules::FromTree).await?;
        let agent = sandbox.agent()?;
        let there =
            match agent.manifest(&mirror.path, mirror.user, (MOST_ENTRIES, sandbox.spec.limits.disk)).await {
                Err(error) if error.code == Code::FileNotFound => Vec::new(),
                there => there?,
            };
        // What stays out here stays as it is there.
        let (there, _) = selector.choose(there);
        let mut plan = plan(&chosen.entries, &there);
        let mut shape = mirror.planned(&plan, &chosen.entries, chosen.left_out)?;
        if mirror.dry_run {
            return Ok(shape);
        }
        if shape.removed > 0 {
            let gone = [&plan.extra[..], &plan.conflicts[..]].concat();
            shape.removed = agent.prune(&mirror.path, mirror.user, &gone).await?;
            failpoint(Point::PruneDone)?;
        }
        plan.send.append(&mut plan.conflicts);
        // An empty tree makes the directory.
        if !plan.send.is_empty() || there.is_empty() {
            let (body, packing) = pack_on_host(again, Some(plan.send))?;
            let body = TransferProgress::new(context, "pushing", Some(plan.bytes)).over(body);
            let disk = sandbox.spec.limits.disk.0;
            let carried = agent.unpack(&mirror.path, mirror.user, MOST_ENTRIES, disk, body).await?;
            failpoint(Point::UnpackDone)?;
            (shape.files, shape.bytes) = (carried.files, carried.bytes);
            let packed = packing.await.map_err(Error::internal)?;
            shape.skipped.extend(packed.skipped.iter().map(|left| text(&left.path)));
        }
        self.audit_mirror(context, "sync_push", sandbox, &shape)?;
        isle_fail::pass(Point::UnpackAudited);
        Ok(shape)
    }

    /// Makes a directory of the host like one of a sandbox.
    pub(crate) async fn pull(
        &self,
        context: &CallContext,
        name: &SandboxName,
        sandbox: &Sandbox,
        mirror: &Mirror,
    ) -> Result<MirroredShape> {
        mirror.host.refuse_git_directory(mirror.git_dirs)?;
        let agent = sandbox.agent()?;
        let entries =
            agent.manifest(&mirror.path, mirror.user, (MOST_ENTRIES, sandbox.spec.limits.disk)).await?;
        let copies_git = mirror.git_dirs == GitDirs::Copy;
        let selection = Selection { git: copies_git, ..mirror.selection.clone() };
        let mut selector = Mirror::selector_of(&selection)?;
        let (entries, mut git, repositories) = if copies_git {
            (entries, SkippedGitDirs::default(), Vec::new())
        } else {
            let described = entries.clone();
            let (entries, git) = leave_out_git_entries(entries);
            let repositories = if mirror.selection.git { fetchable(&described, &git) } else { Vec::new() };
            (entries, git, repositories)
        };
        if git.named.iter().any(Vec::is_empty) {
            return Err(git_refused(&format!("{} is a git directory", mirror.path)));
        }
        for entry in entries.iter().filter(|entry| entry.kind == Kind::File) {
            let Some(name) = std::str::from_utf8(&entry.path).ok().filter(|_| selector.wants(&entry.path))
            else {
                continue;
            };
            let path: GuestPath = format!("{}/{name}", mirror.path.absolute()).parse()?;
            let (_, mut body) = agent.read_file(&path, mirror.user, 0, Some(LONGEST_RULES)).await?;
            let mut rules = Vec::new();
            while let Some(piece) = body.next().await {
                rules.extend_from_slice(&piece?);
            }
            selector.add(&entry.path, &rules);
        }
        let (chosen, excluded) = selector.choose(entries);
        let mut there = match mirror.top() {
            Err(error) if error.code == Code::FileNotFound => Vec::new(),
            top => mirror.describe(top?, selector, Rules::Given).await?.1.entries,
        };
        // What the sandbox's are not compared with is not removed for being different either.
        // Only some of them are named, so what is called so here stays in any case.
        there.retain(|entry| {
            !is_within(&entry.path, &git.named) && (copies_git || !has_git_name(&entry.path))
        });
        let mut plan = plan(&chosen, &there);
        let mut shape = mirror.planned(&plan, &chosen, excluded)?;
        let mut git_unnamed = git.count.saturating_sub(git.named.len() as u64);
        git.named.retain(|path| !repositories.iter().any(|directory| is_git_of(path, directory)));
        shape.git_directories = skipped_git(&git);
        shape.count_git(git_unnamed);
        if mirror.dry_run {
            return Ok(shape);
        }
        let wanted = [&plan.send[..], &plan.conflicts[..]].concat();
        let disk = sandbox.spec.limits.disk;
        // Asked for before anything is removed here: the sandbox may be gone.
        let tree = agent.pack(&mirror.path, mirror.user, Some(wanted), disk.0).await?;
        let top = mirror.top_or_new()?;
        if mirror.delete {
            let failed = |error: std::io::Error| host_error(mirror.host.shown(), &error);
            shape.removed = isle_trees::prune(top.as_fd(), &plan.extra).map_err(failed)?;
            for conflict in plan.conflicts.drain(..) {
                isle_trees::remove_tree_beneath(top.as_fd(), &conflict).map_err(failed)?;
                shape.removed += 1;
            }
            failpoint(Point::PullPruned)?;
        }
        let progress = TransferProgress::new(context, "pulling", Some(plan.bytes));
        let again = top.try_clone().map_err(Error::internal)?;
        let arrived = receive(tree, top, &mirror.host, (disk, mirror.git_dirs), progress).await?;
        failpoint(Point::CopyOutReceived)?;
        (shape.files, shape.bytes) = (arrived.carried.files, arrived.carried.bytes);
        shape.skipped.extend(arrived.carried.skipped.iter().map(|left| text(&left.path)));
        shape.git_directories.extend(skipped_git(&arrived.git));
        git_unnamed += arrived.git.count.saturating_sub(arrived.git.named.len() as u64);
        (shape.review, shape.review_count, shape.review_more) = reviewed(&arrived.review);
        for directory in &repositories {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let Ok(to) = open_beneath(again.as_fd(), directory, flags) else {
                // Its files belong to nothing that was pulled.
                let mut left = SkippedGitDirs::default();
                left.named.push([&directory[..], b"/.git"].concat());
                shape.git_directories.extend(skipped_git(&left));
                continue;
            };
            let Ok(below) = std::str::from_utf8(directory) else { continue };
            let from: GuestPath =
                format!("{}/{below}", mirror.path.absolute()).trim_end_matches('/').parse()?;
            let fetched =
                git_bundle::fetch(&self.runs, context, (name, sandbox), (&from, mirror.user), to).await?;
            shape.repositories.push(git_bundle::repository_shape(directory, fetched));
        }
        shape.count_git(git_unnamed);
        self.audit_mirror(context, "sync_pull", sandbox, &shape)?;
        isle_fail::pass(Point::CopyOutAudited);
        Ok(shape)
    }

    fn audit_mirror(
        &self,
        context: &CallContext,
        name: &'static str,
        sandbox: &Sandbox,
        shape: &MirroredShape,
    ) -> Result<()> {
        let detail: Value = json!({
            "path": shape.path, "host_path": shape.host_path, "files": shape.files, "bytes": shape.bytes,
            "removed": shape.removed,
        });
        let audit = Audit::files(context, name, sandbox, detail);
        self.journal.audit(&audit).map_err(|error| error.unrecorded("the directories were made alike"))
    }
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn shown(paths: &[Vec<u8>]) -> Vec<String> {
    paths.iter().take(NAMED).map(|path| text(path)).collect()
}
