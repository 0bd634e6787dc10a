//! Converts settings to the engine's configuration.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Component, PathBuf};
use std::sync::Arc;

use isle_api::{Registry, Toolsets};
use isle_client::Result;
use isle_core::backend::{Limits, Tier};
use isle_core::keyring::Keyring;
use isle_core::values::{Address, ByteSize, ChildName, Namespace, Span, Term};
use isle_core::{Code, Error};
use isle_engine::EngineConfig;
use isle_engine::engine::{
    Deadlines, DenyList, NamePattern, NetworkConfig, Quotas, SecretNames, SpawnPolicies, SpawnPolicy,
};
use isle_engine::profile::{Audience, Profile};
use isle_linux::KernelKeyring;
use isle_mcp::{Descriptions, McpOptions};
use isle_server::ports::PortsConfig;
use isle_vault::{DesktopKeyring, ExposePolicy, ExternalSecret, KeyText, PiiKinds, VaultConfig};

use crate::config::{Origin, Settings, Table, Value, backend_names};

/// Every field is read from its setting; the defaults are those of the settings table.
pub(crate) fn engine_config(settings: &Settings) -> Result<EngineConfig> {
    let mut config = EngineConfig {
        backend: settings.text("backend").map(|name| backend_names::parse(&name)).transpose()?,
        tier: text(settings, "tier")?.parse::<Tier>()?,
        image: text(settings, "image")?,
        limits: Limits {
            memory: size(settings, "memory")?,
            cpus: number(settings, "cpus")?,
            pids: count(settings, "pids")?,
            disk: size(settings, "disk")?,
        },
        allow_downgrade: switch(settings, "allow_downgrade")?,
        timeout: span(settings, "timeout")?,
        max_timeout: span(settings, "max_timeout")?,
        wait: span(settings, "wait")?,
        output_cap: size(settings, "output_cap")?,
        job_files: None,
        job_output_cap: size(settings, "job_output_cap")?,
        file_cap: size(settings, "file_cap")?,
        warm_default: switch(settings, "warm_default")?,
        secret_names: match text(settings, "secret_names")?.as_str() {
            "allow" => SecretNames::Allow,
            "refuse" => SecretNames::Refuse,
            _ => SecretNames::Warn,
        },
        deny: if switch(settings, "deny_enabled")? {
            DenyList::new(&list(settings, "deny_patterns")?)?
        } else {
            DenyList::default()
        },
        host_roots: host_roots(settings)?,
        quotas: quotas(settings)?,
        deadlines: deadlines(settings)?,
        spawn_policies: spawn_policies(settings)?,
        network: network(settings)?,
        profiles: BTreeMap::new(),
        vault: vault(settings)?,
    };
    config.profiles = profiles(settings, &config)?;
    Ok(config)
}

fn network(settings: &Settings) -> Result<NetworkConfig> {
    let mut network = NetworkConfig::new(
        &list(settings, "network_allow")?,
        &map(settings, "network_hosts"),
        &list(settings, "network_ca_files")?,
        &list(settings, "network_install")?,
    )?;
    network.ask = term(settings, "network_ask")?.span();
    Ok(network)
}

/// Source of the vault key. The key itself is only read from the daemon's environment: settings are printed
/// by `isle config`, and configuration files are readable by others.
fn vault(settings: &Settings) -> Result<VaultConfig> {
    Ok(VaultConfig {
        key: std::env::var("ISLE_VAULT_KEY").ok().filter(|text| !text.is_empty()).map(KeyText::new),
        key_command: list(settings, "vault_key_command")?,
        // Set later, since it depends on the state directory.
        keyring: None,
        key_file: settings.text("vault_key_file").map(PathBuf::from),
        expose: match text(settings, "expose_secrets")?.as_str() {
            "never" => ExposePolicy::Never,
            "anybody" => ExposePolicy::Anybody,
            _ => ExposePolicy::People,
        },
        external: map(settings, "secrets_from_env")
            .iter()
            .map(|(whose, from)| ExternalSecret::new(whose, from, |variable| std::env::var(variable).ok()))
            .collect::<isle_core::Result<_>>()?,
        mask_pii: PiiKinds::read(&list(settings, "mask_pii")?).map_err(|error| {
            invalid_setting(
                settings,
                "mask_pii",
                &error.message,
                error.next_steps.first().map_or("", String::as_str),
            )
        })?,
    })
}

/// The keyring for the vault key of a state directory. `vault` is the name of the key, derived from the
/// identity of the state directory, because daemons in several containers may share the user's keyring
/// while their state directories have the same path.
pub(crate) fn keyring(settings: &Settings, vault: &str) -> Result<Option<Arc<dyn Keyring>>> {
    let vault = vault.to_owned();
    Ok(match text(settings, "vault_keyring")?.as_str() {
        "desktop" => Some(Arc::new(DesktopKeyring::new(vault))),
        "kernel" => Some(Arc::new(KernelKeyring::new(&vault))),
        _ => None,
    })
}

/// The profiles; each is checked to be able to create a sandbox.
fn profiles(settings: &Settings, config: &EngineConfig) -> Result<BTreeMap<String, Profile>> {
    let Some((Value::Tables(tables), _)) = settings.get("profiles") else { return Ok(BTreeMap::new()) };
    let checked = tables.iter().map(|(name, table)| {
        let invalid = |error| table.invalid(&format!("profile {name}"), error);
        let profile = profile(table).map_err(invalid)?;
        name.parse::<ChildName>().map_err(|error| table.invalid("invalid profile name", error))?;
        profile.check(config).map_err(invalid)?;
        Ok((name.clone(), profile))
    });
    checked.collect()
}

fn profile(table: &Table) -> isle_core::Result<Profile> {
    let mut profile = Profile::default();
    let settings = &mut profile.settings;
    for (name, value) in &table.fields {
        match (*name, value.clone()) {
            ("backend", Value::Text(text)) => settings.backend = Some(backend_names::parse(&text)?),
            ("tier", Value::Text(text)) => settings.tier = Some(text.parse()?),
            ("image", Value::Text(text)) => settings.image = Some(text),
            ("memory", Value::Size(size)) => settings.memory = Some(size),
            ("disk", Value::Size(size)) => settings.disk = Some(size),
            ("cpus", Value::Number(number)) => settings.cpus = Some(number),
            ("pids", Value::Count(count)) => settings.pids = Some(count),
            ("allow_downgrade", Value::Switch(on)) => settings.allow_downgrade = Some(on),
            ("ttl", Value::Term(term)) => settings.ttl = Some(term),
            ("idle", Value::Term(term)) => settings.idle = Some(term),
            ("env", Value::Map(map)) => profile.env = map,
            ("allow", Value::List(hosts)) => profile.allow = hosts,
            ("mask_pii", Value::List(kinds)) => profile.mask_pii = kinds,
            ("for", Value::List(callers)) => profile.audience = Some(Audience::read(&callers)?),
            // Unreachable: the table of fields defines the kind of each.
            (name, value) => tracing::warn!(name, ?value, "unused value in a profile"),
        }
    }
    Ok(profile)
}

/// TTL and idle time of sandboxes: within range and consistent.
fn deadlines(settings: &Settings) -> Result<Deadlines> {
    const SHORTEST: Span = Span::seconds(1);
    const SHORTEST_INTERVAL: Span = Span(std::time::Duration::from_millis(50));
    let longest = term(settings, "max_ttl")?.span();
    let by_default = |name: &str| matches!(settings.get(name), Some((_, Origin::Default)));
    let within = |name: &str| -> Result<Option<Span>> {
        let span = term(settings, name)?.span();
        match (span, longest) {
            (Some(span), _) if span < SHORTEST => Err(invalid_setting(
                settings,
                name,
                &format!("{span} is shorter than {SHORTEST}"),
                "use a longer duration, or none",
            )),
            // A maximum below the built-in default is not an error; it lowers the default.
            (Some(span), Some(longest)) if span > longest && by_default(name) => Ok(Some(longest)),
            (Some(span), Some(longest)) if span > longest => {
                let what = format!("{span} is longer than max_ttl ({longest})");
                Err(invalid_setting(settings, name, &what, "use a shorter duration, or raise max_ttl"))
            }
            _ => Ok(span),
        }
    };
    let exempt = list(settings, "deadline_exempt")?.into_iter().map(|name| {
        name.parse::<Address>().map_err(|error| {
            let next = "use sandbox names such as default, or NAMESPACE@NAME for another namespace";
            invalid_setting(settings, "deadline_exempt", &error.message, next)
        })
    });
    let sweep_interval = span(settings, "sweep_interval")?;
    if sweep_interval < SHORTEST_INTERVAL {
        let what = format!("{sweep_interval} is shorter than {SHORTEST_INTERVAL}");
        return Err(invalid_setting(settings, "sweep_interval", &what, "use a longer duration, such as 5s"));
    }
    within("max_ttl")?;
    Ok(Deadlines {
        default_ttl: within("default_ttl")?,
        max_ttl: longest,
        default_idle: within("default_idle")?,
        exempt: exempt.collect::<Result<_>>()?,
        sweep_interval,
    })
}

/// An error about the value of a setting, with its origin.
fn invalid_setting(settings: &Settings, name: &str, what: &str, next: &str) -> isle_client::ClientError {
    let mut message = format!("`{name}`: {what}");
    let mut error = Error::new(Code::ConfigInvalid, "");
    if let Some((_, origin)) = settings.get(name) {
        if let Origin::File { path, line, .. } = origin {
            message = format!("{}:{line}: {message}", path.display());
            error = error.detail("file", path.display().to_string()).detail("line", *line);
        } else {
            message = format!("{origin}: {message}");
        }
    }
    Error { message, ..error }.next(next).into()
}

/// Quotas and retention.
fn quotas(settings: &Settings) -> Result<Quotas> {
    let within = |name: &str| {
        let count = count(settings, name)?;
        if count <= MOST {
            return Ok(count);
        }
        Err(isle_client::ClientError::from(
            Error::new(
                Code::ConfigInvalid,
                format!("`{name}`: {count} is greater than the maximum of {MOST}"),
            )
            .next(format!("use at most {MOST}")),
        ))
    };
    Ok(Quotas {
        max_running: within("max_running")?,
        max_waiting: within("max_waiting")?,
        weights: map(settings, "namespace_weights").iter().map(weight).collect::<Result<_, Error>>()?,
        max_sandboxes: within("max_sandboxes")?,
        max_sandboxes_per_namespace: within("max_sandboxes_per_namespace")?,
        memory_budget: match settings.get("memory_budget") {
            Some((Value::Size(size), _)) => Some(*size),
            _ => None,
        },
        keep_output: size(settings, "keep_output")?,
        keep_runs_for: span(settings, "keep_runs_for")?,
    })
}

/// Maximum of all counts.
const MOST: u32 = 16_384;

/// The scheduling weight of a namespace.
fn weight((namespace, weight): (&String, &String)) -> Result<(Namespace, u32), Error> {
    let refuse = |what: String| {
        Error::new(Code::ConfigInvalid, format!("`namespace_weights`: {what}"))
            .next("use namespace names and weights from 1 to 100, such as acme = \"3\"")
    };
    let number = weight.parse::<u32>().ok().filter(|number| (1..=100).contains(number));
    match (namespace.parse(), number) {
        (Ok(namespace), Some(number)) => Ok((namespace, number)),
        (Err(_), _) => Err(refuse(format!("invalid namespace name: {namespace:?}"))),
        (_, None) => Err(refuse(format!("invalid weight: {weight:?}"))),
    }
}

/// Host directories that operations may access: absolute, without `..`.
fn host_roots(settings: &Settings) -> Result<Vec<PathBuf>> {
    let roots = list(settings, "host_roots")?.into_iter().map(|text| {
        let path = PathBuf::from(&text);
        let is_plain =
            path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        if path.is_absolute() && is_plain {
            return Ok(path);
        }
        Err(Error::new(
            Code::ConfigInvalid,
            format!("host_roots: {text:?} is not an absolute path without `..`"),
        )
        .next("use an absolute path, such as /home/me/project")
        .into())
    });
    roots.collect()
}

/// Spawn policies.
fn spawn_policies(settings: &Settings) -> Result<SpawnPolicies> {
    let Some((Value::Tables(tables), _)) = settings.get("spawn_policies") else {
        return Ok(SpawnPolicies::default());
    };
    let mut policies = Vec::new();
    for (name, table) in tables {
        let invalid = |error| table.invalid("`spawn_policies`", error);
        let pattern: NamePattern = name.parse().map_err(invalid)?;
        let mut policy = SpawnPolicy::default();
        for (field, value) in &table.fields {
            match (*field, value.clone()) {
                ("max_concurrent", Value::Count(count)) => policy.max_concurrent = count,
                ("max_total", Value::Count(count)) => policy.max_total = count,
                ("total_child_cpus", Value::Number(cpus)) => policy.total_child_cpus = cpus,
                ("total_child_memory", Value::Size(memory)) => policy.total_child_memory = memory,
                ("child_max_cpus", Value::Number(cpus)) => policy.child_max_cpus = cpus,
                ("child_max_memory", Value::Size(memory)) => policy.child_max_memory = memory,
                ("allowed_images", Value::List(images)) => policy.allowed_images = images,
                ("child_ttl", Value::Span(ttl)) => policy.child_ttl = ttl,
                ("child_can_spawn", Value::Switch(on)) => policy.child_can_spawn = on,
                ("child_can_expose", Value::Switch(on)) => policy.child_can_expose = on,
                ("inject_ctl", Value::Switch(on)) => policy.inject_ctl = on,
                ("peer_ports", Value::List(ports)) => policy.peer_ports = peer_ports(name, &ports)?,
                (field, _) => return Err(missing(&format!("spawn_policies.{name}.{field}"))),
            }
        }
        policies.push((pattern, policy));
    }
    Ok(SpawnPolicies::new(policies))
}

fn peer_ports(name: &str, ports: &[String]) -> Result<Vec<u16>> {
    let ports = ports.iter().map(|text| {
        let port = text.parse().ok().filter(|&port: &u16| port > 0);
        port.ok_or_else(|| {
            Error::new(
                Code::ConfigInvalid,
                format!("spawn_policies.{name}.peer_ports: invalid port: {text:?}"),
            )
            .next("use ports from 1 to 65535, such as [\"8000\", \"5432\"]")
            .into()
        })
    });
    ports.collect()
}

/// Number of sandboxes kept ready.
pub(crate) fn pool_size(settings: &Settings) -> Result<usize> {
    count(settings, "pool_size").map(|size| usize::try_from(size).unwrap_or(usize::MAX))
}

/// TCP address to listen on in addition to the Unix socket.
pub(crate) fn listen_address(settings: &Settings) -> Result<Option<SocketAddr>> {
    match settings.text("listen") {
        None => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|error| {
            Error::new(Code::ConfigInvalid, format!("invalid listen address {text:?}: {error}"))
                .next("use IP address and port, such as 127.0.0.1:7777")
                .into()
        }),
    }
}

/// Address and domain of the HTTP proxy for sandbox ports; `None` when it is disabled.
pub(crate) fn ports_config(settings: &Settings) -> Result<Option<PortsConfig>> {
    let listen = settings.text("ports_listen").unwrap_or_default();
    if listen == "off" {
        return Ok(None);
    }
    let listen = listen.parse().map_err(|error| {
        Error::new(Code::ConfigInvalid, format!("`ports_listen`: invalid address {listen:?}: {error}"))
            .next("use IP address and port, such as 127.0.0.1:0, or off")
    })?;
    let domain = settings.text("ports_domain").unwrap_or_default().to_ascii_lowercase();
    let is_label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty() && label.len() <= 63 && label.bytes().all(plain)
    };
    if !domain.split('.').all(is_label) || domain.len() > 200 {
        return Err(Error::new(Code::ConfigInvalid, format!("`ports_domain`: invalid domain: {domain:?}"))
            .next("use a name such as localhost or ports.example.com, without scheme and port")
            .into());
    }
    Ok(Some(PortsConfig { listen, allow_remote: switch(settings, "allow_remote")?, domain, token: None }))
}

/// Options of the MCP server.
pub(crate) fn mcp_options(settings: &Settings) -> Result<McpOptions> {
    let descriptions = Descriptions {
        replaced: map(settings, "tool_descriptions"),
        appended: map(settings, "tool_descriptions_append"),
    };
    descriptions.check(&Registry::standard())?;
    let toolsets = Toolsets::from_names(&list(settings, "toolsets")?).map_err(|error| {
        let message = format!("`toolsets`: {}", error.message);
        Error { code: Code::ConfigInvalid, message, ..error }
    })?;
    Ok(McpOptions { log_calls: switch(settings, "log_mcp")?, toolsets, descriptions })
}

fn missing(name: &str) -> isle_client::ClientError {
    Error::internal(format!("setting {name} has no value of the expected kind")).into()
}

macro_rules! readers {
    ($($reader:ident: $variant:ident -> $type:ty;)*) => {$(
        fn $reader(settings: &Settings, name: &str) -> Result<$type> {
            match settings.get(name) {
                Some((Value::$variant(value), _)) => Ok(value.clone()),
                _ => Err(missing(name)),
            }
        }
    )*};
}

readers! {
    text: Text -> String;
    size: Size -> ByteSize;
    span: Span -> Span;
    number: Number -> f64;
    count: Count -> u32;
    term: Term -> Term;
}

/// A table; empty when it is not set.
fn map(settings: &Settings, name: &str) -> BTreeMap<String, String> {
    match settings.get(name) {
        Some((Value::Map(entries), _)) => entries.clone(),
        _ => BTreeMap::new(),
    }
}

/// A list of names.
pub(crate) fn list(settings: &Settings, name: &str) -> Result<Vec<String>> {
    match settings.get(name) {
        Some((Value::List(items), _)) => Ok(items.clone()),
        _ => Err(missing(name)),
    }
}

pub(crate) fn switch(settings: &Settings, name: &str) -> Result<bool> {
    match settings.get(name) {
        Some((Value::Switch(on), _)) => Ok(*on),
        _ => Err(missing(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_the_settings_are_those_of_the_engine() {
        let settings = Settings::defaults().unwrap();
        assert_eq!(
            format!("{:?}", engine_config(&settings).unwrap()),
            format!("{:?}", EngineConfig::default())
        );
    }

    #[test]
    fn a_spawn_policy_is_the_default_one_but_for_what_it_says() {
        let policies = |text: &str| {
            let flags = [("spawn_policies", Some(text.to_owned()))];
            spawn_policies(&Settings::for_daemon(None, &flags)?)
        };
        let said = policies("box = { max_total = 3, child_ttl = '1m', allowed_images = [] }").unwrap();
        let expected = SpawnPolicy {
            max_total: 3,
            child_ttl: Span::seconds(60),
            allowed_images: Vec::new(),
            ..SpawnPolicy::default()
        };
        assert_eq!(said, SpawnPolicies::new(vec![("box".parse().unwrap(), expected)]));
        assert_eq!(
            policies("'*' = {}").unwrap(),
            SpawnPolicies::new(vec![("*".parse().unwrap(), SpawnPolicy::default())])
        );
        for wrong in [
            "box = 1",
            "box = { max = 1 }",
            "box = { max_total = -1 }",
            "'a*b' = {}",
            "box =",
            "box = { peer_ports = ['0'] }",
        ] {
            assert!(policies(wrong).is_err(), "{wrong}");
        }
    }
}
