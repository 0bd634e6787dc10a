//! What a caller may say about a sandbox that is to be made, and what follows from it together with the
//! configuration.

use std::time::Duration;

use super::lease::Terms;
use crate::engine::EngineConfig;
use crate::profile::MadeBy;
use isle_core::backend::{BackendName, Lifetime, Limits, SandboxSpec, Tier};
use isle_core::values::{Address, ByteSize, Span, Term};
use isle_core::{Code, Error, Result};

/// The shortest TTL and idle time.
pub(crate) const SHORTEST: Span = Span(Duration::from_secs(1));

/// Settings of a sandbox; `None` means the configured default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Which backend creates it.
    pub backend: Option<BackendName>,
    /// How strongly isolated.
    pub tier: Option<Tier>,
    /// Image.
    pub image: Option<String>,
    /// Memory.
    pub memory: Option<ByteSize>,
    /// CPUs.
    pub cpus: Option<f64>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// Writable layer and workspace.
    pub disk: Option<ByteSize>,
    /// Whether it may hold less than its tier promises.
    pub allow_downgrade: Option<bool>,
    /// How long it lives.
    pub ttl: Option<Term>,
    /// How long it lives unused.
    pub idle: Option<Term>,
    /// Where to look for what is not said here.
    pub profile: Option<String>,
}

impl Settings {
    /// These, and where they say nothing what others say. Whatever profile is meant has been looked at.
    pub(crate) fn above(&self, below: &Self) -> Self {
        Self {
            backend: self.backend.clone().or_else(|| below.backend.clone()),
            tier: self.tier.or(below.tier),
            image: self.image.clone().or_else(|| below.image.clone()),
            memory: self.memory.or(below.memory),
            cpus: self.cpus.or(below.cpus),
            pids: self.pids.or(below.pids),
            disk: self.disk.or(below.disk),
            allow_downgrade: self.allow_downgrade.or(below.allow_downgrade),
            ttl: self.ttl.or(below.ttl),
            idle: self.idle.or(below.idle),
            profile: None,
        }
    }
}

/// Settings as they are meant, and the profile they were completed by. Only [`Settings::chosen`] looks a
/// profile up, and knows who asks for it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chosen {
    said: Settings,
    made_by: Option<MadeBy>,
}

impl From<Settings> for Chosen {
    /// Of settings that name no profile.
    fn from(said: Settings) -> Self {
        Self { said, made_by: None }
    }
}

impl Chosen {
    pub(crate) fn by_profile(said: Settings, made_by: MadeBy) -> Self {
        Self { said, made_by: Some(made_by) }
    }

    /// What the sandbox keeps of the profile.
    pub(crate) fn made_by(&self) -> Option<MadeBy> {
        self.made_by.clone()
    }

    /// The spec they make, checked.
    pub(crate) fn spec(&self, config: &EngineConfig, volume: Option<Address>) -> Result<SandboxSpec> {
        let said = &self.said;
        let limits = Limits {
            memory: said.memory.unwrap_or(config.limits.memory),
            cpus: said.cpus.unwrap_or(config.limits.cpus),
            pids: said.pids.unwrap_or(config.limits.pids),
            disk: said.disk.unwrap_or(config.limits.disk),
        };
        check(&limits)?;
        let lifetime = if volume.is_some() { Lifetime::Named } else { Lifetime::OneShot };
        let tier = said.tier.unwrap_or(config.tier);
        let policy = volume.as_ref().and_then(|address| config.spawn_policies.of(address));
        Ok(SandboxSpec {
            backend: said.backend.clone().or_else(|| config.backend.clone()),
            tier,
            control: crate::children::has_control(policy),
            image: said.image.clone().unwrap_or_else(|| config.image.clone()),
            limits,
            lifetime,
            volume,
            allow_downgrade: said.allow_downgrade.unwrap_or(config.allow_downgrade),
            fixed_etc: false,
            child: None,
        })
    }

    /// How long a named sandbox made by them may live, checked.
    pub(crate) fn terms(&self, config: &EngineConfig, address: &Address) -> Result<Terms> {
        let said = &self.said;
        let deadlines = &config.deadlines;
        let exempt = deadlines.exempt.contains(address);
        let longest = deadlines.max_ttl;
        let of = |what, asked, default: Option<Span>| term(what, asked, default.filter(|_| !exempt), longest);
        Ok(Terms {
            ttl: of("ttl", said.ttl, deadlines.default_ttl)?,
            idle: of("idle", said.idle, deadlines.default_idle)?,
        })
    }
}

/// One of the deadlines: what was asked for, in range, or the default.
fn term(
    what: &str,
    asked: Option<Term>,
    default: Option<Span>,
    longest: Option<Span>,
) -> Result<Option<Span>> {
    match asked {
        None => Ok(default),
        // Nobody gets further by asking for no end than by asking for a late one.
        Some(Term::Endless) if default.is_none() => Ok(None),
        Some(Term::Endless) => Err(out_of_range(what, "none", longest)),
        Some(Term::Span(span)) if span < SHORTEST || longest.is_some_and(|longest| span > longest) => {
            Err(out_of_range(what, &span.to_string(), longest))
        }
        Some(Term::Span(span)) => Ok(Some(span)),
    }
}

fn out_of_range(what: &str, asked: &str, longest: Option<Span>) -> Error {
    let range = match longest {
        Some(longest) => format!("from {SHORTEST} to {longest}"),
        None => format!("{SHORTEST} or longer"),
    };
    Error::new(Code::TtlInvalid, format!("{what} is {asked}; it may be {range}"))
        .detail("shortest", SHORTEST.to_string())
        .detail("longest", Term::from(longest).to_string())
        .next(format!("choose a {what} {range}, or leave it out for the default"))
}

pub(crate) fn check(limits: &Limits) -> Result<()> {
    let refuse = |what: &str, next: &str| Err(Error::new(Code::InvalidArgument, what.to_owned()).next(next));
    if !limits.cpus.is_finite() || limits.cpus < 0.01 || limits.cpus > 1024.0 {
        return refuse("cpus is out of range", "give a number from 0.01 to 1024, such as 0.5 or 2");
    }
    if limits.memory.0 < 16 << 20 {
        return refuse("memory is too small for a sandbox", "give at least 16M");
    }
    if limits.disk.0 < 1 << 20 {
        return refuse("disk is too small for a sandbox", "give at least 1M");
    }
    if limits.pids < 4 {
        return refuse("pids is too small for a sandbox", "give at least 4");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_those_asked_for_within_the_range_or_the_defaults() {
        let hour = Span::seconds(3600);
        let long = [None, Some(Span::seconds(7200))];
        for longest in long {
            assert_eq!(term("ttl", None, Some(hour), longest).unwrap(), Some(hour));
            assert_eq!(term("ttl", Some(Term::Span(SHORTEST)), Some(hour), longest).unwrap(), Some(SHORTEST));
            assert_eq!(term("ttl", Some(Term::Endless), None, longest).unwrap(), None);
            let wrong = [Term::Endless, Term::Span(Span(Duration::from_millis(999)))];
            for asked in wrong {
                let error = term("ttl", Some(asked), Some(hour), longest).unwrap_err();
                assert_eq!(error.code, Code::TtlInvalid);
            }
        }
        let error = term("idle", Some(Term::Span(Span::seconds(7201))), None, long[1]).unwrap_err();
        assert!(error.message.contains("1s to 2h"), "{}", error.message);
    }
}
