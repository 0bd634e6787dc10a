//! Merges the sources of settings.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use isle_client::Result;
use isle_core::backend::Tier;
use isle_core::{Code, Error};
use serde::de::DeserializeOwned;

use super::definition::Key;
use super::file::{Layer, SettingsFile};
use super::keys::KEYS;
use super::value::Value;
use crate::paths::user_config;

const SYSTEM: &str = "/etc/isle/config.toml";

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File { layer: &'static str, path: PathBuf, line: usize },
    Environment(&'static str),
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => formatter.write_str("default"),
            Self::File { layer, path, line } => write!(formatter, "{layer} file {}:{line}", path.display()),
            Self::Environment(name) => write!(formatter, "environment {name}"),
            Self::Flag(name) => write!(formatter, "flag {name}"),
        }
    }
}

/// Values of flags, by name of the setting; `None` is a flag that was not given.
pub(crate) type Flags<'a> = &'a [(&'static str, Option<String>)];

/// Which sources are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A command in a directory: all sources.
    Command,
    /// The daemon: no workspace.
    Daemon,
}

/// All settings with their values and origins.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    values: BTreeMap<&'static str, (Value, Origin)>,
}

impl Settings {
    /// For a command that runs in the current directory.
    pub(crate) fn for_command(user_file: Option<&PathBuf>, flags: Flags<'_>) -> Result<Self> {
        Self::read(Reader::Command, user_file, flags)
    }

    /// For the daemon.
    pub(crate) fn for_daemon(user_file: Option<&PathBuf>, flags: Flags<'_>) -> Result<Self> {
        Self::read(Reader::Daemon, user_file, flags)
    }

    /// The defaults.
    pub(crate) fn defaults() -> Result<Self> {
        let mut settings = Self { values: BTreeMap::new() };
        for key in KEYS {
            if let Some(default) = key.default {
                settings.put(key, Value::from_text(key.kind, default)?, Origin::Default);
            }
        }
        Ok(settings)
    }

    fn read(reader: Reader, user_file: Option<&PathBuf>, flags: Flags<'_>) -> Result<Self> {
        let mut settings = Self::defaults()?;
        settings.add_file(SettingsFile::read(Layer::System, SYSTEM.as_ref())?)?;
        settings.add_file(read_user_file(user_file)?)?;
        if reader == Reader::Command {
            settings.add_file(SettingsFile::workspace()?)?;
        }
        for key in KEYS {
            if let Some(name) = key.env
                && let Some(text) = std::env::var_os(name).filter(|value| !value.is_empty())
            {
                let value = Value::from_text(key.kind, &text.to_string_lossy()).map_err(|error| {
                    let message = format!("environment {name}: {}", error.message);
                    Error { message, ..error }
                })?;
                settings.put(key, value, Origin::Environment(name));
            }
        }
        for (name, text) in flags {
            if let (Some(key), Some(text)) = (super::key(name), text) {
                let flag = format!("--{}", name.replace('_', "-"));
                let value = Value::from_text(key.kind, text).map_err(|error| {
                    let message = format!("{flag}: {}", error.message);
                    Error { message, ..error }
                })?;
                settings.put(key, value, Origin::Flag(flag));
            }
        }
        Ok(settings)
    }

    fn add_file(&mut self, file: Option<SettingsFile>) -> Result<()> {
        let Some(file) = file else { return Ok(()) };
        for found in file.found {
            if file.layer == Layer::Workspace && found.key.name == "tier" && self.is_weaker(&found.value) {
                let place = format!("{}:{}", file.path.display(), found.line);
                return Err(Error::new(
                    Code::ConfigInvalid,
                    format!(
                        "{place}: a workspace file cannot select a weaker tier than the user's configuration"
                    ),
                )
                .detail("file", file.path.display().to_string())
                .detail("line", found.line)
                .next("remove `tier` from the file, or select the tier with --tier or ISLE_TIER")
                .into());
            }
            let origin =
                Origin::File { layer: file.layer.as_str(), path: file.path.clone(), line: found.line };
            self.put(found.key, found.value, origin);
        }
        Ok(())
    }

    fn is_weaker(&self, tier: &Value) -> bool {
        let own = self.text("tier").and_then(|text| text.parse::<Tier>().ok());
        matches!((tier.text().parse::<Tier>(), own), (Ok(tier), Some(own)) if tier < own)
    }

    /// A source of higher precedence replaces the value; maps are merged by key.
    fn put(&mut self, key: &'static Key, value: Value, origin: Origin) {
        let merged = match (self.values.remove(key.name), value) {
            (Some((Value::Map(mut below), _)), Value::Map(above)) => {
                below.extend(above);
                Value::Map(below)
            }
            (Some((Value::Tables(mut below), _)), Value::Tables(above)) => {
                below.extend(above);
                Value::Tables(below)
            }
            (_, value) => value,
        };
        self.values.insert(key.name, (merged, origin));
    }

    /// Only the settings given as flags.
    pub(crate) fn of_flags(mut self) -> Self {
        self.values.retain(|_, (_, origin)| matches!(origin, Origin::Flag(_)));
        self
    }

    /// A value and where it came from.
    pub(crate) fn get(&self, name: &str) -> Option<&(Value, Origin)> {
        self.values.get(name)
    }

    /// A value as text.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(|(value, _)| value.text())
    }

    /// A value that was set explicitly; `None` for defaults, which the daemon applies itself.
    pub(crate) fn chosen_value(&self, name: &str) -> Option<&Value> {
        self.get(name).filter(|(_, origin)| *origin != Origin::Default).map(|(value, _)| value)
    }

    /// The same as text.
    pub(crate) fn chosen(&self, name: &str) -> Option<String> {
        self.chosen_value(name).map(Value::text)
    }

    /// The same as the type of the API.
    pub(crate) fn chosen_as<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let Some(text) = self.chosen(name) else { return Ok(None) };
        serde_json::from_value(text.into()).map(Some).map_err(|error| {
            Error::new(Code::InvalidArgument, format!("{name}: {error}"))
                .next(format!("run `isle config` to see where {name} is set"))
                .into()
        })
    }

    /// Environment variables of runs.
    pub(crate) fn environment(&self) -> BTreeMap<String, String> {
        match self.get("env") {
            Some((Value::Map(map), _)) => map.clone(),
            _ => BTreeMap::new(),
        }
    }
}

/// The file named by `--config` must exist; the default file may be missing.
fn read_user_file(named: Option<&PathBuf>) -> Result<Option<SettingsFile>> {
    let Some(path) = named else {
        return match user_config() {
            Some(path) => SettingsFile::read(Layer::User, &path),
            None => Ok(None),
        };
    };
    match SettingsFile::read(Layer::User, path)? {
        Some(file) => Ok(Some(file)),
        None => Err(Error::new(
            Code::ConfigInvalid,
            format!("configuration file {} does not exist", path.display()),
        )
        .next("pass an existing file with --config")
        .into()),
    }
}
