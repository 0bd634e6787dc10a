//! How many sandboxes there may be, and what a host has for them. A sandbox is counted and taken into
//! the fleet in one step, so that any number of calls at once makes no more than there may be.

use std::path::Path;
use std::sync::OnceLock;

use serde_json::json;

use super::{Sandbox, SandboxState, Settings};
use crate::context::{CallContext, Door};
use crate::engine::EngineConfig;
use isle_core::values::ByteSize;
use isle_core::{Code, Error, Result};

/// What the host's own programs need beside the largest sandbox.
const SPARE_MEMORY: u64 = 512 << 20;
const SPARE_DISK: u64 = 2 << 30;

/// How many there may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ceilings {
    pub(crate) total: usize,
    pub(crate) per_namespace: usize,
    /// What the memory limits of all of them may come to.
    pub(crate) memory: Option<ByteSize>,
}

impl Ceilings {
    pub(crate) fn of(config: &EngineConfig) -> Self {
        let whole = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        Self {
            total: whole(config.quotas.max_sandboxes),
            per_namespace: whole(config.quotas.max_sandboxes_per_namespace),
            memory: config.quotas.memory_budget,
        }
    }

    /// Refuses a sandbox that would be one too many beside these.
    pub(super) fn check<'a>(&self, new: &Sandbox, others: impl Iterator<Item = &'a Sandbox>) -> Result<()> {
        let (mut total, mut theirs, mut memory) = (0, 0, 0u64);
        for other in others {
            total += 1;
            theirs += usize::from(other.namespace == new.namespace);
            // One that died holds its name and its files, but no memory.
            if other.state() != SandboxState::Failed {
                memory = memory.saturating_add(other.spec.limits.memory.0);
            }
        }
        let refuse = |limit: &str, what: String| Error::new(Code::LimitReached, what).detail("limit", limit);
        if theirs >= self.per_namespace {
            let error = refuse(
                "max_sandboxes_per_namespace",
                format!("the namespace {} has {theirs} sandboxes, as many as it may", new.namespace),
            );
            return Err(error
                .detail("existing", theirs)
                .detail("allowed", self.per_namespace)
                .next("destroy sandboxes you no longer need; `list` shows them")
                .next("or raise max_sandboxes_per_namespace in the configuration"));
        }
        if total >= self.total {
            let error =
                refuse("max_sandboxes", format!("there are {total} sandboxes, as many as there may be"));
            return Err(error
                .detail("existing", total)
                .detail("allowed", self.total)
                .next("destroy sandboxes you no longer need, or try again when others have")
                .next("or raise max_sandboxes in the configuration"));
        }
        let required = new.spec.limits.memory.0;
        if let Some(budget) = self.memory.filter(|budget| memory.saturating_add(required) > budget.0) {
            let available = budget.0.saturating_sub(memory);
            let error = refuse(
                "memory_budget",
                format!(
                    "{} of memory are asked for, and {} of {budget} are left for sandboxes",
                    new.spec.limits.memory,
                    rounded(available)
                ),
            );
            return Err(error
                .detail("required_bytes", required)
                .detail("available_bytes", available)
                .detail("allowed_bytes", budget.0)
                .next("ask for less memory, or destroy sandboxes you no longer need")
                .next("or raise memory_budget in the configuration"));
        }
        Ok(())
    }
}

/// What the host has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Host {
    pub(crate) cpus: usize,
    pub(crate) memory: u64,
}

/// The most memory one sandbox can have here.
pub(crate) fn most_memory() -> ByteSize {
    rounded(Host::get().memory.saturating_sub(SPARE_MEMORY))
}

impl Host {
    /// Asked once: neither changes while a daemon runs.
    pub(crate) fn get() -> Self {
        static HOST: OnceLock<Host> = OnceLock::new();
        *HOST.get_or_init(|| {
            let system = rustix::system::sysinfo();
            Self {
                cpus: std::thread::available_parallelism().map_or(1, usize::from),
                memory: (system.totalram as u64).saturating_mul(u64::from(system.mem_unit.max(1))),
            }
        })
    }
}

/// Refuses what this host can never give, before anything is made. Only what was asked for is looked at:
/// the defaults are the operator's affair.
pub(crate) fn preflight(settings: &Settings, state: &Path) -> Result<()> {
    let host = Host::get();
    let free = rustix::fs::statvfs(state).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize)).ok();
    judge(settings, host, free)
}

fn judge(settings: &Settings, host: Host, free: Option<u64>) -> Result<()> {
    let mut failed = Vec::new();
    let mut suggested = serde_json::Map::new();
    let mut words = Vec::new();
    if let Some(cpus) = settings.cpus {
        let most = host.cpus as f64;
        suggested.insert("cpus".into(), json!(cpus.min(most)));
        if cpus > most {
            failed.push(json!({ "check": "cpus", "required": cpus, "available": host.cpus }));
            words.push(format!("{cpus} CPUs of {}", host.cpus));
        }
    }
    let sizes = [
        ("memory", settings.memory, Some(host.memory), SPARE_MEMORY),
        ("disk", settings.disk, free, SPARE_DISK),
    ];
    for (what, wanted, available, spare) in sizes {
        let (Some(ByteSize(wanted)), Some(available)) = (wanted, available) else { continue };
        let most = available.saturating_sub(spare);
        suggested.insert(what.into(), json!(rounded(wanted.min(most)).to_string()));
        if wanted > most {
            let required = wanted.saturating_add(spare);
            failed.push(json!({ "check": what, "required_bytes": required, "available_bytes": available }));
            words.push(format!("{} of {what} of {}", ByteSize(wanted), rounded(available)));
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    let shape: Vec<String> = suggested
        .iter()
        .map(|(what, most)| {
            format!("{what} {}", most.as_str().map_or_else(|| most.to_string(), str::to_owned))
        })
        .collect();
    Err(Error::new(Code::HostTooSmall, format!("this host is too small: asked for {}", words.join(" and ")))
        .detail("failed_checks", failed)
        .detail("suggested", suggested)
        .next(format!("ask for {} or less", shape.join(", ")))
        .next("beside a sandbox the host keeps 512M of memory and 2G of disk"))
}

/// Whether less isolation than the operator chose will do is not a tenant's to say, which shares the host, nor
/// that of a model, which it is there for.
pub(crate) fn refuse_weaker(context: &CallContext, settings: &Settings, config: &EngineConfig) -> Result<()> {
    let what = if settings.allow_downgrade == Some(true) && !config.allow_downgrade {
        "accepting less than a tier promises"
    } else if settings.tier.is_some_and(|tier| tier < config.tier) {
        "choosing a weaker tier than the configured one"
    } else if is_another_backend(settings, config) {
        "choosing another backend than the configured one"
    } else {
        return Ok(());
    };
    context.operator_only(what)?;
    if context.door == Door::Mcp {
        return Err(Error::new(Code::Forbidden, format!("{what} is not a model's"))
            .next("leave tier, backend and allow_downgrade out")
            .next("or ask the person you work for to make the sandbox with `isle create`"));
    }
    Ok(())
}

/// Whether settings name another backend than the operator, where the operator named one.
pub(crate) fn is_another_backend(settings: &Settings, config: &EngineConfig) -> bool {
    let configured = config.backend.as_ref();
    settings.backend.as_ref().is_some_and(|asked| configured.is_some_and(|configured| configured != asked))
}

/// In whole units, for people.
fn rounded(bytes: u64) -> ByteSize {
    let unit = if bytes >= 10 << 30 { 1 << 30 } else { 1 << 20 };
    ByteSize(bytes / unit * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_never_has_is_refused_with_what_it_has() {
        let host = Host { cpus: 2, memory: 4 << 30 };
        let wants = |cpus: f64, memory: u64, disk: u64| Settings {
            cpus: Some(cpus),
            memory: Some(ByteSize(memory)),
            disk: Some(ByteSize(disk)),
            ..Settings::default()
        };
        assert!(judge(&wants(2.0, 3 << 30, 8 << 30), host, Some(10 << 30)).is_ok());
        assert!(judge(&Settings::default(), Host { cpus: 1, memory: 1 }, Some(0)).is_ok());
        let error = judge(&wants(2.5, 4 << 30, 9 << 30), host, Some(10 << 30)).unwrap_err();
        assert_eq!(error.code, Code::HostTooSmall);
        assert_eq!(error.details["failed_checks"].as_array().unwrap().len(), 3);
        assert_eq!(error.details["suggested"], json!({ "cpus": 2.0, "memory": "3584M", "disk": "8G" }));
        let error = judge(&wants(1.0, 1 << 30, 9 << 30), host, Some(10 << 30)).unwrap_err();
        assert_eq!(error.details["failed_checks"][0]["check"], "disk");
        assert_eq!(error.details["suggested"]["memory"], "1G");
    }
}
