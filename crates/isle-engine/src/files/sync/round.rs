//! One round of a sync: the host's tree is described, compared with what was sent before, and what
//! differs is sent or removed.

use std::collections::BTreeMap;

use isle_trees::{Chosen, HashCache, Kind, ManifestEntry, Rules, Selector, host_manifest, plan};

use super::LiveSync;
use crate::files::carry::{MOST_ENTRIES, counted, pack_on_host};
use isle_core::{Code, Error, Result};

/// What of an entry has to be the same on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Print {
    is_directory: bool,
    hash: Option<[u8; 32]>,
    executable: bool,
}

fn print_of(entry: &ManifestEntry) -> Print {
    let is_directory = entry.kind == Kind::Directory;
    Print { is_directory, hash: entry.hash, executable: !is_directory && entry.mode & 0o111 != 0 }
}

/// What a sync remembers between rounds.
pub(super) struct Memory {
    selector: Option<Selector>,
    known: HashCache,
    /// What the sandbox was given; `None` when that is not known and both sides are compared.
    sent: Option<BTreeMap<Vec<u8>, Print>>,
}

/// What a round did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Did {
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) removed: u64,
}

impl Memory {
    pub(super) fn new(selector: Selector) -> Self {
        Self { selector: Some(selector), known: HashCache::default(), sent: None }
    }

    /// After a failure nobody knows what has arrived.
    pub(super) fn forget_sent(&mut self) {
        self.sent = None;
    }

    async fn describe(&mut self, job: &LiveSync) -> Result<Vec<ManifestEntry>> {
        let (top, kind) = job.host.open()?;
        if kind != Kind::Directory {
            return Err(Error::new(
                Code::NotDirectory,
                format!("{} is no directory", job.host.shown().display()),
            )
            .next("name a directory of the host"));
        }
        let (selector, known) = (self.selector.take(), std::mem::take(&mut self.known));
        let described = tokio::task::spawn_blocking(move || {
            let mut selector = selector?;
            let chosen = host_manifest(top, &mut selector, known, Rules::FromTree);
            Some((selector, chosen))
        });
        let (selector, chosen) = described
            .await
            .map_err(Error::internal)?
            .ok_or_else(|| Error::internal("the rules of the sync are lost"))?;
        self.selector = Some(selector);
        let Chosen { mut entries, known, .. } = chosen
            .map_err(|error| Error::internal(format!("the host's directory cannot be read: {error}")))?;
        self.known = known;
        // Links, pipes and what may not be read stay where they are.
        entries.retain(|entry| {
            entry.kind == Kind::Directory || (entry.kind == Kind::File && entry.hash.is_some())
        });
        Ok(entries)
    }

    /// Makes the sandbox like the host.
    pub(super) async fn round(&mut self, job: &LiveSync) -> Result<Did> {
        let entries = self.describe(job).await?;
        let agent = job.sandbox.agent()?;
        let mut remove = Vec::new();
        let send: Vec<Vec<u8>> = match &self.sent {
            None => {
                let there = match agent
                    .manifest(&job.path, job.user, (MOST_ENTRIES, job.sandbox.spec.limits.disk))
                    .await
                {
                    Err(error) if error.code == Code::FileNotFound => Vec::new(),
                    there => there?,
                };
                let mut planned = plan(&entries, &there);
                // The host counts: what is in the way there goes. What is only there stays.
                for conflict in &planned.conflicts {
                    let below = [&conflict[..], b"/"].concat();
                    remove.extend(planned.extra.iter().filter(|path| path.starts_with(&below)).cloned());
                    remove.push(conflict.clone());
                }
                planned.send.append(&mut planned.conflicts);
                planned.send
            }
            Some(sent) => {
                let now: BTreeMap<&[u8], Print> =
                    entries.iter().map(|entry| (&entry.path[..], print_of(entry))).collect();
                // Backwards: what is in a directory sorts after it.
                remove.extend(
                    sent.iter()
                        .rev()
                        .filter(|(path, print)| {
                            now.get(&path[..]).is_none_or(|other| other.is_directory != print.is_directory)
                        })
                        .map(|(path, _)| path.clone()),
                );
                now.iter()
                    .filter(|(path, print)| sent.get(**path) != Some(*print))
                    .map(|(path, _)| path.to_vec())
                    .collect()
            }
        };
        let mut did = Did::default();
        if !remove.is_empty() {
            did.removed = agent.prune(&job.path, job.user, &remove).await?;
        }
        // The first round makes the directory, also when there is nothing to put into it.
        if !send.is_empty() || self.sent.is_none() {
            let (top, _) = job.host.open()?;
            let (body, _) = pack_on_host(top, Some(send))?;
            let body = counted(body, job.carried.clone());
            let bytes = job.sandbox.spec.limits.disk.0;
            let carried = agent.unpack(&job.path, job.user, MOST_ENTRIES, bytes, body).await?;
            (did.files, did.bytes) = (carried.files, carried.bytes);
        }
        self.sent = Some(entries.iter().map(|entry| (entry.path.clone(), print_of(entry))).collect());
        Ok(did)
    }
}
