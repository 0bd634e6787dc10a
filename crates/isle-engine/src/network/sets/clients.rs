//! The package clients of this host, asked where they get packages from. They run as whoever runs the
//! daemon, far from any sandbox, and say what their settings and variables come to.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::super::trust::is_bundle;
use super::{GrantSet, without_user};
use isle_core::{Code, Error, Result};

/// How long a client may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How much it may say.
const MOST: u64 = 1024 * 1024;

/// Where a client gets packages from.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sources {
    pub(super) urls: Vec<String>,
    /// What makes the same client inside a sandbox use them.
    pub(super) env: Vec<(String, String)>,
}

pub(super) async fn sources(set: GrantSet) -> Result<Sources> {
    match set {
        GrantSet::Pip => {
            let said = ask(set, "python3", &["-c", PIP]).await?;
            let said: PipSettings = serde_json::from_str(&said).map_err(|error| unread(set, &error))?;
            Ok(said.sources())
        }
        GrantSet::Npm => {
            let said = ask(set, "npm", &["config", "list", "--long", "--json"]).await?;
            npm(&serde_json::from_str(&said).map_err(|error| unread(set, &error))?)
        }
        GrantSet::Apt => {
            let said = ask(set, "apt-get", &["indextargets", "--format", "$(REPO_URI)"]).await?;
            let mut urls: Vec<String> = said.lines().map(str::to_owned).collect();
            urls.sort_unstable();
            urls.dedup();
            Ok(Sources { urls, env: Vec::new() })
        }
        GrantSet::Cargo => cargo(),
    }
}

/// Asks pip's own code, since no command of it tells its default.
const PIP: &str = "
import json
from pip._internal.configuration import Configuration
from pip._internal.models.index import PyPI
settings = Configuration(isolated=False)
settings.load()
print(json.dumps({'settings': dict(settings.items()), 'index': PyPI.simple_url, 'files': PyPI.file_storage_domain}))
";

#[derive(Debug, Deserialize)]
struct PipSettings {
    settings: std::collections::BTreeMap<String, Value>,
    /// What it uses when no setting says otherwise.
    index: String,
    files: String,
}

impl PipSettings {
    /// A setting by its strength: a variable, that of `install`, that of all commands.
    fn get(&self, name: &str) -> Vec<&str> {
        let found = [":env:", "install", "global"]
            .iter()
            .find_map(|section| self.settings.get(&format!("{section}.{name}")));
        found.and_then(Value::as_str).unwrap_or_default().split_whitespace().collect()
    }

    fn sources(&self) -> Sources {
        let mut sources = Sources::default();
        let index = self.get("index-url");
        match index.first() {
            Some(url) => {
                sources.urls.push((*url).to_owned());
                sources.env.push(("PIP_INDEX_URL".to_owned(), without_user(url)));
            }
            None => sources.urls.extend([self.index.clone(), format!("https://{}/", self.files)]),
        }
        let more = self.get("extra-index-url");
        if !more.is_empty() {
            let shown: Vec<String> = more.iter().map(|url| without_user(url)).collect();
            sources.env.push(("PIP_EXTRA_INDEX_URL".to_owned(), shown.join(" ")));
        }
        let trusted = self.get("trusted-host");
        if !trusted.is_empty() {
            sources.env.push(("PIP_TRUSTED_HOST".to_owned(), trusted.join(" ")));
        }
        sources.urls.extend(more.into_iter().chain(self.get("find-links")).map(str::to_owned));
        sources
    }
}

fn npm(settings: &Value) -> Result<Sources> {
    let settings = settings.as_object().ok_or_else(|| unread(GrantSet::Npm, &"it is no object"))?;
    let mut sources = Sources::default();
    for (name, value) in settings {
        // One for all packages, and one for each scope that has its own.
        let is_registry = name == "registry" || (name.starts_with('@') && name.ends_with(":registry"));
        if let Some(url) = value.as_str().filter(|_| is_registry) {
            sources.urls.push(url.to_owned());
            sources.env.push((format!("npm_config_{name}"), without_user(url)));
        }
    }
    // npm believes authorities of its own unless it is told otherwise, and ignores a file that is not there.
    if let Some(bundle) = settings.get("cafile").and_then(Value::as_str).filter(|file| is_bundle(file)) {
        sources.env.push(("npm_config_cafile".to_owned(), bundle.to_owned()));
    }
    Ok(sources)
}

/// Cargo has no command that tells its settings, so its file is read.
fn cargo() -> Result<Sources> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let mut sources = Sources::default();
    for name in ["config.toml", "config"] {
        let Some(text) = home.as_ref().and_then(|home| std::fs::read_to_string(home.join(name)).ok()) else {
            continue;
        };
        sources.urls = cargo_settings(&text.parse().map_err(|error| unread(GrantSet::Cargo, &error))?);
        break;
    }
    for (name, value) in std::env::vars() {
        if name.starts_with("CARGO_REGISTRIES_") && name.ends_with("_INDEX") {
            sources.env.push((name, without_user(&value)));
            sources.urls.push(value);
        }
    }
    Ok(sources)
}

/// The servers in a file of cargo's: of registries, and of sources that stand in for others.
fn cargo_settings(settings: &toml::Table) -> Vec<String> {
    let of = |table: &str, keys: &[&str]| -> Vec<String> {
        let entries =
            settings.get(table).and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::values);
        entries
            .flat_map(|entry| keys.iter().filter_map(|key| entry.get(key).and_then(toml::Value::as_str)))
            .map(str::to_owned)
            .collect()
    };
    let mut urls = of("source", &["registry", "git"]);
    urls.extend(of("registries", &["index"]));
    urls
}

/// What a client of this host says.
async fn ask(set: GrantSet, program: &'static str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    // Settings of a project that the daemon happens to be in are nobody's settings.
    command
        .args(arguments)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| {
        Error::new(
            Code::RuntimeNotAvailable,
            format!("{} of this host cannot be asked what it uses: {program}: {error}", set.as_str()),
        )
        .next("install it on the host, or name the hosts instead, such as --allow example.com:443")
    })?;
    let pid = rustix::process::Pid::from_child(&child);
    let hearing = tokio::task::spawn_blocking(move || {
        let mut said = String::new();
        let heard = match child.stdout.take() {
            Some(stdout) => stdout.take(MOST).read_to_string(&mut said),
            None => Ok(0),
        };
        child.wait().and_then(|status| heard.map(|_| (status.success(), said)))
    });
    let failed = |why: String| {
        Error::new(
            Code::RuntimeNotAvailable,
            format!("{} of this host did not say what it uses: {why}", set.as_str()),
        )
        .next(format!(
            "look at what `{program} {}` says",
            arguments.join(" ").trim().lines().next().unwrap_or_default()
        ))
        .next("or name the hosts instead, such as --allow example.com:443")
    };
    let mut hearing = hearing;
    match tokio::time::timeout(PATIENCE, &mut hearing).await {
        Ok(Ok(Ok((true, said)))) => Ok(said),
        Ok(Ok(Ok((false, _)))) => Err(failed("it failed".into())),
        Ok(Ok(Err(error))) => Err(failed(error.to_string())),
        Ok(Err(error)) => Err(Error::internal(error)),
        Err(_) => {
            // Nobody has waited for it yet, so the number is still its own.
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
            Err(failed("it took too long".into()))
        }
    }
}

fn unread(set: GrantSet, why: &dyn std::fmt::Display) -> Error {
    Error::new(
        Code::InvalidArgument,
        format!("the settings of {} on this host cannot be read: {why}", set.as_str()),
    )
    .next("name the hosts instead, such as --allow example.com:443")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pip(settings: Value) -> Sources {
        let said = json!({ "settings": settings, "index": "https://index.example/simple", "files": "files.example" });
        serde_json::from_value::<PipSettings>(said).unwrap().sources()
    }

    #[test]
    fn pip_s_settings_are_used_by_strength_and_its_own_default_without_any() {
        assert_eq!(
            pip(json!({})),
            Sources {
                urls: vec!["https://index.example/simple".into(), "https://files.example/".into()],
                env: Vec::new()
            }
        );
        let mirror = pip(json!({
            "global.index-url": "https://global.example/simple",
            ":env:.index-url": "https://me:secret@mirror.example/simple",
            "install.extra-index-url": "https://one.example/\nhttps://two.example/",
            "global.trusted-host": "one.example",
            "global.timeout": 60,
        }));
        assert_eq!(
            mirror.urls,
            ["https://me:secret@mirror.example/simple", "https://one.example/", "https://two.example/"]
        );
        assert_eq!(
            mirror.env,
            [
                ("PIP_INDEX_URL".to_owned(), "https://mirror.example/simple".to_owned()),
                ("PIP_EXTRA_INDEX_URL".to_owned(), "https://one.example/ https://two.example/".to_owned()),
                ("PIP_TRUSTED_HOST".to_owned(), "one.example".to_owned()),
            ]
        );
    }

    #[test]
    fn npm_s_registries_are_that_of_all_and_those_of_scopes() {
        let said = json!({ "registry": "https://mirror.example/", "@own:registry": "https://own.example/", "replace-registry-host": "x", "color": true });
        let sources = npm(&said).unwrap();
        assert_eq!(sources.urls, ["https://own.example/", "https://mirror.example/"]);
        assert_eq!(sources.env[0].0, "npm_config_@own:registry");
        assert_eq!(sources.env.len(), 2);
    }

    #[test]
    fn npm_believes_inside_whom_it_believes_on_the_host_where_that_is_whom_the_system_believes() {
        for (file, told) in [
            (json!("/etc/ssl/certs/ca-certificates.crt"), Some("/etc/ssl/certs/ca-certificates.crt")),
            (json!("/home/somebody/house.pem"), None),
            (Value::Null, None),
        ] {
            let said = json!({ "registry": "https://mirror.example/", "cafile": file });
            let env = npm(&said).unwrap().env;
            let found = env.iter().find(|(name, _)| name == "npm_config_cafile");
            assert_eq!(found.map(|(_, value)| value.as_str()), told, "{file}");
        }
    }

    #[test]
    fn cargo_s_file_names_registries_and_sources() {
        let text = "[source.main]\nreplace-with = 'mirror'\n[source.mirror]\nregistry = 'sparse+https://mirror.example/'\n\
                    [registries.own]\nindex = 'https://own.example/index.git'\n[build]\njobs = 1\n";
        assert_eq!(
            cargo_settings(&text.parse().unwrap()),
            ["sparse+https://mirror.example/", "https://own.example/index.git"]
        );
        assert!(cargo_settings(&"[build]\njobs = 1\n".parse().unwrap()).is_empty());
    }
}
