//! Two kinds of paths that must never be mixed up: inside a sandbox, and on the host.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::{Code, Error};

/// The directory relative guest paths start from.
pub const WORKSPACE: &str = "/workspace";

/// A path inside a sandbox: relative to `/workspace` (and then confined to it, links included),
/// or absolute (and then anywhere in the sandbox). No `..`, no NUL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GuestPath(String);

/// Where a guest path is resolved from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Below the workspace, never out of it.
    Workspace,
    /// From the root of the sandbox.
    Root,
}

impl GuestPath {
    /// The workspace itself.
    #[must_use]
    pub fn workspace() -> Self {
        Self(".".into())
    }

    /// The path as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Where it is resolved from.
    #[must_use]
    pub fn place(&self) -> Place {
        if self.0.starts_with('/') { Place::Root } else { Place::Workspace }
    }

    /// As an absolute path of the sandbox, for people and for a working directory.
    #[must_use]
    pub fn absolute(&self) -> String {
        match self.place() {
            Place::Root => self.0.clone(),
            Place::Workspace if self.0 == "." => WORKSPACE.into(),
            Place::Workspace => format!("{WORKSPACE}/{}", self.0.trim_start_matches("./")),
        }
    }

    /// Parses a path that must be absolute, such as a working directory.
    pub fn parse_absolute(text: &str) -> Result<Self, Error> {
        let path: Self = text.parse()?;
        if path.place() == Place::Root {
            return Ok(path);
        }
        Err(Error::new(Code::InvalidPath, format!("{text:?} is not an absolute path"))
            .next(format!("write it from the root of the sandbox, such as {WORKSPACE}/{text}")))
    }
}

impl FromStr for GuestPath {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = |why: &str, next: &str| {
            Err(Error::new(Code::InvalidPath, format!("{text:?} is not a path in the sandbox: {why}"))
                .next(next))
        };
        if text.is_empty() {
            return refuse("it is empty", "name a file or directory");
        }
        if text.len() > 4095 {
            return refuse("it is longer than 4,095 bytes", "use a shorter path");
        }
        if text.contains('\0') {
            return refuse("it contains a NUL byte", "remove it");
        }
        if text.split('/').any(|part| part == "..") {
            return refuse(
                "it contains `..`",
                "write the path it means, relative to /workspace or absolute in the sandbox",
            );
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for GuestPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

super::text_value!(GuestPath, "GuestPath", "Path in the sandbox: relative to /workspace, or absolute.");

/// A path on the host. It never comes from inside a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPath(PathBuf);

impl HostPath {
    /// Wraps a path the host's user or configuration gave.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}
