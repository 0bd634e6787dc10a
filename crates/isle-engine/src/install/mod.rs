//! Packages, installed inside a sandbox by its own tools: Python's and Node.js's into the home of the
//! sandbox user, those of the system where the image has a root of its own. No shell is in between,
//! and nothing of the host is ever changed.
//!
//! The installer owns nothing: an installation is a run like any other, and its verdict is the run's. What it
//! adds is which program installs (`manager`), what a package may be called (`package`), and which hosts an
//! installation may reach: those the operator granted with the call, or those the configuration grants to
//! every installation.

mod manager;
mod package;

use std::sync::Arc;

use crate::context::CallContext;
use crate::engine::EngineConfig;
use crate::network::{AskedGrants, InstallNetwork, NetworkWish};
use crate::run::{Language, OnCancel, Plan, Run, RunKind, RunTarget, Runs};
use crate::sandbox::{Fleet, Sandbox};
use crate::variables::Variables;
use isle_api::shapes::RunState;
use isle_core::values::Span;
use isle_core::{Code, Error, Result};

pub(crate) use isle_api::ops::install::Manager;
pub(crate) use manager::PackageManager;
use manager::manager_of;
pub(crate) use package::{Addresses, Package};

/// How long an installation may take when nobody says otherwise.
pub(crate) const TIME: Span = Span::seconds(120);
const MOST: usize = 100;
/// The image whose system directories are the host's own.
const HOST_IMAGE: &str = "host";
/// What is to be installed.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Chosen by what the sandbox has when `None`.
    pub(crate) manager: Option<Manager>,
    pub(crate) packages: Vec<String>,
    pub(crate) addresses: Addresses,
    pub(crate) index: Option<String>,
    pub(crate) timeout: Option<Span>,
}

/// A tool and the packages for it, read and checked.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) manager: Manager,
    packages: Vec<Package>,
    index: Option<String>,
    timeout: Option<Span>,
    /// What the operator lets this installation reach.
    pub(crate) asked: Option<Arc<AskedGrants>>,
}

impl Wanted {
    /// Packages for code of a language.
    pub(crate) fn for_language(language: Language, packages: Vec<String>) -> Result<Self> {
        let Some(manager) = manager_of(language) else {
            return Err(Error::new(Code::InvalidArgument, "packages are for Python and Node code")
                .next("leave packages out, or call install before"));
        };
        let addresses = Addresses::Refused;
        Ok(Self { manager: Some(manager), packages, addresses, index: None, timeout: None })
    }

    /// Checks all that can be checked, without asking any sandbox.
    pub(crate) fn check(&self, image: &str) -> Result<()> {
        if self.packages.is_empty() || self.packages.len() > MOST {
            return Err(Error::new(Code::InvalidArgument, format!("give 1 to {MOST} packages"))
                .next("name them in a list, such as [\"numpy\", \"pandas==2.2\"]"));
        }
        if let Some(index) = &self.index {
            let good = index.len() <= 2000
                && (index.starts_with("http://") || index.starts_with("https://"))
                && index.chars().all(|c| c.is_ascii_graphic());
            if !good {
                return Err(Error::new(
                    Code::InvalidArgument,
                    format!("{index:?} is not the address of an index"),
                )
                .next("write an http or https address"));
            }
        }
        match self.manager {
            Some(manager) => self.chosen(manager, image).map(drop),
            // Good for somebody, at least; who it is shows in the sandbox.
            None => {
                let tries =
                    [Manager::Pip, Manager::Npm, Manager::Apt, Manager::Apk].map(|one| self.read(one));
                let [first, ..] = &tries;
                if tries.iter().any(Result::is_ok) {
                    Ok(())
                } else {
                    first.as_ref().map(drop).map_err(Error::clone)
                }
            }
        }
    }

    fn read(&self, manager: Manager) -> Result<Vec<Package>> {
        self.packages.iter().map(|text| Package::parse(text, manager, self.addresses)).collect()
    }

    fn chosen(&self, manager: Manager, image: &str) -> Result<Chosen> {
        if image == HOST_IMAGE && matches!(manager, Manager::Apt | Manager::Apk) {
            return Err(Error::new(
                Code::RuntimeNotAvailable,
                format!(
                    "image {image:?} shows the host's own programs, read-only: {} cannot add to them",
                    manager.as_str()
                ),
            )
            .next("install the package on the host, and every sandbox has it")
            .next("or use pip or npm, which install into the sandbox user's home"));
        }
        if self.index.is_some() && manager.index_variable().is_none() {
            return Err(Error::new(Code::InvalidArgument, format!("index is not for {}", manager.as_str()))
                .next("leave it out"));
        }
        let packages = self.read(manager)?;
        Ok(Chosen { manager, packages, index: self.index.clone(), timeout: self.timeout, asked: None })
    }

    /// With the manager that was named, for an image.
    pub(crate) fn for_image(&self, image: &str) -> Result<Chosen> {
        self.check(image)?;
        self.chosen(self.manager.unwrap_or(Manager::Pip), image)
    }

    /// Who installs them in this sandbox.
    pub(crate) async fn choose(&self, sandbox: &Sandbox) -> Result<Chosen> {
        let image = sandbox.spec.image.as_str();
        if let Some(manager) = self.manager {
            let (what, candidates) = manager.runner().names();
            if sandbox.programs.find(sandbox, what, candidates).await?.is_none() {
                return Err(Error::new(
                    Code::RuntimeNotAvailable,
                    format!("image {image:?} has no {}", manager.as_str()),
                )
                .next(format!("install {} where the image comes from", candidates.join(" or "))));
            }
            return self.chosen(manager, image);
        }
        // A scope is a thing of npm's alone.
        let order: &[Manager] = match (image, self.packages.iter().any(|name| name.starts_with('@'))) {
            (_, true) => &[Manager::Npm],
            (HOST_IMAGE, false) => &[Manager::Pip, Manager::Npm],
            (_, false) => &[Manager::Apk, Manager::Apt, Manager::Pip, Manager::Npm],
        };
        for manager in order {
            let (what, candidates) = manager.runner().names();
            if sandbox.programs.find(sandbox, what, candidates).await?.is_some() {
                return self.chosen(*manager, image);
            }
        }
        Err(Error::new(
            Code::RuntimeNotAvailable,
            format!("image {image:?} has nothing that installs packages"),
        )
        .next("install python3 with pip, or npm, where the image comes from"))
    }
}

/// See the module.
pub(crate) struct Installer {
    config: Arc<EngineConfig>,
    fleet: Arc<Fleet>,
    variables: Arc<Variables>,
    runs: Arc<Runs>,
}

impl Installer {
    pub(crate) fn new(
        config: Arc<EngineConfig>,
        fleet: Arc<Fleet>,
        variables: Arc<Variables>,
        runs: Arc<Runs>,
    ) -> Self {
        Self { config, fleet, variables, runs }
    }

    /// Starts an installation. It is a run like any other.
    pub(crate) async fn start(
        &self,
        context: &CallContext,
        place: RunTarget,
        chosen: &Chosen,
    ) -> Result<Arc<Run>> {
        let manager = chosen.manager;
        let known = match &place {
            RunTarget::Named { name, .. } => self.variables.of(&context.address(name)),
            RunTarget::Incarnation { sandbox } => self.variables.of(&sandbox.address()),
            RunTarget::OneShot { .. } | RunTarget::KeptOneShot { .. } => Default::default(),
        };
        let mut env: Vec<(String, String)> = manager
            .environment()
            .iter()
            .filter(|(name, _, weak)| !(*weak && known.contains_key(*name)))
            .map(|(name, value, _)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        if let (Some(variable), Some(index)) = (manager.index_variable(), &chosen.index) {
            env.push((variable.to_owned(), index.clone()));
        }
        let plan = Plan {
            network: NetworkWish {
                asked: chosen.asked.clone(),
                install: Some(InstallNetwork {
                    set: manager.set().filter(|_| self.has_network(context, &place)),
                    variables: known,
                }),
            },
            env,
            user: manager.user(),
            timeout: Some(chosen.timeout.unwrap_or(TIME.min(self.config.max_timeout))),
            ..Plan::new(RunKind::Install, place, manager.program(&chosen.packages))
        };
        self.runs.start(context, plan).await
    }

    /// Whether an installation there can reach anything. A child has no network of its own, so it installs
    /// from files.
    fn has_network(&self, context: &CallContext, place: &RunTarget) -> bool {
        let of = |sandbox: &Sandbox| sandbox.child_of().is_none();
        match place {
            RunTarget::Incarnation { sandbox } => of(sandbox),
            RunTarget::Named { name, .. } => {
                self.fleet.get(&context.address(name)).is_some_and(|sandbox| of(&sandbox))
            }
            RunTarget::OneShot { .. } => true,
            RunTarget::KeptOneShot { .. } => false,
        }
    }

    /// Installs what a piece of code needs before it runs. That it failed is told apart from a failure of
    /// the code, which was not run.
    pub(crate) async fn install_before(
        &self,
        context: &CallContext,
        place: RunTarget,
        chosen: &Chosen,
    ) -> Result<()> {
        let run = self.start(context, place, chosen).await?;
        let time = chosen.timeout.unwrap_or(TIME).0;
        run.wait(context, time * 2, OnCancel::Kill).await?;
        if let Some(error) = run.finish().and_then(|finish| finish.error.clone()) {
            return Err(error);
        }
        if run.state() == RunState::Completed {
            return Ok(());
        }
        let last = last_words(&run);
        let mut error = Error::new(
            Code::InstallFailed,
            format!("the packages could not be installed, so the code was not run: {}", run.state().as_str()),
        )
        .detail("run_id", run.id.as_str())
        .detail("manager", chosen.manager.as_str())
        .detail("output", last.clone());
        if let Some(hint) = hint(chosen.manager, &last) {
            error = error.next(hint);
        }
        Err(error.next("`logs` with the run_id in `details` has all the installer said"))
    }
}

/// The end of what an installer said.
pub(crate) fn last_words(run: &Run) -> String {
    const LAST: usize = 2000;
    let (stdout, stderr) = run.kept();
    let kept = if stderr.total > 0 { stderr } else { stdout };
    let text = String::from_utf8_lossy(&[kept.head, kept.tail].concat()).into_owned();
    let start = text.char_indices().rev().nth(LAST).map_or(0, |(at, _)| at);
    text[start..].trim().to_owned()
}

/// What an installer's words mean here.
pub(crate) fn hint(manager: Manager, said: &str) -> Option<String> {
    const UNREACHED: &[&str] = &[
        "name resolution",
        "EAI_AGAIN",
        "ENOTFOUND",
        "Failed to establish",
        "Network is unreachable",
        "ENETUNREACH",
    ];
    if said.contains("No module named pip") {
        return Some(
            "the image's Python has no pip: install it (python3-pip) where the image comes from".into(),
        );
    }
    UNREACHED.iter().any(|sign| said.contains(sign)).then(|| {
        format!(
            "a sandbox has no network until it is granted: `isle install --allow {0}` lets it through what {0} uses on this host; or copy the package file in with `isle cp` and give {0} its path, such as ./package{1}",
            manager.as_str(),
            manager.endings().first().copied().unwrap_or_default()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_packages_need_a_root_of_their_own() {
        let wanted = |manager| Wanted {
            manager: Some(manager),
            packages: vec!["jq".into()],
            addresses: Addresses::Refused,
            index: None,
            timeout: None,
        };
        for manager in [Manager::Apt, Manager::Apk] {
            let error = wanted(manager).check("host").unwrap_err();
            assert_eq!((error.code, error.next_steps.len()), (Code::RuntimeNotAvailable, 2));
            assert!(wanted(manager).check("debian").is_ok());
        }
    }
}
