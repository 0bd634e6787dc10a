//! Profiles: settings of sandboxes under a name, as the operator wrote them. A call names one; what the
//! call says itself is stronger.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engine::EngineConfig;
use crate::error::{Code, Error, Result};
use crate::network::{GrantSet, parse_grants};
use crate::sandbox::Settings;
use crate::values::SandboxName;
use crate::vault::Personal;

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
}

impl Profile {
    /// Whether a sandbox could be made by it.
    pub fn check(&self, config: &EngineConfig) -> Result<()> {
        self.settings.spec(config, None)?;
        self.settings.terms(config, &SandboxName::default_sandbox())?;
        parse_grants(&self.allow)?;
        Personal::read(&self.mask_pii)?;
        if let Some(set) = self.allow.iter().find(|text| GrantSet::named(text).is_some()) {
            return Err(Error::new(Code::InvalidArgument, format!("allow: {set} is no host")).next(
                "name hosts; what package clients use is granted with `--allow`, or by network_install",
            ));
        }
        match self.env.keys().find(|name| crate::run::steers_loader(name)) {
            None => Ok(()),
            Some(name) => {
                let what = format!("{name} steers the loader of every program and is not set from outside");
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
    /// The same with what the profile they name says.
    pub(crate) fn with_profile(&self, config: &EngineConfig) -> Result<Self> {
        match &self.profile {
            None => Ok(self.clone()),
            Some(name) => Ok(self.above(&find(config, name)?.settings)),
        }
    }

    /// What the sandbox keeps of the profile.
    pub(crate) fn made_by(&self, config: &EngineConfig) -> Result<Option<MadeBy>> {
        let made_by = |name: &String| {
            let profile = find(config, name)?;
            Ok(MadeBy {
                name: name.clone(),
                env: profile.env.clone(),
                allow: profile.allow.clone(),
                mask_pii: profile.mask_pii.clone(),
            })
        };
        self.profile.as_ref().map(made_by).transpose()
    }
}

fn find<'a>(config: &'a EngineConfig, name: &str) -> Result<&'a Profile> {
    config.profiles.get(name).ok_or_else(|| {
        let known: Vec<&str> = config.profiles.keys().map(String::as_str).collect();
        let next = if known.is_empty() {
            "leave profile out; the configuration has none".to_owned()
        } else {
            format!("choose one of {}, or leave it out", known.join(", "))
        };
        Error::new(Code::ProfileNotFound, format!("there is no profile {name:?}"))
            .detail("profiles", known)
            .next(next)
    })
}
