//! Directories of the host that operations may reach into. There are none unless the configuration
//! names some. A path is taken from its root downwards by the kernel, which lets no link lead out.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use isle_trees::git::{GitDirs, completes_git_directory, is_in_git_directory};
use isle_trees::{Kind, kind_of};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};

use super::git_refused;
use isle_core::{Code, Error, Result};

/// The roots.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostRoots(Vec<PathBuf>);

/// A path below a root.
#[derive(Debug)]
pub(crate) struct HostPlace {
    root: OwnedFd,
    below: PathBuf,
    shown: PathBuf,
}

impl HostRoots {
    pub(crate) fn new(roots: &[PathBuf]) -> Self {
        Self(roots.to_vec())
    }

    /// Finds a path below one of the roots.
    pub(crate) fn find(&self, text: &str) -> Result<HostPlace> {
        let path = Path::new(text);
        let refuse = |code, why: String, next: &str| Err(Error::new(code, why).next(next));
        let is_plain = path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_) | Component::CurDir));
        if text.contains('\0') || !path.is_absolute() || !is_plain {
            return refuse(
                Code::InvalidPath,
                format!("{text:?} is not an absolute path of the host without `..`"),
                "write it from the root of the host, without `..`",
            );
        }
        if self.0.is_empty() {
            return refuse(
                Code::HostPathRefused,
                "no directory of the host is open to operations".into(),
                "name some in the daemon's configuration, such as host_roots = [\"/home/me/project\"]; `isle cp` and `isle sync push` use your own rights and need none",
            );
        }
        let shown = path.to_owned();
        for root in &self.0 {
            if let Ok(below) = path.strip_prefix(root) {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let opened = rustix::fs::open(root, flags, Mode::empty());
                let root = opened.map_err(|error| host_error(root, &error.into()))?;
                return Ok(HostPlace { root, below: below.to_owned(), shown });
            }
        }
        Err(Error::new(
            Code::HostPathRefused,
            format!("{text:?} is not below a directory open to operations"),
        )
        .detail("host_roots", self.0.iter().map(|root| root.display().to_string()).collect::<Vec<_>>())
        .next("choose a path below one of the host_roots in `details`, or add one to the configuration"))
    }
}

impl HostPlace {
    /// As the caller wrote it.
    pub(crate) fn shown(&self) -> &Path {
        &self.shown
    }

    /// Its last part.
    pub(crate) fn name(&self) -> Option<&str> {
        self.shown.file_name().and_then(|name| name.to_str())
    }

    /// Nothing from a sandbox is put into a git directory, or makes one, unless that is wanted.
    pub(crate) fn refuse_git_directory(&self, git_dirs: GitDirs) -> Result<()> {
        let name = self.shown.file_name().map_or(&[][..], OsStrExt::as_bytes);
        let above = self.shown.parent().unwrap_or(Path::new("/"));
        let is_git = is_in_git_directory(&self.shown) || completes_git_directory(above, name);
        if git_dirs == GitDirs::Skip && is_git {
            return Err(git_refused(&format!(
                "{} is in a git directory, or would make one, and git runs programs that files in it name",
                self.shown.display()
            )));
        }
        Ok(())
    }

    fn open_at(&self, path: &Path, flags: OFlags) -> Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC;
        for _ in 0..128 {
            match rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve) {
                Err(rustix::io::Errno::AGAIN) => {}
                opened => return opened.map_err(|error| host_error(&self.shown, &error.into())),
            }
        }
        Err(host_error(&self.shown, &rustix::io::Errno::AGAIN.into()))
    }

    /// Opens what is there: a file for reading, or a directory.
    pub(crate) fn open(&self) -> Result<(OwnedFd, Kind)> {
        let opened = self.open_at(&self.below, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let stat = rustix::fs::fstat(&opened).map_err(|error| host_error(&self.shown, &error.into()))?;
        Ok((opened, kind_of(&stat)))
    }

    /// Opens the directory above it, and says what stands there.
    pub(crate) fn above(&self) -> Result<(OwnedFd, Vec<u8>, Option<Kind>)> {
        let Some(name) = self.below.file_name() else {
            return Err(Error::new(Code::HostPathRefused, "a host root itself is not replaced")
                .next("name a path below it"));
        };
        let above = self.below.parent().unwrap_or(Path::new(""));
        let directory = self.open_at(above, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let standing = match rustix::fs::statat(directory.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(kind_of(&stat)),
            Err(rustix::io::Errno::NOENT) => None,
            Err(error) => return Err(host_error(&self.shown, &error.into())),
        };
        Ok((directory, name.as_bytes().to_vec(), standing))
    }
}

/// What a failure on the host means to the caller.
pub(crate) fn host_error(path: &Path, error: &io::Error) -> Error {
    let shown = path.display();
    let code = rustix::io::Errno::from_io_error(error);
    match code {
        Some(rustix::io::Errno::NOENT) => {
            Error::new(Code::FileNotFound, format!("{shown} does not exist on the host"))
                .next("check the path; the directory above a target must be there")
        }
        Some(rustix::io::Errno::XDEV | rustix::io::Errno::LOOP) => {
            Error::new(Code::HostPathRefused, format!("{shown} leads out of its host root through a link"))
                .next("name the place itself, below a host root")
        }
        Some(rustix::io::Errno::NOTDIR) => {
            Error::new(Code::NotDirectory, format!("a part of {shown} is no directory"))
                .next("name a path whose parents are directories")
        }
        Some(rustix::io::Errno::EXIST | rustix::io::Errno::NOTEMPTY) => {
            Error::new(Code::FileExists, format!("{shown} exists on the host"))
                .next("choose another place, or set replace")
        }
        Some(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM | rustix::io::Errno::ROFS) => {
            Error::new(Code::Forbidden, format!("the daemon may not do this to {shown}"))
                .next("choose a place the daemon's user may use")
        }
        Some(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => {
            Error::new(Code::NoSpace, format!("the host has no space left for {shown}"))
                .next("remove something, or choose another place")
        }
        _ => Error::internal(format!("{shown}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_below_a_root_is_found_and_no_link_leads_out() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        std::fs::create_dir_all(root.join("in")).unwrap();
        std::fs::write(place.path().join("secret"), "s").unwrap();
        std::fs::write(root.join("file"), "f").unwrap();
        std::os::unix::fs::symlink("../secret", root.join("out")).unwrap();
        std::os::unix::fs::symlink("file", root.join("fine")).unwrap();
        let roots = HostRoots::new(std::slice::from_ref(&root));
        let at = |below: &str| format!("{}/{below}", root.display());
        assert_eq!(roots.find(&at("file")).unwrap().open().unwrap().1, Kind::File);
        assert_eq!(roots.find(&at("fine")).unwrap().open().unwrap().1, Kind::File);
        assert_eq!(roots.find(&at("in")).unwrap().open().unwrap().1, Kind::Directory);
        assert_eq!(roots.find(&at("out")).unwrap().open().unwrap_err().code, Code::HostPathRefused);
        assert_eq!(roots.find(&at("missing")).unwrap().open().unwrap_err().code, Code::FileNotFound);
        for (bad, code) in [
            (at("../secret"), Code::InvalidPath),
            ("relative".into(), Code::InvalidPath),
            (format!("{}/secret", place.path().display()), Code::HostPathRefused),
            (format!("{}er/x", root.display()), Code::HostPathRefused),
        ] {
            assert_eq!(roots.find(&bad).unwrap_err().code, code, "{bad}");
        }
        let none = HostRoots::default().find(&at("file")).unwrap_err();
        assert_eq!(none.code, Code::HostPathRefused);
        assert!(none.next_steps[0].contains("host_roots"));
    }
}
