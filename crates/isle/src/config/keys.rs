//! The table of settings. Each is defined here and nowhere else.

use super::tables::Fields;
use super::value::Kind;

/// Who uses a setting; says where it may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Default of a run: any source. Nothing here can reach further into the host.
    Run,
    /// The whole daemon: never from a workspace, which may be somebody else's.
    Daemon,
    /// How clients find the daemon: never from a workspace.
    Client,
    /// Needed before any file is read: flag and environment only.
    Place,
}

/// One setting.
#[derive(Debug)]
pub(crate) struct Key {
    /// In files, and with `-` for `_` as a flag.
    pub(crate) name: &'static str,
    /// What values look like.
    pub(crate) kind: Kind,
    /// Value when nothing is set, as text; `None` when there is none.
    pub(crate) default: Option<&'static str>,
    /// Environment variable.
    pub(crate) env: Option<&'static str>,
    /// Who uses it.
    pub(crate) scope: Scope,
    /// Never shown.
    pub(crate) secret: bool,
    /// For people.
    pub(crate) help: &'static str,
}

const fn setting(
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    env: Option<&'static str>,
    scope: Scope,
    help: &'static str,
) -> Key {
    Key { name, kind, default, env, scope, secret: false, help }
}

/// What a spawn policy says; what it leaves away is as in [`isle_engine::engine::SpawnPolicy`].
pub(crate) const SPAWN_POLICY: Fields = &[
    ("max_concurrent", Kind::Whole),
    ("max_total", Kind::Whole),
    ("total_child_cpus", Kind::Number),
    ("total_child_memory", Kind::Size),
    ("child_max_cpus", Kind::Number),
    ("child_max_memory", Kind::Size),
    ("allowed_images", Kind::List),
    ("child_ttl", Kind::Span),
    ("child_can_spawn", Kind::Switch),
    ("child_can_expose", Kind::Switch),
    ("inject_ctl", Kind::Switch),
    ("peer_ports", Kind::List),
];

/// What a profile says about sandboxes; what it leaves away is as everywhere.
pub(crate) const PROFILE: Fields = &[
    ("tier", Kind::Tier),
    ("image", Kind::Text),
    ("memory", Kind::Size),
    ("cpus", Kind::Number),
    ("pids", Kind::Count),
    ("disk", Kind::Size),
    ("allow_downgrade", Kind::Switch),
    ("ttl", Kind::Term),
    ("idle", Kind::Term),
    ("env", Kind::Map),
    ("allow", Kind::List),
    ("mask_pii", Kind::List),
];

/// All settings, in the order they are shown.
pub(crate) static KEYS: &[Key] = &[
    setting(
        "tier",
        Kind::Tier,
        Some("container"),
        Some("ISLE_TIER"),
        Scope::Run,
        "How strongly sandboxes are isolated; a workspace cannot choose a weaker one.",
    ),
    setting(
        "image",
        Kind::Text,
        Some("host"),
        Some("ISLE_IMAGE"),
        Scope::Run,
        "Image of new sandboxes; `host` is the host's own programs, read-only.",
    ),
    setting("memory", Kind::Size, Some("1G"), Some("ISLE_MEMORY"), Scope::Run, "Memory of a sandbox."),
    setting("cpus", Kind::Number, Some("2"), Some("ISLE_CPUS"), Scope::Run, "CPUs of a sandbox."),
    setting(
        "pids",
        Kind::Count,
        Some("256"),
        Some("ISLE_PIDS"),
        Scope::Run,
        "Processes and threads of a sandbox.",
    ),
    setting(
        "disk",
        Kind::Size,
        Some("1G"),
        Some("ISLE_DISK"),
        Scope::Run,
        "Writable layer and workspace of a sandbox.",
    ),
    setting(
        "timeout",
        Kind::Span,
        Some("10m"),
        Some("ISLE_TIMEOUT"),
        Scope::Run,
        "How long a command may run when the call says nothing; `isle run` and `isle exec` have no limit unless this is set.",
    ),
    setting("env", Kind::Map, None, None, Scope::Run, "Environment of `isle run` and `isle exec`."),
    setting(
        "allow_downgrade",
        Kind::Switch,
        Some("false"),
        Some("ISLE_ALLOW_DOWNGRADE"),
        Scope::Daemon,
        "Make sandboxes even where the host cannot enforce all their tier promises.",
    ),
    setting(
        "max_timeout",
        Kind::Span,
        Some("1d"),
        Some("ISLE_MAX_TIMEOUT"),
        Scope::Daemon,
        "The longest timeout a call may ask for.",
    ),
    setting(
        "wait",
        Kind::Span,
        Some("45s"),
        Some("ISLE_WAIT"),
        Scope::Daemon,
        "How long `exec` waits before it answers with a run that goes on.",
    ),
    setting(
        "output_cap",
        Kind::Size,
        Some("1M"),
        Some("ISLE_OUTPUT_CAP"),
        Scope::Daemon,
        "Bytes of each output kept per run.",
    ),
    setting(
        "job_output_cap",
        Kind::Size,
        Some("64M"),
        Some("ISLE_JOB_OUTPUT_CAP"),
        Scope::Daemon,
        "Bytes of each output of a job kept in files, beside what `output_cap` keeps of every run; 0 for none.",
    ),
    setting(
        "file_cap",
        Kind::Size,
        Some("16M"),
        Some("ISLE_FILE_CAP"),
        Scope::Daemon,
        "Largest file the JSON doors read or write.",
    ),
    setting(
        "default_ttl",
        Kind::Term,
        Some("none"),
        Some("ISLE_DEFAULT_TTL"),
        Scope::Daemon,
        "How long named sandboxes live that are made without a TTL, such as 8h; `none` for without an end.",
    ),
    setting(
        "max_ttl",
        Kind::Term,
        Some("30d"),
        Some("ISLE_MAX_TTL"),
        Scope::Daemon,
        "The longest TTL or idle time a call may ask for, and the furthest a deadline can be moved from now.",
    ),
    setting(
        "default_idle",
        Kind::Term,
        Some("none"),
        Some("ISLE_DEFAULT_IDLE"),
        Scope::Daemon,
        "How long named sandboxes live unused that are made without an idle time, such as 30m; `none` for without an end.",
    ),
    setting(
        "deadline_exempt",
        Kind::List,
        Some("default"),
        Some("ISLE_DEADLINE_EXEMPT"),
        Scope::Daemon,
        "Sandboxes that default_ttl and default_idle do not apply to.",
    ),
    setting(
        "sweep_interval",
        Kind::Span,
        Some("5s"),
        Some("ISLE_SWEEP_INTERVAL"),
        Scope::Daemon,
        "How often sandboxes whose time is up are looked for and removed.",
    ),
    setting(
        "profiles",
        Kind::Tables(PROFILE),
        None,
        None,
        Scope::Daemon,
        "Settings of sandboxes under a name, for `profile` of create, exec and run.",
    ),
    setting(
        "max_running",
        Kind::Count,
        Some("2048"),
        Some("ISLE_MAX_RUNNING"),
        Scope::Daemon,
        "Commands that run at once; further calls wait for their turn.",
    ),
    setting(
        "max_waiting",
        Kind::Whole,
        Some("2048"),
        Some("ISLE_MAX_WAITING"),
        Scope::Daemon,
        "Calls that wait for their turn; further ones are told to come again.",
    ),
    setting(
        "namespace_weights",
        Kind::Map,
        None,
        None,
        Scope::Daemon,
        "Shares of namespaces in the line, by name; 1 unless it is said.",
    ),
    setting(
        "max_sandboxes",
        Kind::Count,
        Some("4096"),
        Some("ISLE_MAX_SANDBOXES"),
        Scope::Daemon,
        "Sandboxes of all namespaces, those for one command included.",
    ),
    setting(
        "max_sandboxes_per_namespace",
        Kind::Count,
        Some("4096"),
        Some("ISLE_MAX_SANDBOXES_PER_NAMESPACE"),
        Scope::Daemon,
        "Sandboxes of each namespace.",
    ),
    setting(
        "memory_budget",
        Kind::Size,
        None,
        Some("ISLE_MEMORY_BUDGET"),
        Scope::Daemon,
        "What the memory limits of all sandboxes may come to; no end unless it is said.",
    ),
    setting(
        "keep_runs",
        Kind::Count,
        Some("10000"),
        Some("ISLE_KEEP_RUNS"),
        Scope::Daemon,
        "Ended runs that are kept of each namespace, with their output.",
    ),
    setting(
        "keep_runs_for",
        Kind::Span,
        Some("30d"),
        Some("ISLE_KEEP_RUNS_FOR"),
        Scope::Daemon,
        "How long ended runs are kept.",
    ),
    setting(
        "host_roots",
        Kind::List,
        Some(""),
        Some("ISLE_HOST_ROOTS"),
        Scope::Daemon,
        "Directories of the host that copy_in, copy_out and live syncs may use.",
    ),
    setting(
        "spawn_policies",
        Kind::Tables(SPAWN_POLICY),
        None,
        Some("ISLE_SPAWN_POLICIES"),
        Scope::Daemon,
        "What sandboxes may spawn, by name or beginning of names; without a policy, nothing.",
    ),
    setting(
        "network_allow",
        Kind::List,
        Some(""),
        Some("ISLE_NETWORK_ALLOW"),
        Scope::Daemon,
        "Hosts every sandbox may reach, such as example.com:443; none by default.",
    ),
    setting(
        "network_hosts",
        Kind::Map,
        None,
        None,
        Scope::Daemon,
        "Names with fixed addresses for the network of sandboxes, asked before the system.",
    ),
    setting(
        "network_ca_files",
        Kind::List,
        Some(""),
        Some("ISLE_NETWORK_CA_FILES"),
        Scope::Daemon,
        "Files with certificate authorities (PEM) the gate believes besides those of the system.",
    ),
    setting(
        "network_install",
        Kind::List,
        Some(""),
        Some("ISLE_NETWORK_INSTALL"),
        Scope::Daemon,
        "Clients, of pip, npm and apt, whose servers every installation may reach; none by default.",
    ),
    setting(
        "network_ask",
        Kind::Term,
        Some("none"),
        Some("ISLE_NETWORK_ASK"),
        Scope::Daemon,
        "How long a denied name or connection waits for a person to answer, where one can be asked.",
    ),
    setting(
        "warm_default",
        Kind::Switch,
        Some("true"),
        Some("ISLE_WARM_DEFAULT"),
        Scope::Daemon,
        "Make the sandbox `default` when the daemon starts.",
    ),
    setting(
        "pool_size",
        Kind::Whole,
        Some("4"),
        Some("ISLE_POOL_SIZE"),
        Scope::Daemon,
        "Fresh sandboxes kept ready for `isle run`.",
    ),
    setting(
        "secret_names",
        Kind::Choice(&["allow", "warn", "refuse"]),
        Some("warn"),
        Some("ISLE_SECRET_NAMES"),
        Scope::Daemon,
        "What is done about variables whose names look like those of secrets: allow, warn or refuse.",
    ),
    setting(
        "expose_secrets",
        Kind::Choice(&["never", "people", "anybody"]),
        Some("people"),
        Some("ISLE_EXPOSE_SECRETS"),
        Scope::Daemon,
        "Who may have the value of a secret put into a sandbox: never, people (no model), or anybody.",
    ),
    setting(
        "mask_pii",
        Kind::List,
        Some(""),
        Some("ISLE_MASK_PII"),
        Scope::Daemon,
        "Personal data masked in what comes out of sandboxes: any of email, card, iban, phone, ip.",
    ),
    setting(
        "secrets_from_env",
        Kind::Map,
        None,
        None,
        Scope::Daemon,
        "Secrets from the daemon's environment, NAME or NAMESPACE@NAME to variable and hosts; kept nowhere.",
    ),
    setting(
        "vault_key_command",
        Kind::List,
        Some(""),
        Some("ISLE_VAULT_KEY_COMMAND"),
        Scope::Daemon,
        "A program and its arguments that prints the key of the secrets, such as one that asks a keyring.",
    ),
    setting(
        "vault_keyring",
        Kind::Choice(&["none", "desktop", "kernel"]),
        Some("none"),
        Some("ISLE_VAULT_KEYRING"),
        Scope::Daemon,
        "The keyring that keeps the key of the secrets: none, desktop (stays), or kernel (until the machine restarts).",
    ),
    setting(
        "vault_key_file",
        Kind::Text,
        None,
        Some("ISLE_VAULT_KEY_FILE"),
        Scope::Daemon,
        "The file with the key of the secrets, made at first use; `vault.key` in the state directory when not set.",
    ),
    setting(
        "deny_enabled",
        Kind::Switch,
        Some("true"),
        Some("ISLE_DENY_ENABLED"),
        Scope::Daemon,
        "Whether deny_patterns count.",
    ),
    setting(
        "deny_patterns",
        Kind::Patterns,
        Some(""),
        Some("ISLE_DENY_PATTERNS"),
        Scope::Daemon,
        "Regular expressions; a command or code in which one is found is refused. A guard rail, not a wall.",
    ),
    setting(
        "listen",
        Kind::Address,
        None,
        Some("ISLE_LISTEN"),
        Scope::Daemon,
        "TCP address the daemon also listens on.",
    ),
    setting(
        "allow_remote",
        Kind::Switch,
        Some("false"),
        Some("ISLE_ALLOW_REMOTE"),
        Scope::Daemon,
        "Let `listen` be another address than loopback.",
    ),
    setting(
        "allowed_hosts",
        Kind::List,
        Some(""),
        Some("ISLE_ALLOWED_HOSTS"),
        Scope::Daemon,
        "Names besides localhost that clients may use in the Host header over TCP.",
    ),
    setting(
        "cors_origins",
        Kind::List,
        Some(""),
        Some("ISLE_CORS_ORIGINS"),
        Scope::Daemon,
        "Web origins that may call the daemon over TCP from a browser.",
    ),
    setting(
        "log_http",
        Kind::Switch,
        Some("false"),
        Some("ISLE_LOG_HTTP"),
        Scope::Daemon,
        "Log every HTTP request.",
    ),
    setting(
        "log_mcp",
        Kind::Switch,
        Some("false"),
        Some("ISLE_LOG_MCP"),
        Scope::Daemon,
        "Log every MCP tool call, arguments cut short.",
    ),
    setting(
        "toolsets",
        Kind::List,
        Some("core"),
        Some("ISLE_TOOLSETS"),
        Scope::Daemon,
        "Sets of tools MCP clients are shown that do not choose: core, files, jobs, contexts, environment, lifecycle, children, admin, network, secrets, or all.",
    ),
    setting(
        "tool_descriptions",
        Kind::Map,
        None,
        None,
        Scope::Daemon,
        "What models are told about a tool instead of Isle's words, by name of the tool.",
    ),
    setting(
        "tool_descriptions_append",
        Kind::Map,
        None,
        None,
        Scope::Daemon,
        "What models are told about a tool behind Isle's words, by name of the tool.",
    ),
    setting(
        "log",
        Kind::Text,
        Some("info,rmcp=warn"),
        Some("ISLE_LOG"),
        Scope::Daemon,
        "What the daemon logs, such as `debug` or `isle_engine=trace`.",
    ),
    setting(
        "url",
        Kind::Text,
        None,
        Some("ISLE_URL"),
        Scope::Client,
        "Daemon to use over TCP, such as http://127.0.0.1:7777, instead of this user's own.",
    ),
    Key {
        secret: true,
        ..setting("token", Kind::Text, None, Some("ISLE_TOKEN"), Scope::Client, "Bearer token for `url`.")
    },
    setting(
        "namespace",
        Kind::Text,
        None,
        Some("ISLE_NAMESPACE"),
        Scope::Client,
        "Namespace to work in; only the operator may choose. A token has one of its own.",
    ),
    setting(
        "state_dir",
        Kind::Text,
        None,
        Some("ISLE_STATE_DIR"),
        Scope::Place,
        "Where the daemon keeps its state.",
    ),
    setting("runtime_dir", Kind::Text, None, Some("ISLE_RUNTIME_DIR"), Scope::Place, "Where sockets are."),
    setting("socket", Kind::Text, None, Some("ISLE_SOCKET"), Scope::Place, "The daemon's Unix socket."),
];

/// One by name.
pub(crate) fn key(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

#[cfg(test)]
mod tests {
    use super::super::value::Value;
    use super::*;

    #[test]
    fn every_default_is_a_value_of_its_kind() {
        for key in KEYS {
            if let Some(default) = key.default {
                assert!(Value::from_text(key.kind, default).is_ok(), "{}", key.name);
            }
        }
    }

    #[test]
    fn environment_variables_are_named_after_their_keys() {
        for key in KEYS {
            if let Some(env) = key.env {
                assert_eq!(env, format!("ISLE_{}", key.name.to_uppercase()));
            }
        }
    }
}
