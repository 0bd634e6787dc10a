//! What a setting is: its name, its kind, who uses it, where it may come from. Which there are is in
//! the table of `keys`.

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

/// One that may be shown.
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
