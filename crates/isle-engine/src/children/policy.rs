//! What a sandbox may spawn. The operator writes policies into the configuration, by namespace and name of
//! the sandbox; a sandbox without one spawns nothing. A name without a namespace is one of the namespace
//! `default`: what a tenant calls its sandboxes gives it nothing. Policies of children follow from that of the root of
//! their tree and are never stored, so they cannot be out of date.

use std::str::FromStr;

use isle_core::values::{Address, ByteSize, ChildName, Namespace, Span};
use isle_core::{Code, Error, Result};

/// How deep a tree may be: root, child, grandchild.
pub(crate) const DEEPEST: u8 = 2;
/// What a derived policy leaves of memory at least.
const LEAST_BUDGET: ByteSize = ByteSize::mib(128);

/// What a sandbox may spawn.
#[derive(Debug, Clone, PartialEq)]
pub struct SpawnPolicy {
    /// Children at once.
    pub max_concurrent: u32,
    /// Children over its whole life; the operator can set the count back.
    pub max_total: u32,
    /// CPUs of all that descends from it, together.
    pub total_child_cpus: f64,
    /// Memory of all that descends from it, together.
    pub total_child_memory: ByteSize,
    /// CPUs of one child.
    pub child_max_cpus: f64,
    /// Memory of one child.
    pub child_max_memory: ByteSize,
    /// Images a child may have; the first when none is asked for. An empty list allows none.
    pub allowed_images: Vec<String>,
    /// How long a child lives at most.
    pub child_ttl: Span,
    /// Whether children may spawn too.
    pub child_can_spawn: bool,
    /// Whether ports of children may be shown on the host.
    pub child_can_expose: bool,
    /// Whether it gets the control socket and `isle-ctl`.
    pub inject_ctl: bool,
    /// Ports on which it, its children and grandchildren reach each other by name; none unless it is said.
    pub peer_ports: Vec<u16>,
}

impl Default for SpawnPolicy {
    fn default() -> Self {
        Self {
            max_concurrent: 3,
            max_total: 10,
            total_child_cpus: 6.0,
            total_child_memory: ByteSize::mib(1536),
            child_max_cpus: 2.0,
            child_max_memory: ByteSize::mib(512),
            allowed_images: vec!["host".into()],
            child_ttl: Span::seconds(300),
            child_can_spawn: false,
            child_can_expose: false,
            inject_ctl: true,
            peer_ports: Vec::new(),
        }
    }
}

impl SpawnPolicy {
    /// The policy of a child of the sandbox that has this one: half of everything, and nothing ever grows.
    /// `None` when children may not spawn.
    pub(crate) fn derived(&self) -> Option<Self> {
        if !self.child_can_spawn {
            return None;
        }
        let half = |count: u32| (count / 2).max(1).min(count);
        let memory = ByteSize((self.total_child_memory.0 / 2).max(LEAST_BUDGET.0));
        Some(Self {
            max_concurrent: half(self.max_concurrent),
            max_total: half(self.max_total),
            total_child_cpus: (self.total_child_cpus / 2.0).max(1.0).min(self.total_child_cpus),
            total_child_memory: memory.min(self.total_child_memory),
            child_can_spawn: false,
            ..self.clone()
        })
    }
}

/// Which sandboxes a policy is for: a name, or the beginning of names with `*` behind it, in the namespace
/// `default` unless another one, or `*` for all, stands before an `@`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern {
    /// `None`: every namespace.
    namespace: Option<Namespace>,
    beginning: String,
    open: bool,
}

impl NamePattern {
    fn fits(&self, Address { namespace, name }: &Address) -> bool {
        let named = match self.open {
            true => name.as_str().starts_with(&self.beginning),
            false => name.as_str() == self.beginning,
        };
        named && self.namespace.as_ref().is_none_or(|own| own == namespace)
    }
}

impl FromStr for NamePattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (namespace, name) = match text.split_once('@') {
            None => (Some(Namespace::default()), text),
            Some(("*", name)) => (None, name),
            Some((namespace, name)) => (Some(namespace.parse()?), name),
        };
        let (beginning, open) = name.strip_suffix('*').map_or((name, false), |beginning| (beginning, true));
        let is_good = (open && beginning.is_empty()) || beginning.parse::<ChildName>().is_ok();
        if is_good {
            return Ok(Self { namespace, beginning: beginning.to_owned(), open });
        }
        Err(Error::new(Code::InvalidName, format!("{text:?} names no sandbox"))
            .next("write the name of a sandbox, or the beginning of names with a `*` behind it")
            .next("for sandboxes of another namespace write NAMESPACE@NAME, and *@NAME for all namespaces"))
    }
}

/// All policies of an engine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpawnPolicies(Vec<(NamePattern, SpawnPolicy)>);

impl SpawnPolicies {
    /// From patterns and what is allowed to the sandboxes that fit.
    #[must_use]
    pub fn new(policies: Vec<(NamePattern, SpawnPolicy)>) -> Self {
        Self(policies)
    }

    /// The policy of a sandbox that is nobody's child: that of its namespace before one of all, then that
    /// of its name, or of the longest pattern that fits.
    pub(crate) fn of(&self, address: &Address) -> Option<&SpawnPolicy> {
        let fitting = self.0.iter().filter(|(pattern, _)| pattern.fits(address));
        let closeness =
            |pattern: &NamePattern| (pattern.namespace.is_some(), !pattern.open, pattern.beginning.len());
        fitting.max_by_key(|(pattern, _)| closeness(pattern)).map(|(_, policy)| policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Address {
        text.parse().unwrap()
    }

    fn total(count: u32) -> SpawnPolicy {
        SpawnPolicy { max_total: count, ..SpawnPolicy::default() }
    }

    #[test]
    fn without_a_policy_nothing_is_allowed() {
        assert_eq!(SpawnPolicies::default().of(&name("default")), None);
    }

    #[test]
    fn the_closest_pattern_counts() {
        let policies = ["*", "build-*", "build-a", "build-a*"].into_iter().zip(1..);
        let policies =
            SpawnPolicies::new(policies.map(|(text, count)| (text.parse().unwrap(), total(count))).collect());
        for (who, count) in [("x", 1), ("build-", 2), ("build-z", 2), ("build-a", 3), ("build-ab", 4)] {
            assert_eq!(policies.of(&name(who)).map(|policy| policy.max_total), Some(count), "{who}");
        }
        for wrong in ["", "a*b", "**", "/x", "-*", "@x", "a b@x", "a@", "a@b@c", "a*@x", "**@x"] {
            assert_eq!(wrong.parse::<NamePattern>().unwrap_err().code, Code::InvalidName, "{wrong}");
        }
    }

    #[test]
    fn a_policy_is_for_its_own_namespace() {
        let policies = ["work", "acme@work", "acme@*", "*@shared", "acme@shared-*"].into_iter().zip(1..);
        let policies =
            SpawnPolicies::new(policies.map(|(text, count)| (text.parse().unwrap(), total(count))).collect());
        for (who, count) in [
            ("work", Some(1)),
            ("acme@work", Some(2)),
            ("other@work", None),
            ("acme@x", Some(3)),
            ("x", None),
            ("shared", Some(4)),
            ("other@shared", Some(4)),
            ("acme@shared", Some(3)),
            ("acme@shared-1", Some(5)),
        ] {
            assert_eq!(policies.of(&name(who)).map(|policy| policy.max_total), count, "{who}");
        }
    }

    #[test]
    fn a_derived_policy_is_half_and_never_more() {
        let root = SpawnPolicy { child_can_spawn: true, ..SpawnPolicy::default() };
        let child = root.derived().unwrap();
        assert_eq!((child.max_concurrent, child.max_total), (1, 5));
        assert_eq!(child.total_child_memory, ByteSize::mib(768));
        assert!((child.total_child_cpus - 3.0).abs() < f64::EPSILON);
        assert!(!child.child_can_spawn);
        assert_eq!(child.derived(), None, "grandchildren spawn nothing");

        let small = SpawnPolicy {
            max_concurrent: 1,
            max_total: 0,
            total_child_cpus: 0.5,
            total_child_memory: ByteSize::mib(100),
            ..root.clone()
        };
        let child = small.derived().unwrap();
        assert_eq!((child.max_concurrent, child.max_total), (1, 0));
        assert_eq!(child.total_child_memory, ByteSize::mib(100));
        assert!((child.total_child_cpus - 0.5).abs() < f64::EPSILON);

        let medium = SpawnPolicy { total_child_memory: ByteSize::mib(200), ..root };
        assert_eq!(medium.derived().unwrap().total_child_memory, ByteSize::mib(128));
    }

    #[test]
    fn children_may_not_spawn_unless_it_is_said() {
        assert_eq!(SpawnPolicy::default().derived(), None);
    }
}
