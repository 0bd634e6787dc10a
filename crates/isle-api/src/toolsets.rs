//! The sets of MCP tools, and which of them a client is shown. A model that has to choose among few
//! tools chooses better, so only the core is on unless somebody asks for more.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use isle_core::{Code, Error};

/// Which set of MCP tools an operation belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Toolset {
    /// On by default.
    Core,
    /// More about files: edit, search, move, copy, keep in step.
    Files,
    /// Work that outlives the call, by name.
    Jobs,
    /// Interpreters that remember, looked after.
    Contexts,
    /// What a sandbox has to work with: variables, packages, checks of code.
    Environment,
    /// How long sandboxes live, and whether they run.
    Lifecycle,
    /// Sandboxes that split their work over children of their own.
    Children,
    /// For whoever operates it: tenants, limits, usage, what happened.
    Admin,
    /// What a sandbox may reach, what it reached, and its ports on this host.
    Network,
    /// Secrets: which there are, and which sandbox has them; never their values.
    Secrets,
    /// Not an MCP tool.
    None,
}

impl Toolset {
    /// Those a client can choose, in the order they are shown.
    pub const CHOICES: [Self; 10] = [
        Self::Core,
        Self::Files,
        Self::Jobs,
        Self::Contexts,
        Self::Environment,
        Self::Lifecycle,
        Self::Children,
        Self::Admin,
        Self::Network,
        Self::Secrets,
    ];

    /// Its name at every door.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Files => "files",
            Self::Jobs => "jobs",
            Self::Contexts => "contexts",
            Self::Environment => "environment",
            Self::Lifecycle => "lifecycle",
            Self::Children => "children",
            Self::Admin => "admin",
            Self::Network => "network",
            Self::Secrets => "secrets",
            Self::None => "none",
        }
    }
}

/// The sets that are on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolsets(Vec<Toolset>);

impl Default for Toolsets {
    fn default() -> Self {
        Self(vec![Toolset::Core])
    }
}

impl Toolsets {
    /// Every set there is, the operator's included.
    #[must_use]
    pub fn every() -> Self {
        Self(Toolset::CHOICES.to_vec())
    }

    /// Every set for a model that works in sandboxes. What is the operator's is asked for by name.
    #[must_use]
    pub fn all() -> Self {
        Self(Toolset::CHOICES.into_iter().filter(|set| *set != Toolset::Admin).collect())
    }

    /// Reads names; `all` stands for every set but `admin`.
    pub fn from_names<T: AsRef<str>>(names: &[T]) -> Result<Self, Error> {
        let mut chosen = Vec::new();
        for name in names.iter().map(AsRef::as_ref) {
            if name == "all" {
                chosen.extend(Self::all().0);
                continue;
            }
            match Toolset::CHOICES.into_iter().find(|set| set.name() == name) {
                Some(set) => chosen.push(set),
                None => {
                    return Err(Error::new(
                        Code::InvalidArgument,
                        format!("there is no set of tools {name:?}"),
                    )
                    .detail("toolsets", Toolset::CHOICES.map(Toolset::name))
                    .next("choose from those listed in `details`, separated by commas, or `all` for all but admin"));
                }
            }
        }
        if chosen.is_empty() {
            return Err(Error::new(Code::InvalidArgument, "no set of tools is named")
                .next("name at least one, such as core, or leave the choice away"));
        }
        Ok(Self(Toolset::CHOICES.into_iter().filter(|set| chosen.contains(set)).collect()))
    }

    /// Whether a set is on.
    #[must_use]
    pub fn has(&self, set: Toolset) -> bool {
        self.0.contains(&set)
    }
}

impl FromStr for Toolsets {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let names: Vec<&str> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        Self::from_names(&names)
    }
}

impl fmt::Display for Toolsets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|set| set.name()).collect();
        formatter.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_in_any_order_and_shown_in_one() {
        let read = |text: &str| text.parse::<Toolsets>().map(|sets| sets.to_string());
        assert_eq!(read("jobs, core,jobs").unwrap(), "core,jobs");
        assert_eq!(
            read("all").unwrap(),
            "core,files,jobs,contexts,environment,lifecycle,children,network,secrets"
        );
        assert!(!read("all").unwrap().contains("admin"), "what is the operator's is asked for by name");
        assert_eq!(read("all,admin").unwrap(), Toolsets::every().to_string());
        assert_eq!(read("admin,all").unwrap(), Toolsets::every().to_string());
        assert_eq!(read("all").unwrap(), Toolsets::all().to_string());
        for wrong in ["", ",", "none", "Core", "core,filez", "all,filez"] {
            assert_eq!(read(wrong).unwrap_err().code, Code::InvalidArgument, "{wrong}");
        }
    }
}
