//! Reads one configuration file. Errors name file and line.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use isle_client::{ClientError, Result};
use isle_core::{Code, Error};
use rustix::fs::OFlags;

use super::definition::{Key, Scope};
use super::keys::{KEYS, key};
use super::tables;
use super::value::Value;
use crate::paths::cannot;

const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Which file it is; determines the keys allowed in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    Workspace,
    User,
    System,
}

impl Layer {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::User => "user",
            Self::System => "system",
        }
    }
}

/// A setting read from a file.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) key: &'static Key,
    pub(crate) value: Value,
    pub(crate) line: usize,
}

/// A configuration file that was read.
#[derive(Debug)]
pub(crate) struct SettingsFile {
    pub(crate) layer: Layer,
    pub(crate) path: PathBuf,
    pub(crate) found: Vec<Found>,
}

impl SettingsFile {
    /// Reads a file; `None` when there is none.
    pub(crate) fn read(layer: Layer, path: &Path) -> Result<Option<Self>> {
        let text = match read_text(path) {
            Ok(text) => text,
            Err(error) if is_absent(layer, &error) => return Ok(None),
            Err(error) => return Err(cannot("read", path, &error)),
        };
        let found = parse(layer, path, &text)?;
        Ok(Some(Self { layer, path: path.to_owned(), found }))
    }

    /// The `.isle.toml` of this directory or the nearest one above it.
    pub(crate) fn workspace() -> Result<Option<Self>> {
        let Ok(here) = std::env::current_dir() else { return Ok(None) };
        for directory in here.ancestors() {
            let path = directory.join(".isle.toml");
            // In a world-writable directory any user can create one, and so can a sandbox whose
            // directories are on this host.
            if !is_trusted(&path) {
                continue;
            }
            if let Some(file) = Self::read(Layer::Workspace, &path)? {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }
}

/// Whether the file is owned by this user or root.
fn is_trusted(path: &Path) -> bool {
    let ours = |known: io::Result<std::fs::Metadata>| match known {
        Ok(known) => known.uid() == 0 || known.uid() == rustix::process::geteuid().as_raw(),
        // Reading the file reports the error.
        Err(_) => true,
    };
    ours(std::fs::symlink_metadata(path)) && ours(std::fs::metadata(path))
}

fn is_absent(layer: Layer, error: &io::Error) -> bool {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => true,
        // A workspace file in an unreadable directory is ignored.
        io::ErrorKind::PermissionDenied => layer == Layer::Workspace,
        _ => false,
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    // Non-blocking: a FIFO at this path must not block every command.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let known = file.metadata()?;
    if !known.is_file() || known.len() > MAX_FILE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file of at most 1 MiB"));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

pub(crate) fn parse(layer: Layer, path: &Path, text: &str) -> Result<Vec<Found>> {
    let line_of = |offset: usize| text.get(..offset).unwrap_or(text).matches('\n').count() + 1;
    let at = |offset: usize, error: Error| -> ClientError {
        let line = line_of(offset);
        let mut placed =
            Error::new(Code::ConfigInvalid, format!("{}:{line}: {}", path.display(), error.message))
                .detail("file", path.display().to_string())
                .detail("line", line);
        placed.next_steps = error.next_steps;
        placed.into()
    };
    let table = toml::de::DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        at(offset, Error::new(Code::ConfigInvalid, error.message()).next("fix the TOML syntax at this line"))
    })?;
    let mut found = Vec::new();
    for (name, value) in table.get_ref() {
        let offset = name.span().start;
        let key = key(name.get_ref()).ok_or_else(|| {
            let known: Vec<&str> =
                KEYS.iter().filter(|key| is_allowed_in(key, layer)).map(|key| key.name).collect();
            let error = Error::new(Code::ConfigInvalid, format!("unknown key {:?}", name.get_ref()));
            at(offset, error.next(format!("valid keys: {}", known.join(", "))))
        })?;
        if !is_allowed_in(key, layer) {
            return Err(at(offset, misplaced(key, layer)));
        }
        let mut value = Value::from_toml(key.kind, value).map_err(|(offset, error)| {
            let message = format!("`{}`: {}", key.name, error.message);
            at(offset, Error { message, ..error })
        })?;
        if let Value::Tables(all) = &mut value {
            tables::set_locations(all, &path.display().to_string(), line_of);
        }
        found.push(Found { key, value, line: line_of(offset) });
    }
    Ok(found)
}

fn is_allowed_in(key: &Key, layer: Layer) -> bool {
    match key.scope {
        Scope::Run => true,
        Scope::Daemon | Scope::Client => layer != Layer::Workspace,
        Scope::Bootstrap => false,
    }
}

fn misplaced(key: &Key, layer: Layer) -> Error {
    let name = key.name;
    match key.scope {
        Scope::Bootstrap => Error::new(Code::ConfigInvalid, format!("`{name}` cannot be set in a file"))
            .next(format!("set {} in the environment", key.env.unwrap_or_default())),
        Scope::Run | Scope::Daemon | Scope::Client => {
            Error::new(Code::ConfigInvalid, format!("`{name}` is not allowed in a {} file", layer.as_str()))
                .next("set it in ~/.config/isle/config.toml or /etc/isle/config.toml")
        }
    }
}
