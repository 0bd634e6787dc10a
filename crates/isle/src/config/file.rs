//! Reading one file of settings. Whatever is wrong is said with file and line.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use isle_client::{ClientError, Result};
use isle_engine::{Code, Error};
use rustix::fs::OFlags;

use super::definition::{Key, Scope};
use super::keys::{KEYS, key};
use super::tables;
use super::value::Value;
use crate::places::cannot;

const LARGEST: u64 = 1024 * 1024;

/// Which file it is; says what may stand in it.
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

/// A setting as a file gives it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) key: &'static Key,
    pub(crate) value: Value,
    pub(crate) line: usize,
}

/// A file that was read.
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
            // Anybody may put one into a directory everybody can write to, and so may a sandbox whose
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

/// Whether nobody but this user or root has written the file, as far as its owner tells.
fn is_trusted(path: &Path) -> bool {
    let ours = |known: io::Result<std::fs::Metadata>| match known {
        Ok(known) => known.uid() == 0 || known.uid() == rustix::process::geteuid().as_raw(),
        // Reading says what is wrong.
        Err(_) => true,
    };
    ours(std::fs::symlink_metadata(path)) && ours(std::fs::metadata(path))
}

fn is_absent(layer: Layer, error: &io::Error) -> bool {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => true,
        // A directory one may not look into has no workspace file for us, whether there is one or not.
        io::ErrorKind::PermissionDenied => layer == Layer::Workspace,
        _ => false,
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    // Without waiting: a pipe in its place must not hang every command.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let known = file.metadata()?;
    if !known.is_file() || known.len() > LARGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a file of at most 1 MiB"));
    }
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text)?;
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
        at(offset, Error::new(Code::ConfigInvalid, error.message()).next("correct the TOML there"))
    })?;
    let mut found = Vec::new();
    for (name, value) in table.get_ref() {
        let offset = name.span().start;
        let key = key(name.get_ref()).ok_or_else(|| {
            let known: Vec<&str> =
                KEYS.iter().filter(|key| may_stand(key, layer)).map(|key| key.name).collect();
            let error = Error::new(Code::ConfigInvalid, format!("unknown key {:?}", name.get_ref()));
            at(offset, error.next(format!("the keys of this file are {}", known.join(", "))))
        })?;
        if !may_stand(key, layer) {
            return Err(at(offset, misplaced(key, layer)));
        }
        let mut value = Value::from_toml(key.kind, value).map_err(|(offset, error)| {
            let message = format!("`{}`: {}", key.name, error.message);
            at(offset, Error { message, ..error })
        })?;
        if let Value::Tables(all) = &mut value {
            tables::place(all, &path.display().to_string(), line_of);
        }
        found.push(Found { key, value, line: line_of(offset) });
    }
    Ok(found)
}

fn may_stand(key: &Key, layer: Layer) -> bool {
    match key.scope {
        Scope::Run => true,
        Scope::Daemon | Scope::Client => layer != Layer::Workspace,
        Scope::Place => false,
    }
}

fn misplaced(key: &Key, layer: Layer) -> Error {
    let name = key.name;
    match key.scope {
        Scope::Place => Error::new(Code::ConfigInvalid, format!("`{name}` cannot be set in a file"))
            .next(format!("set {} in the environment", key.env.unwrap_or_default())),
        Scope::Run | Scope::Daemon | Scope::Client => {
            Error::new(Code::ConfigInvalid, format!("`{name}` cannot come from a {} file", layer.as_str()))
                .next("put it into ~/.config/isle/config.toml or /etc/isle/config.toml")
        }
    }
}
