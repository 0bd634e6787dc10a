//! The tools that install packages: which program, with which words and variables.

use isle_api::ops::install::Manager;
use isle_wire::GuestUser;

use super::Package;
use crate::network::GrantSet;
use crate::run::{Language, PlannedCommand, Program, Runner, SimpleCommand};

/// Where Node.js's packages go; commands look there, see the base environment.
const PREFIX: &str = "/home/sandbox/.local";
const NODE_CACHE: &str = "/home/sandbox/.cache/npm";

/// How a package manager is used.
pub(crate) trait PackageManager: Copy {
    fn manager(self) -> Manager;

    /// What it uses, as a set of grants.
    fn set(self) -> Option<GrantSet> {
        match self.manager() {
            Manager::Pip => Some(GrantSet::Pip),
            Manager::Npm => Some(GrantSet::Npm),
            Manager::Apt => Some(GrantSet::Apt),
            Manager::Apk => None,
        }
    }

    fn example(self) -> &'static str {
        match self.manager() {
            Manager::Pip => "a name such as numpy, numpy==1.26.0 or uvicorn[standard]>=0.20",
            Manager::Npm => "a name such as lodash, lodash@4 or @types/node@20",
            Manager::Apt => "a name such as jq or jq=1.6-2.1",
            Manager::Apk => "a name such as jq or jq=1.7.1-r0",
        }
    }

    /// How the names of package files end.
    fn endings(self) -> &'static [&'static str] {
        match self.manager() {
            Manager::Pip => &[".whl", ".tar.gz", ".zip"],
            Manager::Npm => &[".tgz", ".tar.gz"],
            Manager::Apt => &[".deb"],
            Manager::Apk => &[".apk"],
        }
    }

    fn runner(self) -> Runner {
        match self.manager() {
            Manager::Pip => Runner::Interpreter(Language::Python),
            Manager::Npm => Runner::Program { what: "npm", candidates: &["npm"] },
            Manager::Apt => Runner::Program { what: "apt", candidates: &["apt-get"] },
            Manager::Apk => Runner::Program { what: "apk", candidates: &["apk"] },
        }
    }

    fn user(self) -> GuestUser {
        match self.manager() {
            Manager::Pip | Manager::Npm => GuestUser::Sandbox,
            Manager::Apt | Manager::Apk => GuestUser::Root,
        }
    }

    /// Everything after the program's name. Behind `--` nothing is an option any more.
    fn arguments(self, packages: &[Package]) -> Vec<String> {
        let fixed: &[&str] = match self.manager() {
            Manager::Pip => &[
                "-m",
                "pip",
                "install",
                "--user",
                "--no-input",
                "--disable-pip-version-check",
                "--no-warn-script-location",
                "--progress-bar=off",
                "--",
            ],
            Manager::Npm => &["install", "--global", "--no-fund", "--no-audit", "--loglevel=error", "--"],
            Manager::Apt => &["install", "--yes", "--no-install-recommends", "--"],
            Manager::Apk => &["add", "--update-cache", "--"],
        };
        fixed.iter().map(|&word| word.to_owned()).chain(packages.iter().map(Package::to_string)).collect()
    }

    /// What is done before, and may fail: a clean image knows of no packages yet, and one that knows some can
    /// do without news of them.
    fn first(self, packages: &[Package]) -> Option<&'static str> {
        match self.manager() {
            Manager::Apt if packages.iter().any(|package| !package.is_file()) => Some("update"),
            // The others look for themselves.
            Manager::Apt | Manager::Pip | Manager::Npm | Manager::Apk => None,
        }
    }

    /// What installs packages.
    fn program(self, packages: &[Package]) -> Program {
        let names: Vec<String> = packages.iter().map(Package::to_string).collect();
        let arguments = self.arguments(packages);
        let Some(first) = self.first(packages) else {
            return Program::Tool {
                shown: format!("{} install {}", self.manager().as_str(), names.join(" ")),
                runner: self.runner(),
                arguments,
                variables: true,
            };
        };
        let (_, candidates) = self.runner().names();
        let name = candidates.first().copied().unwrap_or_default();
        let command = |arguments: Vec<String>, allow_failure: bool| PlannedCommand {
            program: SimpleCommand::Argv(std::iter::once(name.to_owned()).chain(arguments).collect()),
            cwd: None,
            env: Vec::new(),
            allow_failure,
        };
        Program::Commands {
            commands: vec![command(vec![first.to_owned()], true), command(arguments, false)],
            continue_on_error: false,
        }
    }

    /// What the tool needs to know; whether a variable of the sandbox is stronger.
    fn environment(self) -> &'static [(&'static str, &'static str, bool)] {
        match self.manager() {
            Manager::Pip => &[
                // The home of a sandbox is nobody's system.
                ("PIP_BREAK_SYSTEM_PACKAGES", "1", false),
                ("PIP_RETRIES", "1", true),
            ],
            Manager::Npm => &[
                ("npm_config_prefix", PREFIX, false),
                ("npm_config_cache", NODE_CACHE, true),
                ("npm_config_update_notifier", "false", true),
                ("npm_config_fetch_retries", "1", true),
            ],
            Manager::Apt => &[("DEBIAN_FRONTEND", "noninteractive", false)],
            Manager::Apk => &[],
        }
    }

    /// The variable that names another index.
    fn index_variable(self) -> Option<&'static str> {
        match self.manager() {
            Manager::Pip => Some("PIP_INDEX_URL"),
            Manager::Npm => Some("npm_config_registry"),
            Manager::Apt | Manager::Apk => None,
        }
    }
}

impl PackageManager for Manager {
    fn manager(self) -> Manager {
        self
    }
}

/// The one for packages of a language; none for a shell, which has no packages of its own.
pub(crate) fn manager_of(language: Language) -> Option<Manager> {
    match language {
        Language::Python => Some(Manager::Pip),
        Language::Node => Some(Manager::Npm),
        Language::Shell => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::install::Addresses;

    #[test]
    fn packages_come_last_and_behind_the_dashes() {
        for manager in Manager::ALL {
            let package = Package::parse("demo", manager, Addresses::Refused).unwrap();
            let arguments = manager.arguments(&[package]);
            assert_eq!(arguments[arguments.len() - 2..], ["--".to_owned(), "demo".to_owned()], "{manager:?}");
        }
    }

    fn apt(name: &str) -> Vec<Vec<String>> {
        let package = Package::parse(name, Manager::Apt, Addresses::Refused).unwrap();
        match Manager::Apt.program(&[package]) {
            Program::Commands { commands, .. } => commands
                .into_iter()
                .map(|command| match command.program {
                    SimpleCommand::Argv(argv) => argv,
                    SimpleCommand::Shell(text) => panic!("a shell: {text}"),
                })
                .collect(),
            Program::Tool { arguments, .. } => vec![[vec!["apt-get".to_owned()], arguments].concat()],
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn apt_asks_for_news_before_names_and_not_before_files() {
        assert_eq!(apt("jq")[0], ["apt-get", "update"]);
        assert_eq!(apt("./jq.deb").len(), 1);
    }

    fn run(argv: &[&str], at: &Path, config: Option<&Path>) -> String {
        let mut command = Command::new(argv[0]);
        command.args(&argv[1..]).current_dir(at).envs(config.map(|path| ("APT_CONFIG", path)));
        command.envs(Manager::Apt.environment().iter().map(|(name, value, _)| (name, value)));
        // dpkg wants to see programs of the administrator's.
        let output = command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{argv:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// The real apt, with the words Isle gives it, in a root of its own that knows of no packages, against a
    /// repository of two versions.
    #[test]
    fn the_real_apt_installs_by_name_by_version_and_from_a_file() {
        if !["/usr/bin/apt-get", "/usr/bin/dpkg-scanpackages"].iter().all(|path| Path::new(path).exists()) {
            isle_e2e::skip!("this host has no apt, or nothing that makes a repository for it");
        }
        let place = tempfile::tempdir().unwrap();
        let (root, repository) = (place.path().join("root"), place.path().join("repository"));
        for below in [
            "etc/apt/preferences.d",
            "etc/apt/apt.conf.d",
            "var/lib/dpkg",
            "var/lib/apt",
            "var/cache/apt",
            "var/log/apt",
            "tmp",
        ] {
            std::fs::create_dir_all(root.join(below)).unwrap();
        }
        std::fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
        for version in ["1.0", "2.0"] {
            let package = place.path().join(version);
            std::fs::create_dir_all(package.join("DEBIAN")).unwrap();
            std::fs::create_dir_all(package.join("opt")).unwrap();
            std::fs::create_dir_all(&repository).unwrap();
            std::fs::write(package.join("opt/isle-demo"), version).unwrap();
            let about = format!(
                "Package: isle-demo\nVersion: {version}\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: test\n"
            );
            std::fs::write(package.join("DEBIAN/control"), about).unwrap();
            let file = format!("repository/isle-demo_{version}_all.deb");
            run(&["dpkg-deb", "--root-owner-group", "--build", version, &file], place.path(), None);
        }
        let index = run(&["dpkg-scanpackages", "--multiversion", "."], &repository, None);
        std::fs::write(repository.join("Packages"), index).unwrap();
        let source = format!("deb [trusted=yes] file:{} ./\n", repository.display());
        std::fs::write(root.join("etc/apt/sources.list"), source).unwrap();
        let config = place.path().join("apt.conf");
        let shown = root.display();
        let settings = format!(
            "Dir \"{shown}\";\nDir::State::status \"{shown}/var/lib/dpkg/status\";\nDir::Bin::dpkg \"/usr/bin/dpkg\";\nDir::Bin::Methods \"/usr/lib/apt/methods\";\nDir::Bin::solvers:: \"/usr/lib/apt/solvers\";\nDir::Bin::planners:: \"/usr/lib/apt/planners\";\nAPT::Sandbox::User \"root\";\nDPkg::Options {{ \"--root={shown}\"; \"--force-not-root\"; \"--force-bad-path\"; \"--log=/dev/null\"; }};\n"
        );
        std::fs::write(&config, settings).unwrap();
        let installed = || std::fs::read_to_string(root.join("opt/isle-demo")).unwrap();
        let file = format!("{}/isle-demo_1.0_all.deb", repository.display());
        for (name, version) in [("isle-demo=1.0", "1.0"), ("isle-demo", "2.0")] {
            for argv in apt(name) {
                let words: Vec<&str> = argv.iter().map(String::as_str).collect();
                run(&words, place.path(), Some(&config));
            }
            assert_eq!(installed(), version);
        }
        run(&["apt-get", "remove", "--yes", "isle-demo"], place.path(), Some(&config));
        for argv in apt(&file) {
            let words: Vec<&str> = argv.iter().map(String::as_str).collect();
            run(&words, place.path(), Some(&config));
        }
        assert_eq!(installed(), "1.0");
    }
}
