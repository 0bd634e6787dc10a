//! Profiles: settings of sandboxes under a name, as the operator wrote them. A call names one; what the
//! call says itself is stronger. A profile that grants something is the operator's unless it is marked for
//! others, and it is looked up in one place only, which knows who asks.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::context::{CallContext, CallerRole, Door};
use crate::engine::EngineConfig;
use crate::network::{GrantSet, parse_grants};
use crate::sandbox::{Chosen, Settings, is_another_backend};
use isle_core::values::{Address, Namespace, SandboxName};
use isle_core::{Code, Error, Result};
use isle_vault::PiiKinds;

/// Settings under a name. What is left out is the configured default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    /// What sandboxes made by it are like.
    pub settings: Settings,
    /// Variables of all that runs in it.
    pub env: BTreeMap<String, String>,
    /// What it may reach, such as `example.com:443`.
    pub allow: Vec<String>,
    /// Personal data that is masked in what comes out of it, such as `email`.
    pub mask_pii: Vec<String>,
    /// Who may name it besides the operator; `None`: everybody, if it grants nothing.
    pub audience: Option<Audience>,
}

/// Who may name a profile besides the operator, who may name all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audience(BTreeSet<Member>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Member {
    Operator,
    /// Callers through MCP.
    Models,
    /// Tokens of every namespace.
    Tenants,
    /// Tokens of one.
    Namespace(Namespace),
}

impl FromStr for Member {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "operator" => Self::Operator,
            "models" => Self::Models,
            "tenants" => Self::Tenants,
            other => match other.strip_prefix("namespace:") {
                Some(namespace) => Self::Namespace(namespace.parse()?),
                None => {
                    return Err(Error::new(Code::InvalidArgument, format!("for: {text:?} is not a caller"))
                        .next("choose from operator, models, tenants and namespace:NAME"));
                }
            },
        })
    }
}

impl Audience {
    /// Reads it from settings.
    pub fn read<T: AsRef<str>>(texts: &[T]) -> Result<Self> {
        texts.iter().map(|text| text.as_ref().parse()).collect::<Result<_>>().map(Self)
    }

    fn has_models(&self) -> bool {
        self.0.contains(&Member::Models)
    }

    fn has_tenants_of(&self, namespace: &Namespace) -> bool {
        self.0.contains(&Member::Tenants) || self.0.contains(&Member::Namespace(namespace.clone()))
    }
}

/// Why a caller may not name a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Barred {
    Model,
    Tenant,
}

impl Profile {
    /// What it gives that a caller could not ask for by itself. Every field is looked at, so that a new
    /// one cannot be forgotten here.
    fn grants(&self, config: &EngineConfig) -> Vec<&'static str> {
        let Self { settings, env, allow, mask_pii: _, audience: _ } = self;
        // Limits, image and deadlines can be asked for by every caller, and are checked as if they had been.
        let Settings {
            backend: _,
            tier,
            allow_downgrade,
            image: _,
            memory: _,
            cpus: _,
            pids: _,
            disk: _,
            ttl: _,
            idle: _,
            profile: _,
        } = settings;
        let all = [
            ("allow", !allow.is_empty()),
            // Values the operator wrote; those of secrets are not for everybody.
            ("env", env.keys().any(|name| crate::run::looks_secret(name))),
            ("allow_downgrade", *allow_downgrade == Some(true) && !config.allow_downgrade),
            ("tier", tier.is_some_and(|tier| tier < config.tier)),
            ("backend", is_another_backend(settings, config)),
        ];
        all.into_iter().filter_map(|(field, grants)| grants.then_some(field)).collect()
    }

    /// Whether a caller may not name it.
    fn barred(&self, context: &CallContext, config: &EngineConfig) -> Option<Barred> {
        let open = self.grants(config).is_empty();
        let (models, tenants) = match &self.audience {
            None => (open, open),
            Some(audience) => (audience.has_models(), audience.has_tenants_of(&context.namespace)),
        };
        match (context.role, context.door) {
            (CallerRole::Tenant, _) if !tenants => Some(Barred::Tenant),
            (_, Door::Mcp | Door::Guest) if !models => Some(Barred::Model),
            _ => None,
        }
    }

    /// Whether a sandbox could be made by it.
    pub fn check(&self, config: &EngineConfig) -> Result<()> {
        let chosen = Chosen::from(self.settings.clone());
        chosen.spec(config, None)?;
        chosen.terms(config, &Address::new(Namespace::default(), SandboxName::default_sandbox()))?;
        parse_grants(&self.allow)?;
        PiiKinds::read(&self.mask_pii)?;
        if let Some(set) = self.allow.iter().find(|text| GrantSet::named(text).is_some()) {
            return Err(Error::new(Code::InvalidArgument, format!("allow: {set} is no host")).next(
                "name hosts; what package clients use is granted with `--allow`, or by network_install",
            ));
        }
        match self.env.keys().find(|name| isle_core::values::steers_loader(name)) {
            None => Ok(()),
            Some(name) => {
                let what = format!(
                    "{name} controls the dynamic loader of every program and cannot be set from outside"
                );
                Err(Error::new(Code::InvalidArgument, what).next("set it inside a command, or leave it out"))
            }
        }
    }
}

/// What a sandbox keeps of the profile it was made by; its limits and deadlines are its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MadeBy {
    /// Which.
    pub(crate) name: String,
    /// Its variables, as they were then.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// What it may reach, as it was then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) allow: Vec<String>,
    /// Personal data that is masked in what comes out of it, as it was then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) mask_pii: Vec<String>,
}

impl MadeBy {
    /// What a child of the sandbox keeps of it: what is masked, and nothing it could use.
    pub(crate) fn of_child(&self) -> Option<Self> {
        let (name, mask_pii) = (self.name.clone(), self.mask_pii.clone());
        let kept = Self { name, env: BTreeMap::new(), allow: Vec::new(), mask_pii };
        (!self.mask_pii.is_empty()).then_some(kept)
    }
}

impl Settings {
    /// What is meant: with what the profile they name says, if the caller may name it.
    pub(crate) fn chosen(&self, context: &CallContext, config: &EngineConfig) -> Result<Chosen> {
        let Some(name) = &self.profile else { return Ok(Chosen::from(self.clone())) };
        let profile = find(context, config, name)?;
        let made_by = MadeBy {
            name: name.clone(),
            env: profile.env.clone(),
            allow: profile.allow.clone(),
            mask_pii: profile.mask_pii.clone(),
        };
        Ok(Chosen::by_profile(self.above(&profile.settings), made_by))
    }
}

fn find<'a>(context: &CallContext, config: &'a EngineConfig, name: &str) -> Result<&'a Profile> {
    let profile = config.profiles.get(name);
    match profile.map(|profile| (profile, profile.barred(context, config))) {
        Some((profile, None)) => return Ok(profile),
        Some((profile, Some(Barred::Model))) => {
            let what = format!("the profile {name} is the operator's: a model may not name it");
            return Err(Error::new(Code::Forbidden, what)
                .detail("grants", profile.grants(config))
                .next(format!(
                    "leave profile out, or ask the person you work for to run `isle create SANDBOX --profile {name}`"
                ))
                .next(format!("the operator opens it with for = [\"models\"] in [profiles.{name}]")));
        }
        // What is not meant for a tenant does not exist for it.
        Some((_, Some(Barred::Tenant))) | None => {}
    }
    let open = config.profiles.iter().filter(|(_, profile)| profile.barred(context, config).is_none());
    let known: Vec<&str> = open.map(|(name, _)| name.as_str()).collect();
    let next = if known.is_empty() {
        "leave profile out; there is none for you".to_owned()
    } else {
        format!("choose one of {}, or leave it out", known.join(", "))
    };
    Err(Error::new(Code::ProfileNotFound, format!("there is no profile {name:?}"))
        .detail("profiles", known)
        .next(next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isle_core::backend::Tier;

    fn config(profile: Profile) -> EngineConfig {
        EngineConfig { profiles: [("p".to_owned(), profile)].into(), ..EngineConfig::default() }
    }

    fn named(context: &CallContext, config: &EngineConfig) -> std::result::Result<(), Code> {
        let settings = Settings { profile: Some("p".into()), ..Settings::default() };
        settings.chosen(context, config).map(drop).map_err(|error| error.code)
    }

    fn callers() -> [(&'static str, CallContext); 4] {
        let tenant =
            |door| CallContext::new(door, "test").within("acme".parse().unwrap(), CallerRole::Tenant);
        [
            ("operator", CallContext::new(Door::Cli, "test")),
            ("model", CallContext::new(Door::Mcp, "test")),
            ("tenant", tenant(Door::Http)),
            ("model of a tenant", tenant(Door::Mcp)),
        ]
    }

    #[test]
    fn a_profile_that_grants_is_the_operators_unless_marked() {
        let granting = [
            Profile { allow: vec!["example.com".into()], ..Profile::default() },
            Profile { env: [("API_TOKEN".to_owned(), "1".to_owned())].into(), ..Profile::default() },
            Profile {
                settings: Settings { allow_downgrade: Some(true), ..Settings::default() },
                ..Profile::default()
            },
            Profile {
                settings: Settings { tier: Some(Tier::Process), ..Settings::default() },
                ..Profile::default()
            },
        ];
        for profile in granting {
            let marked = |words: &[&str]| {
                config(Profile { audience: Some(Audience::read(words).unwrap()), ..profile.clone() })
            };
            let expected: [(EngineConfig, &[&str]); 7] = [
                (config(profile.clone()), &["operator"]),
                (marked(&["operator"]), &["operator"]),
                (marked(&["models"]), &["operator", "model"]),
                (marked(&["tenants"]), &["operator", "tenant"]),
                (marked(&["namespace:acme"]), &["operator", "tenant"]),
                (marked(&["namespace:other"]), &["operator"]),
                (marked(&["models", "tenants"]), &["operator", "model", "tenant", "model of a tenant"]),
            ];
            for (config, may) in expected {
                for (who, context) in callers() {
                    assert_eq!(named(&context, &config).is_ok(), may.contains(&who), "{who} {config:?}");
                }
            }
        }
    }

    #[test]
    fn a_profile_that_grants_nothing_is_for_everybody_unless_kept() {
        let plain = Profile {
            settings: Settings { pids: Some(64), ..Settings::default() },
            mask_pii: vec!["email".into()],
            env: [("KIND".to_owned(), "small".to_owned())].into(),
            ..Profile::default()
        };
        let kept = config(Profile { audience: Some(Audience::default()), ..plain.clone() });
        for (who, context) in callers() {
            assert_eq!(named(&context, &config(plain.clone())), Ok(()), "{who}");
            let answer = match who {
                "operator" => Ok(()),
                "model" => Err(Code::Forbidden),
                _ => Err(Code::ProfileNotFound),
            };
            assert_eq!(named(&context, &kept), answer, "{who}");
        }
        for wrong in ["", "model", "namespace:", "namespace:a b", "everybody"] {
            assert!(Audience::read(&[wrong]).is_err(), "{wrong:?}");
        }
    }
}
