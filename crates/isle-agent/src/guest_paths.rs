//! What guest paths mean to this agent. With a root file system of its own they mean themselves. Without
//! one, `/workspace`, `/home/sandbox` and `/tmp` stand for private directories of the host, wherever a path
//! reaches the agent.

use std::borrow::Cow;

use isle_setup::request::Directories;
use isle_setup::{CONTROL_DIRECTORY, SANDBOX_HOME, SANDBOX_WORKSPACE};
use minicbor::bytes::ByteVec;

/// How guest paths are resolved.
#[derive(Debug)]
pub(crate) enum GuestPaths {
    /// The sandbox has a root file system of its own.
    OwnRoot,
    /// The guest's directories are these directories of the host.
    Mapped(Directories),
}

impl GuestPaths {
    /// Whether `/` is the sandbox's own.
    pub(crate) fn is_own_root(&self) -> bool {
        matches!(self, Self::OwnRoot)
    }

    /// The path the agent has to use for a guest path.
    pub(crate) fn resolve<'a>(&self, path: &'a [u8]) -> Cow<'a, [u8]> {
        match self {
            Self::OwnRoot => Cow::Borrowed(path),
            Self::Mapped(directories) => map(directories, path),
        }
    }

    /// Arguments, with those replaced that are a guest path as a whole. Text that merely contains one is
    /// left as it is.
    pub(crate) fn arguments<'a>(&self, words: &'a [ByteVec]) -> Cow<'a, [ByteVec]> {
        match self {
            Self::OwnRoot => Cow::Borrowed(words),
            Self::Mapped(directories) => {
                words.iter().map(|word| map(directories, word).into_owned().into()).collect()
            }
        }
    }

    /// The environment, with values replaced that are guest paths, and with variables that say where the
    /// workspace and the directory for temporary files are.
    pub(crate) fn environment<'a>(&self, environment: &'a [ByteVec]) -> Cow<'a, [ByteVec]> {
        let Self::Mapped(directories) = self else { return Cow::Borrowed(environment) };
        let mut result: Vec<ByteVec> =
            environment.iter().map(|entry| variable(directories, entry).into()).collect();
        let Directories { workspace, tmp, .. } = directories;
        // Git fails when the host's system configuration exists and is not readable.
        let added: [(&[u8], &[u8]); 3] =
            [(b"TMPDIR=", tmp), (b"ISLE_WORKSPACE=", workspace), (b"GIT_CONFIG_NOSYSTEM=", b"1")];
        for (name, value) in added {
            if !environment.iter().any(|entry| entry.starts_with(name)) {
                result.push([name, value].concat().into());
            }
        }
        Cow::Owned(result)
    }
}

fn map<'a>(directories: &Directories, path: &'a [u8]) -> Cow<'a, [u8]> {
    let Directories { workspace, home, tmp, control, .. } = directories;
    let own = [(SANDBOX_WORKSPACE.as_bytes(), workspace), (SANDBOX_HOME.as_bytes(), home), (b"/tmp", tmp)];
    let control = control.iter().map(|real| (CONTROL_DIRECTORY.as_bytes(), real));
    for (guest, real) in own.into_iter().chain(control) {
        if let Some(rest) = path.strip_prefix(guest)
            && (rest.is_empty() || rest.starts_with(b"/"))
        {
            return Cow::Owned([&real[..], rest].concat());
        }
    }
    Cow::Borrowed(path)
}

fn variable(directories: &Directories, entry: &[u8]) -> Vec<u8> {
    let Some(at) = entry.iter().position(|&byte| byte == b'=') else { return entry.to_vec() };
    let (name, value) = (&entry[..at], &entry[at + 1..]);
    let value = if name.ends_with(b"PATH") {
        let parts: Vec<Cow<'_, [u8]>> =
            value.split(|&byte| byte == b':').map(|part| map(directories, part)).collect();
        parts.join(&b':')
    } else {
        map(directories, value).into_owned()
    };
    [name, b"=", &value].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped() -> GuestPaths {
        let text = |text: &str| ByteVec::from(text.as_bytes().to_vec());
        GuestPaths::Mapped(Directories {
            workspace: text("/srv/w"),
            home: text("/srv/h"),
            tmp: text("/srv/t"),
            cache: None,
            control: None,
        })
    }

    #[test]
    fn whole_components_are_mapped_and_nothing_else() {
        let paths = mapped();
        for (guest, host) in [
            ("/workspace", "/srv/w"),
            ("/workspace/a/b", "/srv/w/a/b"),
            ("/workspaces", "/workspaces"),
            ("/home/sandbox/.x", "/srv/h/.x"),
            ("/tmp", "/srv/t"),
            ("/usr/bin", "/usr/bin"),
            ("workspace", "workspace"),
        ] {
            assert_eq!(*paths.resolve(guest.as_bytes()), *host.as_bytes(), "{guest}");
            assert_eq!(*GuestPaths::OwnRoot.resolve(guest.as_bytes()), *guest.as_bytes());
        }
    }

    #[test]
    fn search_paths_are_mapped_part_by_part_and_missing_variables_are_added() {
        let entry = |text: &str| ByteVec::from(text.as_bytes().to_vec());
        let given = [entry("PATH=/workspace/bin:/usr/bin"), entry("TMPDIR=/x"), entry("A=/tmp/b")];
        let result = mapped().environment(&given).into_owned();
        let text: Vec<_> = result.iter().map(|one| String::from_utf8(one.to_vec()).unwrap()).collect();
        assert_eq!(
            text,
            [
                "PATH=/srv/w/bin:/usr/bin",
                "TMPDIR=/x",
                "A=/srv/t/b",
                "ISLE_WORKSPACE=/srv/w",
                "GIT_CONFIG_NOSYSTEM=1"
            ]
        );
    }
}
