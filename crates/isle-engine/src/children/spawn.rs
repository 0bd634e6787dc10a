//! Spawning a child. What it may be is decided at once; whether there is room, and that it has its
//! place, in one step under one lock, so that any number of spawns at once stay within the budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use isle_store::{boot_clock_ms, wall_clock_ms};

use super::budget::Share;
use super::policy::SpawnPolicy;
use super::{DEEPEST, has_control};
use crate::backend::{ChildOf, Lifetime, Limits, SandboxSpec, Tier};
use crate::context::CallContext;
use crate::engine::Inner;
use crate::error::{Code, Error, Result};
use crate::events::EventKind;
use crate::journal::Actor;
use crate::profile::MadeBy;
use crate::sandbox::{Birth, Ceilings, Origin, Sandbox, SandboxState, StoredSpec, Terms};
use crate::values::{Address, ByteSize, SandboxId, SandboxName, Span};

/// Names that are tried before a spawn without a name gives up.
const NAMES: usize = 10_000;

/// What a child is to be; `None` leaves it to the policy.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpawnRequest {
    pub(crate) name: Option<SandboxName>,
    pub(crate) image: Option<String>,
    pub(crate) tier: Option<Tier>,
    pub(crate) cpus: Option<f64>,
    pub(crate) memory: Option<ByteSize>,
    pub(crate) ttl: Option<Span>,
}

/// A child that counts for its parent. Dropped before it is on record, it no longer does.
pub(crate) struct Counted {
    inner: Arc<Inner>,
    parent: Address,
    recorded: AtomicBool,
}

impl std::fmt::Debug for Counted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Counted").field("parent", &self.parent).finish_non_exhaustive()
    }
}

impl Counted {
    pub(crate) fn parent(&self) -> &str {
        self.parent.name.as_str()
    }

    pub(crate) fn parent_address(&self) -> &Address {
        &self.parent
    }

    /// The record counts it too.
    pub(crate) fn on_record(&self) {
        self.recorded.store(true, Ordering::Relaxed);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if !self.recorded.load(Ordering::Relaxed)
            && let Some(count) = crate::lock(&self.inner.children.counts).get_mut(&self.parent)
        {
            *count = count.saturating_sub(1);
        }
    }
}

/// What was decided about a child before anything exists of it.
struct Planned {
    policy: SpawnPolicy,
    root: SpawnPolicy,
    share: Share,
    image: String,
    tier: Tier,
    depth: u8,
    lives: Duration,
}

impl Inner {
    /// Spawns a child of the sandbox of that name.
    pub(crate) async fn spawn(
        self: &Arc<Self>,
        context: &CallContext,
        parent: &SandboxName,
        request: SpawnRequest,
    ) -> Result<Arc<Sandbox>> {
        let parent = self.looked_at(context, parent).await?;
        self.spawn_from(context, parent, request).await
    }

    /// Spawns a child of this very incarnation.
    pub(crate) async fn spawn_from(
        self: &Arc<Self>,
        context: &CallContext,
        parent: Arc<Sandbox>,
        request: SpawnRequest,
    ) -> Result<Arc<Sandbox>> {
        self.refuse_when_stopping()?;
        let planned = self.plan_child(&parent, &request)?;
        // In a task of its own: a caller who goes away must not leave a half-made sandbox behind.
        let (inner, actor) = (Arc::clone(self), Actor::of(context));
        let spawning = self.tasks.spawn(async move {
            let child = match request.name {
                Some(name) => inner.spawn_named(&actor, &parent, &planned, name).await?,
                None => inner.spawn_numbered(&actor, &parent, &planned).await?,
            };
            inner.end_in_time(&child);
            Ok(child)
        });
        spawning.await.map_err(|error| Error::internal(format!("spawning the child failed: {error}")))?
    }

    /// Everything that can be said without counting.
    fn plan_child(&self, parent: &Sandbox, request: &SpawnRequest) -> Result<Planned> {
        let depth = parent.child_of().map_or(1, |child| child.depth + 1);
        if depth > DEEPEST {
            return Err(denied(format!("{} is a grandchild, and those spawn nothing", parent.name))
                .next("spawn from its parent, or from the root of the tree"));
        }
        let Some((policy, root)) = self.spawn_policies_of(parent) else {
            let root = parent.root().name;
            return Err(denied(format!("no policy lets {} spawn", parent.name)).next(format!(
                "the operator allows it with [spawn_policies.{root}] in the configuration{}",
                if depth > 1 { " and child_can_spawn = true" } else { "" }
            )));
        };
        let image = match &request.image {
            Some(image) => policy.allowed_images.iter().find(|allowed| *allowed == image),
            None => policy.allowed_images.first(),
        };
        let Some(image) = image.cloned() else {
            let asked = request.image.as_deref().unwrap_or("any image");
            return Err(denied(format!("children of {} may not have {asked}", parent.name))
                .detail("allowed_images", policy.allowed_images.clone())
                .next("choose one of the images in `details`"));
        };
        let tier = request.tier.unwrap_or(parent.spec.tier);
        if tier < parent.spec.tier {
            return Err(denied(format!("{} is a weaker tier than that of the parent", tier.as_str()))
                .next("leave the tier away: a child has that of its parent"));
        }
        let share = Share::asked(&policy, &parent.spec.limits, request.cpus, request.memory)?;
        let mut lives = policy.child_ttl.0;
        if let Some(ttl) = request.ttl {
            if ttl.0.is_zero() {
                return Err(Error::new(Code::InvalidArgument, "a ttl of nothing leaves no time to live")
                    .next("ask for some time, such as 60s, or leave it away"));
            }
            lives = lives.min(ttl.0);
        }
        if let Some(child) = parent.child_of() {
            let left = u64::try_from(child.expires_at_ms - wall_clock_ms()).unwrap_or(0);
            lives = lives.min(Duration::from_millis(left));
        }
        if let Some(expires) = parent.lease.expires() {
            let left = u64::try_from(expires - boot_clock_ms()).unwrap_or(0);
            lives = lives.min(Duration::from_millis(left));
        }
        Ok(Planned { policy, root, share, image, tier, depth, lives })
    }

    /// Under the next name that is free.
    async fn spawn_numbered(
        self: &Arc<Self>,
        actor: &Actor,
        parent: &Arc<Sandbox>,
        planned: &Planned,
    ) -> Result<Arc<Sandbox>> {
        let mut taken = None;
        let first = self.children.spawned(&parent.address());
        for number in (first..).take(NAMES) {
            let name = numbered(&parent.name, number.saturating_add(1))?;
            if self.fleet.get(&Address::new(parent.namespace.clone(), name.clone())).is_some() {
                continue;
            }
            match self.spawn_named(actor, parent, planned, name).await {
                Err(error) if error.code == Code::AlreadyExists => taken = Some(error),
                other => return other,
            }
        }
        Err(taken.unwrap_or_else(|| Error::internal("no name is free for another child")))
    }

    async fn spawn_named(
        self: &Arc<Self>,
        actor: &Actor,
        parent: &Arc<Sandbox>,
        planned: &Planned,
        name: SandboxName,
    ) -> Result<Arc<Sandbox>> {
        if name.as_str().parse::<SandboxId>().is_ok() {
            return Err(Error::new(Code::InvalidName, format!("{name} looks like the id of a sandbox"))
                .next("choose another name, or leave it away"));
        }
        let address = Address::new(parent.namespace.clone(), name);
        let gate = self.fleet.gate(&address);
        let _held = gate.lock().await;
        let (child, counted) = self.put_child(parent, planned, &address)?;
        let child = self.bring_up(actor, child, Birth::Child(&counted)).await?;
        self.tell_sandbox(EventKind::ChildSpawned, &child, "");
        Ok(child)
    }

    /// Counts, and puts the child where it is counted by the next one. It is on record before anybody can
    /// use it.
    fn put_child(
        self: &Arc<Self>,
        parent: &Sandbox,
        planned: &Planned,
        address: &Address,
    ) -> Result<(Arc<Sandbox>, Counted)> {
        let mut counts = crate::lock(&self.children.counts);
        // Who ends a sandbox says so before it looks for children; so either this sees it, or that sees
        // the child.
        let is_current = self.fleet.get(&parent.address()).is_some_and(|known| known.id == parent.id);
        if parent.state() != SandboxState::Running || !is_current {
            return Err(Error::new(Code::SandboxFailed, format!("{} is ending", parent.name))
                .next("spawn again when it is there again"));
        }
        if self.fleet.get(address).is_some() || !self.variables.of(address).is_empty() {
            return Err(Error::new(Code::AlreadyExists, format!("the name {} is taken", address.name))
                .next("choose another name, or leave it away"));
        }
        let spawned = counts.get(&parent.address()).copied().unwrap_or(0);
        self.spawned_use(parent).admit(&planned.policy, &planned.root, spawned, planned.share)?;
        let child = self.child(parent, planned, address)?;
        self.fleet.admit(Arc::clone(&child), &Ceilings::of(&self.current()))?;
        if let Err(error) = self.journal.sandbox_creating(&child) {
            self.fleet.take_out(&child);
            return Err(error);
        }
        *counts.entry(parent.address()).or_default() += 1;
        let counted =
            Counted { inner: Arc::clone(self), parent: parent.address(), recorded: AtomicBool::new(false) };
        Ok((child, counted))
    }

    fn child(&self, parent: &Sandbox, planned: &Planned, address: &Address) -> Result<Arc<Sandbox>> {
        let (id, now) = (SandboxId::fresh(), wall_clock_ms());
        let lives = i64::try_from(planned.lives.as_millis()).unwrap_or(i64::MAX);
        let spec = SandboxSpec {
            tier: planned.tier,
            image: planned.image.clone(),
            limits: Limits {
                cpus: planned.share.cpus,
                memory: planned.share.memory,
                ..parent.spec.limits.clone()
            },
            lifetime: Lifetime::Named,
            // A volume of its own: what somebody left under the same name is not for children.
            volume: Some(Address::new(parent.namespace.clone(), id.as_str().parse()?)),
            allow_downgrade: parent.spec.allow_downgrade,
            fixed_etc: false,
            control: planned.depth < DEEPEST && has_control(planned.policy.derived().as_ref()),
            child: Some(ChildOf {
                name: address.clone(),
                parent: parent.address(),
                parent_id: parent.id.clone(),
                root: parent.root(),
                depth: planned.depth,
                expires_at_ms: now.saturating_add(lives),
            }),
        };
        let backend = self.backend_for(&spec)?;
        let (origin, terms) = (Origin::Explicit, Terms::default());
        let profile = parent.profile.as_ref().and_then(MadeBy::of_child);
        let (grants, authority) = (Vec::new(), None);
        let backend_name = backend.name().to_owned();
        let stored = StoredSpec { origin, backend: backend_name, spec, terms, profile, grants, authority };
        Ok(Arc::new(Sandbox::new(id, address.clone(), stored, backend, now)))
    }
}

/// The name of a child that was given none.
fn numbered(parent: &SandboxName, number: u32) -> Result<SandboxName> {
    const LONGEST: usize = 63;
    let ending = format!("-child-{number:04}");
    let room = LONGEST.saturating_sub(ending.len());
    // Names are ASCII, so every place is a border of characters.
    let beginning = parent.as_str().get(..room).unwrap_or(parent.as_str());
    format!("{beginning}{ending}").parse()
}

fn denied(message: String) -> Error {
    Error::new(Code::PermissionDenied, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_without_a_name_is_numbered_after_its_parent() {
        let name = |text: &str| text.parse::<SandboxName>().unwrap();
        assert_eq!(numbered(&name("box"), 7).unwrap().as_str(), "box-child-0007");
        let long = numbered(&name(&"x".repeat(63)), 12_345).unwrap();
        assert!(long.as_str().len() <= 63 && long.as_str().ends_with("-child-12345"), "{long}");
    }
}
