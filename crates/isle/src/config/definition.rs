//! Definition of a setting: name, kind of value, user, allowed sources. The settings are listed in `keys`.

use super::tables::Fields;
use super::value::Kind;

/// Who uses a setting; determines its allowed sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Default of a run: any source. Such a setting cannot widen access to the host.
    Run,
    /// The daemon: never from a workspace, whose files may be untrusted.
    Daemon,
    /// How clients find the daemon: never from a workspace.
    Client,
    /// Needed before any file is read: flag and environment only.
    Bootstrap,
}

/// One setting.
#[derive(Debug)]
pub(crate) struct Key {
    /// In files, and with `-` for `_` as a flag.
    pub(crate) name: &'static str,
    /// Kind of value.
    pub(crate) kind: Kind,
    /// Default value as text.
    pub(crate) default: Option<&'static str>,
    /// Environment variable.
    pub(crate) env: Option<&'static str>,
    /// Who uses it.
    pub(crate) scope: Scope,
    /// The value is never printed.
    pub(crate) secret: bool,
    /// One-line description.
    pub(crate) help: &'static str,
}

/// A setting whose value may be printed.
pub(super) const fn setting(
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    env: Option<&'static str>,
    scope: Scope,
    help: &'static str,
) -> Key {
    Key { name, kind, default, env, scope, secret: false, help }
}

/// Fields of a spawn policy; defaults are those of [`isle_engine::engine::SpawnPolicy`].
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

/// Fields of a profile; fields that are not set have the daemon's defaults.
pub(crate) const PROFILE: Fields = &[
    ("backend", Kind::Backend),
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
    ("for", Kind::List),
];
