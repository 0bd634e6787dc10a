//! Names of packages, read strictly: a name is never an option, a shell never sees it, and what could
//! lead somewhere else (addresses, paths, aliases) is told from a name before any tool gets it.

use std::fmt;

use super::{Manager, PackageManager};
use isle_core::{Code, Error, Result};

const LONGEST: usize = 214;

/// One package, in a form its manager takes and nothing can hide in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package(String);

impl fmt::Display for Package {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Whether addresses are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addresses {
    Allowed,
    Refused,
}

impl Package {
    /// Whether it is a file in the sandbox.
    pub(super) fn is_file(&self) -> bool {
        self.0.starts_with(['/', '.'])
    }

    /// Reads one.
    pub(crate) fn parse(text: &str, manager: Manager, addresses: Addresses) -> Result<Self> {
        let refuse = |why: &str, next: String| {
            let name = manager.as_str();
            Err(Error::new(Code::InvalidArgument, format!("{text:?} is no package for {name}: {why}"))
                .next(next))
        };
        if text.is_empty() || text.len() > LONGEST {
            return refuse("it is empty or too long", format!("write {}", manager.example()));
        }
        if text.starts_with('-') {
            return refuse(
                "it would be taken for an option",
                "options are not passed on; name packages only".into(),
            );
        }
        if text.contains("://") {
            return match addresses {
                Addresses::Allowed if is_address(text) => Ok(Self(text.to_owned())),
                Addresses::Allowed => refuse(
                    "this is not an address it could be fetched from",
                    "use http or https, without spaces".into(),
                ),
                Addresses::Refused => refuse(
                    "addresses are not taken unless allow_urls is set",
                    "name the package, or set allow_urls".into(),
                ),
            };
        }
        if text.starts_with('/') || text.starts_with("./") {
            if is_path(text, manager) {
                return Ok(Self(text.to_owned()));
            }
            let endings = manager.endings().join(", ");
            return refuse(
                "this is not the path of a package file",
                format!(
                    "name a file in the sandbox that ends in {endings}, with plain characters and no `..`"
                ),
            );
        }
        let good = match manager {
            Manager::Pip => is_pip(text),
            Manager::Npm => is_npm(text),
            Manager::Apt => is_apt(text),
            Manager::Apk => is_apk(text),
        };
        if good {
            return Ok(Self(text.to_owned()));
        }
        refuse("it has the wrong form", format!("write {}", manager.example()))
    }
}

fn is_address(text: &str) -> bool {
    let rest = ["http://", "https://", "git+http://", "git+https://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    rest.is_some_and(|rest| {
        rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[')
            && rest.chars().all(|c| c.is_ascii_graphic())
    })
}

fn is_path(text: &str, manager: Manager) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/+-=".contains(c);
    text.chars().all(plain)
        && text.split('/').all(|part| part != ".." && !part.starts_with('-'))
        && manager.endings().iter().any(|ending| text.ends_with(ending))
}

/// `name`, letters and digits with `._-` inside.
fn is_name(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(word) && text.ends_with(word) && text.chars().all(|c| word(c) || "._-".contains(c))
}

/// `name[extra,other]>=1.0,<2`.
fn is_pip(text: &str) -> bool {
    let end = text.find(|c: char| "[=<>!~ ".contains(c)).unwrap_or(text.len());
    let (name, mut rest) = text.split_at(end);
    if !is_name(name) {
        return false;
    }
    if let Some(inside) = rest.trim_start().strip_prefix('[') {
        let Some((extras, after)) = inside.split_once(']') else { return false };
        if !extras.split(',').all(|extra| is_name(extra.trim())) {
            return false;
        }
        rest = after;
    }
    let rest = rest.trim();
    rest.is_empty() || rest.split(',').all(|part| is_pip_version(part.trim()))
}

fn is_pip_version(text: &str) -> bool {
    let operators = ["===", "==", "~=", "!=", "<=", ">=", "<", ">"];
    let Some(version) = operators.iter().find_map(|operator| text.strip_prefix(operator)) else {
        return false;
    };
    let version = version.trim_start();
    version.starts_with(|c: char| c.is_ascii_digit())
        && version.chars().all(|c| c.is_ascii_alphanumeric() || ".*+!_-".contains(c))
}

/// `name`, `@scope/name`, either with `@range`.
fn is_npm(text: &str) -> bool {
    let part = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-~".contains(c))
    };
    let (scope, rest) = match text.strip_prefix('@') {
        None => (None, text),
        Some(scoped) => match scoped.split_once('/') {
            Some((scope, rest)) => (Some(scope), rest),
            None => return false,
        },
    };
    let (name, range) = rest.split_once('@').map_or((rest, None), |(name, range)| (name, Some(range)));
    // Without `:` and `/`, a range cannot be an alias, a file or a repository.
    let is_range = |range: &str| {
        !range.trim().is_empty()
            && !range.trim_start().starts_with('-')
            && range.chars().all(|c| c.is_ascii_alphanumeric() || ".^~<>=*+-| ".contains(c))
    };
    scope.is_none_or(part) && part(name) && range.is_none_or(is_range)
}

/// `name`, `name:architecture`, either with `=version`.
fn is_apt(text: &str) -> bool {
    let (name, version) = text.split_once('=').map_or((text, None), |(name, version)| (name, Some(version)));
    let (name, architecture) = name.split_once(':').map_or((name, None), |(name, own)| (name, Some(own)));
    let small = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.starts_with(small)
        // `name-` would remove it.
        && !name.ends_with('-')
        && name.chars().all(|c| small(c) || "+.-".contains(c))
        && architecture.is_none_or(|own| !own.is_empty() && own.chars().all(small))
        && version.is_none_or(is_system_version)
}

/// `name`, with `=version` or another comparison.
fn is_apk(text: &str) -> bool {
    let end = text.find(|c: char| "=<>~".contains(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let version = rest.trim_start_matches(|c: char| "=<>~".contains(c));
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "+._-".contains(c))
        && rest.len() - version.len() <= 2
        && (rest.is_empty() || is_system_version(version))
}

fn is_system_version(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || ".+:~_-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(manager: Manager, text: &str) -> bool {
        Package::parse(text, manager, Addresses::Refused).is_ok()
    }

    #[test]
    fn names_with_versions_are_taken() {
        for text in [
            "numpy",
            "numpy==1.26.0",
            "ruamel.yaml",
            "uvicorn[standard]>=0.20,<1",
            "x [a, b] ~= 1.0",
            "zope.interface!=5.*",
            "./dist/demo-1.0-py3-none-any.whl",
            "/workspace/demo-1.0.tar.gz",
        ] {
            assert!(good(Manager::Pip, text), "{text}");
        }
        for text in [
            "lodash",
            "lodash@4",
            "@types/node",
            "@types/node@^20.1.0",
            "a@>=1 <2 || 3",
            "x@latest",
            "./demo-1.0.0.tgz",
        ] {
            assert!(good(Manager::Npm, text), "{text}");
        }
        for text in ["jq", "g++", "libssl-dev", "gcc:amd64", "jq=1.6-2.1", "./x_1.0_amd64.deb"] {
            assert!(good(Manager::Apt, text), "{text}");
        }
        for text in ["jq", "g++", "py3-pip", "jq=1.7.1-r0", "jq>1.6", "jq~1.7"] {
            assert!(good(Manager::Apk, text), "{text}");
        }
    }

    #[test]
    fn nothing_is_smuggled_in_as_a_name() {
        let everywhere = [
            "",
            "-r",
            "--index-url=http://x.example",
            "-e .",
            "a b",
            "a;id",
            "a$(id)",
            "a`id`",
            "a|b",
            "a&b",
            "a>b",
            "a\nb",
            "a\0b",
            "../x.whl",
            "./../x.whl",
            "/workspace/-x.whl",
            "/etc/passwd",
            "http://x.example/a.whl",
            "git+https://x.example/a",
            "a @ https://x.example/a.whl",
            "file:///etc/passwd",
            "ä",
        ];
        for manager in Manager::ALL {
            for text in everywhere {
                assert!(!good(manager, text), "{manager:?} {text:?}");
            }
            assert!(!good(manager, &"a".repeat(LONGEST + 1)));
        }
        for text in ["a/b", "a@npm:b", "a@file:b", "@a", "@/a", "@a/", "a@", "a@-g", "github:a/b", ".hidden"]
        {
            assert!(!good(Manager::Npm, text), "{text}");
        }
        for text in ["a==", "a=1", "a[", "a[]", "a; python_version<'3'", "a==1 --pre", "a==1,"] {
            assert!(!good(Manager::Pip, text), "{text}");
        }
        for text in ["jq-", "Jq", "a:", "a=", "a=-x", "a/stable"] {
            assert!(!good(Manager::Apt, text), "{text}");
        }
        for text in ["!jq", "a===1", "a=", "a@edge"] {
            assert!(!good(Manager::Apk, text), "{text}");
        }
    }

    #[test]
    fn addresses_are_taken_only_when_allowed_and_only_plain_ones() {
        let read = |text: &str| Package::parse(text, Manager::Pip, Addresses::Allowed).is_ok();
        assert!(read("https://x.example/a-1.0-py3-none-any.whl") && read("git+https://x.example/a"));
        for text in ["file:///x.whl", "ssh://x.example/a", "https:// x", "https://", "https://-x"] {
            assert!(!read(text), "{text}");
        }
    }
}
