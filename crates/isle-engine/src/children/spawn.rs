//! Spawning a child. What it may be is decided at once; whether there is room, and that it has its
//! place, in one step under one lock, so that any number of spawns at once stay within the budget.

use std::sync::Arc;
use std::time::Duration;

use isle_core::clock::{boot_clock_ms, wall_clock_ms};

use super::budget::Share;
use super::policy::SpawnPolicy;
use super::{Children, DEEPEST, has_control};
use crate::context::CallContext;
use crate::events::EventKind;
use crate::journal::Actor;
use crate::profile::MadeBy;
use crate::sandbox::{Birth, Ceilings, CountedChild, Origin, Sandbox, SandboxState, StoredSpec, Terms};
use isle_core::backend::{ChildOf, Lifetime, Limits, SandboxSpec, Tier};
use isle_core::values::{Address, ByteSize, ChildName, SandboxId, SandboxName, Span};
use isle_core::{Code, Error, Result};

/// Names that are tried before a spawn without a name gives up.
const NAMES: usize = 10_000;

/// What a child is to be; `None` leaves it to the policy.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpawnRequest {
    pub(crate) name: Option<ChildName>,
    pub(crate) image: Option<String>,
    pub(crate) tier: Option<Tier>,
    pub(crate) cpus: Option<f64>,
    pub(crate) memory: Option<ByteSize>,
    pub(crate) ttl: Option<Span>,
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

impl Children {
    /// Spawns a child of the sandbox of that name.
    pub(crate) async fn spawn(
        self: &Arc<Self>,
        context: &CallContext,
        parent: &SandboxName,
        request: SpawnRequest,
    ) -> Result<Arc<Sandbox>> {
        let parent = self.sandboxes.looked_at(context, parent).await?;
        self.spawn_from(context, parent, request).await
    }

    /// Spawns a child of this very incarnation.
    pub(crate) async fn spawn_from(
        self: &Arc<Self>,
        context: &CallContext,
        parent: Arc<Sandbox>,
        request: SpawnRequest,
    ) -> Result<Arc<Sandbox>> {
        self.tasks.refuse_when_stopping()?;
        let planned = self.plan_child(&parent, &request)?;
        // In a task of its own: a caller who goes away must not leave a half-made sandbox behind.
        let (children, actor) = (Arc::clone(self), Actor::of(context));
        let spawning = self.tasks.spawn(async move {
            let child = match request.name {
                Some(name) => children.spawn_named(&actor, &parent, &planned, name).await?,
                None => children.spawn_numbered(&actor, &parent, &planned).await?,
            };
            children.sandboxes.end_in_time(&child);
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
        let Some((policy, root)) = self.policies_of(parent) else {
            let root = match parent.root() {
                root if root.namespace.is_default() => root.to_string(),
                root => format!("\"{root}\""),
            };
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
        let first = self.spawned(&parent.address());
        for number in (first..).take(NAMES) {
            let name = numbered(number.saturating_add(1))?;
            let address = Address::new(parent.namespace.clone(), parent.name.child(&name)?);
            if self.fleet.get(&address).is_some() {
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
        name: ChildName,
    ) -> Result<Arc<Sandbox>> {
        if name.as_str().parse::<SandboxId>().is_ok() {
            return Err(Error::new(Code::InvalidName, format!("{name} looks like the id of a sandbox"))
                .next("choose another name, or leave it away"));
        }
        let address = Address::new(parent.namespace.clone(), parent.name.child(&name)?);
        let gate = self.fleet.gate(&address);
        let _held = gate.lock().await;
        self.sandboxes.finish_wipe(actor, &address).await?;
        let (child, counted) = self.put_child(parent, planned, &address)?;
        let child = self.sandboxes.bring_up(actor, child, Birth::Child(&counted)).await?;
        self.notifier.sandbox(EventKind::ChildSpawned, &child, "");
        Ok(child)
    }

    /// Counts, and puts the child where it is counted by the next one. It is on record before anybody can
    /// use it.
    fn put_child(
        &self,
        parent: &Sandbox,
        planned: &Planned,
        address: &Address,
    ) -> Result<(Arc<Sandbox>, CountedChild)> {
        let mut counts = self.spawn_counts.hold();
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
        self.in_use(parent).admit(&planned.policy, &planned.root, spawned, planned.share)?;
        let child = self.child(parent, planned, address)?;
        self.fleet.admit(Arc::clone(&child), &Ceilings::of(&self.settings.current()))?;
        if let Err(error) = self.journal.sandbox_creating(&child) {
            self.fleet.take_out(&child);
            return Err(error);
        }
        let counted = CountedChild::add(&self.spawn_counts, &mut counts, parent.address());
        Ok((child, counted))
    }

    fn child(&self, parent: &Sandbox, planned: &Planned, address: &Address) -> Result<Arc<Sandbox>> {
        let (id, now) = (SandboxId::fresh(), wall_clock_ms());
        let lives = i64::try_from(planned.lives.as_millis()).unwrap_or(i64::MAX);
        let spec = SandboxSpec {
            // As its parent, where the tier is the same.
            backend: (planned.tier == parent.spec.tier).then(|| parent.backend.name()),
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
        let backend = self.backends.for_spec(&spec)?;
        let (origin, terms) = (Origin::Explicit, Terms::default());
        let profile = parent.profile.as_ref().and_then(MadeBy::of_child);
        let (grants, authority) = (Vec::new(), None);
        let backend_name = backend.name();
        let stored = StoredSpec { origin, backend: backend_name, spec, terms, profile, grants, authority };
        Ok(Arc::new(Sandbox::new(id, address.clone(), stored, backend, now)))
    }
}

/// The name of a child that was given none.
fn numbered(number: u32) -> Result<ChildName> {
    format!("child-{number:04}").parse()
}

fn denied(message: String) -> Error {
    Error::new(Code::PermissionDenied, message)
}
