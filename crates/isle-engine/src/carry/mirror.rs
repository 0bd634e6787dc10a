//! A directory of a sandbox made like one of the host, or the other way round: files are compared by
//! content, only those that differ are sent, and the rules of `.gitignore` say what belongs to a tree.

use std::os::fd::{AsFd, OwnedFd};

use futures::StreamExt;
use isle_fail::Point;
use isle_trees::{Chosen, Kind, Known, ManifestEntry, Plan, Rules, Selection, Selector, host_manifest, plan};
use isle_wire::GuestUser;
use rustix::fs::{Mode, OFlags};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::host::host_error;
use super::leave::receive;
use super::{HostPlace, MOST_ENTRIES, Progress, pack_on_host};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::failpoint;
use crate::journal::Audit;
use crate::sandbox::Sandbox;
use crate::values::GuestPath;

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
    /// Remove what is only on the side that changes.
    pub(crate) delete: bool,
    /// Only say what would be done.
    pub(crate) dry_run: bool,
}

/// What was done.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct MirroredShape {
    /// In the sandbox.
    path: String,
    host_path: String,
    /// Sent.
    files: u64,
    /// Of the files sent.
    bytes: u64,
    /// The same already.
    unchanged: u64,
    /// Removed from the side that changed.
    removed: u64,
    /// Only on the side that changed, and left there.
    extra: u64,
    /// Left out by the patterns.
    excluded: u64,
    /// The patterns given.
    exclude: Vec<String>,
    git: bool,
    /// Neither file nor directory, or not readable: the first of them.
    skipped: Vec<String>,
    dry_run: bool,
}

impl Mirror {
    pub(crate) fn selector(&self) -> Result<Selector> {
        Selector::new(&self.selection).map_err(|error| {
            Error::new(Code::InvalidArgument, error.to_string())
                .next("write patterns as in a .gitignore file")
        })
    }

    /// What would be done, before anything is.
    fn planned(&self, plan: &Plan, from: &[ManifestEntry], excluded: u64) -> Result<MirroredShape> {
        if !plan.conflicts.is_empty() && !self.delete {
            let names = shown(&plan.conflicts);
            let first = names.first().cloned().unwrap_or_default();
            let message = format!("{first:?} is a file on one side and a directory on the other");
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
            let chosen = host_manifest(top, &mut selector, Known::default(), rules);
            (selector, chosen)
        });
        let (selector, chosen) = described.await.map_err(Error::internal)?;
        Ok((selector, chosen.map_err(|error| host_error(self.host.shown(), &error))?))
    }
}

impl Engine {
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
        let there = match agent.manifest(&mirror.path, mirror.user, MOST_ENTRIES).await {
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
            let body = Progress::new(context, "pushing", Some(plan.bytes)).over(body);
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
        sandbox: &Sandbox,
        mirror: &Mirror,
    ) -> Result<MirroredShape> {
        let agent = sandbox.agent()?;
        let entries = agent.manifest(&mirror.path, mirror.user, MOST_ENTRIES).await?;
        let mut selector = mirror.selector()?;
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
        let there = match mirror.top() {
            Err(error) if error.code == Code::FileNotFound => Vec::new(),
            top => mirror.describe(top?, selector, Rules::Given).await?.1.entries,
        };
        let mut plan = plan(&chosen, &there);
        let mut shape = mirror.planned(&plan, &chosen, excluded)?;
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
        let progress = Progress::new(context, "pulling", Some(plan.bytes));
        let carried = receive(tree, top, &mirror.host, disk, progress).await?;
        failpoint(Point::CopyOutReceived)?;
        (shape.files, shape.bytes) = (carried.files, carried.bytes);
        shape.skipped.extend(carried.skipped.iter().map(|left| text(&left.path)));
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
        self.inner.journal.audit(&audit).map_err(|error| error.unrecorded("the directories were made alike"))
    }
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn shown(paths: &[Vec<u8>]) -> Vec<String> {
    paths.iter().take(NAMED).map(|path| text(path)).collect()
}
