//! Making named sandboxes: on first use, on request, and anew after one died. Intent is recorded
//! before anything exists, so whatever happens in between can be undone.

use std::sync::{Arc, Weak};
use std::time::Instant;

use isle_core::clock::wall_clock_ms;
use isle_fail::Point;
use isle_wire::GuestUser;

use super::Sandboxes;
use super::ceilings::{Ceilings, preflight, refuse_weaker};
use super::lease::{Lease, Over, Terms, on_the_wall};
use super::settings::{Chosen, Settings};
use super::spawn_counts::CountedChild;
use super::{Origin, Sandbox, SandboxState, StoredSpec, Wipe};
use crate::agent::AgentClient;
use crate::context::CallContext;
use crate::events::EventKind;
use crate::failpoint;
use crate::journal::{Actor, Audit};
use crate::metrics::SandboxFate;
use crate::profile::MadeBy;
use isle_api::timestamp;
use isle_core::backend::{Created, Keep, Lifetime, SandboxSpec};
use isle_core::values::{Address, GuestPath, SandboxId, SandboxName, Term};
use isle_core::{Code, Error, Result};

/// When the sandbox one connects to was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// Just now, for this caller: it must hold what was asked for.
    Now,
    /// By an earlier engine: what it holds is reported, not judged again.
    Earlier,
}

/// How a sandbox comes into the world.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Birth<'a> {
    /// By itself, or in the place of another, whose workspace may be emptied.
    Plain { emptied: bool },
    /// Spawned by another one, for which it counts.
    Child(&'a CountedChild),
}

impl Sandboxes {
    /// The sandbox of that name, made when missing and built anew when it died.
    pub(crate) async fn ensure(
        self: &Arc<Self>,
        context: &CallContext,
        name: &SandboxName,
    ) -> Result<Arc<Sandbox>> {
        if let Some(sandbox) = self.fleet.get(&context.address(name)) {
            sandbox.settled().await;
        }
        if let Some(sandbox) = self.usable(&context.address(name))? {
            return Ok(sandbox);
        }
        self.make_named(context, name, CreateReason::Used).await
    }

    /// The sandbox of that name, if it can be used as it is. One whose time is up is refused until it is
    /// removed, which is soon.
    fn usable(&self, address: &Address) -> Result<Option<Arc<Sandbox>>> {
        let Some(sandbox) = self.fleet.get(address) else { return Ok(None) };
        if sandbox.lease.has_expired() && sandbox.state() != SandboxState::Destroying {
            return Err(expired(&sandbox));
        }
        Ok(Some(sandbox).filter(|sandbox| sandbox.is_usable() && sandbox.lease.touch()))
    }

    /// The same for a call that says what the sandbox is to be. One that exists keeps what it was made with:
    /// deadlines and profile must be those, and whether it may hold less than its tier promises is settled.
    pub(crate) async fn ensure_as(
        self: &Arc<Self>,
        context: &CallContext,
        name: &SandboxName,
        settings: &Settings,
    ) -> Result<Arc<Sandbox>> {
        let Settings { ttl, idle, profile, backend, .. } = settings;
        let plain = ttl.is_none() && idle.is_none() && profile.is_none() && backend.is_none();
        let wanted = self.wanted(&settings.chosen(context, &self.config)?, &context.address(name))?;
        refuse_weaker(context, settings, &self.config)?;
        let as_asked = |sandbox: Arc<Sandbox>| {
            let differs = |asked: bool, same: bool| asked && !same;
            if differs(settings.ttl.is_some(), sandbox.terms.ttl == wanted.terms.ttl)
                || differs(settings.idle.is_some(), sandbox.terms.idle == wanted.terms.idle)
                || differs(settings.profile.is_some(), sandbox.profile == wanted.profile)
                || settings.backend.as_ref().is_some_and(|backend| *backend != sandbox.backend.name())
            {
                return Err(other_settings(&sandbox));
            }
            Ok(sandbox)
        };
        // What died and is built anew keeps its settings, too.
        let allow = settings.allow_downgrade == Some(true) && !self.config.allow_downgrade;
        if (plain && !allow) || self.fleet.get(&context.address(name)).is_some() {
            return self.ensure(context, name).await.and_then(as_asked);
        }
        self.make_named(context, name, CreateReason::Requested(Box::new(wanted.clone())))
            .await
            .and_then(as_asked)
    }

    /// Refuses settings that the host cannot, or the caller may not have.
    pub(crate) fn check_host(&self, context: &CallContext, settings: &Settings) -> Result<()> {
        refuse_weaker(context, settings, &self.config)?;
        preflight(settings, self.journal.store().directory())
    }

    /// What settings make of a name.
    pub(super) fn wanted(&self, chosen: &Chosen, address: &Address) -> Result<SandboxRequest> {
        let spec = chosen.spec(&self.settings.current(), Some(address.clone()))?;
        let terms = chosen.terms(&self.config, address)?;
        let profile = chosen.made_by();
        Ok(SandboxRequest { spec, terms, profile, emptied: false, spare: false })
    }

    /// Makes a named sandbox with settings of its own. One that exists with the same settings is
    /// the answer; with others, an error.
    pub(crate) async fn create_named(
        self: &Arc<Self>,
        context: &CallContext,
        name: &SandboxName,
        settings: &Settings,
    ) -> Result<Arc<Sandbox>> {
        if name.is_child() {
            return Err(Error::new(Code::InvalidName, format!("{name} is the name of a child"))
                .next("only spawn makes children; choose a name without a slash"));
        }
        let wanted = self.wanted(&settings.chosen(context, &self.config)?, &context.address(name))?;
        self.check_host(context, settings)?;
        if let Some(sandbox) = self.usable(&context.address(name))? {
            return same_settings(sandbox, &wanted);
        }
        let sandbox =
            self.make_named(context, name, CreateReason::Requested(Box::new(wanted.clone()))).await?;
        same_settings(sandbox, &wanted)
    }

    /// The sandbox an operation only looks into: a name nobody used is an error, except the default.
    pub(crate) async fn looked_at(
        self: &Arc<Self>,
        context: &CallContext,
        name: &SandboxName,
    ) -> Result<Arc<Sandbox>> {
        if *name == SandboxName::default_sandbox() {
            return self.ensure(context, name).await;
        }
        if let Some(sandbox) = self.fleet.get(&context.address(name)) {
            sandbox.settled().await;
        }
        self.existing(context, name).await
    }

    /// The sandbox of that name if it exists and lives, built anew if it died; never a new name.
    async fn existing(self: &Arc<Self>, context: &CallContext, name: &SandboxName) -> Result<Arc<Sandbox>> {
        match self.fleet.get(&context.address(name)) {
            Some(sandbox) if sandbox.lease.has_expired() => Err(expired(&sandbox)),
            Some(_) => self.ensure(context, name).await,
            None => Err(self.fleet.no_such_sandbox(&context.address(name))),
        }
    }

    /// The image of a sandbox, or the one it would be made from.
    pub(crate) fn image_of(&self, address: &Address) -> String {
        self.fleet.get(address).map_or_else(|| self.config.image.clone(), |known| known.spec.image.clone())
    }

    pub(super) async fn make_named(
        self: &Arc<Self>,
        context: &CallContext,
        name: &SandboxName,
        call: CreateReason,
    ) -> Result<Arc<Sandbox>> {
        if name.is_child() && self.fleet.get(&context.address(name)).is_none() {
            return Err(self.fleet.no_such_sandbox(&context.address(name)));
        }
        if name.as_str().parse::<SandboxId>().is_ok() {
            return Err(Error::new(Code::SandboxNotFound, format!("the one-shot sandbox {name} is gone"))
                .next("choose a name of your own; a named sandbox stays until it is destroyed"));
        }
        self.tasks.refuse_when_stopping()?;
        // In a task of its own: a caller who goes away must not leave a half-made sandbox behind.
        let (sandboxes, address, actor) = (Arc::clone(self), context.address(name), Actor::of(context));
        let making = self.tasks.spawn(async move {
            let gate = sandboxes.fleet.gate(&address);
            let _held = gate.lock().await;
            sandboxes.make_behind_gate(&actor, address, call).await
        });
        making.await.map_err(|error| Error::internal(format!("making the sandbox failed: {error}")))?
    }

    async fn make_behind_gate(
        self: &Arc<Self>,
        actor: &Actor,
        address: Address,
        call: CreateReason,
    ) -> Result<Arc<Sandbox>> {
        // A child whose end came while this waited is not made again.
        if address.name.is_child() && self.fleet.get(&address).is_none() {
            return Err(self.fleet.no_such_sandbox(&address));
        }
        self.finish_wipe(actor, &address).await?;
        let plain = || self.wanted(&Chosen::default(), &address);
        let (mut origin, mut wanted) = match call {
            CreateReason::Requested(wanted) => (Origin::Explicit, *wanted),
            CreateReason::Used => (Origin::Defaults, plain()?),
            CreateReason::Spare => (Origin::Defaults, SandboxRequest { spare: true, ..plain()? }),
        };
        if let Some(old) = self.fleet.get(&address) {
            if old.lease.has_expired() {
                // Its time was up and it could not be removed yet. Nothing of it is handed on.
                let audit = Audit::lifecycle(actor, "expire_sandbox", &old, Over::Ttl.as_str());
                self.remove_incarnation(&old, Keep::Workspace, &audit).await?;
                self.notifier.sandbox(EventKind::SandboxExpired, &old, Over::Ttl.as_str());
                let built = self.build(actor, origin, wanted, address, None).await?;
                self.notifier.sandbox(EventKind::SandboxCreated, &built, "");
                return Ok(built);
            }
            if old.is_usable() && old.lease.touch() {
                return Ok(old);
            }
            if old.spec.child.is_some() {
                self.refuse_end_of_child(&old)?;
                if origin == Origin::Explicit {
                    return same_settings(old, &wanted);
                }
            }
            // A sandbox with settings of its own keeps them when it is built anew by a plain call.
            if origin == Origin::Defaults && old.origin == Origin::Explicit {
                (origin, wanted) = (Origin::Explicit, SandboxRequest::of(&old));
            }
            let why = if old.drifted() { "its policy changed" } else { "it died" };
            let audit = Audit::lifecycle(actor, "rebuild_sandbox", &old, why);
            self.take_down(&old, &audit, None, None).await?;
            let built = self.build_in_place_of(actor, origin, wanted, old).await?;
            self.notifier.sandbox(EventKind::SandboxCreated, &built, why);
            return Ok(built);
        }
        let built = self.build(actor, origin, wanted, address, None).await?;
        self.notifier.sandbox(EventKind::SandboxCreated, &built, "");
        Ok(built)
    }

    pub(super) async fn build(
        self: &Arc<Self>,
        actor: &Actor,
        origin: Origin,
        wanted: SandboxRequest,
        address: Address,
        before: Option<&Sandbox>,
    ) -> Result<Arc<Sandbox>> {
        let SandboxRequest { spec, terms, profile, emptied, spare } = wanted;
        // A reset that was to empty the workspace may have been cut short.
        let emptied = emptied || self.wipes.is_due(&address, Wipe::Workspace);
        // The workspace of a sandbox that is replaced is where its backend has it.
        let kept = before.filter(|old| old.spec.tier == spec.tier).map(|old| old.backend.name());
        let spec = SandboxSpec { backend: spec.backend.clone().or(kept), ..spec };
        let backend = self.backends.for_spec(&spec)?;
        // What was granted belongs to the name for as long as that is not destroyed.
        let grants = before.map(|old| old.network.stored()).unwrap_or_default();
        let (backend_name, authority) = (backend.name(), None);
        let stored = StoredSpec { origin, backend: backend_name, spec, terms, profile, grants, authority };
        let mut sandbox =
            Sandbox::new(SandboxId::fresh(), address, stored, Arc::clone(&backend), wall_clock_ms());
        if let Some(before) = before {
            // Whoever takes another's place has what is left of its time.
            sandbox.lease = Lease::passed_on(terms, &before.lease);
        } else if spare {
            sandbox.lease = Lease::spare(terms);
        }
        let sandbox = Arc::new(sandbox);
        self.fleet.admit(Arc::clone(&sandbox), &Ceilings::of(&self.settings.current()))?;
        if let Err(error) = self.journal.sandbox_creating(&sandbox) {
            self.fleet.take_out(&sandbox);
            return Err(error);
        }
        self.bring_up(actor, sandbox, Birth::Plain { emptied }).await
    }

    /// Makes what is on record as being made, and known.
    pub(crate) async fn bring_up(
        self: &Arc<Self>,
        actor: &Actor,
        sandbox: Arc<Sandbox>,
        birth: Birth<'_>,
    ) -> Result<Arc<Sandbox>> {
        let begun = Instant::now();
        let backend = Arc::clone(&sandbox.backend);
        let made = async {
            failpoint(Point::CreateRecorded)?;
            let created = backend.create(&sandbox.id, &sandbox.spec).await?;
            failpoint(Point::CreateMade)?;
            let anchor = created.anchor.clone();
            self.connect(&sandbox, created, Made::Now).await?;
            failpoint(Point::CreateConnected)?;
            match birth {
                Birth::Plain { emptied } => {
                    if emptied {
                        // Before anybody may use it.
                        sandbox.agent()?.empty(&GuestPath::workspace(), GuestUser::Root).await?;
                        failpoint(Point::ResetEmptied)?;
                    }
                    let audit = Audit::lifecycle(actor, "create_sandbox", &sandbox, "made");
                    if emptied {
                        self.journal.sandbox_emptied(&sandbox, anchor, &audit)?;
                        self.wipes.done(&sandbox.address());
                    } else {
                        self.journal.sandbox_running(&sandbox, anchor, &audit)?;
                    }
                }
                Birth::Child(counted) => {
                    let audit = Audit::lifecycle(actor, "spawn_child", &sandbox, counted.parent());
                    self.journal.child_running(&sandbox, anchor, counted.parent_address(), &audit)?;
                    counted.on_record();
                }
            }
            failpoint(Point::CreateRunning)?;
            backend.confirm(&sandbox.id)?;
            failpoint(Point::CreateConfirmed)
        };
        if let Err(error) = made.await {
            tracing::warn!(sandbox = %sandbox.name, id = %sandbox.id, %error, "could not make the sandbox");
            self.metrics.became(&sandbox, SandboxFate::Failed);
            self.undo_build(&sandbox).await;
            return Err(error);
        }
        // Only now may others use it: whatever they do in it is undone by nobody.
        sandbox.set_state(SandboxState::Running);
        self.hold_parent(&sandbox);
        self.metrics.created(&sandbox, begun.elapsed());
        Ok(sandbox)
    }

    /// Removes a sandbox that nobody was told of, with all that was made for it. What cannot be removed
    /// now stays known, and the next call for that name tries again.
    async fn undo_build(&self, sandbox: &Arc<Sandbox>) {
        sandbox.set_state(SandboxState::Destroying);
        let undone = async {
            sandbox.backend.destroy(&sandbox.id, Keep::WhatWasBefore).await?;
            self.journal.forget_sandbox(&sandbox.id, None)
        };
        match undone.await {
            Ok(()) => self.fleet.take_out(sandbox),
            Err(error) => {
                tracing::warn!(sandbox = %sandbox.name, id = %sandbox.id, %error, "a half-made sandbox could not be removed");
            }
        }
    }

    /// Greets the agent of a sandbox that exists, and watches for its end.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        created: Created,
        made: Made,
    ) -> Result<()> {
        let (sandboxes, watched) = (Arc::downgrade(self), Arc::downgrade(sandbox));
        let ended = move || connection_ended(&sandboxes, &watched);
        let (agent, welcome) =
            AgentClient::connect(created.link, created.passed, created.welcome, &self.attention, ended)
                .await?;
        if made == Made::Now {
            super::refuse_downgrade(&sandbox.spec, &created.containment, &welcome.missing)?;
        }
        let containment = super::containment_as_seen(created.containment, &welcome);
        self.secrets.recall_secrets(sandbox);
        sandbox.is_up(agent, containment);
        self.listen_to_control(sandbox);
        self.network.open_granted_gate(sandbox).await;
        Ok(())
    }
}

/// What a sandbox is to be.
#[derive(Debug, Clone)]
pub(super) struct SandboxRequest {
    pub(super) spec: SandboxSpec,
    pub(super) terms: Terms,
    pub(super) profile: Option<MadeBy>,
    /// Whether its workspace begins empty, whatever it held before.
    pub(super) emptied: bool,
    /// Whether nobody asked for it yet.
    pub(super) spare: bool,
}

/// Why a sandbox is made.
#[derive(Debug)]
pub(super) enum CreateReason {
    /// Somebody uses the name, and did not say what it is to be.
    Used,
    /// Somebody said.
    Requested(Box<SandboxRequest>),
    /// Somebody may use the name soon.
    Spare,
}

impl SandboxRequest {
    /// The same as another one.
    pub(super) fn of(sandbox: &Sandbox) -> Self {
        Self {
            spec: sandbox.spec.clone(),
            terms: sandbox.terms,
            profile: sandbox.profile.clone(),
            emptied: false,
            spare: false,
        }
    }
}

/// Says that a sandbox's time is up.
pub(crate) fn expired(sandbox: &Sandbox) -> Error {
    let at = sandbox.lease.expires().map(on_the_wall).map(timestamp);
    Error::new(Code::Expired, format!("the time of the sandbox {} is up", sandbox.name))
        .detail("expired_at", at)
        .next("it is being removed; after that, running a command in that name makes a fresh one with the same workspace")
        .next("give a longer ttl when you make it, and use extend before its time is up")
}

fn same_settings(sandbox: Arc<Sandbox>, wanted: &SandboxRequest) -> Result<Arc<Sandbox>> {
    if sandbox.has_spec(&wanted.spec) && sandbox.terms == wanted.terms && sandbox.profile == wanted.profile {
        return Ok(sandbox);
    }
    Err(other_settings(&sandbox))
}

fn other_settings(sandbox: &Sandbox) -> Error {
    let have = serde_json::json!({
        "ttl": Term::from(sandbox.terms.ttl),
        "idle": Term::from(sandbox.terms.idle),
        "profile": sandbox.profile.as_ref().map(|profile| &profile.name),
        "backend": sandbox.backend.name(),
        "spec": sandbox.spec,
    });
    Error::new(Code::AlreadyExists, format!("the sandbox {} exists with other settings", sandbox.name))
        .detail("settings", have)
        .next("use it as it is, or destroy it first; its workspace stays unless wiped")
        .next("extend moves the deadline of a sandbox that exists")
}

/// The connection of a sandbox ended: unless that was wanted, the sandbox has failed.
fn connection_ended(sandboxes: &Weak<Sandboxes>, sandbox: &Weak<Sandbox>) {
    let (Some(sandboxes), Some(sandbox)) = (sandboxes.upgrade(), sandbox.upgrade()) else { return };
    if sandboxes.tasks.is_stopping()
        || sandbox.spec.lifetime == Lifetime::OneShot
        // Whoever reaches it tries again, or says that it is dead.
        || sandbox.is_reconnecting()
        // `state()` already says failed for a closed connection; only a wanted end says otherwise.
        || sandbox.state() == SandboxState::Destroying
        || sandbox.state() == SandboxState::Creating
    {
        return;
    }
    tracing::warn!(sandbox = %sandbox.name, id = %sandbox.id, "the sandbox died");
    sandbox.set_state(SandboxState::Failed);
    sandboxes.journal.sandbox_failed(&sandbox, "its agent is gone");
    sandboxes.notifier.sandbox(EventKind::SandboxLost, &sandbox, "its agent is gone");
    sandboxes.end_children_later(&sandbox);
}
